//! Block records in append-only segment files, read through memory maps.
//!
//! One directory holds one chain's tail. A *segment* is one file: a header, a fixed-width height
//! index, then records; at sealing a table of block and transaction hashes and an index of logs are
//! added. A *record* is
//! one height: a head (height, block hash, parent hash, transaction hashes, the terms of logs) and
//! up to [`PARTS_MAX`] *parts*, opaque byte strings that a server sends as they are.
//!
//! The contract:
//!
//! - One [`Writer`] a directory, enforced by a lock. It refuses anything but the next height with
//!   the right parent, so that the readable range is one unbroken interval of linked blocks.
//!   Heights below that range are built aside by a [`History`] and published whole.
//! - Any number of [`Reader`]s, lock-free. They see committed records only, and what they got
//!   stays valid however long they keep it, eviction or not.
//! - Committed bytes never change and mapped files are never resized, see `map.rs`.
//! - After a crash at any point the directory opens to an unbroken range of intact records; what
//!   is in doubt is dropped, because the upstream has it.
//!
//! The bytes on disk are described in `docs/FORMAT.md`. This crate knows heights, hashes and
//! bytes; it knows nothing of JSON-RPC, of transport, or of an async runtime.

#![deny(unsafe_code)] // src/map.rs is the one exception

mod active;
pub mod disk;
mod error;
mod format;
mod hashes;
mod held;
mod history;
mod incoming;
mod log_index;
mod logs;
mod map;
mod merge;
mod newest;
mod options;
mod postings;
mod program;
mod record;
mod recover;
pub mod residency;
mod retention;
mod rewrite;
mod sealed;
mod segment;
mod stamp;
mod table;
pub mod verify;
mod view;
mod writer;

pub use error::Error;
pub use format::{
    Encoding, HASHES_MAX, PARTS_MAX, RECORD_BYTES_MAX, SPAN_MAX, TERMS_MAX, Terms,
    VERSION as FORMAT_VERSION,
};
pub use history::{Built, History};
pub use incoming::{Incoming, arriving};
pub use logs::{Candidates, LogAt, Unreadable};
pub use newest::Newest;
pub use options::{Opened, Options, open, open_on};
pub use program::lock_program;
pub use record::{Hash, Part, Record};
pub use retention::Retention;
pub use sealed::{SealedFile, SealedPage};
pub use segment::{PartRef, RecordRef, SegmentSlice};
pub use stamp::{Identity, Rules, Stamp};
pub use view::{Reader, Usage};
pub use writer::{Evicted, Merging, NewTable, Syncing, Writer};
