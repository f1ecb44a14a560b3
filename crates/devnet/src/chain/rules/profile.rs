//! Sizes of blocks, and their content.

use std::borrow::Cow;

use super::random::Random;

/// A distribution by its quantiles: straight lines between knots, in ten-thousandths of the cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve(Cow<'static, [Knot]>);

/// Number of ten thousand values that are at most the second number.
type Knot = (u16, u32);

/// Knots are in ten-thousandths.
const WHOLE: u64 = 10_000;

impl Curve {
    const fn fixed(knots: &'static [Knot]) -> Self {
        Self(Cow::Borrowed(knots))
    }

    /// A curve through these knots: `(5_000, 27)` says that half of the values are at most 27.
    ///
    /// Below the first knot its value holds, beyond the last one that one's. Without knots all
    /// values are zero. Knots that do not ascend are sorted.
    pub fn new(knots: impl Into<Vec<(u16, u32)>>) -> Self {
        let mut knots = knots.into();
        knots.sort_unstable();
        Self(Cow::Owned(knots))
    }

    /// Always the same value.
    pub fn constant(value: u32) -> Self {
        Self::new([(0, value)])
    }

    /// The value at a place between 0 and 2^32, by integers alone: alike on every machine.
    pub(crate) fn at(&self, place: u32) -> u32 {
        let place = u64::from(place) * WHOLE;
        let position = |knot: &Knot| u64::from(knot.0) << 32;
        let above = self.0.partition_point(|knot| position(knot) <= place);
        let below = above.checked_sub(1).and_then(|index| self.0.get(index));
        match (below, self.0.get(above)) {
            (Some(below), Some(above)) => {
                let share = i128::from(place - position(below));
                let width = i128::from(position(above) - position(below));
                let step = i128::from(above.1) - i128::from(below.1);
                let value = i128::from(below.1) + step * share / width;
                u32::try_from(value).unwrap_or_default()
            }
            (Some(knot), None) | (None, Some(knot)) => knot.1,
            (None, None) => 0,
        }
    }

    /// No value is greater.
    pub(crate) fn max(&self) -> u32 {
        self.0.iter().map(|knot| knot.1).max().unwrap_or_default()
    }

    /// A random value.
    pub(crate) fn sample(&self, random: &mut Random) -> u32 {
        self.at((random.next() >> 32) as u32)
    }
}

/// Frequencies of kinds, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Transactions of type 0, with the chain id in the signature.
    pub legacy: u16,
    /// Transactions of type 0, without the chain id.
    pub unprotected: u16,
    /// Transactions of type 1. The rest is type 2.
    pub access_list: u16,
    /// Transactions of types 1 and 2 whose access list is not empty.
    pub listed: u16,
    /// Transactions that create a contract.
    pub creation: u16,
    /// Transactions that fail.
    pub failed: u16,
    /// Blocks without transactions.
    pub empty: u16,
    /// Blocks with atomic transactions, which half of the empty ones have too.
    pub atomic: u16,
}

/// Sizes of blocks, and their content.
///
/// Whatever the curves say, a block has at most [`TRANSACTIONS_MAX`](Self::TRANSACTIONS_MAX)
/// transactions and [`LOGS_MAX`](Self::LOGS_MAX) logs, no input or data of a log is longer than
/// [`BYTES_MAX`](Self::BYTES_MAX), and all of them together than
/// [`BLOCK_BYTES_MAX`](Self::BLOCK_BYTES_MAX).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Transactions of a block.
    pub transactions: Curve,
    /// Logs of a block. Blocks with more transactions have, by tendency, more logs.
    pub logs: Curve,
    /// Bytes of input. Zero is a plain transfer, which has no logs.
    pub input: Curve,
    /// Bytes of a log's data.
    pub log_data: Curve,
    /// Logs of a thousand with none to four topics. All others have three.
    pub topics: [u16; 5],
    /// Frequencies of kinds.
    pub shares: Shares,
}

impl Profile {
    /// Transactions that a block has at most.
    pub const TRANSACTIONS_MAX: usize = 4_096;
    /// Logs that a block has at most.
    pub const LOGS_MAX: usize = 65_536;
    /// Bytes that an input or the data of a log has at most.
    pub const BYTES_MAX: usize = 65_536;
    /// Bytes that inputs and data of logs of a block have together at most.
    pub const BLOCK_BYTES_MAX: usize = 32 << 20;

    /// Mainnet of January 2026: quantiles of 668 Granite blocks. In the mean 31.6
    /// transactions and 57 logs, up to 223 and 1,201; block and receipts are 100 KB of JSON, which
    /// zstd makes 17 KB of where it made 15 KB of the real ones.
    pub fn c_chain() -> Self {
        Self {
            transactions: Curve::fixed(&C_CHAIN_TRANSACTIONS),
            logs: Curve::fixed(&C_CHAIN_LOGS),
            input: Curve::fixed(&C_CHAIN_INPUT),
            log_data: Curve::fixed(&C_CHAIN_LOG_DATA),
            topics: [2, 60, 165, 698, 75],
            shares: Shares {
                legacy: 38,
                unprotected: 1,
                access_list: 1,
                listed: 3,
                creation: 1,
                failed: 14,
                empty: 2,
                atomic: 9,
            },
        }
    }

