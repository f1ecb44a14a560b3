//! Reads of a file: a height from its frame, and the node's texts from facts.

mod digits;
pub(crate) mod fields;
pub(crate) mod file;
pub(crate) mod height;
pub(crate) mod intact;
pub(crate) mod json;
pub(crate) mod log_out;
mod logs;
pub(crate) mod one;
pub(crate) mod text;
mod whole;
