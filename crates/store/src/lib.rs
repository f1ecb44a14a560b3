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
//!   Heights below that range are built aside by a [`BackfillWriter`] and published whole.
//! - Any number of [`Reader`]s, lock-free. They see committed records only, and what they got
//!   stays valid however long they keep it, eviction or not.
//! - Committed bytes never change and mapped files are never resized, see `memory/map.rs`.
//! - After a crash at any point the directory opens to an unbroken range of intact records; what
//!   is in doubt is dropped, because the upstream has it.
//!
//! The bytes on disk are described in `docs/FORMAT.md`. This crate knows heights, hashes and
//! bytes; it knows nothing of JSON-RPC, of transport, or of an async runtime.

#![deny(unsafe_code)] // except in src/memory/map.rs, and in the test src/loom_tests.rs

// First: the errors behind it, of calls that other systems lack, say nothing to a person.
#[cfg(not(target_os = "linux"))]
compile_error!("neve builds and runs on Linux only, x86-64 or arm64");

#[cfg(all(test, not(loom), not(miri)))]
extern crate self as neve_store; // for tests/support

pub mod disk;
mod error;
mod format;
mod id;
mod index;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod read;
#[cfg(all(test, not(loom), not(miri)))]
mod read_tests;
mod reads;
mod repair;
mod segment;
mod sync;
pub mod verify;
mod write;

pub use disk::Stamp;
pub use error::Error;
pub use format::{
    Encoding, HASHES_MAX, HEIGHT_MAX, PARTS_MAX, Part, RECORD_BYTES_MAX, Record, RecordHeader,
    SLOT_COUNT_MAX, TERMS_MAX, Terms, VERSION as FORMAT_VERSION,
};
pub use id::{Hash, Identity, Rules};
pub use index::{HashTable, MergedHash};
pub use memory::{lock_program, residency};
pub use read::{
    ArchivedPlace, ArchivedSegment, Candidate, Candidates, Criteria, Damaged, LockedTail, LogAt,
    Reader, Resident, SearchError, Usage, WithoutLogs,
};
pub use repair::{NewPartNames, NewParts, Repair, Splitting};
pub use segment::{
    Found, IndexedHash, IndexedHashes, LogTest, PackFailed, PackedBytes, PackedCodec, PackedDamage,
    PackedFile, PackedHeader, PackedKeys, PackedLogs, PackedPages, PackedRange, PackedStart,
    RANGE_BLOCKS_MAX, Wanted, count_unpacked, unpacked_bytes,
};
pub use segment::{
    PACKED_SENT_BYTES_MAX, PartBytes, PartRef, RecordRef, SealedFile, SealedPage, SegmentSlice,
    damages_found,
};
pub use write::{
    BackfillWriter, BuiltSegments, Evicted, Hold, Merging, NewName, NewPacked, NewTable, Opened,
    Options, PackEnd, PackOutcome, Packable, PackedHeights, Packing, PartialSegment, Replaced,
    Retention, Syncing, UnpackableRange, Writer, arriving, open, open_on, open_on_with, open_with,
};
