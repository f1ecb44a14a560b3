//! Relays calls that neve cannot answer to upstreams, over connections of its own.

mod answer;
mod breaker;
mod exchange;
mod failure;

pub(crate) use answer::AnswerBody;
pub(crate) use exchange::{Relay, RelayRequest, RelayState};
pub(crate) use failure::Failure;
