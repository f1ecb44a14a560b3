//! A read that its first upstream is slow to answer goes to a second one; the first good response
//! counts, and the other request ends.

use std::iter::Peekable;
use std::pin::pin;
use std::time::{Duration, Instant};
use std::vec;

use futures_util::future::{Either, select};
use tokio::time::timeout;

use super::exchange::{
    AGREE_MAX, Attempt, Hedged, Relay, RelayRequest, TokioInstant, Tried, UpstreamOutcome,
};
use super::failure::Failure;
use super::hedge::Hedge;
use super::state::Candidate;
use crate::shared::ClientAddress;

/// True if a second upstream may be asked while the first one is slow.
fn may_hedge(request: &RelayRequest) -> bool {
    // A filter has one issuer: a second upstream could only deny it.
    request.repeatable && request.path.is_none() && request.calls.filter.is_none()
}

impl Relay {
    /// Notes a read, of which some in a hundred may be hedged.
    pub(super) fn note_read(&self, request: &RelayRequest) {
        if self.state.hedges.is_on() && may_hedge(request) {
            self.state.hedges.earn();
        }
    }

    /// Time after which a second upstream is asked for a read, if `next` likely has what it needs.
    pub(super) fn hedge_after(
        &self,
        candidate: &Candidate,
        next: Option<&Candidate>,
        request: &RelayRequest,
    ) -> Option<Duration> {
        next.filter(|next| next.place != candidate.place && !next.unlikely)?;
        // It may be asked for its head first, which says nothing of how slow its responses are.
        if request.calls.at_head && !candidate.is_followed() {
            return None;
        }
        let on = self.state.hedges.is_on() && may_hedge(request);
        on.then(|| self.state.gate(candidate.place).hedge_after()).flatten()
    }

    /// Asks one upstream, and the next one as well once that takes long. Returns the first good
    /// outcome, or the last one; the other is noted. Dropped, the slower request ends.
    pub(super) async fn hedge(
        &self,
        hedged: Hedged<'_>,
        rest: &mut Peekable<vec::IntoIter<Candidate>>,
        tried: &mut Tried,
    ) -> UpstreamOutcome {
        let began = Instant::now();
        let mut first = pin!(self.attempt(&hedged.candidate, hedged.first));
        if let Ok(outcome) = timeout(hedged.after, &mut first).await {
            return outcome;
        }
        let (mut hedge, address) = (Hedge::due(), hedged.first.request.address);
        let Some(candidate) = self.second(rest, address, &mut hedge) else { return first.await };
        let (began_second, until) = (TokioInstant::now(), hedged.deadline);
        let second = Attempt { began: began_second, until, ..hedged.first };
        let second = Box::pin(self.attempt(&candidate, second));
        let place = hedged.candidate.place;
        let (outcome, won) = match select(first, second).await {
            Either::Left((good @ UpstreamOutcome::Good(_), _)) => (good, false),
            Either::Right((good @ UpstreamOutcome::Good(_), _)) => {
                let now = Instant::now();
                // The first request is dropped, so its time is never known: it took at least this
                // long.
                self.state.gate(place).outrun(now - began, now);
                (good, true)
            }
            Either::Left((bad, second)) => {
                tried.note(bad);
                (self.rest_of(candidate.place, second, tried).await, true)
            }
            Either::Right((bad, first)) => {
                tried.note(bad);
                (self.rest_of(place, first, tried).await, false)
            }
        };
        hedge.outcome = match (&outcome, won) {
            (UpstreamOutcome::Good(_), true) => "won",
            (UpstreamOutcome::Good(_), false) => "lost",
            _ => "failed",
        };
        outcome
    }

    /// Waits for the other upstream: only a while if the first one has said that it lacks the block.
    async fn rest_of(
        &self,
        place: usize,
        other: impl Future<Output = UpstreamOutcome>,
        tried: &Tried,
    ) -> UpstreamOutcome {
        if !tried.may_end() {
            return other.await;
        }
        timeout(AGREE_MAX, other).await.unwrap_or_else(|_| {
            self.state.gate(place).timed_out(Instant::now());
            UpstreamOutcome::Failed(Failure::TimedOut, false)
        })
    }

    /// Takes the next upstream for a hedge, if the budget and the upstream allow it.
    fn second(
        &self,
        rest: &mut Peekable<vec::IntoIter<Candidate>>,
        address: ClientAddress,
        hedge: &mut Hedge,
    ) -> Option<Candidate> {
        // A bound on the share of hedges: when all upstreams are slow, they would double the load.
        if !self.state.hedges.spend() {
            hedge.outcome = "no_budget";
            return None;
        }
        let entered = rest.next_if(|next| self.state.enter(next, address, Instant::now()).is_ok());
        if entered.is_none() {
            hedge.outcome = "no_upstream";
        }
        entered
    }
}
