//! Limits and quality of one upstream, as relayed requests see it. Pure: the time comes from the
//! caller.

use std::time::{Duration, Instant};

use super::breaker::UpstreamBreaker;
use super::failure::{Blame, Failure};
use super::hedge::RecentTimes;
use super::lacks::Lacks;
use crate::upstream::RateLimiter;

/// Time for which an upstream that did not answer is asked last.
const DOUBT: Duration = Duration::from_secs(10);
/// Time after which a measured latency is old, so that the upstream is tried again.
const MEASURED: Duration = Duration::from_secs(10);
/// Time for which one request that tries an upstream is waited for, before another one may.
const PROBE: Duration = Duration::from_secs(10);

/// Limits and quality of one upstream.
pub(super) struct UpstreamGate {
    pub(super) breaker: UpstreamBreaker,
    pub(super) pace: RateLimiter,
    pub(super) lacks: Lacks,
    /// Moving mean of the time to the head of a response, and the time of the last measurement.
    latency: Option<(Duration, Instant)>,
    times: RecentTimes,
    /// Time until which a request that tries it is waited for.
    probed: Option<Instant>,
    /// Time until which it is asked last, because it did not answer.
    doubted: Option<Instant>,
}

/// Order of an upstream among others: the least is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UpstreamRank {
    /// True if it did not answer a moment ago.
    pub(super) doubted: bool,
    latency: Duration,
}

impl UpstreamGate {
    pub(super) fn new(pace: RateLimiter) -> Self {
        let (breaker, lacks) = (UpstreamBreaker::default(), Lacks::default());
        let times = RecentTimes::default();
        Self { breaker, pace, lacks, latency: None, times, probed: None, doubted: None }
    }

    /// Takes the right to make a request that will be measured; `following` is the pace of all requests to the
    /// upstream, if it is followed.
    pub(super) fn enter(
        &mut self,
        following: Option<&mut RateLimiter>,
        now: Instant,
    ) -> Result<(), Failure> {
        self.enter_unmeasured(following, now)?;
        // For a while no other request tries it: see `rank`.
        if self.is_due(now) {
            self.probed = Some(now + PROBE);
        }
        Ok(())
    }

    /// Takes the right to make a request whose time says nothing, so that others wait for none.
    pub(super) fn enter_unmeasured(
        &mut self,
        following: Option<&mut RateLimiter>,
        now: Instant,
    ) -> Result<(), Failure> {
        let busy = |pace: &mut RateLimiter| !pace.wait(now).is_zero();
        // Both limits hold: the relay's own, and that of the upstream, which following shares.
        if busy(&mut self.pace) || following.is_some_and(busy) {
            return Err(Failure::Limited);
        }
        // The breaker comes last: it counts on an outcome of each request that it lets in.
        if !self.breaker.enter(now) {
            return Err(Failure::NoUpstream);
        }
        self.pace.made(1);
        Ok(())
    }

    /// True if its latency is not known, or old.
    fn is_due(&self, now: Instant) -> bool {
        self.latency.is_none_or(|(_, at)| now >= at + MEASURED)
    }

    /// Notes a response whose head came after `took`.
    pub(super) fn answered(&mut self, took: Duration, now: Instant) {
        self.took(took, now);
        self.doubted = None;
        self.breaker.succeeded();
    }

    /// Notes a response that was none. Its time says nothing: errors come fast.
    pub(super) fn misanswered(&mut self, failure: Failure, now: Instant) {
        match failure.blame() {
            Blame::Upstream => self.failed(now),
            Blame::Doubt => {
                self.breaker.succeeded();
                self.doubt(now);
            }
            Blame::Call => {
                self.breaker.succeeded();
                // Still not measured: without this it would be tried by each call, and so asked first for ever.
                self.probed = Some(now + PROBE);
            }
            Blame::Noted => {}
        }
    }

    /// Notes that a hedge was quicker: no response came within `waited`, and none is awaited any more.
    pub(super) fn outrun(&mut self, waited: Duration, now: Instant) {
        self.took(waited, now);
    }

