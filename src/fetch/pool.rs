//! The scheduler: which upstream is asked for which height, and when.
//!
//! Whoever needs a height asks for a [`Lease`]. What is needed for following goes first, then what
//! lies between store and head, then history, each by height. It goes to the upstream that will
//! likely answer soonest, among those that are of the right chain and rules, have the height, are not
//! resting, and have room in their window and pace. Following does not wait for a window, and history
//! comes one height at a time while a head is under way.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use metrics::histogram;
use neve_jsonrpc::Rules;
use neve_store::{Hash, Identity};
use tokio::sync::{Notify, oneshot, watch};

use super::upstream::{State, Upstream};
use crate::status::Status;

/// How often /health is told about the upstreams.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Needs that may wait; whoever has more keeps them.
const QUEUE_LONG: usize = 32;
/// After so many that cannot be served the others cannot either, most likely.
const REFUSED_MAX: usize = 16;

/// What a height is for. What comes first is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Following the head.
    Follow,
    /// Between the store's head and the upstream's.
    CatchUp,
    /// Below the first served height.
    Backfill,
}

impl Purpose {
    /// Whether an upstream may be asked for one more height, of which `under_way` are, `following`
    /// of them to follow.
    fn has_room(self, under_way: usize, following: usize, window: usize) -> bool {
        match self {
            Self::Follow => true,
            // Whatever else an upstream does makes it slower with the head. One at a time goes on,
            // for heads may come as fast as answers.
            Self::Backfill if following > 0 => under_way == following,
            Self::CatchUp | Self::Backfill => under_way < window,
        }
    }
}

/// A height that is needed.
#[derive(Debug, Clone)]
pub(super) struct Need {
    pub(super) height: u64,
    pub(super) purpose: Purpose,
    /// The hash of its block, if that is known.
    pub(super) hash: Option<Hash>,
    /// Upstreams, by place, that are not asked for it before then.
    pub(super) not: Vec<(usize, Instant)>,
}

impl Need {
    pub(super) fn new(height: u64, purpose: Purpose) -> Self {
        Self { height, purpose, hash: None, not: Vec::new() }
    }

    /// Lets an upstream alone with it for a while.
    pub(super) fn not(&mut self, place: usize, wait: Duration) {
        self.not.retain(|(other, _)| *other != place);
        self.not.push((place, Instant::now() + wait));
    }

    fn not_before(&self, place: usize, now: Instant) -> Option<Instant> {
        let until = self.not.iter().find(|(other, _)| *other == place)?.1;
        (until > now).then_some(until)
    }
}

/// What all upstreams together have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sight {
    /// Upstreams that are asked.
    pub(super) admitted: usize,
    /// The highest head.
    pub(super) head: u64,
    /// Whether one answers by the rules of v1.15.
    pub(super) helicon: bool,
    /// Changes with each connection to an upstream.
    pub(super) connections: u64,
    /// How often heights were taken back by who is mirrored, and from which on the last time.
    pub(super) withdrawn: (u64, u64),
}

impl Sight {
    pub(super) fn rules(&self) -> Rules {
        if self.helicon { Rules::Helicon } else { Rules::BeforeHelicon }
    }
}

/// All upstreams.
pub(crate) struct Pool {
    pub(super) upstreams: Vec<Arc<Upstream>>,
    /// The chain that the first admitted upstream is of.
    pub(super) identity: OnceLock<Identity>,
    waiting: Mutex<Waiting>,
    /// Something may be possible now that was not before.
    wake: Notify,
    /// Fewer wait.
    short: Notify,
    sight: watch::Sender<Sight>,
}

#[derive(Default)]
struct Waiting {
    needs: BTreeMap<(Purpose, u64, u64), (Need, oneshot::Sender<Lease>)>,
    count: u64,
}

/// The right to ask one upstream for one height.
pub(super) struct Lease {
    pool: Arc<Pool>,
    /// Its place in the pool.
    pub(super) place: usize,
    pub(super) upstream: Arc<Upstream>,
    purpose: Purpose,
    at: Instant,
}

impl Pool {
    pub(super) fn new(upstreams: Vec<Arc<Upstream>>) -> Arc<Self> {
        Arc::new(Self {
            upstreams,
            identity: OnceLock::new(),
            waiting: Mutex::default(),
            wake: Notify::new(),
            short: Notify::new(),
            sight: watch::Sender::new(Sight::default()),
        })
    }

