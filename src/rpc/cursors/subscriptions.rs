//! Subscriptions of one connection.

use std::ops::RangeInclusive;
use std::sync::Arc;

use neve_jsonrpc::{LogRange, RpcError, Subscription};
use neve_record::log_matcher::LogMatcher;

use super::filters::{new_id, no_memory};
use crate::shared::{Account, Holder, Reservation, ThreadCounters, WsKind};

/// The subscriptions of a connection.
#[derive(Default)]
pub(crate) struct Subscriptions {
    held: Vec<OpenSubscription>,
    /// Highest number of subscriptions.
    max: usize,
    /// Counters of the thread.
    counters: Arc<ThreadCounters>,
    /// Number of the frame from the client that is being answered.
    frame: u64,
    /// Subscriptions that this frame has ended, and their places, in case that it is refused.
    closed: Vec<(usize, OpenSubscription)>,
}

/// A subscription that is open.
pub(crate) struct OpenSubscription {
    pub(crate) id: String,
    pub(crate) topic: SubscriptionKind,
    /// The height that it is to hear of next; `None` until there is a first one.
    next: Option<u64>,
    /// True if it has heard of all there was: from then on it must keep up.
    live: bool,
    /// The frame that opened it.
    frame: u64,
    /// True while the response that has its id is not written: it is told nothing before.
    waits: bool,
    _reservation: Reservation,
    _counted: SubscriptionCount,
}

/// Counts a subscription for as long as it lives.
struct SubscriptionCount(Arc<ThreadCounters>, WsKind);

impl SubscriptionCount {
    fn new(counters: &Arc<ThreadCounters>, kind: WsKind) -> Self {
        counters.ws_subscribed(kind);
        Self(Arc::clone(counters), kind)
    }
}

impl Drop for SubscriptionCount {
    fn drop(&mut self) {
        self.0.ws_unsubscribed(self.1);
    }
}

/// Kind of the notifications.
pub(crate) enum SubscriptionKind {
    /// Header of each new head.
    Heads,
    /// The logs that match, of heights up to the last one.
    Logs(LogMatcher, Option<u64>),
    /// Those of a subscription that an upstream has; they come from there.
    Relayed,
}

/// Reason why there is no new subscription.
pub(crate) enum SubscriptionRefused {
    /// The caller is told.
    Error(RpcError),
    /// The height to begin at is not held any more, or nothing is.
    Missing(u64),
}

impl Subscriptions {
    /// None yet, and at most `max`. `counters` is that of the thread on which they live.
    pub(crate) fn new(max: usize, counters: Arc<ThreadCounters>) -> Self {
        Self { max, counters, ..Self::default() }
    }

    /// True if none of them is told of heights.
    pub(crate) fn is_empty(&self) -> bool {
        !self.held.iter().any(OpenSubscription::hears)
    }

    /// Error if no more may be opened besides `pending` ones.
    pub(crate) fn refusal(&self, pending: usize) -> Option<RpcError> {
        (self.held.len() + pending >= self.max).then(|| too_many(self.max))
    }

    /// True if an upstream has one of this id.
    pub(crate) fn have_relayed(&self, id: &str) -> bool {
        self.relayed().any(|relayed| relayed == id)
    }

    /// Ids of those that an upstream has.
    pub(crate) fn relayed(&self) -> impl Iterator<Item = &str> {
        self.held.iter().filter(|held| !held.is_own()).map(|held| held.id.as_str())
    }

    /// Adds one that an upstream opened. False if there is one of its id, or no memory.
    pub(crate) fn add_relayed(&mut self, id: &str, account: Account<'_>) -> bool {
        if self.held.iter().any(|held| held.id == id) {
            return false;
        }
        let topic = SubscriptionKind::Relayed;
        let bytes = topic.bytes() + id.len();
        let Some(reservation) = account.reserve(Holder::Filter, bytes) else {
            return false;
        };
        self.held.push(OpenSubscription {
            id: id.to_owned(),
            next: None,
            live: false,
            frame: 0, // no frame takes it back
            waits: false,
            _reservation: reservation,
            _counted: SubscriptionCount::new(&self.counters, topic.kind()),
            topic,
        });
        true
    }

