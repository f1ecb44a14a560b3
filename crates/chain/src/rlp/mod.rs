//! RLP, and the roots of lists.

mod encoding;
mod roots;

pub use encoding::{encode_block, ext_data_hash};
pub use roots::{Encodings, ordered_root};

pub(crate) use encoding::{block_size, list, string};
