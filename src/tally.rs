//! Counts that the serving threads keep, each its own, and that are added up when asked for: no
//! request writes to a cache line that another thread writes to.

use std::sync::atomic::{AtomicU64, Ordering};

use neve_jsonrpc::Method;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With a result.
    Hit,
    /// With the node's own error, or its own null.
    Error,
    /// With a refusal: a full node must be asked.
    Miss,
}

/// The label of an [`Outcome`].
pub(crate) const OUTCOMES: [&str; 3] = ["hit", "error", "miss"];

/// A method that is not served has this index.
const OTHER: usize = Method::ALL.len();

/// The counts of one thread.
#[derive(Debug)]
#[repr(align(128))] // two cache lines: the prefetcher fetches pairs
pub(crate) struct Tally {
    calls: [[AtomicU64; OUTCOMES.len()]; OTHER + 1],
    /// HTTP requests, of any kind.
    pub requests: AtomicU64,
    /// Requests refused before JSON-RPC: method, path, content type, size.
    pub refused: AtomicU64,
    /// Bytes of reply bodies.
    pub bytes: AtomicU64,
    /// Connections that were closed because the other side was too slow.
    pub timeouts: AtomicU64,
}

impl Default for Tally {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            calls: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            requests: zero(),
            refused: zero(),
            bytes: zero(),
            timeouts: zero(),
        }
    }
}

/// Adds to a count that only this thread adds to, without a locked instruction.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl Tally {
    /// Counts a call; `None` is any method that is not served.
    pub(crate) fn call(&self, method: Option<Method>, outcome: Outcome) {
        let method = method.map_or(OTHER, |method| method as usize);
        add(&self.calls[method][outcome as usize], 1);
    }

    /// How often `method` ended so.
    pub(crate) fn calls(&self, method: Option<Method>, outcome: Outcome) -> u64 {
        let method = method.map_or(OTHER, |method| method as usize);
        self.calls[method][outcome as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_kept_apart() {
        let tally = Tally::default();
        tally.call(Some(Method::BlockReceipts), Outcome::Hit);
        tally.call(Some(Method::BlockReceipts), Outcome::Hit);
        tally.call(None, Outcome::Miss);
        assert_eq!(tally.calls(Some(Method::BlockReceipts), Outcome::Hit), 2);
        assert_eq!(tally.calls(Some(Method::BlockReceipts), Outcome::Miss), 0);
        assert_eq!(tally.calls(None, Outcome::Miss), 1);
    }
}
