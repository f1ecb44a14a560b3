//! Relayed requests of clients: bounded in number and memory, by address and in total.

mod paths;
mod relayer;

pub(crate) use paths::RelayPaths;
pub(crate) use relayer::{NotRelayed, RelayShared, Relayer, rpc_request};
