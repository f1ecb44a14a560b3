//! The emulated node: its blocks, and the rules by which it answers.

mod clock;
mod grow;
#[allow(clippy::module_inception, reason = "the file of the main type")]
mod node;
mod place;
mod prices;
mod shelf;

pub(crate) use node::Node;
pub(crate) use place::Place;
pub(crate) use prices::Prices;
