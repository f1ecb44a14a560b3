//! An upstream: its client, and what is known of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use metrics::counter;
use neve_jsonrpc::Rules;
use tokio::sync::Notify;

use super::limits::{ConcurrencyLimit, Pause, RateLimiter};
use crate::client::{CallError, PeerText, RpcClient};
use crate::config::settings::LiveRate;
use crate::mirror::MirrorSource;
use crate::shared::lock::lock;
use crate::shared::{Phase, UpstreamStatus, unproven_head};

/// Time for which an upstream is asked last after its data was rejected. It doubles each time.
const DOUBT: Duration = Duration::from_secs(10);
const DOUBT_MAX: Duration = Duration::from_mins(30);
/// Failures in a row that may be bad luck.
const FORGIVEN: u32 = 3;
/// Time for which it is remembered that an upstream lacks old heights: it may be fetching them
/// itself.
const LACKS: Duration = Duration::from_mins(1);
/// A head's block and receipts are asked for apart.
const NEWEST_REQUESTS: u32 = 2;
/// Time that the newest block is asked for by its number once something else came for `latest`.
const BY_NUMBER: Duration = Duration::from_mins(1);
/// Heights below its head at which an upstream without a height is not just late.
pub(crate) const LATE: u64 = 64;

/// An upstream. Its monitor, the scheduler and the tasks that send it requests share it.
pub(crate) struct Upstream {
    /// Address without a key.
    pub(crate) name: String,
    pub(crate) client: RpcClient,
    /// True if it has `eth_getBlockReceipts`; the public API does not.
    pub(crate) block_receipts: AtomicBool,
    /// True if it takes batches.
    pub(crate) batches: AtomicBool,
    /// Stream and its files, if it is a neve that is mirrored.
    pub(crate) peer: Option<Arc<MirrorSource>>,
    /// Heights that it gave, all proven.
    heights: AtomicU64,
    state: Mutex<State>,
    /// Tells its monitor that it failed.
    failed: Notify,
}

/// State of an upstream now.
pub(crate) struct State {
    /// True if it is asked: it is of the right chain, and answers.
    pub(crate) admitted: bool,
    pub(crate) rules: Rules,
    /// True if a block had the form of older rules, which a header confirms or refutes.
    pub(crate) rules_doubted: bool,
    /// The height up to which it is asked: its head, as far as that is believed.
    pub(crate) head: u64,
    /// The highest head of it with a proven header.
    pub(crate) proven: u64,
    /// The head that it named last, if that is far above all others and no header proves it.
    pub(super) unproven_head: Option<u64>,
    /// True if the last head that it announced has the keys of v1.15; `None` before the first one.
    pub(super) helicon_keys: Option<bool>,
    /// Time until which its newest block is requested by number.
    by_number: Option<Instant>,
    /// Height below which it lacks heights, as far as was seen, and the time until which that is
    /// believed.
    lacks: Option<(u64, Instant)>,
    pause: Pause,
    /// Time until which it is asked last, because its data was rejected.
    penalized: Option<(Instant, Duration)>,
    /// Reason for the last penalty, until it gives a height after it.
    rejection: Option<String>,
    pub(crate) window: ConcurrencyLimit,
    pub(crate) pace: RateLimiter,
    pub(crate) in_flight: usize,
    /// Heights of these that are for following.
    pub(crate) following: usize,
    /// Calls that failed since it last gave a height.
    failures: u32,
    failure: Option<CallError>,
    phase: Phase,
    error: Option<String>,
    /// Time at which its monitor asks it again.
    retry_at: Option<Instant>,
}

