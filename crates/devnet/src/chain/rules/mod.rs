//! What a chain is made from, and what its blocks cost.

mod config;
mod prices;
mod profile;
mod random;
mod schedule;

pub use config::{Branch, ChainConfig, Helicon, Signatures};
pub use profile::{Curve, Profile, Shares};

pub(crate) use prices::Prices;
pub(crate) use random::{Purpose, Random};
pub(crate) use schedule::{Fees, Schedule, UNSETTLED_MAX};
