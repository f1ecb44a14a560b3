//! Reasons why a query has no result.

use neve_jsonrpc::RpcError;
use neve_store::SearchError;
use neve_store::residency::Cold;

use crate::shared::MissReason;

/// Reason why a full node must be asked, with what is missing: the text of the refusal names it. Metrics have its
/// [`MissReason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    /// Nothing is stored yet.
    Empty,
    /// A height outside the served range.
    Height(u64),
    /// No block or transaction with this hash is stored.
    Hash([u8; 32]),
    /// The record is there, but this part of it cannot be read.
    Unreadable(u64),
    /// The disk does not deliver bytes of the answer, or of an index.
    Disk,
    /// The upstream has not told the value, or too long ago.
    NotRelayed(&'static str),
    /// Another call of the batch is a miss.
    InBatch,
    /// No neve of this chain made a filter of this id.
    Filter,
    /// The head is older than `--ready-age-max`, and the answer depends on it (`--stale-heads
    /// miss`).
    StaleHead,
    /// neve was not near its upstream's head since the start, and the answer depends on the head.
    CatchingUp,
    /// neve follows no upstream, so it knows no head.
    NoUpstream,
}

impl Miss {
    /// Label of the reason. `head` is the newest served height.
    pub(crate) fn reason(self, head: Option<u64>) -> MissReason {
        match self {
            Self::Height(height) if head.is_some_and(|head| height > head) => MissReason::AboveHead,
            Self::Height(_) => MissReason::BelowRange,
            Self::Hash(_) => MissReason::UnknownHash,
            Self::Empty => MissReason::Empty,
            Self::StaleHead | Self::NoUpstream => MissReason::StaleHead,
            Self::CatchingUp => MissReason::CatchingUp,
            Self::NotRelayed(_) => MissReason::NoValue,
            Self::Filter => MissReason::UnknownFilter,
            Self::Unreadable(_) | Self::Disk => MissReason::Unreadable,
            Self::InBatch => MissReason::InBatch,
        }
    }
}

/// Reason why a query has no result. A query can fail in more ways than a read of the store ([`NotRead`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QueryError {
    /// A full node must be asked.
    Miss(Miss),
    /// The node would answer with this error.
    Error(RpcError),
    /// Clients use too much memory.
    NoMemory,
    /// The thread must not wait for the disk, or not work for so long: another one does the work
    /// again.
    Cold,
}

impl From<Miss> for QueryError {
    fn from(miss: Miss) -> Self {
        Self::Miss(miss)
    }
}

impl From<RpcError> for QueryError {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

impl From<Cold> for QueryError {
    fn from(_: Cold) -> Self {
        Self::Cold
    }
}

impl From<SearchError> for QueryError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Unreadable { height } => Self::Miss(Miss::Unreadable(height)),
            SearchError::Cold(cold) => cold.into(),
        }
    }
}

impl From<NotRead> for QueryError {
    fn from(why: NotRead) -> Self {
        match why {
            NotRead::Miss(miss) => Self::Miss(miss),
            NotRead::Cold => Self::Cold,
        }
    }
}

/// Reason why something stored is not read, for JSON-RPC and for documents. Only these two: a read has no error of the
/// node, and reserves no memory of clients, as a query does ([`QueryError`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotRead {
    /// The data is not there.
    Miss(Miss),
    /// The data is not in memory, and this thread must not wait for it.
    Cold,
}

impl From<Miss> for NotRead {
    fn from(miss: Miss) -> Self {
        Self::Miss(miss)
    }
}

impl From<Cold> for NotRead {
    fn from(_: Cold) -> Self {
        Self::Cold
    }
}
