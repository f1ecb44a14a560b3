//! Limits and quality of one upstream, as relayed requests see it. Pure: the time comes from the
//! caller.

mod pace;

use std::time::{Duration, Instant};

use self::pace::SharedPace;
use super::breaker::UpstreamBreaker;
use super::failure::{Blame, Failure};
use super::hedge::{self, HeadTimes};
use super::lacks::Lacks;
use crate::shared::ClientAddress;
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
    /// Breaker of the handshakes of WebSockets. Clients have these made: their failures must not stop HTTP calls.
    pub(super) handshakes: UpstreamBreaker,
    pub(super) pace: SharedPace,
    pub(super) lacks: Lacks,
    /// Moving mean of the time to the head of a response, and the time of the last measurement.
    latency: Option<(Duration, Instant)>,
    times: HeadTimes,
    /// Time until which a request that tries it is waited for.
    probed: Option<Instant>,
    /// Time until which it is asked last, because it did not answer.
    doubted: Option<Instant>,
    /// Time until which it is asked last for a WebSocket, because it opened none.
    socketless: Option<Instant>,
}

/// Order of an upstream among others: the least is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UpstreamRank {
    /// True if it did not answer a moment ago.
    pub(super) doubted: bool,
    latency: Duration,
}

impl UpstreamGate {
    pub(super) fn new(limiter: RateLimiter, now: Instant) -> Self {
        Self {
            breaker: UpstreamBreaker::default(),
            handshakes: UpstreamBreaker::default(),
            pace: SharedPace::new(limiter, now),
            lacks: Lacks::default(),
            latency: None,
            times: HeadTimes::default(),
            probed: None,
            doubted: None,
            socketless: None,
        }
    }

    /// Takes the right of a client to make a request that will be measured; `following` is the pace of all requests
    /// to the upstream, if it is followed.
    pub(super) fn enter(
        &mut self,
        address: ClientAddress,
        following: Option<&mut RateLimiter>,
        now: Instant,
    ) -> Result<(), Failure> {
        self.enter_socket(address, following, now)?;
        // For a while no other request tries it: see `rank`.
        if self.is_due(now) {
            self.probed = Some(now + PROBE);
        }
        Ok(())
    }

    /// Takes the right to open a WebSocket, whose outcome is noted by [`Self::note_handshake`].
    pub(super) fn enter_handshake(
        &mut self,
        address: ClientAddress,
        following: Option<&mut RateLimiter>,
        now: Instant,
    ) -> Result<(), Failure> {
        if !self.handshakes.allows(now) {
            return Err(Failure::NoUpstream);
        }
        self.enter_socket(address, following, now)
    }

    /// Takes the right to make a request over a WebSocket. Its time and its outcome say nothing of HTTP.
    pub(super) fn enter_socket(
        &mut self,
        address: ClientAddress,
        following: Option<&mut RateLimiter>,
        now: Instant,
    ) -> Result<(), Failure> {
        self.pass(address, following, now, self.breaker.allows(now))
    }

    /// Takes the right to make a request that may go to no other upstream: it goes to one that fails, too.
    pub(super) fn enter_despite_failures(
        &mut self,
        address: ClientAddress,
        following: Option<&mut RateLimiter>,
        now: Instant,
    ) -> Result<(), Failure> {
        self.pass(address, following, now, !self.breaker.is_paused(now))
    }

    fn pass(
        &mut self,
        address: ClientAddress,
        following: Option<&mut RateLimiter>,
        now: Instant,
        allows: bool,
    ) -> Result<(), Failure> {
        let busy = |pace: &mut RateLimiter| !pace.wait(now).is_zero();
        // Both limits hold: the relay's own, and that of the upstream, which following shares.
        let is_busy = !self.pace.allows(address, now) || following.is_some_and(busy);
        if is_busy {
            return Err(Failure::Limited);
        }
        if !allows {
            return Err(Failure::NoUpstream);
        }
        self.pace.made(address, now);
        Ok(())
    }

