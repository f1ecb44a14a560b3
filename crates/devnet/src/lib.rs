//! stub
#![forbid(unsafe_code)]
mod chain;
pub use chain::{
    Block, Branch, Chain, ChainConfig, Curve, Helicon, Part, Profile, Shares, Signatures, Version,
};
