//! Counts of requests.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::lock::lock;

/// Names that are counted each for itself; others are counted together.
const NAMES_MAX: usize = 64;
/// Longest name that is counted for itself.
const NAME_BYTES_MAX: usize = 64;

/// Counts of a node.
#[derive(Debug, Default)]
pub struct Counters {
    calls: Mutex<BTreeMap<String, u64>>,
    pub(crate) http_requests: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) websockets: AtomicU64,
    pub(crate) open_websockets: AtomicU64,
    pub(crate) subscriptions: AtomicU64,
    pub(crate) heads: AtomicU64,
}

impl Counters {
    /// Calls of a method, over HTTP and WebSocket, whatever became of them. Of methods that are not
    /// among the first 64 that were called the count is zero: see [`Self::OTHER`].
    pub fn calls(&self, method: &str) -> u64 {
        lock(&self.calls).get(method).copied().unwrap_or_default()
    }

    /// The name under which [`Self::calls`] has the calls that have none of their own.
    pub const OTHER: &str = "other";

    /// All methods that were called.
    pub fn all_calls(&self) -> BTreeMap<String, u64> {
        lock(&self.calls).clone()
    }

    /// Bodies that came over HTTP.
    pub fn http_requests(&self) -> u64 {
        self.http_requests.load(Ordering::Relaxed)
    }

    /// Connections that were opened.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// WebSockets that were opened.
    pub fn websockets(&self) -> u64 {
        self.websockets.load(Ordering::Relaxed)
    }

    /// WebSockets that are open now.
    pub fn open_websockets(&self) -> u64 {
        self.open_websockets.load(Ordering::Relaxed)
    }

    /// Subscriptions that were made.
    pub fn subscriptions(&self) -> u64 {
        self.subscriptions.load(Ordering::Relaxed)
    }

    /// Heads that were sent to subscribers.
    pub fn heads(&self) -> u64 {
        self.heads.load(Ordering::Relaxed)
    }

    pub(crate) fn call(&self, method: &str) {
        let mut calls = lock(&self.calls);
        if let Some(count) = calls.get_mut(method) {
            *count += 1;
            return;
        }
        // A fuzzer calls any number of names.
        let own = calls.len() < NAMES_MAX && method.len() <= NAME_BYTES_MAX;
        let name = if own { method } else { Self::OTHER };
        *calls.entry(name.to_owned()).or_default() += 1;
    }
}

pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let counters = Counters::default();
        (0..1_000).for_each(|number| counters.call(&format!("method_{number}")));
        counters.call("method_3");
        counters.call(&"x".repeat(1_000));
        assert_eq!(counters.calls("method_3"), 2);
        assert!(counters.all_calls().len() <= NAMES_MAX + 1);
        assert_eq!(counters.all_calls().values().sum::<u64>(), 1_002);
    }
}
