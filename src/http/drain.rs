//! The end of connections that a stopping server tells.

use tokio::sync::watch;

/// Waits until connections are to end.
pub(crate) async fn draining(drain: &mut watch::Receiver<bool>) {
    let _ = drain.wait_for(|drain| *drain).await; // an error says it too: the sender is gone
}
