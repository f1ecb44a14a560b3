//! Which blocks a fee history is about, and why a node gives none.

use std::ops::Range;

use crate::fees::FeeRule;

/// Blocks that one answer covers at most (coreth, `eth/gasprice/gasprice.go`,
/// `DefaultMaxCallBlockHistory`; saevm, `gasprice/estimator.go`, `HistoryMaxBlocks`).
pub const FEE_BLOCKS_MAX: u64 = 2048;

/// How far behind the head blocks can be asked for (`DefaultMaxBlockHistory`,
/// `HistoryMaxBlocksFromHead`). coreth counts the head among them, saevm does not; coreth leaves
/// out older blocks of a range, saevm looks at the newest alone.
pub const FEE_DEPTH_MAX: u64 = 25_000;

/// Percentiles that a request may have.
const PERCENTILES_MAX: usize = 100;

/// The arguments of an `eth_feeHistory` request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeeRequest<'p> {
    /// How many blocks.
    pub count: u64,
    /// The last of them.
    pub newest: NewestBlock,
    /// In percent; none when `null` or empty.
    pub percentiles: &'p [f64],
}

/// The newest block that a request names. Tags but `pending` are heights here: the caller knows
/// what each means at its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewestBlock {
    /// `pending`: the head, by coreth with one block fewer than asked for.
    Pending,
    /// A number, or what a tag stands for.
    Height(u64),
}

/// Why a request is refused. The text is the node's message, under code -32000.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FeeRefusal {
    /// More than 100 percentiles.
    #[error("invalid reward percentile: over the query limit {PERCENTILES_MAX}")]
    PercentileCount,
    /// Not from 0 to 100.
    #[error("invalid reward percentile: {percentile:.6}")]
    Percentile {
        /// The first such.
        percentile: f64,
    },
    /// Not in ascending order.
    #[error("invalid reward percentile: #{}:{before:.6} >= #{index}:{percentile:.6}", index.saturating_sub(1))]
    PercentileOrder {
        /// Of the first that is not greater than the one before it.
        index: usize,
        /// The one before it.
        before: f64,
        /// Itself.
        percentile: f64,
    },
    /// Older than the node looks back.
    #[error("request beyond historical limit: requested {newest}, head {head}")]
    TooOld {
        /// The height asked for.
        newest: u64,
        /// The node's.
        head: u64,
    },
    /// Not there yet.
    #[error("request beyond head block: requested {newest}, head {head}")]
    BeyondHead {
        /// The height asked for.
        newest: u64,
        /// The node's.
        head: u64,
    },
    /// Helicon: more than 100 percentiles.
    #[error(
        "percentile out of range or misordered: requested {count} percentiles, \
         max {PERCENTILES_MAX}"
    )]
    HeliconPercentileCount {
        /// How many.
        count: usize,
    },
    /// Helicon: not from 0 to 100.
    #[error("percentile out of range or misordered: value {percentile:.6} at index {index}")]
    HeliconPercentile {
        /// Of the first such.
        index: usize,
        /// Itself.
        percentile: f64,
    },
    /// Helicon: not in ascending order.
    #[error(
        "percentile out of range or misordered: index {index} ({percentile:.6}) must be greater \
         than index {} ({before:.6})", index.saturating_sub(1)
    )]
    HeliconPercentileOrder {
        /// Of the first that is not greater than the one before it.
        index: usize,
        /// The one before it.
        before: f64,
        /// Itself.
        percentile: f64,
    },
    /// Helicon: older than the node looks back.
    #[error(
        "requested block is too far behind accepted head: block {newest} requested, \
         accepted head is {head} (max depth {FEE_DEPTH_MAX})"
    )]
    HeliconTooOld {
        /// The height asked for.
        newest: u64,
        /// The node's.
        head: u64,
    },
    /// Helicon: not there yet.
    #[error("block not found: not accepted yet: block {newest}")]
    HeliconBeyondHead {
        /// The height asked for.
        newest: u64,
    },
}

