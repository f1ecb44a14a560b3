//! Limits of an upstream: requests at a time, and requests a second. Pure: the time comes from the
//! caller.

use std::time::{Duration, Instant};

use crate::client::Backoff;
use crate::config::settings::LiveRate;
use crate::shared::TokenBucket;

/// Heights in flight at first: an upstream that nothing is known of.
const BEGIN: f64 = 8.0;
/// Time of the quickest answers below which an upstream is near. There a head takes as long as the other
/// requests before it.
const NEAR: Duration = Duration::from_millis(10);
/// Time after which the quickest time is forgotten, because an upstream may become slower for good. It is a time
/// and not a number of samples: a large window gives many samples before a queue shows.
const FORGET: Duration = Duration::from_mins(10);
/// Largest multiple of the mean that one answer counts as. One answer in twenty may be twenty times as slow,
/// because of a disk or a network, without any queue. In a queue all answers become slower.
const OUTLIER: f64 = 2.0;
/// Waits of an upstream that throttles.
const THROTTLED_FIRST: Duration = Duration::from_millis(250);
const THROTTLED_MAX: Duration = Duration::from_secs(30);
/// The share of an old mean that a new one keeps.
const KEEP: f64 = 0.9;

/// Limit of the time that responses wait for each other at the upstream.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Queue {
    /// Multiple of the quickest time from which an answer must have waited for others. More requests at
    /// a time would only make it wait longer.
    times: f64,
    /// Below this, waiting is not worth a smaller window.
    at_least: Duration,
}

impl Queue {
    const USUAL: Self = Self { times: 3.0, at_least: Duration::from_millis(5) };
    /// Limit for an upstream on the same host, beside heads.
    const BESIDE_HEADS: Self = Self { times: 2.0, at_least: Duration::from_millis(3) };

    /// Limit for history, beside which heads are followed, if the upstream's quickest responses
    /// take so long.
    fn of_history(quickest: f64) -> Self {
        if quickest < NEAR.as_secs_f64() { Self::BESIDE_HEADS } else { Self::USUAL }
    }

    fn limit(self, quickest: f64) -> f64 {
        (quickest * self.times).max(self.at_least.as_secs_f64())
    }
}

/// Heights that may be in flight, by additive increase and multiplicative decrease.
#[derive(Debug, Clone)]
pub(crate) struct ConcurrencyLimit {
    size: f64,
    max: f64,
    /// Seconds that recent responses took, and the quickest ones.
    mean: f64,
    quickest: f64,
    /// Time when the last one came.
    last: Option<Instant>,
    /// Time of the last decrease: it shrinks once for requests that were in flight together.
    shrunk: Option<Instant>,
}

impl ConcurrencyLimit {
    pub(crate) fn new(max: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "it is at most 1024")]
        let max = max as f64;
        Self { size: BEGIN.min(max), max, mean: 0.0, quickest: 0.0, last: None, shrunk: None }
    }

    /// Heights that may be in flight.
    pub(crate) fn size(&self) -> usize {
        #[expect(clippy::cast_sign_loss, reason = "it is at least 1")]
        let size = self.size as usize;
        size
    }

    /// Seconds that an answer takes.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    /// An answer came after `took`, while `in_flight` were asked for. The window grows by one each
    /// time that it was used up and answered, unless answers begin to wait for each other.
    pub(crate) fn answered(
        &mut self,
        took: Duration,
        in_flight: usize,
        history: bool,
        now: Instant,
    ) {
        self.measure(took.as_secs_f64(), now);
        let queue = if history { Queue::of_history(self.quickest) } else { Queue::USUAL };
        if self.mean > queue.limit(self.quickest) {
            self.shrink(0.8, now);
        // A window that was not used up says nothing about a larger one.
        } else if in_flight + 1 >= self.size() {
            self.size = (self.size + 1.0 / self.size).min(self.max);
        }
    }

    /// Notes the seconds that a response took.
    fn measure(&mut self, took: f64, now: Instant) {
        let first = self.mean == 0.0;
        // One very slow answer says little: its weight is bounded.
        let seen = took.min(OUTLIER * self.mean);
        self.mean = if first { took } else { self.mean.mul_add(KEEP, seen * (1.0 - KEEP)) };
        let since = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        // The quickest time rises slowly: an upstream that has become slower for good would
        // otherwise count as queued for ever.
        let forgotten = 1.0 + since.as_secs_f64() / FORGET.as_secs_f64();
        self.quickest = if first { took } else { took.min(self.quickest * forgotten) };
        self.last = Some(now);
    }

    /// The upstream refused, or did not answer.
    pub(crate) fn refused(&mut self, now: Instant) {
        self.shrink(0.5, now);
    }

    /// Notes a failure of the upstream, with the number of failures in a row. The first may be bad luck.
    pub(crate) fn failed(&mut self, in_a_row: u32, now: Instant) {
        if in_a_row > 1 {
            self.refused(now);
        }
    }

    fn shrink(&mut self, by: f64, now: Instant) {
        // What is in flight was sent with the larger window, so there is one step a round.
        let pause = Duration::from_secs_f64(self.mean.clamp(0.01, 10.0));
        if self.shrunk.is_none_or(|at| now.duration_since(at) >= pause) {
            self.size = (self.size * by).max(1.0);
            self.shrunk = Some(now);
        }
    }
}

