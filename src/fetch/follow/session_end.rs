//! End of a session.

use neve_store::Error;
use tokio::task::JoinError;

use crate::ingest::Stopped;
use crate::shared::Phase;

/// Reason why a session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
    /// No upstream is left.
    #[error("no upstream is left")]
    Lost,
    /// A block that does not fit those before it.
    #[error("block {height} does not fit what the upstream sent before: {why}")]
    Contradiction {
        /// Height of the contradiction.
        height: u64,
        /// Description of the contradiction.
        why: String,
    },
    /// The store refused.
    #[error("{0}")]
    Store(#[from] Error),
    /// A task ended otherwise than by finishing.
    #[error("fetching ended: {0}")]
    Task(#[from] JoinError),
    /// The writer has stopped.
    #[error("the writer has stopped")]
    Stopped,
}

impl From<Stopped> for SessionEnd {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl SessionEnd {
    /// The mirror source withdrew this height.
    pub(super) fn withdrawn(height: u64) -> Self {
        Self::Contradiction { height, why: "the mirror source withdrew it".to_owned() }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::Store(Error::WrongChain { .. }) => Phase::WrongChain,
            Self::Stopped => Phase::Stopped,
            _ => Phase::Waiting,
        }
    }
}
