//! A segment: its active, sealed and rewritten file, and the records in it.

mod active;
mod checked;
mod found;
mod opened_segment;
mod packed;
mod packed_codec;
mod record_ref;
mod rewrite;
mod sealed;
#[allow(clippy::module_inception, reason = "the file of the type `Segment`")]
mod segment;
mod slice;
mod unreadable;

pub use checked::damages_found;
pub use found::Found;
pub use packed_codec::{
    IndexedHash, IndexedHashes, LogTest, PackFailed, PackedBytes, PackedCodec, PackedDamage,
    PackedFile, PackedHeader, PackedKeys, PackedLogs, PackedPages, PackedRange, PackedStart,
    RANGE_BLOCKS_MAX, Wanted, count_unpacked, unpacked_bytes,
};
pub use record_ref::{PartBytes, PartRef, RecordRef};
pub use sealed::{PACKED_SENT_BYTES_MAX, SealedFile, SealedPage};
pub use slice::SegmentSlice;

pub(crate) use active::{Active, Recovered, recover};
#[cfg(all(test, loom))]
pub(crate) use checked::Checked;
pub(crate) use checked::note_tables;
pub(crate) use opened_segment::{OpenedSegment, inspect};
pub(crate) use packed::{OpenedPacked, Packed, entries_of as entries_of_record};
pub(crate) use rewrite::{SealedCopy, copy_aside, rewrite};
pub(crate) use segment::Segment;
