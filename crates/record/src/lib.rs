//! A height as neve stores it: parts and spans, terms of logs, assembly from a node's texts,
//! comparison, precompressed forms, and log matching.
//!
//! Pure but for reads through a `neve_store::Reader`: no HTTP, no JSON-RPC, no async runtime.

#![forbid(unsafe_code)]

pub mod assemble;
pub mod audit;
pub mod coding;
pub mod compare;
pub mod log_matcher;
pub mod packed;
pub mod parts;
pub mod precompressed;
pub mod spans;
pub mod terms;

mod raw_filter;
