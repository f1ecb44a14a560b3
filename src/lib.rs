//! neve, a read-only cache for avalanchego's C-chain JSON-RPC.
//!
//! The program is `src/main.rs`; this library exists so that tests and fuzz targets reach inside,
//! and promises nothing to other users. docs/ARCHITECTURE.md is the map.

#![forbid(unsafe_code)]

#[cfg(feature = "archive")]
mod archive;
mod body;
mod client;
pub mod commands;
pub mod config;
mod fetch;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod ingest;
mod mirror;
mod observe;
mod relay;
mod rpc;
mod shared;
mod upstream;
