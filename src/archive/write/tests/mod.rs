//! Writers against a store that fails, cuts off, forgets and loses answers.

mod deletion;
mod descent;
pub(crate) mod fault_store;
mod flips;
pub(crate) mod packed_dir;
mod proving;
mod pushing;
mod replay;
mod signing;
pub(crate) mod support;
mod trial;
mod vanished;
