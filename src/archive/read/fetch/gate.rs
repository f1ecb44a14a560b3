//! Bounds of reads under way from the object store: their number, their bytes, and their time.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Reads under way.
pub(super) const READS_MAX: usize = 64;
/// Bytes of the reads under way together.
const BYTES_MAX: usize = 64 << 20;
/// Unit in which they are counted.
const BYTES_UNIT: usize = 64 << 10;
/// Time that one read may take, and the slowest transfer that adds to it.
const READ_TIME_MAX: Duration = Duration::from_secs(3);
const BYTES_PER_SECOND_MIN: u64 = 2_000_000;

/// Time that a read of so many bytes may take.
pub(super) fn read_time_max(bytes: u64) -> Duration {
    READ_TIME_MAX + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
}

/// Entrance to the object store.
pub(super) struct Gate {
    reads: Semaphore,
    units: Semaphore,
    /// Time that a read waits for its place.
    wait_max: Duration,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(READ_TIME_MAX)
    }
}

impl Gate {
    /// A gate at which a read waits for at most so long.
    pub(super) fn new(wait_max: Duration) -> Self {
        let units = Semaphore::new(BYTES_MAX / BYTES_UNIT);
        Self { reads: Semaphore::new(READS_MAX), units, wait_max }
    }

    /// Waits for a place for a read of so many bytes. `None` if that takes too long.
    pub(super) async fn enter(&self, bytes: u64) -> Option<[SemaphorePermit<'_>; 2]> {
        timeout(self.wait_max, self.place(bytes)).await.ok().flatten()
    }

    async fn place(&self, bytes: u64) -> Option<[SemaphorePermit<'_>; 2]> {
        // A read of more than all of them has all.
        let units = bytes.div_ceil(BYTES_UNIT as u64).min((BYTES_MAX / BYTES_UNIT) as u64);
        let units = self.units.acquire_many(units as u32).await.ok()?;
        Some([units, self.reads.acquire().await.ok()?])
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;

    #[tokio::test]
    async fn reads_under_way_are_bounded_in_number_and_in_bytes() {
        let gate = Gate::default();
        let enter = |bytes| unconstrained(gate.enter(bytes)).now_or_never().flatten();
        let small: Vec<_> = std::iter::from_fn(|| enter(1)).collect();
        assert_eq!(small.len(), READS_MAX);
        drop(small);
        let large: Vec<_> = std::iter::from_fn(|| enter(8 << 20)).collect();
        assert_eq!(large.len(), BYTES_MAX / (8 << 20));
        drop(large);
        let all = enter(1 << 30);
        assert!(all.is_some() && enter(1).is_none());
    }
}