    /// True if any of them is about logs.
    pub(crate) fn have_logs(&self) -> bool {
        self.held.iter().any(|held| matches!(held.topic, SubscriptionKind::Logs(..)))
    }

    /// Begins a frame, which [`Self::undo`] takes back.
    pub(crate) fn begin(&mut self) {
        // The frame before was not undone, so its endings hold.
        self.frame += 1;
        self.keep();
    }

    /// Ends a frame that was answered. The subscriptions that it ended are gone, and their places in the lists.
    pub(crate) fn keep(&mut self) {
        if !self.closed.is_empty() {
            self.closed = Vec::new();
            // `SubscriptionKind::bytes` has reserved no more free places.
            self.held.shrink_to(2 * self.held.len());
        }
    }

    /// Has the subscriptions that the frame opened wait for its response. Returns the number of the frame.
    pub(crate) fn hold_back(&mut self) -> u64 {
        let opened = self.held.iter_mut().filter(|held| held.frame == self.frame);
        opened.for_each(|held| held.waits = true);
        self.frame
    }

    /// Lets the subscriptions go on that waited for the response to a frame. They have to catch up first.
    pub(crate) fn go_on(&mut self, frame: u64) {
        for held in self.held.iter_mut().filter(|held| held.waits && held.frame == frame) {
            // Heights passed while it waited. It is not to blame for that lag.
            (held.waits, held.live) = (false, false);
        }
    }

    /// Undoes the openings and endings of the frame: a refused batch has no effect.
    pub(crate) fn undo(&mut self) {
        let frame = self.frame;
        // Before the openings go: the places are those of a list that has them.
        while let Some((at, held)) = self.closed.pop() {
            self.held.insert(at, held); // backwards, so each is where it was
        }
        self.closed = Vec::new();
        self.held.retain(|held| held.frame != frame);
        self.held.shrink_to(2 * self.held.len()); // more is not reserved
    }

    /// Opens a subscription. It gets the heights after `served`, or those from a given height on, which is served
    /// or will be.
    pub(crate) fn open(
        &mut self,
        wanted: Subscription,
        served: Option<RangeInclusive<u64>>,
        account: Account<'_>,
    ) -> Result<&str, SubscriptionRefused> {
        if self.held.len() >= self.max {
            return Err(SubscriptionRefused::Error(too_many(self.max)));
        }
        // Before it is made: a client chooses how many addresses and topics there are.
        let making = reserved(account, bytes_to_make(&wanted))?;
        let (topic, from) = kind_and_start(wanted)?;
        let next = next(from, served.as_ref())?;
        // One that replays a range is behind by wish, and must not be closed for its lag.
        let live = served.is_none_or(|served| next.is_some_and(|next| next > *served.end()));
        drop(making);
        self.add(topic, (next, live), account)
    }

    /// Adds a subscription with the height that it is to hear of next. Returns its id.
    fn add(
        &mut self,
        topic: SubscriptionKind,
        (next, live): (Option<u64>, bool),
        account: Account<'_>,
    ) -> Result<&str, SubscriptionRefused> {
        let id = new_id();
        let reservation = reserved(account, topic.bytes() + id.len())?;
        let counted = SubscriptionCount::new(&self.counters, topic.kind());
        self.held.push(OpenSubscription {
            id,
            topic,
            next,
            live,
            frame: self.frame,
            waits: false,
            _reservation: reservation,
            _counted: counted,
        });
        Ok(self.held.last().map_or("", |held| &held.id))
    }

    /// Ends one; false if there is none of this id.
    pub(crate) fn close(&mut self, id: &str) -> bool {
        let at = self.held.iter().position(|held| held.id == id);
        self.closed.extend(at.map(|at| (at, self.held.remove(at))));
        at.is_some()
    }

    /// The height to tell next, if it is there: the lowest of those at the head, whom a long range
    /// that another one replays must not hold up; else the lowest of all.
    pub(crate) fn due(&self, first: u64, head: u64) -> Option<u64> {
        let lowest = |live: bool| {
            let held = self.held.iter().filter(|held| held.hears() && held.live == live);
            held.map(|held| held.next.unwrap_or(first)).min().filter(|next| *next <= head)
        };
        lowest(true).or_else(|| lowest(false))
    }

