//! Age of the head: seconds since the time of the newest block. The time is the block's own, so a mirror
//! of a mirror of a stopped node shows the same age as the node would.
//!
//! The control thread compares the age with `--ready-age-max` each second (`src/observe/head_age.rs`). A
//! request reads one flag and no clock. After a start the head is that of the last run. Until it was within
//! `--ready-lag-max` of the upstream's head once, calls that depend on it are misses; not while each upstream fails or
//! is not used, and none has said its head.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The head is too old (`--stale-heads miss`).
const STALE: u8 = 1;
/// The head was not near the upstream's since the start, or the upstream's is not known yet.
const BEHIND: u8 = 2;
/// neve follows no upstream, so there is no head.
const NO_UPSTREAM: u8 = 4;
/// Value of the goal while the upstream's head is not known.
const UNKNOWN: u64 = u64::MAX;
/// Value of the goal once it was reached.
const REACHED: u64 = 0;

/// Reason for which calls that depend on the head are misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadMiss {
    /// neve follows no upstream.
    NoUpstream,
    /// The head was not near the upstream's since the start.
    CatchingUp,
    /// The head is too old.
    Stale,
}

/// Time of the head, and the flag that requests read.
#[derive(Debug)]
pub(crate) struct Freshness {
    /// Seconds since 1970, plus 1; 0: there is no head.
    head_time: AtomicU64,
    /// Reasons for which calls that depend on the head are misses.
    misses: AtomicU8,
    /// Height at which the head is near the upstream's, after the start.
    goal: AtomicU64,
}

impl Default for Freshness {
    fn default() -> Self {
        let goal = AtomicU64::new(UNKNOWN);
        Self { head_time: AtomicU64::new(0), misses: AtomicU8::new(0), goal }
    }
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

    /// Returns why calls that depend on the head are misses, if they are. A head that is old as neve catches up is
    /// that of [`HeadMiss::CatchingUp`].
    pub(crate) fn head_miss(&self) -> Option<HeadMiss> {
        // Relaxed: the flags order nothing, and may be a second late.
        match self.misses.load(Ordering::Relaxed) {
            0 => None,
            misses if misses & NO_UPSTREAM != 0 => Some(HeadMiss::NoUpstream),
            misses if misses & BEHIND != 0 => Some(HeadMiss::CatchingUp),
            _ => Some(HeadMiss::Stale),
        }
    }

    /// Says whether the head is too old.
    pub(crate) fn miss_head(&self, misses: bool) {
        self.set(STALE, misses);
    }

    /// Notes that neve follows no upstream. Calls that depend on the head are misses from then on.
    pub(crate) fn follow_nobody(&self) {
        self.set(NO_UPSTREAM, true);
    }

    /// True if neve follows no upstream.
    pub(crate) fn follows_nobody(&self) -> bool {
        self.misses.load(Ordering::Relaxed) & NO_UPSTREAM != 0
    }

    fn set(&self, reason: u8, holds: bool) {
        if holds {
            self.misses.fetch_or(reason, Ordering::Relaxed);
        } else {
            self.misses.fetch_and(!reason, Ordering::Relaxed);
        }
    }

    /// Notes a new head, which may be near the upstream's for the first time.
    pub(crate) fn reaches(&self, head: u64) {
        let goal = self.goal.load(Ordering::Relaxed);
        // Once only: later a lag has metrics, and calls about the head are hits again.
        if goal != REACHED && goal != UNKNOWN && head >= goal {
            self.goal.store(REACHED, Ordering::Relaxed);
            self.set(BEHIND, false);
        }
    }

    /// Says whether an upstream is still to say its head, before one did.
    pub(crate) fn await_upstream_head(&self, awaits: bool) {
        self.set(BEHIND, awaits);
    }

    /// Notes the upstream's head, until the head has been near it once. True if it has.
    pub(crate) fn set_upstream_head(&self, upstream: u64, head: Option<u64>, lag_max: u64) -> bool {
        if self.goal.load(Ordering::Relaxed) == REACHED {
            return true;
        }
        // The flag comes first: a head that comes meanwhile takes it back.
        self.set(BEHIND, true);
        // At least 1, because 0 says that the goal was reached; a head at 0 counts as 1.
        self.goal.store(upstream.saturating_sub(lag_max).max(REACHED + 1), Ordering::Relaxed);
        self.reaches(head.unwrap_or_default().max(REACHED + 1));
        self.goal.load(Ordering::Relaxed) == REACHED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_the_last_run_is_missed_until_it_is_near_the_upstream() {
        let freshness = Freshness::default();
        freshness.reaches(5);
        assert!(freshness.head_miss().is_none(), "no upstream is known");
        assert!(!freshness.set_upstream_head(100, Some(5), 10) && freshness.head_miss().is_some());
        freshness.reaches(89);
        assert_eq!(freshness.head_miss(), Some(HeadMiss::CatchingUp));
        freshness.set(STALE, true);
        assert_eq!(freshness.head_miss(), Some(HeadMiss::CatchingUp));
        freshness.set(STALE, false);
        assert!(!freshness.set_upstream_head(200, Some(90), 10), "it went on");
        freshness.reaches(190);
        assert!(freshness.head_miss().is_none());
        assert!(freshness.set_upstream_head(10_000, Some(190), 10), "once is enough");
        assert!(freshness.head_miss().is_none());
        freshness.set(STALE, true);
        assert_eq!(freshness.head_miss(), Some(HeadMiss::Stale));
        let near = Freshness::default();
        assert!(near.set_upstream_head(15, Some(5), 10) && near.head_miss().is_none());
        let genesis = Freshness::default();
        assert!(genesis.set_upstream_head(0, Some(0), 0) && genesis.head_miss().is_none());
        let empty = Freshness::default();
        assert!(!empty.set_upstream_head(100, None, 10) && empty.head_miss().is_some());
    }

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
