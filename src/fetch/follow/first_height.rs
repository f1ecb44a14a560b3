//! First height of an empty store.

use tracing::warn;

use crate::config::StartAt;
use crate::fetch::HeightFetcher;

/// Returns the height at which an empty store begins.
pub(super) async fn first_height(start: StartAt, source: &HeightFetcher, head: u64) -> u64 {
    match start {
        StartAt::Height(start) => {
            // neve stores nothing until the chain is there, and may seem to hang.
            if start > head + 1 {
                warn!(start, upstream_head = head, "start above the upstream head");
            }
            start
        }
        StartAt::BeforeHead(0) => source.start().await.unwrap_or(head).min(head),
        StartAt::BeforeHead(back) => head.saturating_sub(back),
    }
}
