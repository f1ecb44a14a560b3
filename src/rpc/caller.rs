//! The client of a body: its transport, its calls and the memory of its response.

use std::time::{Duration, Instant};

use neve_jsonrpc::{Message, envelope};
use smallvec::SmallVec;

use crate::body::AcceptEncoding;
use crate::rpc::cursors::{Subscriptions, UndoLog};
use crate::shared::{Account, Meter, MethodLabel, Outcome, ThreadCounters, Work};

/// Bytes of ids that a response repeats without a reservation made before.
const IDS_FREE_BYTES: usize = 4 << 10;

/// Outcomes of the calls of a body. They count when the response goes out, so work that another
/// thread repeats counts once.
#[derive(Debug, Default)]
pub(crate) struct Calls(SmallVec<[(MethodLabel, Outcome); 4]>);

impl Calls {
    pub(super) fn note(&mut self, method: MethodLabel, outcome: Outcome) {
        self.0.push((method, outcome));
    }

    /// Returns the source of the answers, as `x-neve` names it; `None` without a counted call.
    pub(crate) fn source(&self) -> Option<&'static str> {
        let is_miss = |outcome: &Outcome| matches!(outcome, Outcome::Miss(_));
        let misses = self.0.iter().filter(|(_, outcome)| is_miss(outcome)).count();
        match (misses, self.0.len() - misses) {
            (0, 0) => None,
            (0, _) => Some("hit"),
            (_, 0) => Some("miss"),
            _ => Some("mixed"),
        }
    }

    /// Adds the outcomes and the time of each call to the counters of a thread.
    pub(crate) fn count(self, counters: &ThreadCounters, took: Duration) {
        for (method, outcome) in self.0 {
            counters.call(method, outcome);
            counters.time(method, outcome, took);
        }
    }

    /// Adds the outcomes, and leaves the times to the end of this thread's wake-up.
    pub(crate) fn count_at_end(self, counters: &ThreadCounters, woke: Instant) {
        for (method, outcome) in self.0 {
            counters.call(method, outcome);
            counters.time_later(method, outcome, woke);
        }
    }

    /// Adds the outcomes of calls for an upstream, whose times come later.
    pub(super) fn count_untimed(self, counters: &ThreadCounters) -> RelayedCalls {
        self.0.iter().for_each(|(method, outcome)| counters.call(*method, *outcome));
        RelayedCalls(self)
    }

    /// The newest call, if it is a miss.
    pub(super) fn newest_miss(&self) -> Option<(MethodLabel, Outcome)> {
        self.0.last().copied().filter(|(_, outcome)| matches!(outcome, Outcome::Miss(_)))
    }
}

/// Calls of a body for an upstream, without their times.
#[derive(Debug, Default)]
pub(crate) struct RelayedCalls(Calls);

impl RelayedCalls {
    /// Adds the time of each call. Those that neve did not answer are relayed ones.
    pub(crate) fn time(self, counters: &ThreadCounters, took: Duration) {
        for (method, outcome) in self.0.0 {
            match outcome {
                Outcome::Miss(_) => counters.time_relayed(method, took),
                answered => counters.time(method, answered, took),
            }
        }
    }
}

/// Client of a body, and its calls so far.
pub(super) struct Caller<'s> {
    pub(super) over: Transport<'s>,
    pub(super) work: &'s Work<'s>,
    pub(super) calls: Calls,
    /// Meter of the response's memory.
    pub(super) memory: Meter<'s>,
    /// Changes to undo if the batch is refused.
    pub(super) changes: UndoLog,
}

/// Transport of a message, and allowed forms of the response.
pub(super) enum Transport<'s> {
    /// HTTP, with the codings that the client accepts.
    Http(AcceptEncoding),
    /// A WebSocket, which can get notifications later.
    Socket(&'s mut Subscriptions),
}

impl<'s> Caller<'s> {
    pub(super) fn new(over: Transport<'s>, work: &'s Work<'s>, account: Account<'s>) -> Self {
        let memory = Meter::new(account);
        Self { over, work, calls: Calls::default(), memory, changes: UndoLog::default() }
    }

    pub(super) fn accepts(&self) -> AcceptEncoding {
        match self.over {
            Transport::Http(accepts) => accepts,
            // A frame of a WebSocket has no content coding.
            Transport::Socket(_) => AcceptEncoding::default(),
        }
    }
}

/// Reserves the text of ids before it is written: each `<` of an id becomes six bytes.
pub(super) fn ids_fit(messages: &[Message<'_>], caller: &Caller<'_>) -> bool {
    let ids = || messages.iter().filter_map(Message::raw_id);
    let bytes: usize = ids().map(<[u8]>::len).sum();
    // Twice, because the text that gets them grows by doubling.
    bytes <= IDS_FREE_BYTES
        || caller.memory.covers(2 * ids().map(envelope::echoed_len).sum::<usize>())
}
