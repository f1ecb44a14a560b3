//! Heights below the served range, which another place has.

use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use neve_store::{ArchivedPlace, ArchivedSegment, WithoutLogs};

use crate::shared::ClientAddress;

/// Heights that a call needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Want {
    /// The block of this height.
    Height(u64),
    /// A block or a transaction.
    Hash([u8; 32]),
    /// All blocks of these heights.
    Heights(RangeInclusive<u64>),
    /// Logs with a key of each list.
    Logs(LogsAt, Vec<Vec<u64>>),
}

/// Blocks whose logs are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LogsAt {
    /// Logs of all blocks of these heights.
    Heights(RangeInclusive<u64>),
    /// Logs of the block with this hash.
    Block([u8; 32]),
}

/// A call for logs that needs more reads than one may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogsBeyond {
    /// First height of the call.
    pub(crate) first: u64,
    /// Lists of keys of which a log must have one each.
    pub(crate) criteria: Vec<Vec<u64>>,
    /// Heights that would pass.
    pub(crate) passes: RangeInclusive<u64>,
    /// Reads that one call may need.
    pub(crate) reads_max: usize,
}

/// Heights for one request.
#[derive(Default)]
pub(crate) struct Lent {
    /// Packed files with the heights.
    pub(crate) segments: Vec<ArchivedSegment>,
    /// Places of the hashes.
    pub(crate) places: Vec<ArchivedPlace>,
    /// Heights without logs.
    pub(crate) without: Vec<WithoutLogs>,
    /// Calls for logs that need too many reads.
    pub(crate) beyond: Vec<LogsBeyond>,
    /// True if some could not be had now: another attempt may succeed.
    pub(crate) try_again: bool,
}

/// Heights on their way.
pub(crate) type Lending = Pin<Box<dyn Future<Output = Lent> + Send>>;

/// A place that has heights below the served range.
pub(crate) trait Below: Send + Sync {
    /// True if the place may have it. Waits for nothing.
    fn may_have(&self, want: &Want) -> bool;

    /// True if [`Self::lend`] may have it lent: without the look of [`Self::may_have`] if that takes long.
    fn may_lend(&self, want: &Want) -> bool {
        self.may_have(want)
    }

    /// Makes the heights readable for a client, as far as that goes in bounded time. The thread that waits
    /// does none of the work.
    fn lend(self: Arc<Self>, wants: Vec<Want>, address: ClientAddress) -> Lending;
}
