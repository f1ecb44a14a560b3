//! Fetches heights below the first one: header chain, intervals, segments of a mirror source or an archive,
//! repair.

#[cfg(feature = "archive")]
mod anchor;
#[cfg(feature = "archive")]
mod archive_transfer;
mod error;
mod header_chain;
mod interval;
mod mirror_transfer;
mod plan;
mod repair;
mod run;
mod segment_verifier;
mod transfer;

#[cfg(feature = "archive")]
pub(crate) use anchor::begin_with;
pub(crate) use error::BackfillError;
pub(crate) use repair::{repair_all, segment};
pub(crate) use run::run;
