//! Reads from a store that answers, is silent, or fails, as the test says.

mod reading;
pub(crate) mod script_store;
