//! Upstreams that were asked for one request, and whether another one may be.

use super::{ATTEMPTS_MAX, RelayRequest, Reply, TokioInstant};
use crate::relay::failure::Failure;
use crate::relay::lacks::Lack;

/// Upstreams that are asked for a call, while each lacks the data or method that it needs.
const LACKING_MAX: usize = 4;

/// Outcome of one upstream.
pub(in crate::relay) enum UpstreamOutcome {
    Good(Reply),
    /// Response of one that lacks what the call needs; another may have it.
    Lacking(Lack, Reply),
    /// Nothing came, and whether nothing was sent.
    Failed(Failure, bool),
}

/// Outcomes of the upstreams that were asked so far.
pub(in crate::relay) struct Tried {
    failure: Failure,
    failures: usize,
    /// Response of one that lacks what the call needs, and how many did.
    lacking: Option<(Lack, Reply)>,
    lacked: usize,
}

impl Tried {
    pub(super) fn new() -> Self {
        Self { failure: Failure::NoUpstream, failures: 0, lacking: None, lacked: 0 }
    }

    /// Notes an upstream that may not be asked now.
    pub(super) fn refused(&mut self, failure: Failure) {
        // The failure of an upstream that was asked says more than the limit of another.
        if self.failures + self.lacked == 0 {
            self.failure = failure;
        }
    }

    fn failed(&mut self, failure: Failure) {
        self.failure = failure;
        // A neve that misses a call works: it lacks what the call needs.
        let count =
            if failure == Failure::NotServed { &mut self.lacked } else { &mut self.failures };
        *count += 1;
    }

    fn lacks(&mut self, lack: Lack, reply: Reply) {
        self.lacked += 1;
        // `null` says more than that a method is not there. Of equal ones that of the better upstream counts.
        if self.lacking.as_ref().is_none_or(|(held, _)| *held < lack) {
            self.lacking = Some((lack, reply));
        }
    }

    /// True if there is a response that only another upstream's can better, and soon.
    pub(in crate::relay) fn may_end(&self) -> bool {
        self.lacking.as_ref().is_some_and(|(lack, _)| lack.is_of_block())
    }

    /// Time at which the next upstream is asked, if there is one that may be.
    pub(super) fn until(
        &self,
        now: TokioInstant,
        deadline: TokioInstant,
        has_next: bool,
    ) -> TokioInstant {
        let again = has_next && self.failures + 1 < ATTEMPTS_MAX;
        // Half of the time that is left: a silent upstream must leave some for the next one.
        if again { now + (deadline - now) / 2 } else { deadline }
    }

    /// True if no other upstream may be asked.
    pub(super) fn is_over(&self) -> bool {
        self.failures >= ATTEMPTS_MAX || self.lacked >= LACKING_MAX
    }

    /// Notes an outcome that is not good.
    pub(in crate::relay) fn note(&mut self, outcome: UpstreamOutcome) {
        match outcome {
            UpstreamOutcome::Good(reply) => self.lacks(Lack::Block, reply),
            UpstreamOutcome::Lacking(lack, reply) => self.lacks(lack, reply),
            UpstreamOutcome::Failed(failure, _) => self.failed(failure),
        }
    }

    /// A node's own error is better than none.
    pub(super) fn end(self) -> Result<Reply, Failure> {
        self.lacking.map(|(_, reply)| reply).ok_or(self.failure)
    }
}

/// True if no upstream may be asked after an outcome that is not good.
pub(super) fn is_last(outcome: &UpstreamOutcome, request: &RelayRequest, others: bool) -> bool {
    match outcome {
        // A 421 says that nothing was done, so another upstream may be asked (RFC 9110, 15.5.20); the
        // same one would say it again.
        UpstreamOutcome::Lacking(..) | UpstreamOutcome::Failed(Failure::NotServed, _) => !others,
        // The upstream may have done it: a second transaction or filter would be another one.
        UpstreamOutcome::Failed(_, unsent) => !(request.repeatable || *unsent),
        UpstreamOutcome::Good(_) => true,
    }
}
