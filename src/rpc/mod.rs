//! JSON-RPC without a transport: request, batch, call.

mod batch;
mod caches;
mod call;
mod caller;
mod calls;
pub(crate) mod cursors;
mod frame;
pub(crate) mod methods;
mod missing;
mod outbound;
mod request;
mod response;
mod split;

pub(crate) use caches::Caches;
pub(crate) use call::Rpc;
pub(crate) use calls::Calls;
pub(crate) use missing::{missing_data, range_json};
pub(crate) use outbound::Outbound;
pub(crate) use request::LONG_BODY;
pub(crate) use response::{RpcResponse, WsResponse, framed};
pub(crate) use split::{Mixed, Split};