    /// Heights that the slowest subscription is behind the head, of those that were at the head once.
    pub(crate) fn lag(&self, head: u64) -> u64 {
        let live = self.held.iter().filter(|held| held.live && held.hears());
        let live = live.filter_map(|held| held.next);
        live.map(|next| (head + 1).saturating_sub(next)).max().unwrap_or(0)
    }

    /// Subscriptions that get `height` next. For these it counts as told.
    pub(crate) fn notify(&mut self, height: u64, first: u64, head: u64) -> Vec<&OpenSubscription> {
        let due =
            |held: &&mut OpenSubscription| held.hears() && held.next.unwrap_or(first) == height;
        let told = self.held.iter_mut().filter(due).map(|held| {
            // Before the write: if that fails, the connection ends.
            held.next = Some(height + 1);
            // From here on it is measured: see `lag`.
            held.live |= height == head;
            &*held
        });
        told.collect()
    }
}

impl OpenSubscription {
    /// True if neve has it, and no upstream.
    fn is_own(&self) -> bool {
        !matches!(self.topic, SubscriptionKind::Relayed)
    }

    /// True if it is told of heights now.
    fn hears(&self) -> bool {
        self.is_own() && !self.waits
    }
}

impl SubscriptionKind {
    fn kind(&self) -> WsKind {
        match self {
            Self::Heads => WsKind::Heads,
            Self::Logs(..) => WsKind::Logs,
            Self::Relayed => WsKind::Relayed,
        }
    }

    /// Bytes that it takes in memory besides its id, approximately. A list that grows has as many free places as
    /// taken ones.
    fn bytes(&self) -> usize {
        let wanted = match self {
            Self::Heads | Self::Relayed => 0,
            Self::Logs(wanted, _) => wanted.bytes(),
        };
        2 * size_of::<OpenSubscription>() + wanted
    }
}

/// Reserves memory for a subscription, or for its making.
fn reserved(account: Account<'_>, bytes: usize) -> Result<Reservation, SubscriptionRefused> {
    let reservation = account.reserve(Holder::Filter, bytes);
    reservation.ok_or_else(|| SubscriptionRefused::Error(no_memory()))
}

/// Makes the kind of a new subscription. Returns it and the height from which the client wants it.
fn kind_and_start(
    wanted: Subscription,
) -> Result<(SubscriptionKind, Option<u64>), SubscriptionRefused> {
    match wanted {
        Subscription::NewHeads { from_block } => Ok((SubscriptionKind::Heads, from_block)),
        Subscription::Logs { query, from_block } => {
            let matcher = LogMatcher::new(&query.filter.addresses, &query.filter.topics);
            Ok((SubscriptionKind::Logs(matcher, last(query.range)), from_block))
        }
        Subscription::Unsubscribe(_) => {
            Err(SubscriptionRefused::Error(RpcError::SUBSCRIPTION_NOT_FOUND))
        }
    }
}

/// Bytes of the matcher that this subscription needs, at most.
fn bytes_to_make(wanted: &Subscription) -> usize {
    match wanted {
        Subscription::Logs { query, .. } => {
            LogMatcher::bytes_of(&query.filter.addresses, &query.filter.topics)
        }
        Subscription::NewHeads { .. } | Subscription::Unsubscribe(_) => 0,
    }
}

/// The height to begin with: `from`, or the one after the head. `None` while there is no head.
fn next(
    from: Option<u64>,
    served: Option<&RangeInclusive<u64>>,
) -> Result<Option<u64>, SubscriptionRefused> {
    match (from, served) {
        (None, served) => Ok(served.map(|served| served.end() + 1)),
        (Some(from), Some(served)) if from >= *served.start() => Ok(Some(from)),
        (Some(from), _) => Err(SubscriptionRefused::Missing(from)),
    }
}

/// The last height that a subscription is about, if a number says so.
fn last(range: LogRange) -> Option<u64> {
    match range {
        LogRange::Range { to, .. } => to.number(),
        LogRange::Block(_) => None,
    }
}

fn too_many(max: usize) -> RpcError {
    let message = format!("too many subscriptions on this connection, allowed are {max}");
    RpcError { code: -32000, message: message.into() }
}

#[cfg(test)]
mod tests;
