//! JSON-RPC without a transport: request, batch, call.

mod batch;
mod call;
pub(crate) mod cursors;
pub(crate) mod methods;
mod outbound;
mod split;

pub(crate) use call::{
    Calls, LONG_BODY, Rpc, RpcResponse, WsResponse, framed, missing_data, range_json,
};
pub(crate) use outbound::Outbound;
pub(crate) use split::{Mixed, Split};