    /// Blocks with 597 logs in the median, 1,810 at the 95th percentile and 24,167 at most, of 273
    /// KB in the chain's own encoding: as the log of an ingest of Ethereum's blocks has them
    /// (vicnaum/shinode, January 2026). As JSON they are 950 KB.
    pub fn many_logs() -> Self {
        Self {
            transactions: Curve::fixed(&[(0, 40), (5_000, 170), (9_500, 330), (10_000, 700)]),
            logs: Curve::fixed(&MANY_LOGS),
            input: Curve::fixed(&MANY_LOGS_INPUT),
            ..Self::c_chain()
        }
    }

    /// A few transactions of every kind, for tests.
    pub fn small() -> Self {
        Self {
            transactions: Curve::fixed(&[(0, 1), (10_000, 6)]),
            logs: Curve::fixed(&[(0, 0), (1_000, 0), (10_000, 12)]),
            input: Curve::fixed(&[(0, 0), (2_500, 0), (2_501, 4), (10_000, 200)]),
            log_data: Curve::fixed(&[(0, 0), (1_500, 0), (10_000, 160)]),
            topics: [150, 200, 200, 300, 150],
            shares: Shares {
                legacy: 200,
                unprotected: 60,
                access_list: 250,
                listed: 400,
                creation: 80,
                failed: 120,
                empty: 80,
                atomic: 100,
            },
        }
    }

    /// No transactions at all, and now and then an atomic one.
    pub fn empty() -> Self {
        let none = Curve::fixed(&[]);
        Self { transactions: none.clone(), logs: none, ..Self::small() }
    }
}

static C_CHAIN_TRANSACTIONS: [Knot; 12] = [
    (0, 1),
    (100, 3),
    (500, 9),
    (1_000, 16),
    (2_500, 21),
    (5_000, 27),
    (7_500, 34),
    (9_000, 48),
    (9_500, 74),
    (9_900, 125),
    (9_990, 190),
    (10_000, 223),
];

static C_CHAIN_LOGS: [Knot; 12] = [
    (0, 0),
    (100, 3),
    (500, 9),
    (1_000, 12),
    (2_500, 18),
    (5_000, 34),
    (7_500, 62),
    (9_000, 120),
    (9_500, 180),
    (9_900, 340),
    (9_990, 650),
    (10_000, 1_201),
];

static MANY_LOGS: [Knot; 9] = [
    (0, 0),
    (5_000, 597),
    (7_500, 1_000),
    (9_000, 1_300),
    (9_500, 1_810),
    (9_750, 3_000),
    (9_900, 6_551),
    (9_990, 9_000),
    (10_000, 24_167),
];

/// The longest recorded one is 37,722 bytes; the last stretch is bent so that the mean, 128, holds.
static C_CHAIN_INPUT: [Knot; 9] = [
    (0, 0),
    (4_099, 0),
    (4_100, 68),
    (8_200, 68),
    (9_000, 180),
    (9_500, 440),
    (9_900, 1_500),
    (9_990, 3_500),
    (10_000, 24_000),
];

/// Length that gives the encoded size: the log does not say.
static MANY_LOGS_INPUT: [Knot; 10] = [
    (0, 0),
    (3_499, 0),
    (3_500, 68),
    (6_000, 68),
    (8_000, 300),
    (9_000, 850),
    (9_500, 1_600),
    (9_900, 3_600),
    (9_990, 8_000),
    (10_000, 24_000),
];

static C_CHAIN_LOG_DATA: [Knot; 11] = [
    (0, 0),
    (120, 0),
    (130, 32),
    (7_000, 32),
    (7_900, 70),
    (8_500, 110),
    (9_300, 190),
    (9_800, 320),
    (9_900, 1_400),
    (9_990, 2_600),
    (10_000, 6_464),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(curve: &Curve) -> f64 {
        let places = (0..10_000_u32).map(|step| step * 429_496);
        places.map(|place| f64::from(curve.at(place))).sum::<f64>() / 10_000.0
    }

    #[test]
    fn a_curve_goes_through_its_knots() {
        let curve = Curve::new([(10_000, 30), (0, 10), (5_000, 10)]);
        assert_eq!(curve.at(0), 10);
        assert_eq!(curve.at(1 << 31), 10);
        assert_eq!(curve.at((1 << 31) + (1 << 30)), 20);
        assert_eq!(curve.at(u32::MAX), 29);
    }

    #[test]
    fn odd_curves_are_curves() {
        assert_eq!(Curve::new([]).at(7), 0);
        assert_eq!(Curve::constant(5).at(u32::MAX), 5);
        assert_eq!((Curve::new([]).max(), Curve::new([(0, 9), (10_000, 1)]).max()), (0, 9));
        assert_eq!(Curve::new([(9_999, 3)]).at(0), 3);
        assert_eq!(Curve::new([(0, 9), (10_000, 1)]).at(1 << 31), 5);
        assert_eq!(Curve::new([(5, 1), (5, 2)]).at(1 << 31), 2);
        assert_eq!(Curve::new([(0, 0), (10_000, u32::MAX)]).at(u32::MAX), u32::MAX - 1);
    }

    #[test]
    fn means_are_those_of_mainnet() {
        let profile = Profile::c_chain();
        assert!((31.0..32.5).contains(&mean(&profile.transactions)));
        assert!((56.0..59.0).contains(&mean(&profile.logs)));
        assert!((115.0..150.0).contains(&mean(&profile.input)));
        assert!((80.0..100.0).contains(&mean(&profile.log_data)));
        assert!((780.0..840.0).contains(&mean(&Profile::many_logs().logs)));
    }
}
