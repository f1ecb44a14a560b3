//! Relays calls that neve cannot answer to upstreams, over connections of its own.

mod answer;
mod breaker;
mod broadcast;
mod exchange;
mod failure;
mod gate;
mod hops;

pub(crate) use answer::AnswerBody;
pub(crate) use exchange::{Relay, RelayRequest, RelayState};
pub(crate) use failure::Failure;
pub(crate) use hops::Hops;