/// Requests a second: as many as one second has may come at once after a pause.
pub(crate) struct RateLimiter {
    rate: LiveRate,
    bucket: TokenBucket,
}

impl RateLimiter {
    pub(crate) fn new(rate: LiveRate, now: Instant) -> Self {
        let bucket = TokenBucket::new(rate.get().unwrap_or_default(), now);
        Self { rate, bucket }
    }

    /// A limiter whose first request need not wait, however low the rate.
    pub(crate) fn full(rate: LiveRate, now: Instant) -> Self {
        let bucket = TokenBucket::new(rate.get().unwrap_or_default().max(1.0), now);
        Self { rate, bucket }
    }

    /// Requests a second now; `None`: no limit.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate.get()
    }

    /// Time until a request may be made; zero for now.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        self.wait_for(1.0, now)
    }

    /// Time until so many requests may be made at once; zero for now.
    pub(crate) fn wait_for(&mut self, requests: f64, now: Instant) -> Duration {
        if let Some(a_second) = self.rate.get() {
            return self.bucket.wait_for(requests, a_second, now);
        }
        self.bucket.pass(now);
        Duration::ZERO
    }

    /// Notes that so many requests were made. Those that could not wait make the next ones wait
    /// longer.
    pub(crate) fn made(&mut self, requests: u32) {
        // Without a limit nothing is owed when a reload sets one.
        if self.rate.get().is_some() {
            self.bucket.take(f64::from(requests));
        }
    }
}

/// Pause of the requests to an upstream that throttles.
#[derive(Debug)]
pub(crate) struct Pause {
    until: Option<Instant>,
    /// Waits while it gives no height.
    waits: Backoff,
}

impl Pause {
    pub(crate) fn new() -> Self {
        Self { until: None, waits: Backoff::new(THROTTLED_FIRST, THROTTLED_MAX) }
    }

    /// End of the pause, if there is one now.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }

    pub(crate) fn at_least(&mut self, time: Duration, now: Instant) {
        let until = now + time;
        // Responses in flight may ask for less time than one before: the longest counts.
        self.until = Some(self.until.map_or(until, |before| before.max(until)));
    }

    /// Notes a request that was throttled, to be repeated `after` that time.
    pub(crate) fn throttled(&mut self, after: Option<Duration>, now: Instant) {
        if self.until.is_some_and(|until| now > until + 2 * THROTTLED_MAX) {
            self.waits.reset(); // a standby may never give a height
        }
        // Those that were in flight together are throttled together: only the first lengthens the next wait.
        let own = if self.until(now).is_some() { Duration::ZERO } else { self.waits.wait() };
        self.at_least(own.max(after.unwrap_or_default()), now);
    }

