//! Circuit breaker: while the store fails no read begins, and one probe at a time tries it.

use std::sync::Mutex;

use metrics::{counter, gauge};
use tokio::sync::watch;

use crate::shared::lock::lock;

/// Failures in a row after which it opens.
pub(super) const FAILURES_MAX: u32 = 3;

/// State of the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Reads begin as usual.
    Closed,
    /// No read begins.
    Open,
    /// No read begins but the probe, which is in flight.
    HalfOpen,
}

impl BreakerState {
    /// Word in /health.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }

    /// Value of the metric.
    fn value(self) -> f64 {
        match self {
            Self::Closed => 0.0,
            Self::Open => 1.0,
            Self::HalfOpen => 2.0,
        }
    }
}

/// Breaker of the reads.
pub(super) struct StoreBreaker {
    state: watch::Sender<BreakerState>,
    /// Failures in a row.
    failures: Mutex<u32>,
}

impl Default for StoreBreaker {
    fn default() -> Self {
        Self { state: watch::Sender::new(BreakerState::Closed), failures: Mutex::default() }
    }
}

impl StoreBreaker {
    /// Watches the state.
    pub(super) fn watch(&self) -> watch::Receiver<BreakerState> {
        self.state.subscribe()
    }

    /// Waits until no read may begin.
    pub(super) async fn opened(&self) {
        let is_open = |state: &BreakerState| *state != BreakerState::Closed;
        let _ = self.state.subscribe().wait_for(is_open).await; // the sender lives as long
    }

    /// Notes that the store answered, or did not. An answer to a read that began before does not close it.
    pub(super) fn note(&self, answered: bool) {
        // Held to the end, so that of failures at once only one counts as the opening.
        let mut failures = lock(&self.failures);
        *failures = if answered { 0 } else { failures.saturating_add(1) };
        let is_closed = *self.state.borrow() == BreakerState::Closed;
        if is_closed && *failures >= FAILURES_MAX {
            counter!("neve_archive_breaker_openings_total").increment(1);
            self.set(BreakerState::Open);
        }
    }

    /// A probe begins.
    pub(super) fn half_open(&self) {
        self.set(BreakerState::HalfOpen);
    }

    /// A probe ended.
    pub(super) fn probed(&self, answered: bool) {
        *lock(&self.failures) = 0;
        self.set(if answered { BreakerState::Closed } else { BreakerState::Open });
    }

    fn set(&self, state: BreakerState) {
        gauge!("neve_archive_breaker_state").set(state.value());
        self.state.send_replace(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaker_opens_after_failures_in_a_row_and_closes_by_a_probe() {
        let breaker = StoreBreaker::default();
        let is = |state| *breaker.watch().borrow() == state;
        for answered in [false, false, true, false, false] {
            breaker.note(answered);
            assert!(is(BreakerState::Closed));
        }
        breaker.note(false);
        assert!(is(BreakerState::Open));
        breaker.note(true);
        assert!(is(BreakerState::Open), "a late answer is no probe");
        breaker.half_open();
        breaker.note(false);
        assert!(is(BreakerState::HalfOpen));
        breaker.probed(false);
        assert!(is(BreakerState::Open));
        breaker.probed(true);
        assert!(is(BreakerState::Closed));
        (1..FAILURES_MAX).for_each(|_| breaker.note(false));
        assert!(is(BreakerState::Closed), "it counts anew");
    }
}
