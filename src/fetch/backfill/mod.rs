//! Fetches heights below the first one: header chain, intervals, segments of a mirror source, repair.

mod error;
mod header_chain;
mod interval;
mod plan;
mod repair;
mod run;
mod segment_transfer;
mod segment_verifier;

pub(crate) use error::BackfillError;
pub(crate) use repair::{repair_all, segment};
pub(crate) use run::run;
