//! Bytes of a file: header, sections, directory, indexes, and where they are read from.

pub(crate) mod bytes;
pub(crate) mod directory;
pub(crate) mod hash_index;
pub(crate) mod layout;
pub(crate) mod log_index;
pub(crate) mod page_sums;
pub(crate) mod source;
