//! JSON as Go reads it: places, strings, nesting, syntax errors.

mod nesting;
mod scan;
mod swar;
mod syntax;
mod text;
mod walk;

pub use syntax::syntax_error;
pub use text::is_key;
pub use walk::{elements, members};

pub(crate) use nesting::Malformed;
pub(crate) use scan::SyntaxScanner;
pub(crate) use text::{compact, decode, echo, encode, inside, quote};
