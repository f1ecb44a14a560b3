//! Fetches heights below the first one: header chain, intervals, segments of a mirror source, repair.

mod header_chain;
mod interval;
mod repair;
mod segment_transfer;
mod segment_verifier;

pub(crate) use interval::{BackfillError, run};
pub(crate) use repair::{repair_all, segment};
pub(crate) use segment_transfer::StreamFollower;
