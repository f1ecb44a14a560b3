//! Mirrors and their source.

mod between;
mod copies;
mod false_segments;
mod packed;
mod protocol;
mod pruned;
#[cfg(feature = "archive")]
mod replicas;
mod sources;