impl Upstream {
    pub(crate) fn new(name: String, client: RpcClient, window: usize, rate: LiveRate) -> Self {
        let now = Instant::now();
        Self {
            name,
            client,
            block_receipts: AtomicBool::new(true),
            batches: AtomicBool::new(true),
            peer: None,
            heights: AtomicU64::new(0),
            state: Mutex::new(State {
                admitted: false,
                rules: Rules::BeforeHelicon,
                rules_doubted: false,
                head: 0,
                proven: 0,
                unproven_head: None,
                helicon_keys: None,
                by_number: None,
                lacks: None,
                pause: Pause::new(),
                penalized: None,
                rejection: None,
                window: ConcurrencyLimit::new(window),
                pace: RateLimiter::new(rate, now),
                in_flight: 0,
                following: 0,
                failures: 0,
                failure: None,
                phase: Phase::Connecting,
                error: None,
                retry_at: None,
            }),
            failed: Notify::new(),
        }
    }

    /// Adds the mirror source behind the upstream, if there is one.
    pub(crate) fn mirrored(mut self, peer: Option<Arc<MirrorSource>>) -> Self {
        self.peer = peer;
        self
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; and every state is a possible one.
        lock(&self.state)
    }

    /// Notes the rules that a block shows, which it may have given before its release changed. So a block leads to the
    /// newer rules only, and a block of the older ones has a header requested. True if the rules changed.
    pub(crate) fn shows_rules(&self, rules: Rules) -> bool {
        let mut state = self.state();
        let is_newer = state.rules == Rules::BeforeHelicon && rules == Rules::Helicon;
        state.rules_doubted |= state.rules != rules && !is_newer;
        if is_newer {
            state.rules = rules;
        }
        is_newer
    }

    /// Admits an upstream that answers and is of the right chain. `proven` is its head if that has
    /// a proven header, else a height up to its head that is believed of others.
    pub(crate) fn admit(&self, head: u64, proven: u64, rules: Rules) {
        let mut state = self.state();
        (state.admitted, state.head, state.proven, state.rules) = (true, head, proven, rules);
        (state.failure, state.error, state.phase) = (None, None, Phase::Following);
        (state.retry_at, state.unproven_head) = (None, None);
    }

    /// Ejects it with an error: it is not asked until it is admitted again, and that is tried after
    /// the wait.
    pub(crate) fn eject(&self, reason: &'static str, phase: Phase, why: (String, Duration)) {
        self.fault(reason);
        let (error, wait) = why;
        let mut state = self.state();
        state.admitted = false;
        state.retry_at = Some(Instant::now() + wait);
        (state.phase, state.error) = (phase, Some(error));
    }

    /// Notes a head that it announced, if that is little above `believed`, the highest head that is
    /// believed of any upstream: asking for its block proves it. One that is far above has to be
    /// proven first.
    pub(crate) fn announces(&self, head: u64, keys: Option<bool>, believed: u64) -> bool {
        let is_near = is_near(head, believed);
        if is_near {
            let mut state = self.state();
            state.head = state.head.max(head);
            state.helicon_keys = keys.or(state.helicon_keys);
        }
        is_near
    }

    /// Notes the head that it answered with, which may be lower than what it announced before.
    /// Without a proven header there, only a head that is little above `believed` is taken.
    pub(crate) fn answers_head(&self, head: u64, has_header: bool, believed: u64) {
        let is_false = !has_header && !is_near(head, believed);
        let mut state = self.state();
        state.proven = if has_header { head } else { state.proven.min(head) };
        // Down to a proven head, not to 0: the upstream still has those heights.
        state.head = if is_false { state.proven } else { head };
        state.unproven_head = is_false.then_some(head);
        // `penalize` takes the lock, too.
        drop(state);
        if is_false {
            self.penalize("false_head", &unproven_head(head));
        }
    }

    /// True if a height is asked for as its newest.
    pub(crate) fn is_newest(&self, height: u64) -> bool {
        let able = self.peer.is_none() && self.block_receipts.load(Ordering::Relaxed);
        let state = self.state();
        let by_number = state.by_number.is_some_and(|until| until > Instant::now());
        able && state.head == height && !by_number
    }

