//! Sealed segments that are written anew: damaged ones, and those that are split into parts.

#[allow(clippy::module_inception, reason = "the file of the type `Repair`")]
mod repair;
mod restore;
mod scrub;
mod split;

pub use repair::Repair;
pub use split::{NewPartNames, NewParts, Splitting};
