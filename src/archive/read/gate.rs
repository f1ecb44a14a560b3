//! Bounds of reads from the object store: how many at a time, and none for a while once it fails.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::shared::lock::lock;

/// Reads under way.
const READS_MAX: usize = 64;
/// Bytes of the reads under way together.
const BYTES_MAX: usize = 64 << 20;
/// Unit in which they are counted.
const BYTES_UNIT: usize = 64 << 10;
/// Time that one read may take, and the slowest transfer that adds to it.
const READ_TIME_MAX: Duration = Duration::from_secs(3);
const BYTES_PER_SECOND_MIN: u64 = 2_000_000;
/// Failures in a row after which no read begins for a while.
const FAILURES_MAX: u32 = 3;
/// Time for which no read begins then. One read tries the store afterwards.
const RESTS_FOR: Duration = Duration::from_secs(1);

/// Time that a read of so many bytes may take.
pub(super) fn read_time_max(bytes: u64) -> Duration {
    READ_TIME_MAX + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// Entrance to the object store.
pub(super) struct Gate {
    reads: Semaphore,
    units: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    failed: Option<Instant>,
}

impl Default for Gate {
    fn default() -> Self {
        let units = Semaphore::new(BYTES_MAX / BYTES_UNIT);
        Self { reads: Semaphore::new(READS_MAX), units, state: Mutex::default() }
    }
}

impl Gate {
    /// Waits for a place for a read of so many bytes; `None` while the store rests.
    pub(super) async fn enter(&self, bytes: u64) -> Option<[SemaphorePermit<'_>; 2]> {
        if self.rests() {
            return None;
        }
        // A read of more than all of them has all.
        let units = bytes.div_ceil(BYTES_UNIT as u64).min((BYTES_MAX / BYTES_UNIT) as u64);
        let units = self.units.acquire_many(units as u32).await.ok()?;
        Some([units, self.reads.acquire().await.ok()?])
    }

    /// True while no read begins. After the time one caller is let through, and the others rest on.
    fn rests(&self) -> bool {
        let mut state = lock(&self.state);
        if state.failures < FAILURES_MAX {
            return false;
        }
        if state.failed.is_some_and(|at| at.elapsed() < RESTS_FOR) {
            return true;
        }
        state.failed = Some(Instant::now());
        false
    }

    /// Notes that the store answered, or did not.
    pub(super) fn note(&self, answered: bool) {
        let mut state = lock(&self.state);
        if answered {
            *state = State::default();
        } else {
            *state =
                State { failures: state.failures.saturating_add(1), failed: Some(Instant::now()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn reads_under_way_are_bounded_in_number_and_in_bytes() {
        let gate = Gate::default();
        let enter = |bytes| gate.enter(bytes).now_or_never().flatten();
        let small: Vec<_> = std::iter::from_fn(|| enter(1)).collect();
        assert_eq!(small.len(), READS_MAX);
        drop(small);
        let large: Vec<_> = std::iter::from_fn(|| enter(8 << 20)).collect();
        assert_eq!(large.len(), BYTES_MAX / (8 << 20));
        drop(large);
        let all = enter(1 << 30);
        assert!(all.is_some() && enter(1).is_none());
    }

    #[test]
    fn store_that_fails_rests_and_is_tried_by_one() {
        let gate = Gate::default();
        (1..FAILURES_MAX).for_each(|_| gate.note(false));
        assert!(!gate.rests());
        gate.note(false);
        assert!(gate.rests());
        lock(&gate.state).failed = None; // as if the time were over
        assert!(!gate.rests(), "one tries");
        assert!(gate.rests(), "the others do not");
        gate.note(true);
        assert!(!gate.rests());
    }
}
