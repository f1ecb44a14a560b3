//! Reads from the object store: bounded in number, bytes, time and rate, hedged, and none while the store fails.

mod not_read;
mod object_reader;
mod read_gate;
mod read_hedges;
mod read_queue;
mod read_rate;
mod store_breaker;
#[cfg(test)]
pub(crate) mod tests;

pub(super) use not_read::ObjectNotRead;
pub(super) use object_reader::ObjectReader;
pub(super) use read_gate::{Payer, ReadPlace};
pub(super) use read_rate::ReadRates;
pub(super) use store_breaker::BreakerState;