    /// What all upstreams together have, and its changes.
    pub(super) fn sight(&self) -> watch::Receiver<Sight> {
        self.sight.subscribe()
    }

    /// An upstream has come, gone, or got a head.
    pub(super) fn changed(&self, connected: bool) {
        let mut next = Sight::default();
        for upstream in &self.upstreams {
            let state = upstream.state();
            if state.admitted {
                next.admitted += 1;
                next.head = next.head.max(state.head);
                next.helicon |= state.rules == Rules::Helicon;
            }
        }
        self.sight.send_if_modified(|sight| {
            next.connections = sight.connections + u64::from(connected);
            next.withdrawn = sight.withdrawn;
            std::mem::replace(sight, next) != next
        });
        self.wake.notify_one();
    }

    /// Who is mirrored has taken heights back.
    pub(super) fn withdrawn(&self, from: u64) {
        self.sight.send_modify(|sight| sight.withdrawn = (sight.withdrawn.0 + 1, from));
        self.changed(false);
    }

    /// Waits for the right to ask somebody.
    pub(super) async fn lease(self: &Arc<Self>, need: Need) -> Lease {
        let granted = {
            let mut waiting = self.waiting();
            // Nobody who came earlier is passed by, unless for following.
            if (waiting.needs.is_empty() || need.purpose == Purpose::Follow)
                && let Ok(lease) = self.pick(&need, Instant::now())
            {
                return lease;
            }
            let (grant, granted) = oneshot::channel();
            waiting.count += 1;
            let key = (need.purpose, need.height, waiting.count);
            waiting.needs.insert(key, (need, grant));
            granted
        };
        self.wake.notify_one();
        // The sender is in the pool, which lives as long as this.
        granted.await.unwrap_or_else(|_| unreachable_grant())
    }

