//! Circuit breaker: an upstream that fails is left alone for a while. Pure: the time comes from the
//! caller.

use std::time::{Duration, Instant};

/// Failures in a row after which the breaker opens.
const FAILURES_MAX: u32 = 5;
/// Time for which it is open at first; twice as long each further time.
const OPEN: Duration = Duration::from_secs(1);
/// Longest time for which it is open: an upstream that works again is asked again soon.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// Longest pause that an upstream can ask for.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// State of the breaker of one upstream.
#[derive(Debug, Default)]
pub(super) struct UpstreamBreaker {
    /// Failures since the last success.
    failures: u32,
    /// No request is made before then.
    closed_from: Option<Instant>,
    /// Time of the last opening.
    open: Duration,
    /// True while one request tries whether the upstream works again.
    trying: bool,
    /// Time until which the upstream wants to be left alone. Responses to older requests end no pause.
    paused: Option<Instant>,
}

impl UpstreamBreaker {
    /// Takes the right to make a request. While the breaker is about to close, one request at a time
    /// gets it.
    pub(super) fn enter(&mut self, now: Instant) -> bool {
        if !self.allows(now) {
            return false;
        }
        if self.failures >= FAILURES_MAX {
            self.closed_from = Some(now + OPEN); // others wait for this one's outcome
            self.trying = true;
        }
        true
    }

    /// True if a request may be made. One that does not enter takes no right from others, and has no outcome.
    pub(super) fn allows(&self, now: Instant) -> bool {
        self.paused.is_none_or(|until| now >= until) && !self.is_open(now)
    }

    /// True if failures keep requests from the upstream. A pause that it wants is no failure.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.closed_from.is_some_and(|from| now < from)
    }

    /// Notes that the upstream answered. Failures before that count no more.
    pub(super) fn succeeded(&mut self) {
        *self = Self { paused: self.paused, ..Self::default() };
    }

    /// Notes that the upstream did not answer.
    pub(super) fn failed(&mut self, now: Instant) {
        if self.is_open(now) && !std::mem::take(&mut self.trying) && self.failures >= FAILURES_MAX {
            return; // it was made before the breaker opened, as others that failed
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_MAX {
            self.open = (2 * self.open).clamp(OPEN, OPEN_MAX);
            self.closed_from = Some(now + self.open);
        }
    }

    /// The upstream wants to be left alone for `time`.
    pub(super) fn pause(&mut self, time: Duration, now: Instant) {
        let until = now + time.min(PAUSE_MAX);
        self.paused = Some(self.paused.map_or(until, |longest| longest.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn breaker_opens_after_failures_in_a_row_and_tries_one_request() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        (0..4).for_each(|_| breaker.failed(now));
        assert!(breaker.enter(now));
        breaker.failed(now);
        assert!(!breaker.enter(now) && !breaker.enter(now + SECOND / 2));
        assert!(breaker.enter(now + SECOND), "one request tries");
        assert!(!breaker.enter(now + SECOND), "others wait for it");
        breaker.failed(now + SECOND);
        assert!(!breaker.enter(now + 2 * SECOND), "twice as long");
        assert!(breaker.enter(now + 3 * SECOND));
        breaker.succeeded();
        assert!(breaker.enter(now + 3 * SECOND) && breaker.enter(now + 3 * SECOND));
    }

    #[test]
    fn failures_of_requests_at_once_open_the_breaker_once() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        (0..256).for_each(|_| breaker.failed(now));
        assert!(!breaker.enter(now + SECOND / 2) && breaker.enter(now + SECOND));
        (0..256).for_each(|_| breaker.failed(now + SECOND));
        assert!(!breaker.enter(now + 2 * SECOND) && breaker.enter(now + 3 * SECOND));
    }

    #[test]
    fn breaker_is_never_open_for_long() {
        let (mut now, mut breaker) = (Instant::now(), UpstreamBreaker::default());
        (0..4).for_each(|_| breaker.failed(now));
        for _ in 0..20 {
            breaker.failed(now);
            now += OPEN_MAX;
            assert!(breaker.enter(now));
        }
    }

    #[test]
    fn success_between_failures_keeps_the_breaker_closed() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        for _ in 0..20 {
            (0..4).for_each(|_| breaker.failed(now));
            breaker.succeeded();
        }
        assert!(breaker.enter(now));
    }

    #[test]
    fn pause_is_bounded() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        breaker.pause(Duration::from_hours(1), now);
        assert!(!breaker.enter(now + 29 * SECOND) && breaker.enter(now + 30 * SECOND));
        breaker.pause(SECOND, now);
        assert!(!breaker.enter(now + 29 * SECOND), "a later pause shortens none");
    }

    #[test]
    fn response_to_an_older_request_ends_no_pause() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        breaker.pause(3 * SECOND, now);
        breaker.succeeded();
        assert!(!breaker.enter(now + 2 * SECOND) && breaker.enter(now + 3 * SECOND));
        // Nor does it count as open: failures meanwhile count.
        breaker.pause(3 * SECOND, now);
        (0..5).for_each(|_| breaker.failed(now));
        breaker.succeeded();
        assert!(!breaker.enter(now + 2 * SECOND) && breaker.enter(now + 3 * SECOND));
    }
}
