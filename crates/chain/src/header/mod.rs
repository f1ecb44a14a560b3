//! Headers: read, encoded, proven.

mod check_header;
#[allow(clippy::module_inception, reason = "the file of the main type")]
mod header;
mod header_json;

pub use check_header::{CheckedHeader, ClaimedHeader, TotalDifficulty};
pub use header::Header;

pub(crate) use header_json::{HEADER, HeaderReader};