    /// Serves those who wait, for ever.
    pub(super) async fn run(self: Arc<Self>, status: Arc<Status>) {
        let mut report = tokio::time::interval(REPORT_INTERVAL);
        loop {
            let later = self.serve();
            let later = later.unwrap_or(Instant::now() + REPORT_INTERVAL);
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(later.into()) => {}
                _ = report.tick() => {
                    let rules = self.sight.borrow().rules();
                    let all = self.upstreams.iter().map(|one| one.status(rules));
                    status.set_upstreams(all.collect());
                }
            }
        }
    }

    /// Gives leases as far as possible; says when there may be more, if time brings it.
    fn serve(self: &Arc<Self>) -> Option<Instant> {
        let now = Instant::now();
        let (mut later, mut passed, mut refused) = (None, None, 0);
        let mut waiting = self.waiting();
        while refused < REFUSED_MAX {
            let after = passed.map_or(Bound::Unbounded, Bound::Excluded);
            let Some((&key, (need, grant))) = waiting.needs.range((after, Bound::Unbounded)).next()
            else {
                break;
            };
            passed = Some(key);
            let picked = if grant.is_closed() { None } else { Some(self.pick(need, now)) };
            if let Some(Err(at)) = picked {
                later = [later, at].into_iter().flatten().min();
                refused += 1;
                continue;
            }
            let gone = waiting.needs.remove(&key);
            if let (Some(Ok(lease)), Some((_, grant))) = (picked, gone) {
                drop(grant.send(lease)); // back to us, if whoever waited has just gone
            }
        }
        if waiting.needs.len() < QUEUE_LONG {
            self.short.notify_waiters();
        }
        later
    }

    /// Whether more needs would only wait. They take no room in memory, but who asks for more takes
    /// some for what comes.
    pub(super) fn queue_is_long(&self) -> bool {
        self.waiting().needs.len() >= QUEUE_LONG
    }

    /// Waits until fewer wait.
    pub(super) async fn queue_shortens(&self) {
        self.short.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The upstream to ask, or when to look again if time alone may change that.
    fn pick(self: &Arc<Self>, need: &Need, now: Instant) -> Result<Lease, Option<Instant>> {
        let helicon = self.sight.borrow().helicon;
        let (mut best, mut later): (Option<(Rank, usize)>, _) = (None, None);
        for (place, upstream) in self.upstreams.iter().enumerate() {
            let mut state = upstream.state();
            let old = helicon && state.rules == Rules::BeforeHelicon;
            if !state.admitted || old || state.head < need.height {
                continue;
            }
            let not_before = [
                need.not_before(place, now),
                state.resting(now),
                state.lacking(need.height, now).filter(|_| self.upstreams.len() > 1),
            ];
            if let Some(until) = not_before.into_iter().flatten().max() {
                later = Some(later.map_or(until, |later: Instant| later.min(until)));
                continue;
            }
            let rank = Rank::of(&mut state, need.purpose, now);
            if best.is_none_or(|(best, _)| rank.before(&best)) {
                best = Some((rank, place));
            }
        }
        match best {
            Some((Rank { free: true, .. }, place)) => Ok(self.grant(place, need.purpose, now)),
            Some((Rank { at: Some(at), .. }, _)) => {
                Err(Some(later.map_or(at, |later| later.min(at))))
            }
            _ => Err(later),
        }
    }

    fn grant(self: &Arc<Self>, place: usize, purpose: Purpose, now: Instant) -> Lease {
        let upstream = Arc::clone(&self.upstreams[place]);
        {
            let mut state = upstream.state();
            state.under_way += 1;
            state.following += usize::from(purpose == Purpose::Follow);
        }
        upstream.charge(upstream.requests_a_height());
        Lease { pool: Arc::clone(self), place, upstream, purpose, at: now }
    }

    /// The upstreams that are asked, the least doubted and quickest first.
    pub(super) fn admitted(&self) -> Vec<(usize, Arc<Upstream>)> {
        let now = Instant::now();
        let mut all: Vec<_> = self
            .upstreams
            .iter()
            .enumerate()
            .filter_map(|(place, upstream)| {
                let state = upstream.state();
                let rank = (state.doubted(now), state.resting(now).is_some(), state.window.mean());
                state.admitted.then(|| (rank, place, Arc::clone(upstream)))
            })
            .collect();
        all.sort_by(|(a, ..), (b, ..)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        all.into_iter().map(|(_, place, upstream)| (place, upstream)).collect()
    }
}

/// How good an upstream is for a need.
#[derive(Clone, Copy)]
struct Rank {
    doubted: bool,
    /// It may be asked now.
    free: bool,
    /// If not, when its pace allows it.
    at: Option<Instant>,
    /// Seconds that an answer will likely take.
    wait: f64,
}

impl Rank {
    fn of(state: &mut State, purpose: Purpose, now: Instant) -> Self {
        let pause = state.pace.as_mut().map(|pace| pace.wait(now)).unwrap_or_default();
        let size = state.window.size();
        let room = purpose.has_room(state.under_way, state.following, size);
        #[expect(clippy::cast_precision_loss, reason = "an estimate of small numbers")]
        let load = 1.0 + state.under_way as f64 / size as f64;
        Self {
            doubted: state.doubted(now),
            free: room && pause.is_zero(),
            at: (!pause.is_zero()).then(|| now + pause),
            wait: state.window.mean() * load,
        }
    }

    /// A doubted one is asked only if there is no other; a busy one only waits.
    fn before(&self, other: &Self) -> bool {
        let key = |rank: &Self| (rank.doubted, !rank.free);
        key(self) < key(other) || (key(self) == key(other) && self.wait < other.wait)
    }
}

impl Lease {
    /// The upstream answered, whatever it said.
    pub(super) fn answered(&self) {
        if self.purpose == Purpose::Follow {
            return; // it may have waited for the block to be executed
        }
        let now = Instant::now();
        let mut state = self.upstream.state();
        let (took, under_way) = (now.duration_since(self.at), state.under_way);
        let history = self.purpose == Purpose::Backfill;
        state.window.answered(took, under_way, history, now);
        drop(state);
        histogram!("neve_upstream_answers_seconds").record(took);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.upstream.state();
        state.under_way = state.under_way.saturating_sub(1);
        state.following -= usize::from(self.purpose == Purpose::Follow);
        drop(state);
        self.pool.wake.notify_one();
    }
}

#[expect(clippy::panic, reason = "the pool holds the sender and is held by whoever waits")]
fn unreachable_grant() -> ! {
    panic!("a pool does not forget who waits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_comes_one_height_at_a_time_while_a_head_is_under_way() {
        let history = |under_way, following| Purpose::Backfill.has_room(under_way, following, 8);
        assert!(history(7, 0) && !history(8, 0), "as many as the window has");
        assert!(history(1, 1) && history(3, 3), "but one, beside heads");
        assert!(!history(2, 1) && !history(7, 1), "and no more");
        assert!(Purpose::CatchUp.has_room(7, 1, 8) && !Purpose::CatchUp.has_room(8, 1, 8));
        assert!(Purpose::Follow.has_room(100, 1, 8), "a head waits for nothing");
    }
}
