//! Fetches a height from any upstream and proves it; keeps evidence of rejected data.

pub(crate) mod backfill;
mod evidence;
pub(crate) mod follow;
mod height_fetcher;
mod payload;
mod prover;
pub(crate) mod run;
pub(crate) mod unsettled;

pub(crate) use evidence::{Evidence, RejectedPayload};
pub(crate) use height_fetcher::{Fetched, HeightFetcher, refuse};
pub(crate) use payload::{BlockName, Payload};
pub(crate) use prover::StageTimes;
