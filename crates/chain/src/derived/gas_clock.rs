//! Time as asynchronous execution measures it: by the gas that was consumed, and with it the price
//! of gas (avalanchego, `vms/saevm/gastime` and `vms/saevm/proxytime`; ACP-194, ACP-176).
//!
//! All arithmetic is the node's: which step rounds, and which way, shows in the price.

use alloy_primitives::U256;

use crate::header::Header;

/// Excess at which the price is e times the least one, in seconds of the target: with it the price
/// doubles in about a minute of full blocks (saevm, `cchain/hooks.go`, `GasConfigAfter`).
const TARGET_TO_EXCESS: u64 = 87;
/// Gas a second that the target cannot fall below (saevm, `cchain/dynamic/target.go`).
const TARGET_MIN: u64 = 1_000_000;
/// Exponent at which the target is e times the least one (the same file).
const TARGET_SCALE: u64 = 1 << 25;
/// Exponent at which the least price is e wei (saevm, `cchain/dynamic/price.go`).
const PRICE_SCALE: u64 = 415_828_534_307_635_077;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A point in time, and how much more gas than the target was consumed until then.
#[derive(Clone, Copy, Debug)]
pub struct GasClock {
    seconds: u64,
    /// Part of a second, in gas. Invariant: less than the rate.
    fraction: u64,
    /// Exponent of the target that was voted last, from which it follows.
    target_exponent: u64,
    /// Gas a second that the price aims at. Invariant: from 1 to half of the greatest number.
    target: u64,
    excess: u64,
    price_min: u64,
}

impl GasClock {
    /// The clock at the end of the execution of a block, as the header that settles it has it.
    /// `None` if one of the headers lacks what its kind has.
    pub fn after(settled: &Header, settler: &Header) -> Option<Self> {
        let target_exponent = target_exponent_after(settled)?;
        let mut clock = Self {
            seconds: settler.settled_gas_unix?,
            fraction: 0,
            target_exponent,
            target: gas_target(target_exponent),
            excess: settler.settled_excess?,
            price_min: price_min_after(settled),
        };
        // By `advance`, which carries whole seconds.
        clock.advance(settler.settled_gas_numerator?);
        clock.raise_to_least_price();
        Some(clock)
    }

    /// Gas of a second when blocks are full: twice the target.
    pub fn rate(&self) -> u64 {
        self.target.saturating_mul(2)
    }

    /// The price of gas now.
    pub fn base_fee(&self) -> U256 {
        U256::from(self.price_min.max(self.price(self.excess)))
    }

    /// A block begins: time is at least the block's, and what passed idle lowers the excess.
    pub fn before_block(&mut self, header: &Header) {
        let milliseconds = header.timestamp_milliseconds.unwrap_or_default() % 1000;
        let fraction = mul_div_ceil(milliseconds * 1_000_000, self.rate(), SECOND);
        self.fast_forward(header.timestamp, fraction);
    }

    /// A block ends: its gas, which an asynchronous header has as the sum of the limits, was
    /// consumed, and its votes on target and least price come into force. `None` if it has no vote
    /// on the target.
    pub fn after_block(&mut self, header: &Header) -> Option<()> {
        self.advance(header.gas_used);
        let rate = self.rate();
        self.excess =
            self.excess.saturating_add(mul_div(header.gas_used, rate - self.target, rate));
        let exponent = target_exponent_after(header)?;
        // A series of divisions, for something that hardly ever changes.
        if self.target_exponent != exponent {
            self.target_exponent = exponent;
            self.set_target(gas_target(exponent));
        }
        self.price_min = price_min_after(header);
        self.raise_to_least_price();
        Some(())
    }

    fn advance(&mut self, gas: u64) {
        let fraction = u128::from(self.fraction) + u128::from(gas);
        let rate = u128::from(self.rate());
        self.seconds = self.seconds.saturating_add(saturating(fraction / rate));
        self.fraction = saturating(fraction % rate);
    }

    /// `fraction` may be a whole second: a part of a second is rounded up to gas.
    fn fast_forward(&mut self, seconds: u64, fraction: u64) {
        let rate = self.rate();
        let to = (seconds.saturating_add(fraction / rate), fraction % rate);
        let from = (self.seconds, self.fraction);
        // Execution may be ahead of the block's time: the clock never goes back.
        if to <= from {
            return;
        }
        (self.seconds, self.fraction) = to;
        let borrow = from.1 > to.1;
        let whole = to.0 - from.0 - u64::from(borrow);
        let part = if borrow { rate - (from.1 - to.1) } else { to.1 - from.1 };
        self.excess = self.excess.saturating_sub(whole.saturating_mul(self.target));
        self.excess = self.excess.saturating_sub(mul_div(part, self.target, rate));
        self.raise_to_least_price();
    }

    /// Keeps price and time what they are at another rate, both rounded up.
    fn set_target(&mut self, target: u64) {
        let old_rate = self.rate();
        self.excess = mul_div_ceil(self.excess, target, self.target);
        self.target = target;
        self.fraction = mul_div_ceil(self.fraction, self.rate(), old_rate);
        // The fraction was rounded up, perhaps to a whole second.
        self.advance(0);
    }

    /// Price at an excess.
    fn price(&self, excess: u64) -> u64 {
        gas_price(excess, self.target)
    }

