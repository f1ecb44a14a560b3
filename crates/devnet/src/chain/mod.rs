//! The chain: blocks that follow from a configuration alone.

mod block;
#[allow(clippy::module_inception, reason = "the file of the main type")]
mod chain;
pub(crate) mod content;
pub(crate) mod draw;
mod generator;
mod header;
pub(crate) mod rules;
pub(crate) mod text;

pub use block::{Block, Part};
pub use chain::Chain;

pub(crate) use generator::{Generator, Window};
