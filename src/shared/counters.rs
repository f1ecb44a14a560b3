//! Counts that the serving threads keep, each its own, and that are added up when asked for: no
//! request writes to a cache line that another thread writes to.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use neve_jsonrpc::{Message, Method, OTHER_METHODS, other_methods};

use super::latency::{Latencies, RELAY, add};

/// Outcome of a call, as metrics count it: without what is missing and without the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered with a result.
    Hit,
    /// Answered with the node's own error, or its own null.
    Error,
    /// Refused: a full node must be asked.
    Miss(MissReason),
}

impl Outcome {
    /// Place of its label in [`OUTCOMES`].
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Hit => 0,
            Self::Error => 1,
            Self::Miss(_) => 2,
        }
    }
}

/// The label of an [`Outcome`].
pub(crate) const OUTCOMES: [&str; 3] = ["hit", "error", "miss"];

/// Reason of a miss, as metrics count it: a closed set of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissReason {
    /// The method is not served.
    NotServed,
    /// The height is below the served range.
    BelowRange,
    /// The height is above the head.
    AboveHead,
    /// No stored block or transaction has the hash.
    UnknownHash,
    /// Nothing is stored.
    Empty,
    /// The head is too old, or neve follows no upstream.
    StaleHead,
    /// neve was not near its upstream's head since the start.
    CatchingUp,
    /// The upstream has not told the value, or too long ago.
    NoValue,
    /// The filter is not of this neve.
    UnknownFilter,
    /// Stored data cannot be read.
    Unreadable,
    /// Another call of the batch is a miss.
    InBatch,
    /// Clients use too much memory.
    NoMemory,
}

/// The label of a [`MissReason`].
pub(crate) const MISS_REASONS: [(MissReason, &str); 12] = [
    (MissReason::NotServed, "not_served"),
    (MissReason::BelowRange, "below_range"),
    (MissReason::AboveHead, "above_head"),
    (MissReason::UnknownHash, "unknown_hash"),
    (MissReason::Empty, "empty"),
    (MissReason::StaleHead, "stale_head"),
    (MissReason::CatchingUp, "catching_up"),
    (MissReason::NoValue, "no_value"),
    (MissReason::UnknownFilter, "unknown_filter"),
    (MissReason::Unreadable, "unreadable"),
    (MissReason::InBatch, "in_batch"),
    (MissReason::NoMemory, "no_memory"),
];

/// Kind of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WsKind {
    /// A new head (`newHeads`).
    Heads,
    /// A log that matches (`logs`).
    Logs,
    /// Those that an upstream has.
    Relayed,
}

/// The label of a [`WsKind`].
pub(crate) const WS_KINDS: [(WsKind, &str); 3] =
    [(WsKind::Heads, "new_heads"), (WsKind::Logs, "logs"), (WsKind::Relayed, "relayed")];

/// Reason why a WebSocket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WsClose {
    /// The client or the network ended it.
    Client,
    /// The client fell too far behind.
    Lagging,
    /// The client read nothing for too long.
    WriteTimeout,
    /// The client did not answer a ping.
    PingTimeout,
    /// A message was too long.
    TooLarge,
    /// Clients use too much memory.
    Memory,
    /// Too many requests waited for an answer.
    Busy,
    /// A frame was against the protocol.
    Protocol,
    /// A message was not JSON.
    Malformed,
    /// A stored block could not be read.
    Unreadable,
    /// The server stops.
    Drain,
    /// The client's API key was dropped.
    Key,
    /// The upstream of a relayed subscription failed or left.
    Upstream,
}

/// The label of a [`WsClose`].
pub(crate) const WS_ENDS: [(WsClose, &str); 13] = [
    (WsClose::Client, "client"),
    (WsClose::Lagging, "lagging"),
    (WsClose::WriteTimeout, "write_timeout"),
    (WsClose::PingTimeout, "ping_timeout"),
    (WsClose::TooLarge, "too_large"),
    (WsClose::Memory, "memory"),
    (WsClose::Busy, "busy"),
    (WsClose::Protocol, "protocol"),
    (WsClose::Malformed, "malformed"),
    (WsClose::Unreadable, "unreadable"),
    (WsClose::Drain, "drain"),
    (WsClose::Key, "key"),
    (WsClose::Upstream, "upstream"),
];

/// Reasons for which a request is refused before JSON-RPC: the HTTP status, and its label. The last
/// one is for any other status.
pub(crate) const REFUSED: [(u16, &str); 11] = [
    (400, "bad_request"),
    (403, "host"),
    (404, "path"),
    (405, "method"),
    (413, "too_large"),
    (415, "media_type"),
    (417, "expectation"),
    (431, "headers"),
    (501, "transfer_coding"),
    (503, "busy"),
    (500, "failed"),
];

/// HTTP statuses of which responses are counted.
const STATUSES: RangeInclusive<u16> = 100..=599;
const STATUS_COUNT: usize = (*STATUSES.end() - *STATUSES.start()) as usize + 1;

/// Wait that a client let run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// For the next request.
    Idle,
    /// For the client to read a response.
    Write,
}