    /// Notes how a handshake ended. No call of a client is at fault, so one that takes too long is a failure.
    pub(super) fn note_handshake(&mut self, failure: Option<Failure>, now: Instant) {
        let is_broken =
            |failure: Failure| failure == Failure::TimedOut || failure.blame() == Blame::Upstream;
        if failure.is_some_and(is_broken) {
            self.handshakes.failed(now);
        } else {
            self.handshakes.succeeded();
        }
        // A handshake that is at fault itself says nothing of others: one client would send those of all elsewhere.
        if failure.is_none_or(|failure| failure.blame() != Blame::Call) {
            self.socketless = failure.map(|_| now + DOUBT);
        }
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
        hedge::hedge_after(&self.times)
    }

    /// Notes that the connection broke, or that no response came of it.
    pub(super) fn failed(&mut self, now: Instant) {
        self.breaker.suspect(now);
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

    /// Returns its order for a WebSocket.
    pub(super) fn socket_rank(&self, now: Instant) -> UpstreamRank {
        let rank = self.rank(true, now);
        let is_socketless = self.socketless.is_some_and(|until| now < until);
        UpstreamRank { doubted: rank.doubted || is_socketless, ..rank }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arc_swap::ArcSwap;

    use super::pace::FORGET;
    use super::*;
    use crate::config::settings::{LiveRate, LiveRates, Rates};
    use crate::shared::tests::address;

    const MILLI: Duration = Duration::from_millis(1);

    fn gate(now: Instant) -> UpstreamGate {
        let rate = LiveRate::new(&LiveRates::default(), |rates| rates.relay, None);
        UpstreamGate::new(RateLimiter::new(rate, now), now)
    }

    /// A gate with a rate of relayed requests.
    fn paced(rate: f64, now: Instant) -> UpstreamGate {
        let rates = Rates { relay: Some(Some(rate)), ..Rates::default() };
        let rates: LiveRates = Arc::new(ArcSwap::from_pointee(rates));
        let rate = LiveRate::new(&rates, |rates| rates.relay, None);
        UpstreamGate::new(RateLimiter::full(rate, now), now)
    }

    /// Requests of the client at `last` that the gate admits at once.
    fn admitted(gate: &mut UpstreamGate, last: u8, now: Instant) -> usize {
        (0..99).take_while(|_| gate.enter(address(last), None, now).is_ok()).count()
    }

    #[test]
    fn address_beyond_its_share_leaves_a_share_to_others() {
        let now = Instant::now();
        let mut gate = paced(8.0, now);
        assert_eq!(admitted(&mut gate, 1, now), 6);
        assert_eq!(admitted(&mut gate, 2, now), 2);
        // Of eight a second each of four that want all has two.
        let mut had = [0; 4];
        for step in 1..=100 {
            let now = now + step * 80 * MILLI;
            for (last, had) in (1..).zip(&mut had) {
                *had += admitted(&mut gate, last, now);
            }
        }
        assert!(had.iter().all(|had| (15..=19).contains(had)), "{had:?}");
    }

    #[test]
    fn lone_address_has_the_whole_rate() {
        for rate in [0.1, 1.0, 1.25, 2.0, 8.0, 100.0] {
            let now = Instant::now();
            let mut gate = paced(rate, now);
            admitted(&mut gate, 1, now);
            let at = |step: u32| now + step * Duration::from_secs_f64(0.05 / rate);
            let had: usize = (1..=2000).map(|step| admitted(&mut gate, 1, at(step))).sum();
            assert!((94..=101).contains(&had), "{had} of 100 at {rate} a second");
        }
    }

    #[test]
    fn address_that_has_its_share_again_is_forgotten() {
        let now = Instant::now();
        let mut gate = paced(8.0, now);
        (1..=8).for_each(|last| assert!(gate.enter(address(last), None, now).is_ok()));
        assert_eq!(gate.pace.used.len(), 8);
        gate.enter(address(9), None, now + FORGET).unwrap();
        assert_eq!(gate.pace.used.len(), 1);
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
    fn response_that_is_none_does_not_rank() {
        let now = Instant::now();
        let [mut wrong, mut slow] = [(); 2].map(|()| gate(now));
        slow.answered(1000 * MILLI, now);
        wrong.answered(MILLI, now);
        wrong.misanswered(Failure::Status(502), now);
        assert!(slow.rank(true, now) < wrong.rank(true, now), "it is asked last");
        (0..4).for_each(|_| wrong.misanswered(Failure::NotJson, now));
        assert!(wrong.enter(address(1), None, now).is_ok() && wrong.breaker.begins_probe(now));
        wrong.breaker.note_probe(false, now);
        assert_eq!(wrong.enter(address(1), None, now), Err(Failure::NoUpstream));
        assert_eq!(wrong.enter_despite_failures(address(1), None, now), Ok(()));
        // The next one that is answered says that it works.
        let later = now + 1000 * MILLI;
        (0..9).for_each(|_| assert!(wrong.enter(address(1), None, later).is_ok()));
        wrong.misanswered(Failure::NotServed, later);
        assert!(!wrong.breaker.begins_probe(later));
        wrong.breaker.pause(1000 * MILLI, later);
        let paused = wrong.enter_despite_failures(address(1), None, later);
        assert_eq!(paused, Err(Failure::NoUpstream));
    }

    #[test]
    fn call_at_fault_keeps_no_upstream_from_others() {
        let now = Instant::now();
        let mut gate = gate(now);
        let statuses = [400, 413, 414, 415, 422, 431].map(Failure::Status);
        for failure in [Failure::TooLong(1), Failure::NotServed].into_iter().chain(statuses) {
            (0..99).for_each(|_| gate.misanswered(failure, now));
            assert!(gate.enter(address(1), None, now).is_ok(), "{failure:?}");
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
        missing.enter(address(1), None, now).unwrap();
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
    fn unmeasured_upstream_is_tried_by_one_request_at_a_time() {
        let now = Instant::now();
        let [mut quick, mut slow, mut other] = [(); 3].map(|()| gate(now));
        quick.answered(10 * MILLI, now);
        assert!(slow.rank(true, now) < quick.rank(true, now), "one tries it");
        slow.enter(address(1), None, now).unwrap();
        assert!(quick.rank(true, now) < slow.rank(true, now), "and no other one meanwhile");
        slow.answered(1000 * MILLI, now);
        let later = now + MEASURED;
        quick.answered(10 * MILLI, later);
        assert!(slow.rank(true, later) < quick.rank(true, later), "it may have become quicker");
        slow.enter(address(1), None, later).unwrap();
        assert_eq!(
            slow.rank(true, later).latency,
            1000 * MILLI,
            "the last measurement counts meanwhile"
        );
        assert!(
            slow.rank(true, later + PROBE) < quick.rank(true, later),
            "its client may have left"
        );
        other.enter_handshake(address(1), None, now).unwrap();
        assert_eq!(other.rank(true, now).latency, Duration::ZERO, "nothing tries it");
        other.enter(address(1), None, now).unwrap();
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

    #[test]
    fn handshakes_of_websockets_say_nothing_of_http() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut gate = gate(now);
        for failure in [Failure::Unreachable, Failure::TimedOut, Failure::Status(500)] {
            (0..9).for_each(|_| gate.note_handshake(Some(failure), now));
            assert_eq!(gate.enter_handshake(address(1), None, now), Err(Failure::NoUpstream));
            assert!(gate.breaker.allows(now) && !gate.rank(true, now).doubted, "{failure:?}");
            assert!(gate.socket_rank(now).doubted, "{failure:?}");
            // Another status says that it works, and that it may not have WebSockets.
            gate.note_handshake(Some(Failure::Status(404)), now);
            assert!(gate.enter_handshake(address(1), None, now).is_ok(), "{failure:?}");
            assert!(gate.socket_rank(now).doubted, "{failure:?}");
        }
        // Nor do they end the failures of HTTP, or the pause after them.
        (0..5).for_each(|_| gate.failed(now));
        gate.note_handshake(None, now);
        assert!(gate.breaker.begins_probe(now));
        gate.breaker.note_probe(false, now);
        assert_eq!(gate.enter_handshake(address(1), None, now), Err(Failure::NoUpstream));
        let later = now + second;
        assert!(gate.enter_handshake(address(1), None, later).is_ok());
        assert!(gate.enter_socket(address(1), None, later).is_ok());
    }
}
