//! Relays calls that neve cannot answer to upstreams, over connections of its own.

mod breaker;
mod broadcast;
mod exchange;
mod failure;
mod gate;
mod hedge;
mod hedging;
mod hops;
mod issued;
mod lacks;
pub(crate) mod sockets;
mod state;
mod upstream_response;

pub(crate) use exchange::{ATTEMPTS_MAX, Kept, Relay, RelayRequest, SharedGuard};
pub(crate) use failure::Failure;
use gate::UpstreamGate;
pub(crate) use hops::Hops;
pub(crate) use state::{Candidate, RelayState};
pub(crate) use upstream_response::{Counted, UpstreamBody};
