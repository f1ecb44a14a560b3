//! The node's front: connections, and what comes over them.

mod answer;
mod body;
mod http;
mod media_type;
mod rate_limit;
mod rpc;
#[allow(clippy::module_inception, reason = "the file of the main type")]
mod server;
mod shared;
mod socket;
mod state;
mod subscriptions;
mod websocket;

pub(crate) use server::{listen, serve};
pub(crate) use shared::Shared;
