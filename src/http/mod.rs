//! HTTP on both paths: connections, response headers, bodies, deadlines, offloading.

pub(crate) mod admit;
pub(crate) mod clients;
mod copied_body;
mod drain;
pub(crate) mod fast;
mod framing;
pub(crate) mod full;
mod gone;
mod http_body;
mod idle_state;
pub(crate) mod mirror;
mod offload;
mod open_connection;
pub(crate) mod relay;
pub(crate) mod response_headers;
pub(crate) mod rest;
pub(crate) mod server;
mod socket;
pub(crate) mod worker;
pub(crate) mod ws;

pub(crate) use copied_body::CopiedBody;
pub(crate) use drain::draining;
pub(crate) use gone::{Gone, while_here};
pub(crate) use http_body::{HttpBody, StreamBody, Streamed};
pub(crate) use idle_state::IdleState;
pub(crate) use offload::{NotDone, Offload};
pub(crate) use open_connection::{
    Arrived, BlockingWork, ConnectionGuard, Handoff, OffloadedRequest, OpenConnection, ToFast,
    ToFull, UnsentResponse, Waited,
};
pub(crate) use socket::{NO_ROOM, Socket, send, takes_more};
