//! Relays calls that neve cannot answer to upstreams, over connections of its own.

mod answer;
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
mod state;

pub(crate) use answer::AnswerBody;
pub(crate) use exchange::{Relay, RelayRequest};
pub(crate) use failure::Failure;
pub(crate) use hops::Hops;
pub(crate) use state::RelayState;
