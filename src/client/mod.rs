//! HTTP and JSON-RPC to another server, with an end to each wait.

mod backoff;
mod connector;
mod error;
mod http;
mod peer_text;
#[cfg(feature = "archive")]
mod raw;
mod results;
mod rpc;
mod secrets;
mod streamed;
mod ticker;
mod websocket;

pub(crate) use backoff::Backoff;
pub(crate) use connector::client_config;
pub(crate) use error::{CallError, CallResult, innermost, retry_after};
pub(crate) use http::{AGENT, Connections, HttpClient, whole_story};
pub(crate) use peer_text::PeerText;
#[cfg(feature = "archive")]
pub(crate) use raw::{RawClient, raw_client};
pub(crate) use results::join;
pub(crate) use rpc::RpcClient;
pub(crate) use secrets::{KeySearch, remember};
pub(crate) use streamed::{STREAM_READ_BYTES, StreamClient};
pub(crate) use ticker::{Tick, Ticker};
pub(crate) use websocket::{NotOpened, Stream, WebSocketClient};
