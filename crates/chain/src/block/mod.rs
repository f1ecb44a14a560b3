//! Blocks: read, encoded, proven.

pub mod atomic;
#[allow(clippy::module_inception, reason = "the file of the main type")]
mod block;
mod check_block;
mod transaction;
pub(crate) mod transaction_json;

pub use block::{Block, BlockLayout};
pub use check_block::{CheckedBlock, Checks};
pub use transaction::{Access, Kind, Transaction};

pub(crate) use transaction_json::{TRANSACTION, optional_address};
