//! The methods, a file for each family: query in, body or miss out.

pub(crate) mod execute;
mod fee_cache;
mod fees;
mod filters;
mod logs;
mod node;
mod raw;

pub(crate) use execute::{BlockForm, Miss, QueryContext, QueryError};
pub(crate) use fee_cache::FeeCache;
