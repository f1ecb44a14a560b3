//! Asks the upstream for what no block tells.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tracing::debug;

use super::upstream::{CallError, Upstream};
use crate::relayed::{CONSTANT, CURRENT};
use crate::serving::Serving;
use crate::status::{Phase, Status};

/// Prices are asked for at each head, and not more often than this.
const PRICES_EVERY: Duration = Duration::from_secs(1);

/// Asks for what the upstream is.
pub(super) async fn constants(upstream: &Upstream, serving: &Serving) {
    for method in CONSTANT {
        relay(upstream, serving, method).await;
    }
}

/// Asks for prices at each head that is published while the upstream's head is followed.
pub(super) async fn prices(upstream: Upstream, serving: Arc<Serving>, status: Arc<Status>) {
    let mut heads = serving.heads();
    while heads.changed().await.is_ok() {
        if status.words().phase == Phase::Following {
            for method in CURRENT {
                relay(&upstream, &serving, method).await;
            }
        }
        sleep(PRICES_EVERY).await;
    }
}

async fn relay(upstream: &Upstream, serving: &Serving, method: &'static str) {
    match upstream.call(method, "[]").await {
        // Before Apricot Phase 3 there is no base fee, says the node.
        Ok(result) => {
            let null = Bytes::from_static(b"null");
            serving.relayed.set(method, Some(result.unwrap_or(null)));
        }
        Err(CallError::Rpc { .. }) => serving.relayed.set(method, None),
        Err(error) => debug!(method, %error, "not relayed"), // the old result ages
    }
}
