//! Arguments of calls, decoded with the checks and the words of Go's types.

#[allow(clippy::module_inception, reason = "the file of the main type")]
mod arguments;
mod call;
mod log_filter;
mod log_range;
mod reference;
mod values;

pub use log_filter::LogFilter;
pub use log_range::{LogBound, LogHeads, LogRange, log_heights};
pub use reference::{BlockId, Tag};

pub(crate) use arguments::Arguments;
pub(crate) use call::{Checked, overrides, transaction};
pub(crate) use reference::{block_number, block_reference};
pub(crate) use values::{
    DecodeError, Decoded, Floats, address, big, boolean, bytes, check_string, check_strings,
    decoded_hex, floats, hash, hex_or_decimal, index, kind, not_finite, string, uint,
};
