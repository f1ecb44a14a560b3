//! Configuration of a chain, and the costs of its blocks.

mod config;
mod price_rule;
mod profile;
mod random;
mod schedule;

pub use config::{Branch, ChainConfig, Helicon, Signatures};
pub use profile::{Curve, Profile, Shares};

pub(crate) use price_rule::PriceRule;
pub(crate) use random::{Purpose, Random};
pub(crate) use schedule::{Fees, Schedule, UNSETTLED_MAX};
