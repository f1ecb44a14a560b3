use super::*;
use crate::client::client_config;
use crate::config::Endpoint;
use crate::config::settings::{Config, LiveRates};

/// An upstream at an address where no server listens; with a stream and files if it is a mirror source.
pub(crate) fn upstream(is_source: bool) -> Arc<Upstream> {
    let endpoint = Endpoint::parse("http://127.0.0.1:9").expect("an address");
    let (config, _) = Config::from_flags(&["--dev"]).expect("they are allowed");
    let (tls, status) = (client_config(None).expect("it has defaults"), Arc::default());
    let client = RpcClient::new(&endpoint, tls.clone(), config.fetch, Arc::clone(&status));
    let source = || MirrorSource::new(&endpoint, tls, config.fetch, status);
    let rate = LiveRate::new(&LiveRates::default(), |rates| rates.upstream, None);
    let upstream = Upstream::new(endpoint.name.clone(), client, 1, rate);
    Arc::new(upstream.mirrored(is_source.then(|| Arc::new(source()))))
}

#[tokio::test]
async fn heights_that_an_upstream_lacked_long_ago_are_not_lacking_again() {
    let (upstream, now) = (upstream(false), Instant::now());
    let lacks = |height| upstream.state().lacking(height, now).is_some();
    upstream.mark_missing(999);
    upstream.mark_missing(5);
    assert!(lacks(999) && !lacks(1000), "the higher bound counts");
    upstream.state().lacks = Some((1000, now));
    upstream.mark_missing(5);
    assert!(lacks(5) && !lacks(6));
}

#[tokio::test]
async fn reason_of_a_penalty_is_the_error_until_a_height_comes_after_it() {
    let upstream = upstream(false);
    upstream.admit(9, 9, Rules::Helicon);
    let status = || {
        let UpstreamStatus { state, error, .. } = upstream.status(Rules::Helicon);
        (state, error)
    };
    assert_eq!(status(), ("up", None));
    upstream.penalize("parent_link", &format!("block 9: {}", "\n".repeat(5000)));
    let (state, error) = status();
    let error = error.expect("the reason");
    assert_eq!(state, "penalized");
    assert!(error.starts_with("block 9: ") && error.len() < 400, "{error}");
    upstream.gave_height();
    assert_eq!(status().1, Some(error.clone()), "other heights take nothing back");
    upstream.admit(9, 9, Rules::Helicon);
    assert_eq!(status().1, Some(error.clone()), "a new admission proves no block");
    let time = upstream.state().penalized.map(|(_, time)| (Instant::now(), time));
    upstream.state().penalized = time;
    assert_eq!(status(), ("up", Some(error)));
    upstream.eject("http", Phase::Waiting, ("gone".to_owned(), DOUBT));
    assert_eq!(status().1.as_deref(), Some("gone"), "the newest one");
    upstream.admit(9, 9, Rules::Helicon);
    upstream.gave_height();
    assert_eq!(status(), ("up", None));
}