    pub(crate) fn gave_height(&mut self) {
        self.waits.reset();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arc_swap::ArcSwap;

    use super::*;
    use crate::config::settings::{LiveRates, Rates};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pause_grows_while_no_height_comes_and_once_for_requests_in_flight_together() {
        let (mut pause, mut now) = (Pause::new(), Instant::now());
        let mut paused = |pause: &mut Pause| {
            (0..9).for_each(|_| pause.throttled(Some(100 * MS), now));
            let until = pause.until(now).expect("a pause");
            let took = until.duration_since(now);
            now = until;
            took
        };
        let first = paused(&mut pause);
        assert!(first >= 125 * MS && first <= 250 * MS, "{first:?}");
        let second = paused(&mut pause);
        assert!(second >= 250 * MS && second <= 500 * MS, "{second:?}");
        pause.gave_height();
        assert!(paused(&mut pause) <= 250 * MS);
        assert!(paused(&mut pause) > 250 * MS / 2);
        now += 61 * Duration::from_secs(1);
        assert_eq!(pause.until(now), None);
        pause.throttled(None, now);
        let long_after = pause.until(now).expect("a pause").duration_since(now);
        assert!(long_after <= 250 * MS, "{long_after:?}");
    }

    #[test]
    fn the_window_grows_by_one_a_round_and_halves_once_a_round() {
        let mut now = Instant::now();
        let mut window = ConcurrencyLimit::new(64);
        let round = |window: &mut ConcurrencyLimit, now: &mut Instant| {
            let size = window.size();
            for _ in 0..size {
                window.answered(30 * MS, size, false, *now);
            }
            *now += 30 * MS;
        };
        (0..10).for_each(|_| round(&mut window, &mut now));
        assert!((16..=18).contains(&window.size()), "{window:?}");
        let before = window.size();
        (0..before).for_each(|_| window.refused(now));
        assert_eq!(window.size(), before / 2);
        (0..200).for_each(|_| round(&mut window, &mut now));
        assert_eq!(window.size(), 64);
        for _ in 0..20 {
            now += Duration::from_secs(1);
            window.refused(now);
        }
        assert_eq!(window.size(), 1);
    }

    #[test]
    fn second_failure_in_a_row_halves_the_window() {
        let now = Instant::now();
        let mut window = ConcurrencyLimit::new(64);
        window.failed(1, now);
        assert_eq!(window.size(), 8);
        window.failed(2, now);
        assert_eq!(window.size(), 4);
    }

    #[test]
    fn a_window_that_is_not_used_up_does_not_grow() {
        let mut window = ConcurrencyLimit::new(64);
        (0..100).for_each(|_| window.answered(30 * MS, 1, false, Instant::now()));
        assert_eq!(window.size(), 8);
    }

    /// The upstream answers all, only later and later.
    #[test]
    fn the_window_settles_where_answers_begin_to_wait() {
        assert!((10..=50).contains(&settled(50 * MS, 10, false)));
    }

    #[test]
    fn beside_heads_less_history_is_asked_of_who_is_next_door() {
        let near = [false, true].map(|history| settled(2 * MS, 4, history));
        assert!(near[0] > near[1] && near[1] >= 4, "{near:?}");
        let far = [false, true].map(|history| settled(50 * MS, 4, history));
        assert_eq!(far[0], far[1]);
    }

    /// The median window when `at_once` answers take `took`, and more wait for each other.
    fn settled(took: Duration, at_once: u32, history: bool) -> usize {
        let (mut now, mut window, mut sizes) =
            (Instant::now(), ConcurrencyLimit::new(1024), Vec::new());
        for _ in 0..2000 {
            let size = window.size();
            let took = took * (size as u32).max(at_once) / at_once;
            (0..size).for_each(|_| window.answered(took, size, history, now));
            now += took;
            sizes.push(size);
        }
        sizes.sort_unstable();
        sizes[1000]
    }

    /// Makes a response in twenty twenty times as slow, for any request.
    #[test]
    fn slow_answers_among_quick_ones_are_no_queue() {
        for (usual, history) in [(40 * MS, false), (40 * MS, true), (2 * MS, true)] {
            let (mut now, mut window) = (Instant::now(), ConcurrencyLimit::new(64));
            for answer in 0..20_000_u32 {
                let took = if answer % 20 == 7 { 20 * usual } else { usual };
                let size = window.size();
                window.answered(took, size, history, now);
                now += 2 * MS;
            }
            assert_eq!(window.size(), 64, "{window:?}");
        }
    }

    fn rates(upstream: Option<f64>) -> LiveRates {
        let all = Rates { upstream: Some(upstream), ..Rates::default() };
        Arc::new(ArcSwap::from_pointee(all))
    }

    #[test]
    fn limiter_follows_a_rate_that_is_reloaded() {
        let (start, rates) = (Instant::now(), rates(Some(0.5)));
        let mut pace = RateLimiter::full(LiveRate::new(&rates, |all| all.upstream, None), start);
        assert!(pace.wait(start).is_zero());
        pace.made(1);
        assert_eq!(pace.wait(start), Duration::from_secs(2));
        let reload = |upstream| {
            rates.store(Arc::new(Rates { upstream, ..Rates::default() }));
        };
        reload(Some(Some(4.0)));
        assert_eq!(pace.wait(start), Duration::from_millis(250));
        reload(Some(None));
        pace.made(1000);
        assert!(pace.wait(start).is_zero(), "there is no limit");
        reload(Some(Some(4.0)));
        assert_eq!(pace.wait(start), Duration::from_millis(250), "what had no limit is not owed");
        reload(None);
        assert!(pace.wait(start).is_zero(), "the default has no limit");
    }

    #[test]
    fn requests_are_paced() {
        let start = Instant::now();
        let mut pace =
            RateLimiter::new(LiveRate::new(&rates(Some(20.0)), |all| all.upstream, None), start);
        let mut made = 0;
        for step in 0..3000 {
            let now = start + MS * step;
            if pace.wait(now).is_zero() {
                pace.made(2);
                made += 2;
            }
        }
        // A second's worth at once, and three seconds'; two at a time may overdraw by one.
        assert!((78..=82).contains(&made), "{made}");
        let end = start + 3 * Duration::from_secs(1);
        pace.made(40);
        assert!(pace.wait(end) > Duration::from_secs(1));
        assert!(pace.wait(end + 3 * Duration::from_secs(1)).is_zero());
    }
}
