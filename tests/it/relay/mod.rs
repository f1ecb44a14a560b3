//! Misses that an upstream answers.

mod attacks;
mod batches;
mod bodies;
mod bounds;
mod breaker;
mod broadcasts;
mod calls;
mod chaos;
mod faulty;
mod filters;
mod framing;
mod heads;
mod mixed;
mod odd;
mod paths;
mod rules;
mod script;
mod secrets;
mod several;
mod sockets;
mod subscriptions;
pub(crate) mod wire;
