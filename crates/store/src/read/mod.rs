//! Reading committed records: by height, by hash, by the terms of logs.

mod archived;
mod beside;
mod criteria;
mod log_search;
mod memory_lock;
mod quarantine_status;
mod reader;
mod resident;
mod view;

pub use archived::{ArchivedPlace, ArchivedSegment, WithoutLogs};
pub use criteria::Criteria;
pub use log_search::{Candidate, Candidates, LogAt, SearchError};
pub use memory_lock::LockedTail;
pub use reader::{Damaged, Reader, Usage};
pub use resident::Resident;

#[cfg(all(test, not(loom), not(miri)))]
pub(crate) use criteria::PREPARED;
pub(crate) use quarantine_status::QuarantineStatus;
pub(crate) use view::View;
