//! The embedded development chain, as `serve --dev` runs it.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use neve_devnet::{Config, DevnetThread};

/// Starts a chain that makes `rate` blocks a second, on a thread of its own: signing blocks must
/// not hold up the one that follows them. It ends when what this returns is dropped.
pub(crate) async fn start(rate: f64) -> io::Result<DevnetThread> {
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    // With no rate the clock of the chain stands, but its blocks are still a second apart.
    let spacing = if rate > 0.0 { rate } else { 1.0 };
    let config = Config { rate, ..Config::dev(spacing, unix_ms as u64) };
    // It brings a runtime of its own, which must not start on a thread that runs another.
    tokio::task::spawn_blocking(|| DevnetThread::start(config)).await.map_err(io::Error::other)?
}
