//! Blocks whose logs are requested.

use std::ops::RangeInclusive;

use super::reference::{BlockId, Tag};
use crate::error::RpcError;
use crate::method::Rules;

/// Blocks whose logs are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRange {
    /// The block with this hash.
    Block([u8; 32]),
    /// The blocks from one to another, both included.
    Range {
        /// First block of the range.
        from: LogBound,
        /// Last block of the range.
        to: LogBound,
    },
}

/// An end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogBound {
    /// Not given: as `latest`.
    Absent,
    /// Block by its tag.
    Tag(Tag),
    /// By height, of any size that fits into 63 bits.
    Number(u64),
}

/// The heights that tags stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHeads {
    /// The newest executed block.
    pub latest: u64,
    /// The newest settled block; not looked at before Helicon.
    pub settled: u64,
}

impl LogBound {
    /// `None` for a hash, which no bound is.
    pub(crate) fn new(at: BlockId) -> Option<Self> {
        match at {
            BlockId::Number(number) => Some(Self::Number(number)),
            BlockId::Tag(tag) => Some(Self::Tag(tag)),
            BlockId::Hash(_) => None,
        }
    }

    /// The number that was given: `earliest` is one.
    pub fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Tag(Tag::Earliest) => Some(0),
            _ => None,
        }
    }

    fn is_pending(self) -> bool {
        self == Self::Tag(Tag::Pending)
    }

    fn height(self, rules: Rules, heads: LogHeads) -> u64 {
        match self {
            Self::Tag(Tag::Safe | Tag::Finalized) if rules == Rules::Helicon => heads.settled,
            // Before Helicon all tags but `earliest` are the newest block.
            _ => self.number().unwrap_or(heads.latest),
        }
    }
}

impl LogRange {
    /// True if the range is visibly empty without the head: both ends are numbers above 0,
    /// the first is the higher one. (To the node, numbers of 0 are as tags here.)
    pub(crate) fn is_inverted(&self) -> bool {
        let Self::Range { from: LogBound::Number(from), to: LogBound::Number(to) } = *self else {
            return false;
        };
        from > to && to > 0
    }
}

/// The heights from `from` to `to`, at most up to the head; `None` if there are no logs to be
/// looked for: the answer is `[]`. Fails as the node does, in its order of checks, after those
/// that decoding has made:
///
/// - Before Helicon (coreth, eth/filters/filter.go): a number above the head, first as `from`, then
///   as `to` ("requested from/to block … after last accepted block …"); `pending` to anything else
///   ([`RpcError::INVALID_RANGE`]); a number as `to` that is below `from` ("begin block … is
///   greater than end block …"). A server that limits ranges does so after all that, with
///   [`RpcError::too_many_blocks`].
/// - Since Helicon (libevm, eth/filters/filter.go): only `pending` to anything else. What is above
///   the head or inverted just has no logs.
pub fn log_heights(
    from: LogBound,
    to: LogBound,
    rules: Rules,
    heads: LogHeads,
) -> Result<Option<RangeInclusive<u64>>, RpcError> {
    if rules == Rules::BeforeHelicon {
        not_beyond("from", from, heads.latest)?;
        not_beyond("to", to, heads.latest)?;
    }
    if from.is_pending() {
        return if to.is_pending() { Ok(None) } else { Err(RpcError::INVALID_RANGE) };
    }
    let (first, last) = (from.height(rules, heads), to.height(rules, heads));
    if rules == Rules::BeforeHelicon && last < first {
        // Only a number can be below: all tags are the head.
        let ends = format!("begin block {first} is greater than end block {last}");
        return Err(RpcError::method(ends));
    }
    let last = last.min(heads.latest);
    Ok((first <= last).then_some(first..=last))
}

fn not_beyond(which: &str, bound: LogBound, head: u64) -> Result<(), RpcError> {
    match bound.number() {
        Some(number) if number > head => {
            let what = format!("requested {which} block {number}");
            Err(RpcError::method(format!("{what} after last accepted block {head}")))
        }
        _ => Ok(()),
    }
}

impl RpcError {
    /// More blocks than the server goes through for one call, in the words of a node with
    /// `api-max-blocks-per-request`; that is asked for when `last - first >= max`. Since Helicon
    /// no node has such a limit.
    pub fn too_many_blocks(range: &RangeInclusive<u64>, max: u64) -> Self {
        let (first, last) = (range.start(), range.end());
        let what = format!("requested too many blocks from {first} to {last}");
        Self::method(format!("{what}, maximum is set to {max}"))
    }

    /// More reads than the server does for one call, in the same way; it names blocks that would pass.
    pub fn too_many_reads(
        range: &RangeInclusive<u64>,
        max: usize,
        passes: &RangeInclusive<u64>,
    ) -> Self {
        let (first, last) = (range.start(), range.end());
        let what = format!("requested logs from {first} to {last} need too many reads");
        let (first, last) = (passes.start(), passes.end());
        Self::method(format!("{what}, maximum is set to {max}; blocks from {first} to {last} pass"))
    }
}
