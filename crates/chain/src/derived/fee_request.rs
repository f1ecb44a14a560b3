//! Blocks of a fee history, and the reasons for which a node refuses one.

use std::ops::Range;

use super::fees::FeeRule;

/// Blocks that one answer covers at most (coreth, `eth/gasprice/gasprice.go`,
/// `DefaultMaxCallBlockHistory`; saevm, `gasprice/estimator.go`, `HistoryMaxBlocks`).
pub const FEE_BLOCKS_MAX: u64 = 2048;

/// Distance below the head at which blocks can be requested (`DefaultMaxBlockHistory`,
/// `HistoryMaxBlocksFromHead`). coreth counts the head among them, saevm does not; coreth leaves
/// out older blocks of a range, saevm looks at the newest alone.
pub const FEE_DEPTH_MAX: u64 = 25_000;

/// The arguments of an `eth_feeHistory` request that say which blocks. Its percentiles have been
/// looked at before: whether they are any hangs on nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeeRequest {
    /// Number of blocks.
    pub count: u64,
    /// The last of them.
    pub newest: NewestBlock,
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

impl NewestBlock {
    /// The height that is meant if this is the head.
    fn height(self, head: u64) -> u64 {
        match self {
            Self::Height(newest) => newest,
            Self::Pending => head,
        }
    }
}

/// Reason why a request is refused. The text is the node's message, under code -32000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeeRefusal {
    /// Older than the node looks back.
    #[error("request beyond historical limit: requested {newest}, head {head}")]
    TooOld {
        /// The height asked for.
        newest: u64,
        /// Head of the node.
        head: u64,
    },
    /// The newest block is not there yet.
    #[error("request beyond head block: requested {newest}, head {head}")]
    BeyondHead {
        /// The height asked for.
        newest: u64,
        /// Head of the node.
        head: u64,
    },
    /// Helicon: older than the node looks back.
    #[error(
        "requested block is too far behind accepted head: block {newest} requested, \
         accepted head is {head} (max depth {FEE_DEPTH_MAX})"
    )]
    HeliconTooOld {
        /// The height asked for.
        newest: u64,
        /// Head of the node.
        head: u64,
    },
    /// Helicon: the newest block is not there yet.
    #[error("block not found: not accepted yet: block {newest}")]
    HeliconBeyondHead {
        /// The height asked for.
        newest: u64,
    },
}

impl FeeRequest {
    /// The heights that the answer is about; empty for [`crate::EMPTY_FEE_HISTORY`].
    ///
    /// `head` is the node's last accepted block. A caller that follows executed blocks can be one
    /// behind a node of Helicon: what that node would answer then is not known here.
    pub fn blocks(&self, rule: FeeRule, head: u64) -> Result<Range<u64>, FeeRefusal> {
        match rule {
            FeeRule::BeforeHelicon => self.blocks_before_helicon(head),
            FeeRule::Helicon => self.blocks_of_helicon(head),
        }
    }

    /// coreth, `eth/gasprice/feehistory.go`, `FeeHistory` and `resolveBlockRange`.
    fn blocks_before_helicon(&self, head: u64) -> Result<Range<u64>, FeeRefusal> {
        // coreth returns at once: it does not look at the newest block.
        if self.count == 0 {
            return Ok(0..0);
        }
        // coreth has no pending block, and counts it among the blocks asked for.
        let pending = u64::from(self.newest == NewestBlock::Pending);
        let count = self.count.min(FEE_BLOCKS_MAX) - pending;
        let newest = self.newest.height(head);
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
        let newest = self.newest.height(head);
        if newest > head {
            return Err(FeeRefusal::HeliconBeyondHead { newest });
        }
        if newest < head.saturating_sub(FEE_DEPTH_MAX) {
            return Err(FeeRefusal::HeliconTooOld { newest, head });
        }
        let end = newest.saturating_add(1);
        // Last: saevm refuses a wrong newest block even of a count of zero.
        match self.count.min(FEE_BLOCKS_MAX) {
            0 => Ok(0..0),
            count => Ok(end.saturating_sub(count)..end),
        }
    }
}
