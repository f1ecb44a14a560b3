//! Reasons why backfill stops.

use neve_chain::Disproof;
use neve_store::Error;

use crate::ingest::Stopped;

/// Reason why an interval was given up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackfillError {
    #[error("{0}")]
    Store(#[from] Error),
    #[error("the receipts of history do not check out: {0}")]
    Disproved(#[from] Disproof),
    #[error("a stored height above history does not check out")]
    Unreadable,
    #[error("no upstream answers, or none is of this chain")]
    NoUpstream,
    #[error("no upstream gives height {0}")]
    NotGiven(u64),
    #[error(
        "the receipts up to height {0} are settled with those of heights that no upstream gives"
    )]
    Unproven(u64),
    #[error("the segment was changed meanwhile, or its records do not fit into one any more")]
    Changed,
    #[error("fetching ended: {0}")]
    Task(#[from] tokio::task::JoinError),
    #[error("writing ended")]
    Ended,
    #[error("the writer has stopped")]
    Writer(#[from] Stopped),
}