    /// Notes that `latest` was another block than the one that was wanted, which costs two more requests. For a
    /// while heads are requested by number: if heads come as fast as responses, this would happen often.
    pub(crate) fn newest_was_another(&self) {
        counter!("neve_upstream_latest_mismatches_total", "upstream" => self.name.clone())
            .increment(1);
        self.state().by_number = Some(Instant::now() + BY_NUMBER);
        self.charge(NEWEST_REQUESTS);
    }

    /// Notes a height that it gave and that was proven.
    pub(crate) fn gave_height(&self) {
        self.heights.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.failures = 0;
        // During a penalty heights clear nothing: those of another chain agree with each other.
        if !state.penalized(Instant::now()) {
            state.rejection = None;
        }
        state.pause.gave_height();
        drop(state);
        counter!("neve_upstream_blocks_total", "upstream" => self.name.clone()).increment(1);
    }

    /// Heights that it gave so far.
    pub(crate) fn heights(&self) -> u64 {
        self.heights.load(Ordering::Relaxed)
    }

    /// HTTP requests that a height takes.
    pub(crate) fn requests_a_height(&self) -> u32 {
        let one =
            self.block_receipts.load(Ordering::Relaxed) && self.batches.load(Ordering::Relaxed);
        if one { 1 } else { 2 }
    }

    /// Counts requests to it against its rate.
    pub(crate) fn charge(&self, requests: u32) {
        self.state().pace.made(requests);
    }

    /// Pauses requests to it, for as long as it wants.
    pub(crate) fn pause(&self, time: Duration) {
        self.throttled(|pause, now| pause.at_least(time, now));
    }

    /// Pauses requests to it after one that it throttled, for as long as it wants and longer each time until it
    /// gives a height again.
    pub(crate) fn throttles(&self, after: Option<Duration>) {
        self.throttled(|pause, now| pause.throttled(after, now));
    }

    fn throttled(&self, pause: impl FnOnce(&mut Pause, Instant)) {
        self.fault("throttled");
        let now = Instant::now();
        let mut state = self.state();
        pause(&mut state.pause, now);
        state.window.refused(now);
    }

    /// Time that it still wants to be left alone.
    pub(crate) fn resting(&self) -> Option<Duration> {
        let now = Instant::now();
        Some(self.state().pause.until(now)?.duration_since(now))
    }

    /// True if a failure may be bad luck. If one request in a hundred fails, neve neither checks again
    /// which chain the upstream has, nor sends it fewer requests at a time. After several in a row it does.
    pub(crate) fn tolerates(&self, error: &CallError) -> bool {
        let luck = matches!(error, CallError::Status(..) | CallError::TimedOut(_));
        let mut state = self.state();
        state.failures += 1;
        let forgiven = luck && state.failures <= FORGIVEN;
        if forgiven {
            let (in_a_row, now) = (state.failures, Instant::now());
            // A timeout says that there are too many requests; an HTTP status may be bad luck.
            match error {
                CallError::TimedOut(_) => state.window.refused(now),
                _ => state.window.failed(in_a_row, now),
            }
            drop(state);
            self.fault(error.reason());
        }
        forgiven
    }

    /// Notes that it did not answer, or not as an upstream does: its monitor looks after it.
    pub(crate) fn fails(&self, error: CallError) {
        let mut state = self.state();
        state.window.refused(Instant::now());
        state.admitted = false;
        // The first error is the cause: those behind it follow from it.
        state.failure.get_or_insert(error);
        self.failed.notify_one();
    }

    /// Waits until it failed.
    pub(crate) async fn failure(&self) -> CallError {
        loop {
            // Before the wait: it may have failed before anything waited for it.
            if let Some(error) = self.state().failure.take() {
                return error;
            }
            self.failed.notified().await;
        }
    }

