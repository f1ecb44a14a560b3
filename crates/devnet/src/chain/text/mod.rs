//! The JSON of blocks, receipts and heads.

mod block_text;
pub(crate) mod head_text;
mod receipts_text;
#[allow(clippy::module_inception, reason = "the file of the main type")]
mod text;
mod version;

pub use version::Version;

pub(crate) use block_text::{Layout, Sealed};
pub(crate) use text::Text;
