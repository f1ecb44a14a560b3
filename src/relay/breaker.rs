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

/// Time after which a probe has failed.
pub(super) const PROBE_MAX: Duration = Duration::from_secs(2);

/// State of the breaker of one upstream.
#[derive(Debug, Default)]
pub(super) struct UpstreamBreaker {
    /// Failures since the last success.
    failures: u32,
    /// No request is made before then. Behind it all may: a client that kept others waiting for its own request
    /// could hold the upstream.
    closed_from: Option<Instant>,
    /// Time of the last opening.
    open: Duration,
    /// Time until which a probe is waited for.
    probed: Option<Instant>,
    /// Time until which the upstream wants to be left alone. Responses to older requests end no pause.
    paused: Option<Instant>,
}

impl UpstreamBreaker {
    /// True if a request may be made.
    pub(super) fn allows(&self, now: Instant) -> bool {
        !self.is_paused(now) && !self.is_open(now)
    }

    /// True while the upstream wants to be left alone.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.paused.is_some_and(|until| now < until)
    }

    /// True if failures keep requests from the upstream. A pause that it wants is no failure.
    fn is_open(&self, now: Instant) -> bool {
        self.closed_from.is_some_and(|from| now < from)
    }

    /// Notes that the upstream answered. Failures before that count no more.
    pub(super) fn succeeded(&mut self) {
        *self = Self { paused: self.paused, ..Self::default() };
    }

    /// Notes a failure that no client can cause. The fifth in a row opens the breaker, and after that each
    /// one that comes while it is closed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.suspect(now);
        if self.failures >= FAILURES_MAX {
            self.open(now);
        }
    }

    /// Notes a failure that the call of a client may have caused. Only a probe opens the breaker then.
    pub(super) fn suspect(&mut self, now: Instant) {
        // While it is open: the request was made before, as others that failed.
        if !self.is_open(now) {
            self.failures = self.failures.saturating_add(1);
        }
    }

    fn open(&mut self, now: Instant) {
        if !self.is_open(now) {
            self.open = (2 * self.open).clamp(OPEN, OPEN_MAX);
            self.closed_from = Some(now + self.open);
        }
    }

    /// True if so many requests failed that a probe may be due.
    pub(super) fn is_suspect(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// True if a probe is due; the caller makes it, and notes its outcome.
    pub(super) fn begins_probe(&mut self, now: Instant) -> bool {
        let is_probed = self.probed.is_some_and(|until| now < until);
        let is_due = self.is_suspect() && !is_probed && self.allows(now);
        if is_due {
            self.probed = Some(now + PROBE_MAX);
        }
        is_due
    }

    /// Notes the outcome of a probe. A call that was answered meanwhile says more than one that failed.
    pub(super) fn note_probe(&mut self, works: bool, now: Instant) {
        self.probed = None;
        if works {
            self.succeeded();
        } else if self.failures >= FAILURES_MAX {
            self.open(now);
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
    fn breaker_opens_after_failures_in_a_row_and_holds_up_no_request_behind_its_time() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        (0..4).for_each(|_| breaker.failed(now));
        assert!(breaker.allows(now));
        breaker.failed(now);
        assert!(!breaker.allows(now) && !breaker.allows(now + SECOND / 2));
        assert!(
            breaker.allows(now + SECOND),
            "a client that left without an outcome holds nothing"
        );
        breaker.failed(now + SECOND);
        assert!(!breaker.allows(now + 2 * SECOND), "twice as long");
        assert!(breaker.allows(now + 3 * SECOND));
        breaker.succeeded();
        breaker.failed(now + 3 * SECOND);
        assert!(breaker.allows(now + 3 * SECOND));
    }

    #[test]
    fn failures_of_calls_open_the_breaker_only_if_a_probe_fails_too() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        (0..4).for_each(|_| breaker.suspect(now));
        assert!(!breaker.begins_probe(now));
        (0..99).for_each(|_| breaker.suspect(now));
        assert!(breaker.begins_probe(now) && breaker.allows(now));
        assert!(!breaker.begins_probe(now), "one at a time");
        assert!(breaker.begins_probe(now + PROBE_MAX), "the first one was given up");
        breaker.note_probe(true, now);
        assert!(!breaker.begins_probe(now), "the calls were at fault");
        (0..5).for_each(|_| breaker.suspect(now));
        assert!(breaker.begins_probe(now));
        breaker.note_probe(false, now);
        assert!(!breaker.allows(now + SECOND / 2) && !breaker.begins_probe(now + SECOND / 2));
        let later = now + SECOND;
        assert!(breaker.allows(later) && breaker.begins_probe(later), "beside the next call");
        breaker.note_probe(false, later);
        assert!(!breaker.allows(later + SECOND), "twice as long");
        let later = later + 2 * SECOND;
        assert!(breaker.begins_probe(later));
        breaker.succeeded();
        breaker.note_probe(false, later);
        assert!(breaker.allows(later), "a call was answered meanwhile");
    }

    #[test]
    fn failures_of_requests_at_once_open_the_breaker_once() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        (0..256).for_each(|_| breaker.failed(now));
        assert!(!breaker.allows(now + SECOND / 2) && breaker.allows(now + SECOND));
        (0..256).for_each(|_| breaker.failed(now + SECOND));
        assert!(!breaker.allows(now + 2 * SECOND) && breaker.allows(now + 3 * SECOND));
    }

    #[test]
    fn breaker_is_never_open_for_long() {
        let (mut now, mut breaker) = (Instant::now(), UpstreamBreaker::default());
        (0..4).for_each(|_| breaker.failed(now));
        for _ in 0..20 {
            breaker.failed(now);
            now += OPEN_MAX;
            assert!(breaker.allows(now));
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
        assert!(breaker.allows(now));
    }

    #[test]
    fn pause_is_bounded() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        breaker.pause(Duration::from_hours(1), now);
        assert!(!breaker.allows(now + 29 * SECOND) && breaker.allows(now + 30 * SECOND));
        breaker.pause(SECOND, now);
        assert!(!breaker.allows(now + 29 * SECOND), "a later pause shortens none");
    }

    #[test]
    fn response_to_an_older_request_ends_no_pause() {
        let now = Instant::now();
        let mut breaker = UpstreamBreaker::default();
        breaker.pause(3 * SECOND, now);
        breaker.succeeded();
        assert!(!breaker.allows(now + 2 * SECOND) && breaker.allows(now + 3 * SECOND));
        // Nor does it count as open: failures meanwhile count.
        breaker.pause(3 * SECOND, now);
        (0..5).for_each(|_| breaker.failed(now));
        breaker.succeeded();
        assert!(!breaker.allows(now + 2 * SECOND) && breaker.allows(now + 3 * SECOND));
    }
}