    fn took(&mut self, took: Duration, now: Instant) {
        let mean = self.latency.map_or(took, |(mean, _)| (3 * mean + took) / 4);
        self.latency = Some((mean, now));
        self.probed = None;
        self.times.note(took);
    }

    /// Time after which a second upstream is asked for a read; `None` if too little is known.
    pub(super) fn hedge_after(&self) -> Option<Duration> {
        self.times.hedge_after()
    }

    /// Notes that the connection broke, or that no response came of it.
    pub(super) fn failed(&mut self, now: Instant) {
        self.breaker.failed(now);
        self.doubt(now);
    }

    /// Notes that no response came in time. The call may be at fault, so the upstream is asked last
    /// and not left alone.
    pub(super) fn timed_out(&mut self, now: Instant) {
        self.doubt(now);
    }

    fn doubt(&mut self, now: Instant) {
        (self.doubted, self.probed) = (Some(now + DOUBT), None);
    }

    /// Returns its order at this moment for a request that `tries` upstreams or does not. One request at a time
    /// tries an upstream that was not measured lately: if it is slow, all others would wait for it, too.
    pub(super) fn rank(&self, tries: bool, now: Instant) -> UpstreamRank {
        let is_probed = self.probed.is_some_and(|until| now < until);
        // Without a try, an upstream that has not answered since it failed counts as one that never did.
        let known = self.latency.filter(|_| tries || self.doubted.is_none());
        let known = known.map_or(Duration::MAX, |(mean, _)| mean);
        let is_tried = tries && self.is_due(now) && !is_probed;
        UpstreamRank {
            doubted: self.doubted.is_some_and(|until| now < until),
            latency: if is_tried { Duration::ZERO } else { known },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::{LiveRate, LiveRates};

    const MILLI: Duration = Duration::from_millis(1);

    fn gate(now: Instant) -> UpstreamGate {
        let rate = LiveRate::new(&LiveRates::default(), |rates| rates.relay, None);
        UpstreamGate::new(RateLimiter::new(rate, now))
    }

    #[test]
    fn quicker_upstream_is_first_and_one_that_was_not_measured_lately_is_tried() {
        let now = Instant::now();
        let [mut quick, mut slow, new] = [(); 3].map(|()| gate(now));
        quick.answered(10 * MILLI, now);
        slow.answered(50 * MILLI, now);
        assert!(quick.rank(true, now) < slow.rank(true, now));
        assert!(new.rank(true, now) < quick.rank(true, now));
        let later = now + MEASURED;
        quick.answered(10 * MILLI, later);
        assert!(slow.rank(true, later) < quick.rank(true, later), "it may have become quicker");
        slow.answered(10 * MILLI, later);
        assert_eq!(slow.rank(true, later).latency, 40 * MILLI, "a mean of the last ones");
    }

    #[test]
    fn response_that_is_none_neither_ranks_nor_closes_the_breaker() {
        let now = Instant::now();
        let [mut wrong, mut slow] = [(); 2].map(|()| gate(now));
        slow.answered(1000 * MILLI, now);
        wrong.answered(MILLI, now);
        wrong.misanswered(Failure::Status(502), now);
        assert!(slow.rank(true, now) < wrong.rank(true, now), "it is asked last");
        (0..4).for_each(|_| wrong.misanswered(Failure::NotJson, now));
        assert_eq!(wrong.enter(None, now), Err(Failure::NoUpstream), "the breaker is open");
        // Requests that try a breaker that is about to close: it closes, or is open again.
        let second = 1000 * MILLI;
        wrong.enter(None, now + second).unwrap();
        wrong.misanswered(Failure::NoLength, now + second);
        assert!(wrong.enter(None, now + 2 * second).is_err());
        wrong.enter(None, now + 3 * second).unwrap();
        wrong.misanswered(Failure::NotServed, now + 3 * second);
        assert!((0..9).all(|_| wrong.enter(None, now + 3 * second).is_ok()), "it works");
    }

    #[test]
    fn call_at_fault_keeps_no_upstream_from_others() {
        let now = Instant::now();
        let mut gate = gate(now);
        let statuses = [400, 413, 414, 415, 422, 431].map(Failure::Status);
        for failure in [Failure::TooLong(1), Failure::NotServed].into_iter().chain(statuses) {
            (0..99).for_each(|_| gate.misanswered(failure, now));
            assert!(gate.enter(None, now).is_ok(), "{failure:?}");
            assert!(!gate.rank(true, now).doubted, "{failure:?}");
        }
        gate.misanswered(Failure::Status(404), now);
        assert!(gate.rank(true, now).doubted, "its path may be wrong");
    }

    #[test]
    fn upstream_that_misses_calls_is_tried_once_in_a_while() {
        let now = Instant::now();
        let [mut known, mut missing] = [(); 2].map(|()| gate(now));
        known.answered(10 * MILLI, now);
        missing.enter(None, now).unwrap();
        missing.misanswered(Failure::NotServed, now);
        assert!(known.rank(true, now) < missing.rank(true, now));
        let later = now + PROBE;
        known.answered(10 * MILLI, later);
        assert!(missing.rank(true, later) < known.rank(true, later));
    }

    #[test]
    fn request_that_tries_none_goes_to_an_upstream_that_has_answered() {
        let now = Instant::now();
        let [mut known, mut stalled, new] = [(); 3].map(|()| gate(now));
        known.answered(20 * MILLI, now);
        stalled.answered(MILLI, now);
        assert!(stalled.rank(false, now) < known.rank(false, now));
        assert!(known.rank(false, now) < new.rank(false, now));
        stalled.timed_out(now);
        let later = now + DOUBT;
        known.answered(20 * MILLI, later);
        assert!(stalled.rank(true, later) < known.rank(true, later), "a read tries it");
        assert!(known.rank(false, later) < stalled.rank(false, later), "it may stall still");
        stalled.answered(MILLI, later);
        assert!(stalled.rank(false, later) < known.rank(false, later));
    }

    #[test]
    fn one_request_at_a_time_tries_an_upstream_that_was_not_measured_lately() {
        let now = Instant::now();
        let [mut quick, mut slow, mut other] = [(); 3].map(|()| gate(now));
        quick.answered(10 * MILLI, now);
        assert!(slow.rank(true, now) < quick.rank(true, now), "one tries it");
        slow.enter(None, now).unwrap();
        assert!(quick.rank(true, now) < slow.rank(true, now), "and no other one meanwhile");
        slow.answered(1000 * MILLI, now);
        let later = now + MEASURED;
        quick.answered(10 * MILLI, later);
        assert!(slow.rank(true, later) < quick.rank(true, later), "it may have become quicker");
        slow.enter(None, later).unwrap();
        assert_eq!(
            slow.rank(true, later).latency,
            1000 * MILLI,
            "the last measurement counts meanwhile"
        );
        assert!(
            slow.rank(true, later + PROBE) < quick.rank(true, later),
            "its client may have left"
        );
        other.enter_unmeasured(None, now).unwrap();
        assert_eq!(other.rank(true, now).latency, Duration::ZERO, "nothing tries it");
        other.enter(None, now).unwrap();
        other.failed(now);
        assert_eq!(other.rank(true, now + DOUBT).latency, Duration::ZERO, "it is tried again");
    }

    #[test]
    fn upstream_that_timed_out_is_last_until_it_answers_or_some_time_has_passed() {
        let now = Instant::now();
        let [mut stalled, mut other] = [(); 2].map(|()| gate(now));
        other.answered(100 * MILLI, now);
        stalled.timed_out(now);
        assert!(other.rank(true, now) < stalled.rank(true, now));
        assert!(stalled.rank(true, now + DOUBT) < other.rank(true, now));
        stalled.answered(MILLI, now);
        assert!(stalled.rank(true, now) < other.rank(true, now));
    }
}