/// The label of a [`Timeout`].
pub(crate) const TIMEOUTS: [(Timeout, &str); 2] =
    [(Timeout::Idle, "idle"), (Timeout::Write, "write")];

/// A method as a label of metrics. The set of labels is closed, so clients cannot add to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MethodLabel(u8);

/// Label of every name that is not known.
const OTHER: usize = Method::ALL.len() + OTHER_METHODS;
const _: () = assert!(OTHER <= u8::MAX as usize, "labels take a byte");

impl MethodLabel {
    /// Label of a call, whether its method is served, not served or that of a subscription.
    pub(crate) fn of(message: &Message<'_>) -> Self {
        message.served().map_or_else(|| Self::other(&message.method()), Self::from)
    }

    fn other(name: &str) -> Self {
        let at = other_methods().position(|known| known == name);
        Self(at.map_or(OTHER, |at| Method::ALL.len() + at) as u8)
    }

    /// All labels with their names.
    pub(crate) fn all() -> impl Iterator<Item = (Self, &'static str)> {
        let served = Method::ALL.iter().map(|method| method.name());
        let names = served.chain(other_methods()).chain(["other"]);
        (0..=u8::MAX).map(Self).zip(names)
    }
}

impl From<Method> for MethodLabel {
    fn from(method: Method) -> Self {
        Self(method as u8)
    }
}

/// The counts of one thread.
#[derive(Debug)]
#[repr(align(128))] // two cache lines: the prefetcher fetches pairs
pub(crate) struct ThreadCounters {
    calls: [[AtomicU64; OUTCOMES.len()]; OTHER + 1],
    misses: Box<[[AtomicU64; MISS_REASONS.len()]; OTHER + 1]>,
    /// Times of calls.
    pub latencies: Latencies,
    /// HTTP requests on the full path.
    pub requests: AtomicU64,
    /// HTTP requests on the fast path: POST of JSON in the plainest form.
    pub plain: AtomicU64,
    responses: [AtomicU64; STATUS_COUNT],
    refused: [AtomicU64; REFUSED.len()],
    /// Bytes of reply bodies.
    pub bytes: AtomicU64,
    timeouts: [AtomicU64; TIMEOUTS.len()],
    /// Requests that were handed to a thread that may wait for the disk.
    pub handed_over: AtomicU64,
    /// WebSockets that were opened.
    pub ws_opened: AtomicU64,
    ws_ended: [AtomicU64; WS_ENDS.len()],
    /// Subscriptions that were opened and ended, by kind.
    ws_subscribed: [[AtomicU64; 2]; WS_KINDS.len()],
    ws_notified: [AtomicU64; WS_KINDS.len()],
}

impl Default for ThreadCounters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            calls: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            misses: Box::new(std::array::from_fn(|_| std::array::from_fn(|_| zero()))),
            latencies: Latencies::default(),
            requests: zero(),
            plain: zero(),
            responses: std::array::from_fn(|_| zero()),
            refused: std::array::from_fn(|_| zero()),
            bytes: zero(),
            timeouts: std::array::from_fn(|_| zero()),
            handed_over: zero(),
            ws_opened: zero(),
            ws_ended: std::array::from_fn(|_| zero()),
            ws_subscribed: std::array::from_fn(|_| [zero(), zero()]),
            ws_notified: std::array::from_fn(|_| zero()),
        }
    }
}

impl ThreadCounters {
    /// Counts a call.
    pub(crate) fn call(&self, method: MethodLabel, outcome: Outcome) {
        add(&self.calls[usize::from(method.0)][outcome.index()], 1);
        if let Outcome::Miss(reason) = outcome {
            add(&self.misses[usize::from(method.0)][reason as usize], 1);
        }
    }

    /// Counts the time of a call.
    pub(crate) fn time(&self, method: MethodLabel, outcome: Outcome, took: Duration) {
        self.latencies.count(method.0.into(), outcome.index(), took);
    }

    /// Counts the time of a call that an upstream was asked for.
    pub(crate) fn time_relayed(&self, method: MethodLabel, took: Duration) {
        self.latencies.count(method.0.into(), RELAY, took);
    }

    /// Counts the time of a call when the wake-up of this thread is over, which began at `woke`.
    pub(crate) fn time_later(&self, method: MethodLabel, outcome: Outcome, woke: Instant) {
        self.latencies.pend(method.0.into(), outcome.index(), woke);
    }

    /// Number of calls of `method` that ended so, by the place in [`OUTCOMES`].
    pub(crate) fn calls(&self, method: MethodLabel, outcome: usize) -> u64 {
        self.calls[usize::from(method.0)][outcome].load(Ordering::Relaxed)
    }

    /// Number of misses of `method` for this reason.
    pub(crate) fn misses(&self, method: MethodLabel, reason: MissReason) -> u64 {
        self.misses[usize::from(method.0)][reason as usize].load(Ordering::Relaxed)
    }
}

/// Counters of HTTP.
impl ThreadCounters {
    /// Counts a response.
    pub(crate) fn respond(&self, status: u16) {
        let at = usize::from(status.wrapping_sub(*STATUSES.start()));
        // Statuses outside of HTTP's range come from nowhere: no panic for them.
        if let Some(count) = self.responses.get(at) {
            add(count, 1);
        }
    }

