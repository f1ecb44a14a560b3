//! A deterministic upstream: an embedded chain that looks to a client like one avalanchego node.
//!
//! [`Chain`] makes blocks from a [`ChainConfig`] alone: headers, roots, blooms, receipts and
//! settlement are right, so that a client that checks them finds no fault; sizes are those of a
//! [`Profile`], mainnet's for one. [`Devnet`] answers about them over HTTP and WebSocket as
//! avalanchego v1.14 or v1.15 would, before and after its chain goes over to Helicon, and has every
//! [`Fault`] that an upstream can have, on demand.
//!
//! The same configuration gives the same bytes on every machine. Only growth by a clock
//! ([`Config::rate`]) looks at one, and then it decides when a block comes, not what it is.
//!
//! # What it has no notion of
//!
//! State: balances, calls, traces and proofs are methods that it does not have. Roots of state are
//! arbitrary, gas is roughly what it would be, and nonces rise, but not by one. The excess of gas
//! after a block is drawn; base fees and limits follow from it by the node's rules, and so do the
//! prices that are suggested. Subscriptions are to `newHeads` alone, which come when a block is
//! executed.
//!
//! # Limits
//!
//! Memory: [`Config::keep_heights`] blocks, 64 that were made again, and some 70 bytes for each
//! height that exists; a block has at most what [`Profile`] says. Network: 4,096 connections, as
//! many WebSockets with 64 calls each, bodies of 5 MiB, messages of 32 MiB, batches of 1,000 calls
//! and 25 MB of results. A subscriber that is 1,024 heads behind is cut off.

#![forbid(unsafe_code)]

mod chain;
mod config;
mod counters;
mod devnet;
mod faults;
mod lock;
mod node;
mod server;

pub use chain::rules::{Branch, ChainConfig, Curve, Helicon, Profile, Shares, Signatures};
pub use chain::text::Version;
pub use chain::{Block, Chain, Part};
pub use config::{Config, Counted, Older, RateLimit};
pub use counters::Counters;
pub use devnet::{Devnet, DevnetThread};
pub use faults::{Fault, Faults, Heights, Injected, RetryAfter, Rule};
