//! Times of blocks, execution and settlement, and base fees: all by the height alone.

use super::config::ChainConfig;
use super::random::{Purpose, Random};

/// A header settles what was executed so long before its time (avalanchego,
/// `vms/saevm/params/params.go`, Tau).
const SETTLE_AFTER_MS: u64 = 5_000;
/// The transition block is stamped ten seconds before the fork, and the builder waits for the fork.
const TRANSITION_GAP_MS: u64 = 15_000;
/// Time in the genesis of every network: 2020-12-05 05:00:00 UTC.
const GENESIS_MS: u64 = 1_607_144_400_000;
/// Highest interval: a day.
const INTERVAL_MS_MAX: u64 = 86_400_000;
/// Some hundred thousand years: sums of times stay far from overflow.
const BASE_TIME_MS_MAX: u64 = 1 << 53;
/// Heights that may wait for settlement; then they are settled, whatever the time. Arbitrary, for
/// chains whose blocks are milliseconds apart: it bounds what is remembered while one is made.
pub(crate) const UNSETTLED_MAX: u64 = 1_024;
/// The end of an execution depends on no earlier block than this many before: an execution takes
/// at most one and a half intervals.
const EXECUTION_REACH: u64 = 4;

/// A chain's calendar.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    config: ChainConfig,
    first: u64,
    interval_ms: u64,
}

/// Prices of gas in a block, in wei.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fees {
    /// In the header: what a synchronous block charges, an upper bound in an asynchronous one.
    pub(crate) header: u128,
    /// Base fee that is charged.
    pub(crate) executed: u128,
}

impl ChainConfig {
    /// Stamps block `head` at about this time, so that a chain which grows by the clock is always
    /// as old as it says.
    #[must_use]
    pub fn ending_at(mut self, unix_ms: u64, head: u64) -> Self {
        self.base_time_ms = 0;
        let schedule = Schedule::new(&self);
        self.base_time_ms = unix_ms.saturating_sub(schedule.time_ms(head.max(1)));
        self
    }
}

impl Schedule {
    pub(crate) fn new(config: &ChainConfig) -> Self {
        let base_time_ms = config.base_time_ms.min(BASE_TIME_MS_MAX);
        Self {
            first: config.first().max(1),
            interval_ms: config.interval_ms.clamp(1, INTERVAL_MS_MAX),
            config: ChainConfig { base_time_ms, ..config.clone() },
        }
    }

    /// True if a block is asynchronous.
    pub(crate) fn is_asynchronous(&self, height: u64) -> bool {
        self.config.helicon.covers(height)
    }

    /// Time of a block. Blocks are up to nine tenths of an interval late, never so late
    /// that they would overtake one another.
    pub(crate) fn time_ms(&self, height: u64) -> u64 {
        if height == 0 {
            return GENESIS_MS.min(self.config.base_time_ms);
        }
        let since_first = height.saturating_sub(self.first).saturating_mul(self.interval_ms);
        let since_first = since_first.min(u64::MAX / 2);
        let late = self.random(Purpose::Time, height).below(self.interval_ms * 9 / 10 + 1);
        let gap = if self.is_asynchronous(height) { TRANSITION_GAP_MS } else { 0 };
        self.config.base_time_ms + since_first + late + gap
    }

    /// Time at which a block is executed: blocks wait for one another.
    pub(crate) fn executed_ms(&self, height: u64) -> u64 {
        let earliest = height.saturating_sub(EXECUTION_REACH);
        let end = |height: u64| self.time_ms(height) + self.execution_ms(height);
        (earliest..=height).map(end).max().unwrap_or_default()
    }

    /// Mostly a fraction of an interval, now and then more than a whole one.
    fn execution_ms(&self, height: u64) -> u64 {
        if !self.is_asynchronous(height) {
            return 0; // before it is accepted
        }
        let mut random = self.random(Purpose::Execution, height);
        let slow = random.chance(60);
        random.below(self.interval_ms * if slow { 3 } else { 1 } / 2 + 1)
    }

