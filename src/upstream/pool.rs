//! The scheduler: chooses an upstream for each height, and the time of the request.
//!
//! A task that needs a height requests a [`FetchPermit`]. Heights for following come first, then
//! those between store and head, then history, each in order. A height goes to the upstream that
//! will likely answer first. That upstream must be of the right chain and rules, have the height,
//! not be paused, and have a free place in its window and rate. Following does not wait for a window.
//! History comes one height at a time while a head is in flight.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use metrics::histogram;
use neve_jsonrpc::Rules;
use neve_store::Identity;
use tokio::sync::{Notify, oneshot, watch};

use super::fetch_need::{FetchNeed, Priority};
use super::pool_state::PoolState;
use super::rank::Rank;
use super::state::Upstream;
use crate::client::CallError;
use crate::shared::Status;
use crate::shared::lock::lock;

/// Time between two updates of the upstreams in /health.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Upstreams, of several, that must agree on rules, or on the keys of announced heads, before these replace others.
const RULES_AGREE: usize = 2;

/// Needs that may wait here. A task with more of them keeps the rest.
const QUEUE_LONG: usize = 32;
/// Needs without a usable upstream after which a turn ends: the others most likely have none either.
const REFUSED_MAX: usize = 16;

/// All upstreams, and the choice of one for each height.
pub(crate) struct UpstreamPool {
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// The chain that the first admitted upstream is of.
    pub(crate) identity: OnceLock<Identity>,
    /// True if a linked block of the chain is asynchronous: only nodes of v1.15 have such blocks.
    asynchronous: AtomicBool,
    waiting: Mutex<Waiting>,
    /// Wakes the scheduler: a need that waits may get a permit now.
    wake: Notify,
    /// Wakes when fewer fetches wait.
    short: Notify,
    sight: watch::Sender<PoolState>,
    /// The lowest height that the mirror source withdrew since a session last looked.
    withdrawn: Mutex<Option<u64>>,
    /// Upstreams that must agree on a block.
    quorum: usize,
}

/// The pool, once following has begun, for other tasks that send requests to its upstreams.
pub(crate) type PoolSlot = Arc<OnceLock<Arc<UpstreamPool>>>;

/// Key of a need that waits: its purpose, its height, and its number among all needs.
type NeedKey = (Priority, u64, u64);
/// Need that waits, and the place for its permit.
type WaitingNeed = (FetchNeed, oneshot::Sender<FetchPermit>);

#[derive(Default)]
struct Waiting {
    needs: BTreeMap<NeedKey, WaitingNeed>,
    count: u64,
}

impl Waiting {
    /// First need, or the next one behind `passed`.
    fn after(&self, passed: Option<NeedKey>) -> Option<(NeedKey, &WaitingNeed)> {
        let after = passed.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.needs.range((after, Bound::Unbounded)).next();
        next.map(|(key, need)| (*key, need))
    }
}

/// Permit to request one height from one upstream.
pub(crate) struct FetchPermit {
    pool: Arc<UpstreamPool>,
    /// Place in the pool.
    pub(crate) place: usize,
    pub(crate) upstream: Arc<Upstream>,
    purpose: Priority,
    at: Instant,
}

/// States of all admitted upstreams together.
struct AdmittedStates {
    /// Numbers and heights; the rules are not in it.
    sight: PoolState,
    /// Upstreams that answer by the rules of Helicon.
    helicon: usize,
    /// Forms of the heads that were announced, true for the keys of v1.15.
    keys: Vec<bool>,
}

/// Consequence of a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// All requests to the upstream pause.
    Paused,
    /// A failure that may be bad luck: the upstream is asked again.
    Tolerated,
    /// The upstream is not asked until its monitor has looked after it.
    Ejected,
}

impl UpstreamPool {
    pub(crate) fn new(upstreams: Vec<Arc<Upstream>>, quorum: usize) -> Arc<Self> {
        Arc::new(Self {
            quorum,
            upstreams,
            identity: OnceLock::new(),
            asynchronous: AtomicBool::new(false),
            waiting: Mutex::default(),
            wake: Notify::new(),
            short: Notify::new(),
            sight: watch::Sender::new(PoolState::default()),
            withdrawn: Mutex::default(),
        })
    }

    /// Heights that all upstreams together have, and their changes.
    pub(crate) fn sight(&self) -> watch::Receiver<PoolState> {
        self.sight.subscribe()
    }

