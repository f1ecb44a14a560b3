//! Writers against a store that fails, cuts off, forgets and loses answers.

mod deletion;
mod descent;
mod fault_store;
mod flips;
mod packed_dir;
mod proving;
mod pushing;
mod replay;
mod signing;
mod support;
mod trial;
mod vanished;
