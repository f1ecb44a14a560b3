//! Ranks of upstreams for a need.

use std::time::Instant;

use super::fetch_need::Priority;
use super::state::State;

/// Rank of an upstream for a need.
#[derive(Clone, Copy)]
pub(super) struct Rank {
    penalized: bool,
    /// True if it may be asked now.
    pub(super) free: bool,
    /// If not, when its pace allows it.
    pub(super) at: Option<Instant>,
    /// Seconds that an answer will likely take.
    wait: f64,
}

impl Rank {
    pub(super) fn of(state: &mut State, purpose: Priority, now: Instant) -> Self {
        let pause = state.pace.wait(now);
        let size = state.window.size();
        let room = purpose.has_room(state.in_flight, state.following, size);
        #[expect(clippy::cast_precision_loss, reason = "an estimate of small numbers")]
        let load = 1.0 + state.in_flight as f64 / size as f64;
        Self {
            penalized: state.penalized(now),
            free: room && pause.is_zero(),
            at: (!pause.is_zero()).then(|| now + pause),
            wait: state.window.mean() * load,
        }
    }

    /// A penalized one is asked only if there is no other; a busy one only waits.
    pub(super) fn before(&self, other: &Self) -> bool {
        let key = |rank: &Self| (rank.penalized, !rank.free);
        key(self) < key(other) || (key(self) == key(other) && self.wait < other.wait)
    }
}