    /// The excess is at least that at which the price is the least one: the smallest such, or the
    /// greatest below if the price jumps over it.
    fn raise_to_least_price(&mut self) {
        // No price is below one wei, which is mostly the least.
        if self.price_min <= 1 || self.price(self.excess) >= self.price_min {
            return;
        }
        let (mut low, mut high) = (1, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.price(middle) >= self.price_min {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let over = u64::from(self.price(low) > self.price_min);
        self.excess = self.excess.max(low - over);
    }
}

/// The exponent of the target in force after a block (saevm, `cchain/hooks.go`, `targetExponent`):
/// voted on in the header from Helicon on, before in the state of the fee rule in the extra data,
/// whose third word it is (avalanchego, `vms/evm/acp176`, `ParseState`).
fn target_exponent_after(header: &Header) -> Option<u64> {
    match header.target_exponent {
        Some(exponent) => Some(exponent),
        None if header.number == 0 => Some(0),
        None => Some(U256::try_from_be_slice(header.extra_data.get(16..24)?)?.saturating_to()),
    }
}

/// Gas a second that the price aims at, by the exponent that is voted on (ACP-176).
pub fn gas_target(exponent: u64) -> u64 {
    // The rate is twice that, and must fit too.
    exponential(TARGET_MIN, exponent, TARGET_SCALE).min(u64::MAX / 2)
}

/// The price of gas, in wei, at an excess over a target (ACP-176).
pub fn gas_price(excess: u64, target: u64) -> u64 {
    exponential(1, excess, target.saturating_mul(TARGET_TO_EXCESS))
}

/// The excess at which the price is e to the power of `thousandths` by 1,000.
pub fn gas_excess(thousandths: u64, target: u64) -> u64 {
    mul_div(target.saturating_mul(TARGET_TO_EXCESS), thousandths, 1_000)
}

/// The least price in force after a block: one wei until there are votes on it.
fn price_min_after(header: &Header) -> u64 {
    exponential(1, header.min_price_exponent.unwrap_or_default(), PRICE_SCALE)
}

/// The least value times e to the power of exponent by scale, as a series of whole numbers
/// (EIP-4844, `fake_exponential`; avalanchego, `vms/components/gas/gas.go`, `CalculatePrice`).
fn exponential(least: u64, exponent: u64, scale: u64) -> u64 {
    let (exponent, scale) = (u128::from(exponent), u128::from(scale.max(1)));
    let end = scale * u128::from(u64::MAX);
    let mut sum = 0_u128;
    let mut term = u128::from(least) * scale;
    let mut index = 1_u128;
    while term > 0 {
        sum = sum.saturating_add(term);
        if sum >= end {
            return u64::MAX;
        }
        term = match term.checked_mul(exponent) {
            Some(product) => product / scale / index, // nearly always
            // Below 2^192: the term is below the end, which is below 2^128.
            None => (U256::from(term) * U256::from(exponent) / U256::from(scale * index))
                .saturating_to(),
        };
        index += 1;
    }
    saturating(sum / scale)
}

fn mul_div(a: u64, b: u64, by: u64) -> u64 {
    saturating(u128::from(a) * u128::from(b) / u128::from(by.max(1)))
}

fn mul_div_ceil(a: u64, b: u64, by: u64) -> u64 {
    saturating((u128::from(a) * u128::from(b)).div_ceil(u128::from(by.max(1))))
}

fn saturating(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of avalanchego's own clock, see the README beside the file.
    const PRINTED: &str = include_str!("../../tests/data/recorded/gas_clock.txt");

    fn header(timestamp: u64, milliseconds: u64, gas_used: u64, votes: &[u64]) -> Header {
        Header {
            timestamp,
            timestamp_milliseconds: Some(timestamp * 1000 + milliseconds),
            gas_used,
            target_exponent: votes.first().copied(),
            min_price_exponent: votes.get(1).copied(),
            ..Header::default()
        }
    }

    fn settled(numbers: &[u64]) -> GasClock {
        let [unix, numerator, excess, ..] = numbers[..] else { panic!("{numbers:?}") };
        let settler = Header {
            settled_gas_unix: Some(unix),
            settled_gas_numerator: Some(numerator),
            settled_excess: Some(excess),
            ..Header::default()
        };
        GasClock::after(&header(0, 0, 0, &numbers[3..]), &settler).unwrap()
    }

    #[test]
    fn the_clock_is_the_nodes() {
        let (mut clock, mut blocks) = (None, 0);
        for line in PRINTED.lines() {
            let (kind, numbers) = line.split_once(' ').unwrap();
            let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
            if kind == "settled" {
                clock = Some(settled(&numbers));
                continue;
            }
            let clock = clock.as_mut().unwrap();
            let header = header(numbers[0], numbers[1], numbers[2], &numbers[3..5]);
            clock.before_block(&header);
            let mut found = vec![clock.base_fee().to::<u64>(), clock.rate()];
            clock.after_block(&header).unwrap();
            found.extend([clock.base_fee().to(), clock.seconds, clock.fraction, clock.excess]);
            assert_eq!(found, numbers[5..], "{line}");
            blocks += 1;
        }
        assert_eq!(blocks, 120);
    }

    /// The target of a block before Helicon is in its extra data.
    #[test]
    fn targets_before_helicon() {
        let mut header = Header { number: 5, ..Header::default() };
        let target_after = |header: &Header| target_exponent_after(header).map(gas_target);
        assert_eq!(target_after(&header), None);
        let mut extra = [0; 30];
        (extra[15], extra[20], extra[24]) = (9, 2, 9);
        header.extra_data = extra.to_vec().into();
        // e to the power of 2^25 by 2^25.
        assert_eq!(target_after(&header), Some(2_718_281));
        assert_eq!(target_after(&Header::default()), Some(1_000_000), "a genesis");
    }

    #[test]
    fn exponentials_are_bounded() {
        assert_eq!(exponential(1, 0, 1), 1);
        assert_eq!(exponential(1, u64::MAX, 1), u64::MAX);
        assert_eq!(exponential(u64::MAX, 1, u64::MAX), u64::MAX);
        assert_eq!(exponential(0, 5, 1), 0);
    }
}
