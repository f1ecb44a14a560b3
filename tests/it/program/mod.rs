//! The program: usage, output, limits of the system, pages for operators.

mod admin;
#[cfg(feature = "archive")]
mod browser;
mod cli;
mod config;
mod dev;
mod doctor;
mod export;
mod import;
mod latencies;
mod memory;
mod memory_full;
mod memory_heads;
mod memory_http2;
mod memory_packed;
mod outputs;
mod prometheus;
mod sandbox;
mod service;
mod status;