    /// The height that an asynchronous block settles: the last one that was executed long enough
    /// before it is stamped; a synchronous block settles itself.
    pub(crate) fn settled(&self, height: u64) -> u64 {
        let Some(first) = self.config.helicon.first().filter(|first| height >= *first) else {
            return height;
        };
        let until = self.time_ms(height).saturating_sub(SETTLE_AFTER_MS);
        // The last synchronous block is settled from the start.
        let least = (first - 1).max(height.saturating_sub(UNSETTLED_MAX));
        let mut candidates = (least..height).rev();
        candidates.find(|candidate| self.executed_ms(*candidate) <= until).unwrap_or(least)
    }

    /// Price charged in a block whose header has this base fee: an asynchronous one is executed
    /// at a lower fee now and then.
    pub(crate) fn fees(&self, height: u64, header: u128) -> Fees {
        let mut random = self.random(Purpose::Fees, height);
        let lower = self.is_asynchronous(height) && random.chance(400);
        let discount = if lower { header * u128::from(1 + random.below(300)) / 1_000 } else { 0 };
        Fees { header, executed: header - discount }
    }

    pub(crate) fn random(&self, purpose: Purpose, height: u64) -> Random {
        Random::new(self.config.seed_at(height), purpose, height)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Helicon;
    use super::*;

    fn schedule(helicon: Helicon, interval_ms: u64) -> Schedule {
        Schedule::new(&ChainConfig { helicon, interval_ms, ..ChainConfig::small(5) })
    }

    #[test]
    fn time_goes_on() {
        for interval_ms in [1, 7, 2_000] {
            let schedule = schedule(Helicon::At(500), interval_ms);
            let times: Vec<u64> = (0..1_500).map(|height| schedule.time_ms(height)).collect();
            assert!(times.is_sorted());
            let executed: Vec<u64> = (1..1_500).map(|h| schedule.executed_ms(h)).collect();
            assert!(executed.is_sorted(), "{interval_ms}");
            assert!(times[500] - times[499] >= TRANSITION_GAP_MS);
        }
    }

    /// Under load a fifth of the headers settled nothing and an eighth more than one height.
    #[test]
    fn settlement_is_as_observed() {
        let schedule = schedule(Helicon::At(100), 2_000);
        let settled: Vec<u64> = (99..2_100).map(|height| schedule.settled(height)).collect();
        assert_eq!(settled[..2], [99, 99]);
        let steps: Vec<u64> = settled.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let share = |wanted: fn(&u64) -> bool| steps.iter().filter(|step| wanted(step)).count();
        assert!((200..700).contains(&share(|step| *step == 0)), "{}", share(|step| *step == 0));
        assert!((150..600).contains(&share(|step| *step > 1)), "{}", share(|step| *step > 1));
        assert!(settled.iter().zip(99..).skip(1).all(|(settled, height)| *settled < height));
        assert!(settled.iter().zip(99..).all(|(settled, height)| height - *settled < 10));
    }

    #[test]
    fn settlement_is_never_more_than_a_window_behind() {
        let schedule = schedule(Helicon::FromGenesis, 1);
        let settled: Vec<u64> = (1..3_000).map(|height| schedule.settled(height)).collect();
        assert!(settled.is_sorted());
        assert!(
            settled.iter().zip(1..).all(|(settled, height)| height - *settled <= UNSETTLED_MAX)
        );
    }

    #[test]
    fn a_fee_is_charged_and_not_above_the_header() {
        let schedule = schedule(Helicon::At(1_000), 2_000);
        let fees: Vec<Fees> =
            (1..2_000).map(|height| schedule.fees(height, 1_000 + u128::from(height))).collect();
        assert!(fees.iter().all(|fees| 0 < fees.executed && fees.executed <= fees.header));
        assert!(fees[..999].iter().all(|fees| fees.executed == fees.header));
        assert!(fees[999..].iter().any(|fees| fees.executed < fees.header));
    }
}
