//! Files mapped into memory: maps, pins, and which pages are resident.

mod map;
mod pages;
mod pin;
mod program;
pub mod residency;
mod watermarks;

pub use program::lock_program;

pub(crate) use map::{Map, will_need};
pub(crate) use pin::{PinCounts, PinnedMap};
#[cfg(all(test, loom))]
pub(crate) use watermarks::Watermarks;
