//! HTTP and JSON-RPC to another server, with an end to each wait.

mod backoff;
mod connector;
mod peer_text;
mod rpc;
mod streamed;

pub(crate) use backoff::Backoff;
pub(crate) use connector::{client_config, connector};
pub(crate) use peer_text::PeerText;
pub(crate) use rpc::{AGENT, CallError, CallResult, RpcClient, join, retry_after};
pub(crate) use streamed::{STREAM_READ_BYTES, StreamClient};
