//! Hedges of reads: a second read once the first takes longer than 95 % of the last ones.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::shared::RecentTimes;
use crate::shared::lock::lock;

/// Reads whose times are remembered.
const TIMES_MAX: usize = 128;
/// Shortest time after which a second read begins.
const AFTER_MIN: Duration = Duration::from_millis(10);
/// Reads of more bytes take as long as their bytes do, and are not read twice.
const BYTES_MAX: u64 = 1 << 20;
/// Second reads in flight.
const HEDGES_MAX: usize = 8;

/// Times of the last reads, and second reads in flight.
pub(super) struct ReadHedges {
    times: Mutex<RecentTimes<TIMES_MAX>>,
    hedges: Semaphore,
}

impl Default for ReadHedges {
    fn default() -> Self {
        Self { times: Mutex::default(), hedges: Semaphore::new(HEDGES_MAX) }
    }
}

impl ReadHedges {
    /// Notes the time of a read of so many bytes that ended, or that was given up.
    pub(super) fn note(&self, bytes: u64, time: Duration) {
        if bytes <= BYTES_MAX {
            lock(&self.times).note(time);
        }
    }

    /// Time after which a second read of so many bytes begins; `None` if none does.
    pub(super) fn after(&self, bytes: u64) -> Option<Duration> {
        let usual = if bytes > BYTES_MAX { None } else { lock(&self.times).percentile_95() };
        usual.map(|time| time.max(AFTER_MIN))
    }

    /// Takes the place of a second read, if one is free.
    pub(super) fn take(&self) -> Option<SemaphorePermit<'_>> {
        self.hedges.try_acquire().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_read_begins_after_95_percent_of_the_last_ones() {
        let hedges = ReadHedges::default();
        let ms = Duration::from_millis;
        (1..16).for_each(|time| hedges.note(1, ms(time)));
        assert_eq!(hedges.after(1), None, "too few");
        (1..=100).for_each(|time| hedges.note(1, ms(100 + time)));
        (1..=100).for_each(|_| hedges.note(BYTES_MAX + 1, ms(1)));
        assert_eq!(hedges.after(1), Some(ms(195)));
        assert_eq!(hedges.after(BYTES_MAX + 1), None);
        (1..=TIMES_MAX).for_each(|_| hedges.note(1, ms(1)));
        assert_eq!(hedges.after(1), Some(AFTER_MIN));
        let places: Vec<_> = std::iter::from_fn(|| hedges.take()).collect();
        assert_eq!(places.len(), HEDGES_MAX);
    }
}
