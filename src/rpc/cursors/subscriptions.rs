//! Subscriptions of one connection.

use std::ops::RangeInclusive;
use std::sync::Arc;

use neve_jsonrpc::{LogRange, RpcError, Subscription};
use neve_record::log_matcher::LogMatcher;

use super::filters::{new_id, no_room};
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
        self.frame += 1;
        self.keep();
    }

    /// Ends a frame that was answered. The subscriptions that it ended are gone, and their places in the lists.
    pub(crate) fn keep(&mut self) {
        if !self.closed.is_empty() {
            self.closed = Vec::new();
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
            (held.waits, held.live) = (false, false);
        }
    }

    /// Undoes the openings and endings of the frame: a refused batch has no effect.
    pub(crate) fn undo(&mut self) {
        let frame = self.frame;
        while let Some((at, held)) = self.closed.pop() {
            self.held.insert(at, held); // backwards, so each is where it was
        }
        self.closed = Vec::new();
        self.held.retain(|held| held.frame != frame);
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
        let (topic, from) = match wanted {
            Subscription::NewHeads { from_block } => (SubscriptionKind::Heads, from_block),
            Subscription::Logs { query, from_block } => (
                SubscriptionKind::Logs(
                    LogMatcher::new(&query.filter.addresses, &query.filter.topics),
                    last(query.range),
                ),
                from_block,
            ),
            Subscription::Unsubscribe(_) => {
                return Err(SubscriptionRefused::Error(RpcError::SUBSCRIPTION_NOT_FOUND));
            }
        };
        let next = next(from, served.as_ref())?;
        let live = served.is_none_or(|served| next.is_some_and(|next| next > *served.end()));
        let id = new_id();
        let reservation = account.reserve(Holder::Filter, topic.bytes() + id.len());
        let reservation = reservation.ok_or_else(|| SubscriptionRefused::Error(no_room()))?;
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
            held.next = Some(height + 1);
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
mod tests {
    use super::*;
    use crate::shared::MemoryBudget;
    use crate::shared::tests::{address, plenty};

    const HEADS: Subscription = Subscription::NewHeads { from_block: None };

    fn none(max: usize) -> Subscriptions {
        Subscriptions::new(max, Arc::default())
    }

    fn from(height: u64) -> Subscription {
        Subscription::NewHeads { from_block: Some(height) }
    }

    fn open(
        all: &mut Subscriptions,
        wanted: Subscription,
        served: Option<RangeInclusive<u64>>,
    ) -> Option<String> {
        all.open(wanted, served, plenty().account(address(1))).ok().map(str::to_owned)
    }

    fn told(all: &mut Subscriptions, first: u64, head: u64) -> Vec<(u64, usize)> {
        let mut told = Vec::new();
        while let Some(height) = all.due(first, head) {
            told.push((height, all.notify(height, first, head).len()));
        }
        told
    }

    #[test]
    fn ended_subscriptions_leave_no_memory() {
        let mut all = none(1000);
        all.begin();
        let ids: Vec<_> = (0..1000).filter_map(|_| open(&mut all, HEADS, None)).collect();
        all.begin();
        assert!(ids.len() == 1000 && ids.iter().all(|id| all.close(id)));
        all.undo();
        assert_eq!(all.held.len(), 1000, "a refused frame ends nothing");
        all.begin();
        assert!(ids[1..].iter().all(|id| all.close(id)));
        all.keep();
        assert!(all.held.capacity() <= 4, "{}", all.held.capacity());
        assert_eq!((all.held.len(), all.closed.capacity()), (1, 0));
    }

    #[test]
    fn open_subscriptions_have_reserved_what_they_take() {
        let budget = plenty();
        let mut all = none(1000);
        (0..513).for_each(|_| {
            all.open(HEADS, None, budget.account(address(1))).ok().expect("there is room");
        });
        let ids: usize = all.held.iter().map(|held| held.id.capacity()).sum();
        let taken = all.held.capacity() * size_of::<OpenSubscription>() + ids;
        assert!(budget.used() >= taken, "{} of {taken}", budget.used());
    }

    #[test]
    fn each_subscription_hears_of_each_height_once() {
        let mut all = none(9);
        assert_eq!(all.due(5, 9), None);
        open(&mut all, HEADS, Some(5..=9)).unwrap();
        open(&mut all, from(8), Some(5..=9)).unwrap();
        open(&mut all, from(12), Some(5..=9)).unwrap(); // not there yet
        assert_eq!(told(&mut all, 5, 9), [(8, 1), (9, 1)]);
        assert_eq!(told(&mut all, 5, 12), [(10, 2), (11, 2), (12, 3)]);
        // Withdrawn and published again: nothing is told twice.
        assert_eq!(told(&mut all, 5, 10), []);
        assert_eq!(told(&mut all, 5, 13), [(13, 3)]);
    }

    #[test]
    fn replayed_range_holds_up_no_other_client() {
        let mut all = none(9);
        open(&mut all, HEADS, Some(5..=9)).unwrap();
        open(&mut all, from(7), Some(5..=9)).unwrap();
        assert_eq!(all.due(5, 9), Some(7));
        all.notify(7, 5, 9);
        assert_eq!(told(&mut all, 5, 11), [(10, 1), (11, 1), (8, 1), (9, 1), (10, 1), (11, 1)]);
        assert_eq!(told(&mut all, 5, 12), [(12, 2)]);
    }

    #[test]
    fn first_height_of_an_empty_store_is_told() {
        let mut all = none(9);
        assert!(open(&mut all, from(3), None).is_none());
        open(&mut all, HEADS, None).unwrap();
        assert_eq!(told(&mut all, 7, 8), [(7, 1), (8, 1)]);
    }

    #[test]
    fn replay_from_an_evicted_height_is_a_miss() {
        let mut all = none(9);
        assert!(open(&mut all, from(4), Some(5..=9)).is_none());
        assert!(open(&mut all, from(5), Some(5..=9)).is_some());
    }

    #[test]
    fn only_a_subscription_at_the_head_lags() {
        let mut all = none(9);
        open(&mut all, from(5), Some(5..=9)).unwrap();
        assert_eq!(all.lag(9), 0);
        told(&mut all, 5, 9);
        assert_eq!(all.lag(9), 0);
        assert_eq!(all.lag(19), 10);
    }

    #[test]
    fn a_refused_frame_has_done_nothing() {
        let mut all = none(3);
        all.begin();
        let first = open(&mut all, HEADS, Some(5..=9)).unwrap();
        let other = open(&mut all, HEADS, Some(5..=9)).unwrap();
        all.begin();
        assert!(all.close(&first) && !all.close(&first));
        let second = open(&mut all, HEADS, Some(5..=9)).unwrap();
        let third = open(&mut all, HEADS, Some(5..=9)).unwrap();
        assert!(open(&mut all, HEADS, Some(5..=9)).is_none());
        assert!(all.close(&second));
        all.undo();
        let ids: Vec<_> = all.held.iter().map(|held| &held.id).collect();
        assert_eq!(ids, [&first, &other]);
        all.begin();
        assert!(!all.close(&second) && !all.close(&third));
        assert!(all.close(&first) && all.close(&other));
        assert!(all.is_empty());
    }

    #[test]
    fn subscription_hears_of_nothing_before_its_response_is_written() {
        let mut all = none(9);
        all.begin();
        open(&mut all, from(8), Some(5..=9)).unwrap();
        let first = all.hold_back();
        assert!(all.is_empty() && all.due(5, 9).is_none());
        all.begin();
        open(&mut all, from(9), Some(5..=9)).unwrap();
        let second = all.hold_back();
        all.begin();
        open(&mut all, HEADS, Some(5..=9)).unwrap();
        assert_eq!(told(&mut all, 5, 10), [(10, 1)]);
        all.go_on(second);
        assert_eq!((all.lag(99), told(&mut all, 5, 10)), (89, vec![(9, 1), (10, 1)]));
        all.go_on(first);
        all.go_on(first);
        assert_eq!(told(&mut all, 5, 10), [(8, 1), (9, 1), (10, 1)]);
        assert_eq!(told(&mut all, 5, 11), [(11, 3)]);
    }

    #[test]
    fn subscriptions_are_counted_while_they_live() {
        let counters = Arc::new(ThreadCounters::default());
        let mut all = Subscriptions::new(9, Arc::clone(&counters));
        let open_now = || counters.ws_subscriptions(WsKind::Heads);
        all.begin();
        let first = open(&mut all, HEADS, Some(5..=9)).unwrap();
        all.keep();
        assert_eq!((open_now(), counters.ws_subscriptions(WsKind::Logs)), (1, 0));
        all.begin();
        open(&mut all, HEADS, Some(5..=9)).unwrap();
        assert!(all.close(&first));
        all.undo();
        assert_eq!(open_now(), 1, "a refused frame has done nothing");
        all.begin();
        assert!(all.close(&first));
        all.keep();
        assert_eq!(open_now(), 0, "at once, not with the next frame");
        open(&mut all, HEADS, Some(5..=9)).unwrap();
        drop(all);
        assert_eq!(open_now(), 0);
    }

    #[test]
    fn subscriptions_reserve_memory_while_they_live() {
        let each = SubscriptionKind::Heads.bytes() + "0x".len() + 32;
        let memory = MemoryBudget::new(2 * each, each);
        let [one, other] = [1, 2].map(|last| memory.account(address(last)));
        let mut all = none(9);
        all.begin();
        let id = all.open(HEADS, None, one).ok().map(str::to_owned).unwrap();
        assert!(matches!(all.open(HEADS, None, one), Err(SubscriptionRefused::Error(_))));
        assert!(all.open(HEADS, None, other).is_ok());
        assert!(all.close(&id));
        all.begin();
        assert!(all.open(HEADS, None, one).is_ok());
    }
}
