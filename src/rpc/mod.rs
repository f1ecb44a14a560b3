//! JSON-RPC without a transport: request, batch, call.

mod batch;
mod below;
mod caches;
mod call;
mod call_facts;
mod caller;
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
pub(crate) use call_facts::CallFacts;
pub(crate) use caller::{Calls, RelayedCalls};
pub(crate) use missing::{missing_data, range_json};
pub(crate) use outbound::{
    BatchPart, Outbound, Purpose, Transactions, is_same_id, members_of, say_behind,
};
pub(crate) use request::LONG_BODY;
pub(crate) use response::{RpcResponse, WsResponse, framed};
pub(crate) use split::{Filling, Mixed, Split, answers_of};
