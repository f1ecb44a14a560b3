//! Price of gas: limits and base fees of headers, by the node's rules (ACP-176, ACP-194).
//!
//! The excess of gas at the end of a block is drawn by its height, so that any height can be made
//! alone. What follows from it does so by the rules: the base fee of the next synchronous block;
//! and the bound in an asynchronous one, from the clock of the block that it settles and the gas of
//! those that it does not.

use neve_chain::{GasClock, Header, gas_excess, gas_price, gas_target};

use super::config::ChainConfig;
use super::profile::Profile;
use super::random::{Purpose, Random};
use super::schedule::Schedule;

/// Seconds of the target that a synchronous block can hold; an asynchronous one, whose gas is the
/// sum of the limits, holds twice that.
const TARGET_SECONDS: u64 = 10;
/// The target of mainnet in January 2026: 24 million gas a block.
const TARGET: u64 = 2_400_000;
/// At this exponent the target is the greatest that there is (ACP-176).
const TARGET_EXPONENT_MAX: u64 = 1_024_950_627;
/// Gas of the largest blocks of a profile, roughly, by transaction and by log.
const TRANSACTION_GAS: u64 = 200_000;
const LOG_GAS: u64 = 2_000;
/// Time between blocks of a chain whose target is that of [`TARGET`]; faster ones need more.
const INTERVAL_MS: u64 = 2_000;
/// Prices are e to the power of so many thousandths: from 60 million wei on, and up to 16 times
/// that. They drift with each 4,096 heights, and jitter from block to block.
const PRICE_MIN: u64 = 17_910;
const DRIFT: u64 = 2_800;
const JITTER: u64 = 5;

/// The fee rule of a chain.
#[derive(Clone, Debug)]
pub(crate) struct PriceRule {
    schedule: Schedule,
    /// Exponent that every block votes for.
    exponent: u64,
    /// The target that follows from it.
    target: u64,
}

impl PriceRule {
    pub(crate) fn new(config: &ChainConfig, schedule: &Schedule) -> Self {
        let wanted = target(&config.profile, config.interval_ms);
        // The lowest exponent that will do: targets grow with exponents.
        let (mut low, mut high) = (0, TARGET_EXPONENT_MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if gas_target(middle) >= wanted { high = middle } else { low = middle + 1 }
        }
        Self { schedule: schedule.clone(), exponent: low, target: gas_target(low) }
    }

    /// The exponent of the target that a block votes for. A genesis votes for the least.
    pub(crate) fn exponent(&self, height: u64) -> u64 {
        if height == 0 { 0 } else { self.exponent }
    }

    fn target_after(&self, height: u64) -> u64 {
        if height == 0 { gas_target(0) } else { self.target }
    }

    /// The limit in a header: what the target allows that is in force before the block.
    pub(crate) fn gas_limit(&self, height: u64) -> u64 {
        match height.checked_sub(1) {
            Some(before) if self.schedule.is_asynchronous(height) => {
                2 * TARGET_SECONDS * self.target_after(before)
            }
            _ => TARGET_SECONDS * self.target,
        }
    }

    /// The excess of gas at the end of a block. A genesis has none.
    pub(crate) fn excess(&self, height: u64) -> u64 {
        if height == 0 {
            return 0;
        }
        // Neighboring heights share a drift.
        let drift = self.random(height >> 12).below(DRIFT);
        let jitter = self.random(height).below(JITTER);
        gas_excess(PRICE_MIN + drift + jitter, self.target)
    }

    /// The gas clock at the end of a block as headers tell of it: seconds, and a part of one.
    pub(crate) fn settled_time(&self, height: u64) -> (u64, u64) {
        let ms = self.schedule.executed_ms(height);
        // Gas comes at twice the target (ACP-176).
        let rate = 2 * self.target_after(height);
        (ms / 1_000, u64::try_from(u128::from(ms % 1_000) * u128::from(rate) / 1_000).unwrap_or(0))
    }

    /// The base fee in a header. `gas` tells what the headers of blocks before it say that they
    /// used.
    pub(crate) fn base_fee(&self, height: u64, gas: impl FnMut(u64) -> u64) -> u64 {
        let fee = if self.schedule.is_asynchronous(height) {
            self.bound(height, gas)
        } else {
            height.checked_sub(1).map(|parent| self.after(parent, self.schedule.time_ms(height)))
        };
        fee.unwrap_or(1)
    }

    /// The base fee that follows a synchronous block at a time.
    pub(crate) fn after(&self, height: u64, time_ms: u64) -> u64 {
        let idle_ms = time_ms.saturating_sub(self.schedule.time_ms(height));
        // While nothing is executed, the excess sinks by the target (ACP-176).
        let sunk = idle_ms.saturating_mul(self.target / 1_000);
        gas_price(self.excess(height).saturating_sub(sunk), self.target)
    }

    /// Highest price if every block that is not settled consumes all that it may.
    fn bound(&self, height: u64, mut gas: impl FnMut(u64) -> u64) -> Option<u64> {
        let settled = self.schedule.settled(height);
        let (unix, numerator) = self.settled_time(settled);
        let settler = Header {
            settled_gas_unix: Some(unix),
            settled_gas_numerator: Some(numerator),
            settled_excess: Some(self.excess(settled)),
            ..Header::default()
        };
        let mut clock = GasClock::after(&self.header(settled, 0), &settler)?;
        for unsettled in settled + 1..height {
            let header = self.header(unsettled, gas(unsettled));
            clock.before_block(&header);
            clock.after_block(&header)?;
        }
        clock.before_block(&self.header(height, 0));
        Some(clock.base_fee().saturating_to())
    }

    /// Values of a header that the clock reads.
    fn header(&self, height: u64, gas_used: u64) -> Header {
        let time_ms = self.schedule.time_ms(height);
        Header {
            number: height,
            timestamp: time_ms / 1_000,
            timestamp_milliseconds: Some(time_ms),
            gas_used,
            target_exponent: Some(self.exponent(height)),
            ..Header::default()
        }
    }

    fn random(&self, height: u64) -> Random {
        self.schedule.random(Purpose::Excess, height)
    }
}

/// Gas a second with which the chain keeps up with its blocks, and in which the largest of them
/// fit.
fn target(profile: &Profile, interval_ms: u64) -> u64 {
    let transactions = u64::from(profile.transactions.max()).min(Profile::TRANSACTIONS_MAX as u64);
    let logs = u64::from(profile.logs.max()).min(Profile::LOGS_MAX as u64);
    let largest = transactions * TRANSACTION_GAS + logs * LOG_GAS;
    let target = TARGET.max(largest / (2 * TARGET_SECONDS));
    target * INTERVAL_MS.div_ceil(interval_ms.clamp(1, INTERVAL_MS))
}
