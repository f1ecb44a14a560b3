//! Age of the head: seconds since the time of the newest block. The time is the block's own, so a mirror
//! of a mirror of a stopped node shows the same age as the node would.
//!
//! The control thread compares the age with `--ready-age-max` each second (`src/observe/head_age.rs`). A
//! request reads one flag and no clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time of the head, and the flag that requests read.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    /// Seconds since 1970, plus 1; 0: there is no head.
    head_time: AtomicU64,
    /// True while calls that depend on the head are misses (`--stale-heads miss`).
    misses: AtomicBool,
}

impl Freshness {
    /// Notes the time of the head, in seconds since 1970.
    pub(crate) fn set_head_time(&self, time: Option<u64>) {
        self.head_time.store(time.map_or(0, |time| time.saturating_add(1)), Ordering::Relaxed);
    }

    /// Time of the head, in seconds since 1970.
    pub(crate) fn head_time(&self) -> Option<u64> {
        self.head_time.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Age of the head by this machine's clock; zero for a block of the future.
    pub(crate) fn head_age(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.head_time().map(|time| now.saturating_sub(Duration::from_secs(time)))
    }

    /// True while calls that depend on the head are misses.
    pub(crate) fn head_is_missed(&self) -> bool {
        // Relaxed: the flag orders nothing, and may be a second late.
        self.misses.load(Ordering::Relaxed)
    }

    /// Sets the flag.
    pub(crate) fn miss_head(&self, misses: bool) {
        self.misses.store(misses, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_age_follows_from_the_time_of_the_block() {
        let freshness = Freshness::default();
        assert_eq!((freshness.head_time(), freshness.head_age()), (None, None));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        freshness.set_head_time(Some(now - 1000));
        let age = freshness.head_age().unwrap().as_secs();
        assert!((1000..1060).contains(&age), "{age}");
        freshness.set_head_time(Some(now + 1000)); // a clock that is late
        assert_eq!(freshness.head_age(), Some(Duration::ZERO));
        freshness.set_head_time(Some(u64::MAX));
        assert_eq!(freshness.head_age(), Some(Duration::ZERO));
        freshness.set_head_time(None);
        assert_eq!(freshness.head_age(), None);
    }
}
