//! The methods, a file for each family: query in, body or miss out.

mod block_form;
pub(crate) mod execute;
mod fee_cache;
mod fees;
mod filters;
mod lending;
mod logs;
mod miss;
mod node;
mod query_context;
mod raw;
pub(crate) mod stored;

pub(crate) use block_form::{BlockForm, block_of};
pub(crate) use fee_cache::FeeCache;
pub(super) use fees::FEE_BLOCKS_MAX;
#[cfg(any(test, feature = "archive"))]
pub(crate) use lending::Lending;
#[cfg(feature = "archive")]
pub(crate) use lending::LogsBeyond;
pub(crate) use lending::{Below, Lent, LogsAt, Want};
pub(crate) use miss::{Miss, NotRead, QueryError};
pub(crate) use query_context::{Fetched, QueryContext};
pub(crate) use stored::fresh;
