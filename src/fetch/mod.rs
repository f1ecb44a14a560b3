//! Fetches a height from any upstream and proves it; keeps evidence of rejected data.

pub(crate) mod backfill;
mod error;
mod evidence;
pub(crate) mod follow;
mod follower;
mod height_fetcher;
mod payload;
mod prover;
mod retry;
pub(crate) mod run;
pub(crate) mod unsettled;
mod votes;

pub(crate) use error::{FetchError, note_proof, refuse};
#[cfg(feature = "archive")]
pub(crate) use evidence::RejectedPage;
pub(crate) use evidence::{Evidence, RejectedPayload};
pub(crate) use follower::Follower;
pub(crate) use height_fetcher::{FetchedHeight, HeightFetcher};
pub(crate) use payload::Payload;
pub(crate) use prover::Prover;