    /// Notes that an upstream was admitted or ejected, or has a new head.
    pub(crate) fn changed(&self, connected: bool) {
        let AdmittedStates { sight: mut next, helicon, keys } = self.admitted_states();
        // The form of an answer is in no hash: one upstream of several could lie, also while the others are away.
        let needed = RULES_AGREE.min(self.upstreams.len()).max(1);
        let asynchronous = self.asynchronous.load(Ordering::Relaxed);
        self.sight.send_if_modified(|sight| {
            let for_older = next.admitted - helicon >= needed;
            next.agreed = if helicon >= needed { Some(true) } else { sight.agreed };
            next.agreed = if for_older { Some(false) } else { next.agreed };
            // An empty store has no rules. It takes those on which the upstreams that there are agree.
            let are_one = helicon > 0 && helicon == next.admitted;
            let alone = if next.admitted == 0 { sight.helicon } else { are_one };
            next.helicon = next.agreed.unwrap_or(alone) || asynchronous;
            next.helicon_keys = agreed_keys(&keys, needed).unwrap_or(sight.helicon_keys);
            next.connections = sight.connections + u64::from(connected);
            next.withdrawals = sight.withdrawals;
            std::mem::replace(sight, next) != next
        });
        self.wake.notify_one();
    }

    fn admitted_states(&self) -> AdmittedStates {
        let (mut sight, mut helicon) = (PoolState::default(), 0);
        let (mut heads, mut proven, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for upstream in &self.upstreams {
            let state = upstream.state();
            if state.admitted {
                sight.admitted += 1;
                sight.in_use += usize::from(state.is_in_use());
                keys.extend(state.helicon_keys);
                heads.push(state.head);
                proven.push(state.proven);
                helicon += usize::from(state.rules == Rules::Helicon);
            }
        }
        sight.head = heads.iter().copied().max().unwrap_or_default();
        sight.common = reached_by(heads, sight.admitted / 2 + 1);
        sight.proven = reached_by(proven, self.quorum);
        AdmittedStates { sight, helicon, keys }
    }

    /// Takes the error of a call to an upstream, whatever the call was for. An upstream that throttles works.
    pub(crate) fn failed(&self, upstream: &Upstream, error: CallError) -> AfterFailure {
        match error {
            CallError::Throttled { after, .. } => {
                upstream.throttles(after);
                AfterFailure::Paused
            }
            error if upstream.tolerates(&error) => AfterFailure::Tolerated,
            error => {
                upstream.fails(error);
                self.changed(false);
                AfterFailure::Ejected
            }
        }
    }

    /// Notes the rules of the store, unless upstreams have agreed on some. They stay until enough agree on others.
    pub(crate) fn note_rules(&self, rules: Rules) {
        self.sight.send_if_modified(|sight| {
            sight.agreed.get_or_insert(rules == Rules::Helicon);
            false // no task waits for it
        });
    }

    /// Notes that the chain has an asynchronous block.
    pub(crate) fn note_asynchronous(&self) {
        // Once: each change wakes all sessions and monitors.
        if !self.asynchronous.swap(true, Ordering::Relaxed) {
            self.changed(false);
        }
    }

    /// Notes that the mirror source withdrew heights.
    pub(crate) fn withdraws(&self, from: u64) {
        {
            let mut withdrawn = lock(&self.withdrawn);
            // A session may be busy while several come, and the last one need not reach down the furthest.
            *withdrawn = Some(withdrawn.map_or(from, |lowest| lowest.min(from)));
        }
        self.sight.send_modify(|sight| sight.withdrawals += 1);
        self.changed(false);
    }

    /// Takes the lowest height that the mirror source withdrew since the last call.
    pub(crate) fn take_withdrawn(&self) -> Option<u64> {
        lock(&self.withdrawn).take()
    }

    /// Waits for a permit to send a request to one of the upstreams.
    pub(crate) async fn lease(self: &Arc<Self>, need: FetchNeed) -> FetchPermit {
        let granted = {
            let mut waiting = self.waiting();
            // An earlier need goes first, unless this one is for following.
            if (waiting.needs.is_empty() || need.purpose == Priority::Follow)
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

    /// Gives permits to the needs that wait; never ends.
    pub(crate) async fn run(self: Arc<Self>, status: Arc<Status>) {
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

    /// Gives permits to as many needs as possible. Returns the time at which there may be more, if only time is needed.
    fn serve(self: &Arc<Self>) -> Option<Instant> {
        let now = Instant::now();
        let (mut later, mut passed, mut refused) = (None, None, 0);
        let mut waiting = self.waiting();
        while refused < REFUSED_MAX {
            let Some((key, (need, grant))) = waiting.after(passed) else { break };
            passed = Some(key);
            // A waiter that has gone takes no permit.
            let picked = if grant.is_closed() { None } else { Some(self.pick(need, now)) };
            if let Some(Err(at)) = picked {
                later = [later, at].into_iter().flatten().min();
                refused += 1;
                continue;
            }
            if let (Some(Ok(lease)), Some((_, grant))) = (picked, waiting.needs.remove(&key)) {
                drop(grant.send(lease)); // if its waiter has gone, dropping the permit frees its place
            }
        }
        if waiting.needs.len() < QUEUE_LONG {
            self.short.notify_waiters();
        }
        later
    }

    /// True if more needs would only wait. A need takes no memory, but its task reserves memory for the
    /// height that is to come.
    pub(crate) fn queue_is_long(&self) -> bool {
        self.waiting().needs.len() >= QUEUE_LONG
    }

    /// Waits until fewer wait.
    pub(crate) async fn queue_shortens(&self) {
        self.short.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// Grants a permit for the best upstream. Otherwise returns the time at which to try again, if time alone may help.
    fn pick(
        self: &Arc<Self>,
        need: &FetchNeed,
        now: Instant,
    ) -> Result<FetchPermit, Option<Instant>> {
        let helicon = self.sight.borrow().helicon;
        let (mut best, mut later): (Option<(Rank, usize)>, _) = (None, None);
        for (place, upstream) in self.upstreams.iter().enumerate() {
            let mut state = upstream.state();
            if !state.may_have(need.height, helicon) {
                continue;
            }
            let not_before = [
                need.not_before(place, now),
                state.resting(now),
                // The only upstream gets the request nevertheless: it may have the height by now.
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

    fn grant(self: &Arc<Self>, place: usize, purpose: Priority, now: Instant) -> FetchPermit {
        let upstream = Arc::clone(&self.upstreams[place]);
        {
            let mut state = upstream.state();
            state.in_flight += 1;
            state.following += usize::from(purpose == Priority::Follow);
        }
        // After the block above: `charge` takes the lock, too.
        upstream.charge(upstream.requests_a_height());
        FetchPermit { pool: Arc::clone(self), place, upstream, purpose, at: now }
    }

    /// True if all upstreams that could be asked for a height were seen to lack it.
    pub(crate) fn is_lacked(&self, height: u64) -> bool {
        let (now, helicon) = (Instant::now(), self.sight.borrow().helicon);
        let states = self.upstreams.iter().map(|upstream| upstream.state());
        let mut asked = states.filter(|state| state.may_have(height, helicon)).peekable();
        asked.peek().is_some() && asked.all(|state| state.lacking(height, now).is_some())
    }

    /// Admitted upstreams: those without a penalty or a pause first, then the quickest.
    pub(crate) fn admitted(&self) -> Vec<(usize, Arc<Upstream>)> {
        let now = Instant::now();
        let mut all: Vec<_> = self
            .upstreams
            .iter()
            .enumerate()
            .filter_map(|(place, upstream)| {
                let state = upstream.state();
                let rank =
                    (state.penalized(now), state.resting(now).is_some(), state.window.mean());
                state.admitted.then(|| (rank, place, Arc::clone(upstream)))
            })
            .collect();
        all.sort_by(|(a, ..), (b, ..)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        all.into_iter().map(|(_, place, upstream)| (place, upstream)).collect()
    }
}

impl FetchPermit {
    /// Notes the time of a response, also of an error.
    pub(crate) fn answered(&self) {
        if self.purpose == Priority::Follow {
            return; // it may have waited for the block to be executed
        }
        let now = Instant::now();
        let mut state = self.upstream.state();
        let (took, in_flight) = (now.duration_since(self.at), state.in_flight);
        let history = self.purpose == Priority::Backfill;
        state.window.answered(took, in_flight, history, now);
        drop(state);
        histogram!("neve_upstream_response_duration_seconds").record(took);
    }
}

impl Drop for FetchPermit {
    fn drop(&mut self) {
        let mut state = self.upstream.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        state.following -= usize::from(self.purpose == Priority::Follow);
        // Before the wake-up, after which the pool takes this lock.
        drop(state);
        self.pool.wake.notify_one();
    }
}

/// The highest head that so many upstreams have reached, or all if there are fewer. An upstream can make a header for any
/// head, and no other one has that.
fn reached_by(mut heads: Vec<u64>, upstreams: usize) -> u64 {
    heads.sort_unstable_by(|a, b| b.cmp(a));
    let place = upstreams.min(heads.len()).saturating_sub(1);
    heads.get(place).copied().unwrap_or_default()
}

/// The form of announced heads that so many upstreams agree on, if any: true for the keys of v1.15.
fn agreed_keys(keys: &[bool], needed: usize) -> Option<bool> {
    let with = keys.iter().filter(|has_keys| **has_keys).count();
    // The older form first, as with rules.
    [(keys.len() - with, false), (with, true)]
        .into_iter()
        .find_map(|(agree, form)| (agree >= needed).then_some(form))
}

#[expect(clippy::panic, reason = "the pool holds the sender, and each waiter holds the pool")]
fn unreachable_grant() -> ! {
    panic!("a pool does not forget who waits")
}

#[cfg(test)]
mod tests;