impl FeeRequest<'_> {
    /// The heights that the answer is about; empty for [`crate::EMPTY_FEE_HISTORY`]. All checks
    /// that the node makes, in its order.
    ///
    /// `head` is the node's last accepted block. Someone who follows executed blocks can be one
    /// behind a node of Helicon: what that node would answer then is not known here.
    pub fn blocks(&self, rule: FeeRule, head: u64) -> Result<Range<u64>, FeeRefusal> {
        match rule {
            FeeRule::BeforeHelicon => self.blocks_before_helicon(head),
            FeeRule::Helicon => self.blocks_of_helicon(head),
        }
    }

    /// coreth, `eth/gasprice/feehistory.go`, `FeeHistory` and `resolveBlockRange`.
    fn blocks_before_helicon(&self, head: u64) -> Result<Range<u64>, FeeRefusal> {
        if self.count == 0 {
            return Ok(0..0);
        }
        self.check_percentiles()?;
        let mut count = self.count.min(FEE_BLOCKS_MAX);
        let newest = match self.newest {
            NewestBlock::Height(newest) => newest,
            NewestBlock::Pending => {
                count -= 1;
                head
            }
        };
        let oldest = head.saturating_sub(FEE_DEPTH_MAX - 1);
        if count == 0 {
            Ok(0..0)
        } else if newest < oldest {
            Err(FeeRefusal::TooOld { newest, head })
        } else if newest > head {
            Err(FeeRefusal::BeyondHead { newest, head })
        } else {
            let end = newest.saturating_add(1);
            Ok(end.saturating_sub(count).max(oldest)..end)
        }
    }

    /// saevm, `gasprice/estimator.go`, `FeeHistory`.
    fn blocks_of_helicon(&self, head: u64) -> Result<Range<u64>, FeeRefusal> {
        self.check_percentiles_of_helicon()?;
        let newest = match self.newest {
            NewestBlock::Height(newest) => newest,
            NewestBlock::Pending => head,
        };
        if newest > head {
            return Err(FeeRefusal::HeliconBeyondHead { newest });
        }
        if newest < head.saturating_sub(FEE_DEPTH_MAX) {
            return Err(FeeRefusal::HeliconTooOld { newest, head });
        }
        let end = newest.saturating_add(1);
        match self.count.min(FEE_BLOCKS_MAX) {
            0 => Ok(0..0),
            count => Ok(end.saturating_sub(count)..end),
        }
    }

    fn check_percentiles(&self) -> Result<(), FeeRefusal> {
        if self.percentiles.len() > PERCENTILES_MAX {
            return Err(FeeRefusal::PercentileCount);
        }
        match self.bad_percentile() {
            None => Ok(()),
            Some((_, percentile, None)) => Err(FeeRefusal::Percentile { percentile }),
            Some((index, percentile, Some(before))) => {
                Err(FeeRefusal::PercentileOrder { index, before, percentile })
            }
        }
    }

    fn check_percentiles_of_helicon(&self) -> Result<(), FeeRefusal> {
        let count = self.percentiles.len();
        if count > PERCENTILES_MAX {
            return Err(FeeRefusal::HeliconPercentileCount { count });
        }
        match self.bad_percentile() {
            None => Ok(()),
            Some((index, percentile, None)) => {
                Err(FeeRefusal::HeliconPercentile { index, percentile })
            }
            Some((index, percentile, Some(before))) => {
                Err(FeeRefusal::HeliconPercentileOrder { index, before, percentile })
            }
        }
    }

    /// The first percentile that is wrong, with its index, and the one before it if the order is
    /// what is wrong.
    fn bad_percentile(&self) -> Option<(usize, f64, Option<f64>)> {
        let mut last = None;
        for (index, percentile) in self.percentiles.iter().copied().enumerate() {
            if !(0.0..=100.0).contains(&percentile) {
                return Some((index, percentile, None));
            }
            if last.is_some_and(|last| percentile <= last) {
                return Some((index, percentile, last));
            }
            last = Some(percentile);
        }
        None
    }
}
