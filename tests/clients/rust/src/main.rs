//! The script of ../README.md with alloy's provider, and with "everyday" the steps of ../everyday.

mod everyday;
mod follow;
mod lines;
mod reads;

use alloy_network::AnyNetwork;
use alloy_provider::ProviderBuilder;

use lines::Settings;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [mode, url, file] = arguments.as_slice()
        && mode == "everyday"
    {
        return everyday::run(url, file).await;
    }
    session(&Settings::of(arguments)).await;
}

async fn session(settings: &Settings) {
    let url = settings.http.parse().expect("HTTP_URL is an address");
    let provider = ProviderBuilder::new()
        .disable_recommended_fillers()
        .network::<AnyNetwork>()
        .connect_http(url);
    reads::run(&provider, settings).await;
    if let Some(url) = &settings.ws {
        follow::run(url, settings.reconnect).await;
    }
}
