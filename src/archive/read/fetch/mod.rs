//! Reads from the object store: bounded in number, bytes, time and rate, hedged, and none while the store fails.

mod breaker;
mod gate;
mod hedging;
mod not_read;
mod object_reader;
mod queue;
mod read_rate;
#[cfg(test)]
pub(crate) mod tests;

pub(super) use breaker::BreakerState;
pub(super) use gate::{Payer, ReadPlace};
pub(super) use not_read::ObjectNotRead;
pub(super) use object_reader::ObjectReader;
pub(super) use read_rate::ReadRates;
