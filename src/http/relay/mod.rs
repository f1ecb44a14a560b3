//! Relayed requests of clients: bounded in number and memory, by address and in total.

mod batch;
mod paths;
mod relayed_body;
mod relayer;
mod socket_places;

pub(crate) use paths::RelayPaths;
pub(crate) use relayed_body::Held;
pub(crate) use relayer::{
    CallOrigin, NotFilled, NotRelayed, RelayShared, Relayed, Relayer, rpc_request,
};
pub(crate) use socket_places::ClientSocket;
