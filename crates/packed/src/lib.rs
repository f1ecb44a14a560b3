//! Packed files: up to 1,024 neighboring heights of the C-chain in a twentieth of their JSON.
//!
//! [`pack()`] takes exactly the node's texts of blocks and receipts, and makes the bytes of a file.
//! [`PackedFile`] reads them back, byte for byte: a block with transactions or with hashes, a
//! header, all receipts, one receipt, one transaction, the logs that match. A file depends on
//! nothing outside itself. docs/PACKED.md has the format, to the byte.
//!
//! The reader treats its bytes as hostile: checksums first, bounded work, bounded memory, no panic.
//! No I/O besides the caller's [`Source`], no clock. Any thread may read.

#![forbid(unsafe_code)]

// The support of the tests names this crate, also in unit tests.
#[cfg(test)]
extern crate self as neve_packed;

mod container;
mod error;
mod frames;
mod read;
mod stream;
mod write;

pub use alloy_primitives::B256;

pub use container::hash_index::{IndexedHashes, Position};
pub use container::layout::{FileHeader, FileStart, HEADER_BYTES, HEIGHTS_MAX, Identity};
pub use container::log_index::term;
pub use container::source::Source;
pub use error::{PackError, PackedError, Part, Reason};
pub use frames::compress::unpacked_bytes;
pub use frames::model_cache::ModelCache;
pub use read::file::{Located, PackedFile};
pub use read::height::PackedHeight;
pub use read::intact::intact_bytes;
pub use read::log_out::LogOut;
pub use read::text::TotalDifficulty;
pub use write::bounds::{Bounds, PACKING_BYTES_MAX};
pub use write::encode::HeightTexts;
pub use write::pack::{Packing, pack, pack_within};