    /// Penalizes it for data that was rejected. `why` is its error until it gives a height after the penalty.
    pub(crate) fn penalize(&self, reason: &'static str, why: &str) {
        self.fault(reason);
        let now = Instant::now();
        let mut state = self.state();
        let time = state.penalized.map_or(DOUBT, |(until, time)| {
            // False answers within one penalty are one offence; a later one doubles it.
            if until > now { time } else { (2 * time).min(DOUBT_MAX) }
        });
        state.penalized = Some((now + time, time));
        state.rejection = Some(PeerText::new(why).to_string());
    }

    /// Penalizes a mirror source that withdrew heights which it gave.
    pub(crate) fn withdrew(&self) {
        self.penalize("withdrew", "it withdrew heights that it had sent");
    }

    /// Notes that it lacks a height that it should have: it is too young, or prunes.
    pub(crate) fn mark_missing(&self, height: u64) {
        self.fault("missing_height");
        let (mut state, now) = (self.state(), Instant::now());
        let before = state.lacks.filter(|(_, until)| *until > now).map_or(0, |(below, _)| below);
        // A node that lacks a height lacks those below, too. For a while only: it may catch up.
        state.lacks = Some((before.max(height + 1), now + LACKS));
    }

    fn fault(&self, reason: &'static str) {
        let upstream = self.name.clone();
        counter!("neve_upstream_faults_total", "upstream" => upstream, "reason" => reason)
            .increment(1);
    }

    /// Last error, until it is admitted again.
    pub(crate) fn error(&self) -> Option<String> {
        self.state().error.clone()
    }

    /// Status for /health. `rules` are the newest of all upstreams.
    pub(crate) fn status(&self, rules: Rules) -> UpstreamStatus {
        let now = Instant::now();
        let state = self.state();
        UpstreamStatus {
            url: self.name.clone(),
            state: state.name(rules, now),
            error: state.error.as_ref().or(state.rejection.as_ref()).cloned(),
            retry_at: if state.admitted { state.resting(now) } else { state.retry_at },
            head: state.admitted.then_some(state.head),
            lacks_below: state.lacks.filter(|(_, until)| *until > now).map(|(below, _)| below),
            rules: state.rules,
            unproven_head: state.unproven_head,
            window: state.window.size(),
            in_flight: state.in_flight,
            answer_seconds: state.window.mean(),
            heights: self.heights(),
        }
    }
}

/// True if a head is so little above one that is believed that its block is just asked for.
pub(crate) fn is_near(head: u64, believed: u64) -> bool {
    head <= believed.saturating_add(LATE)
}

impl State {
    fn name(&self, rules: Rules, now: Instant) -> &'static str {
        if !self.admitted {
            self.phase.name()
        } else if self.rules == Rules::BeforeHelicon && rules == Rules::Helicon {
            "old_rules"
        } else if self.resting(now).is_some() {
            "paused"
        } else if self.penalized(now) {
            "penalized"
        } else {
            "up"
        }
    }

    /// True if what it answers shows how the chain is: it is admitted, and names no head that it cannot show.
    pub(super) fn is_in_use(&self) -> bool {
        self.admitted && self.unproven_head.is_none()
    }

    pub(crate) fn penalized(&self, now: Instant) -> bool {
        self.penalized.is_some_and(|(until, _)| until > now)
    }

    /// Time until which it is left alone.
    pub(crate) fn resting(&self, now: Instant) -> Option<Instant> {
        self.pause.until(now)
    }

    /// True if it can be asked for a height: it is admitted, and has got there.
    pub(super) fn may_have(&self, height: u64, helicon: bool) -> bool {
        // Answers by rules that the others have left would be rejected.
        let is_old = helicon && self.rules == Rules::BeforeHelicon;
        self.admitted && !is_old && self.head >= height
    }

    /// Time until which it is not asked for `height`, which it lacks.
    pub(crate) fn lacking(&self, height: u64, now: Instant) -> Option<Instant> {
        let (below, until) = self.lacks?;
        (height < below && until > now).then_some(until)
    }
}

#[cfg(test)]
pub(crate) mod tests;
