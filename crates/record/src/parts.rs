//! Parts of a record, and their texts. docs/FORMAT.md describes their bytes.

use std::borrow::Cow;

use neve_store::residency::Cold;
use neve_store::{Encoding, RecordRef, SegmentSlice};

/// The block with transaction hashes.
pub const HASHES: usize = 0;
/// Header of the block.
pub const HEADER: usize = 1;
/// Places in the other parts.
pub const SPANS: usize = 2;
/// The block with transactions.
pub const FULL: usize = 3;
/// The receipts of the block, as the node sends them.
pub const RECEIPTS: usize = 4;

/// Flag of a record whose parts carry `"totalDifficulty":"0x0"`, as v1.15 sends it.
pub const FLAG_ZERO_DIFFICULTY: u32 = 1;

/// A part in the form in which it is sent; `None` if it is stored in one that is not known here.
pub fn uncompressed_part(record: &RecordRef, part: usize) -> Option<SegmentSlice> {
    let part = record.part(part);
    (part.encoding == Encoding::Uncompressed).then_some(part.slice)
}

/// [`uncompressed_part`] with the record's hold on its segment.
pub fn into_uncompressed_part(record: RecordRef, part: usize) -> Option<SegmentSlice> {
    let part = record.into_part(part);
    (part.encoding == Encoding::Uncompressed).then_some(part.slice)
}

/// A part that this thread reads and does not only send.
pub fn readable_part(record: &RecordRef, part: usize) -> Result<Option<SegmentSlice>, Cold> {
    let Some(part) = uncompressed_part(record, part) else { return Ok(None) };
    part.probe()?;
    Ok(Some(part))
}

/// A part that is read at once.
pub fn read_part(record: &RecordRef, part: usize) -> Result<Option<Cow<'_, [u8]>>, Cold> {
    let part = record.read_part(part)?;
    Ok(part.filter(|(_, encoding)| *encoding == Encoding::Uncompressed).map(|(bytes, _)| bytes))
}
