//! HTTP on both paths: connections, draining, offloading.

pub(crate) mod access;
pub(crate) mod admit;
pub(crate) mod answer;
mod client_wait;
pub(crate) mod clients;
mod connection_admission;
mod drain;
pub(crate) mod fast;
pub(crate) mod full;
mod gone;
pub(crate) mod keys;
pub(crate) mod listener;
mod listening;
pub(crate) mod mirror;
mod offload;
mod open_connection;
pub(crate) mod relay;
mod response;
pub(crate) mod rest;
pub(crate) mod server;
mod socket;
pub(crate) mod worker;
pub(crate) mod ws;

pub(crate) use client_wait::{ClientWait, look_every};
pub(crate) use drain::draining;
pub(crate) use gone::{Gone, while_here};
pub(crate) use listening::Listener;
pub(crate) use offload::{NotDone, Offload, Undone};
pub(crate) use open_connection::{
    Answered, ConnectionGuard, HTTP2_PREFACE, Handoff, OffloadedRequest, OpenConnection,
    RequestCounts, ToFast, ToFull, UnsentResponse, Waited,
};