    /// Responses so far, by status.
    pub(crate) fn responses(&self) -> impl Iterator<Item = (u16, u64)> {
        STATUSES.zip(self.responses.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Counts a request that is refused before JSON-RPC with `status`.
    pub(crate) fn refuse(&self, status: u16) {
        let at = REFUSED.iter().position(|(known, _)| *known == status);
        add(&self.refused[at.unwrap_or(REFUSED.len() - 1)], 1);
    }

    /// Requests refused so far, in the order of [`REFUSED`].
    pub(crate) fn refused(&self) -> [u64; REFUSED.len()] {
        std::array::from_fn(|at| self.refused[at].load(Ordering::Relaxed))
    }

    /// Counts a connection that is closed because a wait ran out.
    pub(crate) fn time_out(&self, wait: Timeout) {
        add(&self.timeouts[wait as usize], 1);
    }

    /// Connections closed so far because a wait ran out.
    pub(crate) fn timeouts(&self, wait: Timeout) -> u64 {
        self.timeouts[wait as usize].load(Ordering::Relaxed)
    }
}

/// Counters of WebSockets. Open is opened less ended: read from another thread in
/// between, it may be off by one for a moment, and is never below zero.
impl ThreadCounters {
    /// Counts the end of a WebSocket.
    pub(crate) fn ws_end(&self, why: WsClose) {
        add(&self.ws_ended[why as usize], 1);
    }

    /// Number of connections that ended so.
    pub(crate) fn ws_ended(&self, why: WsClose) -> u64 {
        self.ws_ended[why as usize].load(Ordering::Relaxed)
    }

    /// WebSockets that are open.
    pub(crate) fn ws_open(&self) -> u64 {
        let ended: u64 = WS_ENDS.iter().map(|(why, _)| self.ws_ended(*why)).sum();
        self.ws_opened.load(Ordering::Relaxed).saturating_sub(ended)
    }

    /// Counts a new subscription; any thread may call it.
    pub(crate) fn ws_subscribed(&self, kind: WsKind) {
        self.ws_subscribed[kind as usize][0].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a subscription; any thread may call it.
    pub(crate) fn ws_unsubscribed(&self, kind: WsKind) {
        self.ws_subscribed[kind as usize][1].fetch_add(1, Ordering::Relaxed);
    }

    /// Subscriptions that are open.
    pub(crate) fn ws_subscriptions(&self, kind: WsKind) -> u64 {
        let [opened, ended] = &self.ws_subscribed[kind as usize];
        let ended = ended.load(Ordering::Relaxed);
        // Two counts of another thread, read one after the other: the difference may be below zero.
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
        assert!(TIMEOUTS.iter().enumerate().all(|(at, (wait, _))| *wait as usize == at));
        assert!(MISS_REASONS.iter().enumerate().all(|(at, (why, _))| *why as usize == at));
        assert!(WS_KINDS.iter().enumerate().all(|(at, (kind, _))| *kind as usize == at));
    }

    #[test]
    fn refusal_with_an_unlisted_status_counts_as_failed() {
        let counters = ThreadCounters::default();
        [400, 404, 404, 500, 502].into_iter().for_each(|status| counters.refuse(status));
        assert_eq!(counters.refused(), [1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn response_counts_under_its_status_and_one_without_a_valid_status_nowhere() {
        let counters = ThreadCounters::default();
        [100, 421, 421, 599, 0, 99, 600].into_iter().for_each(|status| counters.respond(status));
        let counted: Vec<_> = counters.responses().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(100, 1), (421, 2), (599, 1)]);
    }

    #[test]
    fn calls_are_kept_apart() {
        let counters = ThreadCounters::default();
        let (receipts, other) =
            (MethodLabel::from(Method::BlockReceipts), MethodLabel(OTHER as u8));
        counters.call(receipts, Outcome::Hit);
        counters.call(receipts, Outcome::Hit);
        counters.call(other, Outcome::Miss(MissReason::NotServed));
        assert_eq!(counters.calls(receipts, 0), 2);
        assert_eq!(counters.calls(receipts, 2), 0);
        assert_eq!(counters.calls(other, 2), 1);
        let misses = MISS_REASONS.map(|(reason, _)| counters.misses(other, reason));
        assert_eq!((misses[0], misses.iter().sum()), (1, 1_u64));
    }

    #[test]
    fn every_known_method_has_a_label_of_its_own() {
        let all: Vec<_> = MethodLabel::all().collect();
        assert_eq!(all.len(), OTHER + 1);
        assert_eq!(all[OTHER], (MethodLabel(OTHER as u8), "other"));
        for (label, name) in &all[..OTHER] {
            let found =
                Method::from_name(name).map_or_else(|| MethodLabel::other(name), Into::into);
            assert_eq!(found, *label, "{name}");
        }
        assert_eq!(MethodLabel::other("eth_nonsense"), MethodLabel(OTHER as u8));
    }
}
