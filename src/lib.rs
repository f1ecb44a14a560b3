//! neve, a read-only cache for avalanchego's C-chain JSON-RPC.
//!
//! The program is `src/main.rs`; this library exists so that tests and benchmarks reach inside,
//! and promises nothing to anyone else. docs/ARCHITECTURE.md is the map.

#![forbid(unsafe_code)]

mod admin;
pub mod cli;
mod compare;
pub mod config;
mod dev;
mod endpoint;
mod fee_cache;
pub mod fetch;
mod filters;
mod history;
mod http;
mod ingest;
pub mod logs;
mod mirror;
mod newest;
pub mod packed;
pub mod parts;
mod process;
mod progress;
mod relayed;
mod room;
pub mod serve;
mod serving;
mod status;
mod tally;
mod telemetry;
mod units;
pub mod verify;
mod ws;
