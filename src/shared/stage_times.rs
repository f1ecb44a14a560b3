//! Time that ingest spends in each stage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Time spent in each stage, in nanoseconds, over all threads.
#[derive(Debug, Default)]
pub(crate) struct StageTimes {
    /// Heights under way, whatever they wait for.
    pub(crate) fetch: AtomicU64,
    /// Parsing and proving.
    pub(crate) prove: AtomicU64,
    /// Cutting into parts, and compressing.
    pub(crate) cut: AtomicU64,
}

/// Adds the time since `from` and gives now.
pub(crate) fn add_elapsed(to: &AtomicU64, from: Instant) -> Instant {
    let now = Instant::now();
    to.fetch_add(now.duration_since(from).as_nanos() as u64, Ordering::Relaxed);
    now
}
