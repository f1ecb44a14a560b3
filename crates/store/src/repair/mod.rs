//! Damage in sealed segments: finding it, and writing such a segment anew.

#[allow(clippy::module_inception, reason = "the file of the type `Repair`")]
mod repair;
mod scrub;

pub use repair::Repair;
