//! Hedges: a read that its first upstream is slow to answer goes to a second one. Pure, except for the
//! count of outcomes: times come from the caller.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::counter;

use crate::shared::RecentTimes;

/// Measured times of one upstream that are remembered.
const SAMPLES: usize = 64;
/// Shortest wait before a hedge. Below it the noise of a machine would make hedges.
const AFTER_MIN: Duration = Duration::from_millis(20);
/// Hedges that may come at once after a quiet time.
const BURST: u64 = 10;

/// Times to the head of a response, of the last requests to one upstream.
pub(super) type HeadTimes = RecentTimes<SAMPLES>;

/// Time after which a second upstream is asked: 95 % of the responses came within it. `None` while too few times
/// are known.
pub(super) fn hedge_after(times: &HeadTimes) -> Option<Duration> {
    times.percentile_95().map(|time| time.max(AFTER_MIN))
}

/// Hedges that may be made: a share of the reads, so that slow upstreams do not double the load.
#[derive(Debug)]
pub(super) struct HedgeBudget {
    /// Hedges a hundred reads.
    percent: u64,
    /// Hundredths of a hedge that are left.
    left: AtomicU64,
}

impl HedgeBudget {
    pub(super) fn new(percent: u64) -> Self {
        Self { percent, left: AtomicU64::new(0) }
    }

    /// True if there are hedges at all.
    pub(super) fn is_on(&self) -> bool {
        self.percent > 0
    }

    /// Notes a read, which earns its part of a hedge.
    pub(super) fn earn(&self) {
        // Relaxed, here and below: the number publishes no other data.
        let more = |left: u64| Some((left + self.percent).min(100 * BURST));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more); // never refused
    }

    /// Takes one hedge, if one is left.
    pub(super) fn spend(&self) -> bool {
        let less = |left: u64| left.checked_sub(100);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// A hedge that was due. Dropped, it is counted by its outcome.
pub(super) struct Hedge {
    pub(super) outcome: &'static str,
}

impl Hedge {
    pub(super) fn due() -> Self {
        Self { outcome: "abandoned" }
    }
}

impl Drop for Hedge {
    fn drop(&mut self) {
        counter!("neve_relay_hedges_total", "outcome" => self.outcome).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn hedge_of_a_quick_upstream_waits_for_the_shortest_time() {
        let mut recent = HeadTimes::default();
        assert_eq!(hedge_after(&recent), None);
        (0..SAMPLES).for_each(|_| recent.note(30 * MILLI));
        assert_eq!(hedge_after(&recent), Some(30 * MILLI));
        (0..SAMPLES).for_each(|_| recent.note(MILLI));
        assert_eq!(hedge_after(&recent), Some(AFTER_MIN));
    }

    #[test]
    fn hedges_are_a_share_of_the_reads() {
        let budget = HedgeBudget::new(5);
        let hedges = |reads: usize| {
            let read = |_: &usize| {
                budget.earn();
                budget.spend()
            };
            (0..reads).filter(read).count()
        };
        assert_eq!((hedges(19), hedges(1), hedges(1000)), (0, 1, 50));
        (0..10_000).for_each(|_| budget.earn());
        assert_eq!((0..1000).filter(|_| budget.spend()).count(), 10, "after a quiet time");
        let none = HedgeBudget::new(0);
        none.earn();
        assert!(!none.is_on() && !none.spend());
    }
}
