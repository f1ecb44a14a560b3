//! Asks the upstream for what no block tells.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tracing::debug;

use super::client::CallError;
use super::pool::Pool;
use crate::relayed::{CONSTANT, CURRENT};
use crate::serving::Serving;
use crate::status::{Phase, Status};

/// Nothing is asked for more often than this, however fast heads come.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a refusal that names none.
const THROTTLED: Duration = Duration::from_secs(10);

/// Asks for what the upstream is after each connection to it, and for prices at each head that is
/// published while its head is followed. Following never waits for this: what does not come is
/// not served.
pub(super) async fn run(pool: Arc<Pool>, serving: Arc<Serving>, status: Arc<Status>) {
    let mut heads = serving.heads();
    loop {
        let methods = tokio::select! {
            () = serving.relayed.connected() => &CONSTANT[..],
            changed = heads.changed() => match changed {
                Ok(()) if status.words().phase == Phase::Following => &CURRENT[..],
                Ok(()) => &[],
                Err(_) => return,
            },
        };
        let pause = relay_all(&pool, &serving, methods).await;
        sleep(pause.max(PAUSE)).await;
    }
}

/// Asks for results, and says for how long the upstream wants to be left alone.
async fn relay_all(pool: &Pool, serving: &Serving, methods: &[&'static str]) -> Duration {
    let Some((_, upstream)) = pool.admitted().into_iter().next() else { return Duration::ZERO };
    if let Some(left) = upstream.resting() {
        return left;
    }
    for method in methods {
        upstream.charge(1);
        match upstream.client.call(method, "[]").await {
            // Before Apricot Phase 3 there is no base fee, says the node.
            Ok(result) => {
                let null = Bytes::from_static(b"null");
                serving.relayed.set(method, Some(result.unwrap_or(null)));
            }
            Err(CallError::Rpc { .. }) => serving.relayed.set(method, None),
            Err(CallError::Throttled { after, .. }) => {
                let after = after.unwrap_or(THROTTLED);
                upstream.rest(after);
                return after;
            }
            Err(error) => debug!(method, %error, "not relayed"), // the old result ages
        }
    }
    Duration::ZERO
}
