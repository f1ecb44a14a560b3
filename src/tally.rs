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

/// What a subscriber is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WsKind {
    /// New heads.
    Heads,
    /// Logs.
    Logs,
}

/// The label of a [`WsKind`].
pub(crate) const WS_KINDS: [(WsKind, &str); 2] =
    [(WsKind::Heads, "newHeads"), (WsKind::Logs, "logs")];

/// Why a WebSocket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WsEnd {
    /// The client or the network ended it.
    Client,
    /// The client fell too far behind.
    Slow,
    /// It read nothing for too long.
    Unread,
    /// It did not answer a ping.
    Ping,
    /// A message was too long.
    Size,
    /// Messages take all the room.
    Room,
    /// A frame was against the protocol.
    Protocol,
    /// A message was not JSON.
    Malformed,
    /// A stored block could not be read.
    Damaged,
    /// The server stops.
    Drain,
}

/// The label of a [`WsEnd`].
pub(crate) const WS_ENDS: [(WsEnd, &str); 10] = [
    (WsEnd::Client, "client"),
    (WsEnd::Slow, "slow"),
    (WsEnd::Unread, "unread"),
    (WsEnd::Ping, "ping"),
    (WsEnd::Size, "size"),
    (WsEnd::Room, "room"),
    (WsEnd::Protocol, "protocol"),
    (WsEnd::Malformed, "malformed"),
    (WsEnd::Damaged, "damaged"),
    (WsEnd::Drain, "drain"),
];

/// A method that is not served has this index.
const OTHER: usize = Method::ALL.len();

/// The counts of one thread.
#[derive(Debug)]
#[repr(align(128))] // two cache lines: the prefetcher fetches pairs
pub(crate) struct Tally {
    calls: [[AtomicU64; OUTCOMES.len()]; OTHER + 1],
    /// HTTP requests, of any kind.
    pub requests: AtomicU64,
    /// Those of them that went the short way: POST of JSON in the plainest form.
    pub plain: AtomicU64,
    /// Requests refused before JSON-RPC: method, path, content type, size.
    pub refused: AtomicU64,
    /// Bytes of reply bodies.
    pub bytes: AtomicU64,
    /// Connections that were closed because the other side was too slow.
    pub timeouts: AtomicU64,
    /// Requests that were handed to a thread that may wait for the disk.
    pub handed_over: AtomicU64,
    /// WebSockets that were opened.
    pub ws_opened: AtomicU64,
    ws_ended: [AtomicU64; WS_ENDS.len()],
    /// Subscriptions that were opened and ended, by kind.
    ws_subscribed: [[AtomicU64; 2]; WS_KINDS.len()],
    ws_notified: [AtomicU64; WS_KINDS.len()],
}

impl Default for Tally {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            calls: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            requests: zero(),
            plain: zero(),
            refused: zero(),
            bytes: zero(),
            timeouts: zero(),
            handed_over: zero(),
            ws_opened: zero(),
            ws_ended: std::array::from_fn(|_| zero()),
            ws_subscribed: std::array::from_fn(|_| [zero(), zero()]),
            ws_notified: std::array::from_fn(|_| zero()),
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

/// Of WebSockets. What is open is what was opened less what ended: read from another thread in
/// between, it may be off by one for a moment, and is never below zero.
impl Tally {
    /// Counts the end of a WebSocket.
    pub(crate) fn ws_end(&self, why: WsEnd) {
        add(&self.ws_ended[why as usize], 1);
    }

    /// How many ended so.
    pub(crate) fn ws_ended(&self, why: WsEnd) -> u64 {
        self.ws_ended[why as usize].load(Ordering::Relaxed)
    }

    /// WebSockets that are open.
    pub(crate) fn ws_open(&self) -> u64 {
        let ended: u64 = WS_ENDS.iter().map(|(why, _)| self.ws_ended(*why)).sum();
        self.ws_opened.load(Ordering::Relaxed).saturating_sub(ended)
    }

    /// Counts a new subscription, from whatever thread.
    pub(crate) fn ws_subscribed(&self, kind: WsKind) {
        self.ws_subscribed[kind as usize][0].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of one, from whatever thread.
    pub(crate) fn ws_unsubscribed(&self, kind: WsKind) {
        self.ws_subscribed[kind as usize][1].fetch_add(1, Ordering::Relaxed);
    }

    /// Subscriptions that are open.
    pub(crate) fn ws_subscriptions(&self, kind: WsKind) -> u64 {
        let [opened, ended] = &self.ws_subscribed[kind as usize];
        let ended = ended.load(Ordering::Relaxed);
        opened.load(Ordering::Relaxed).saturating_sub(ended)
    }

    /// Counts a notification.
    pub(crate) fn ws_notified(&self, kind: WsKind) {
        add(&self.ws_notified[kind as usize], 1);
    }

    /// Notifications so far.
    pub(crate) fn ws_notifications(&self, kind: WsKind) -> u64 {
        self.ws_notified[kind as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels stand at the index that counts have.
    #[test]
    fn every_label_is_in_its_place() {
        assert!(WS_ENDS.iter().enumerate().all(|(at, (why, _))| *why as usize == at));
        assert!(WS_KINDS.iter().enumerate().all(|(at, (kind, _))| *kind as usize == at));
    }

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
