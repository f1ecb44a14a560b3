//! Replacing a segment's file by one that ends earlier, or by one in place of a removed file.
//!
//! The old file keeps its bytes for responses in flight; the new one takes its name in one step.
//! Damaged records are copied as they are, with the checksums that they had.

use std::path::Path;

use super::active::{Active, LastBlock};
use super::segment::Segment;
use crate::disk::{CUT, Latch, Op};
use crate::error::Error;
use crate::format::{RecordHeader, SegmentHeader, TERMS_MAX};
use crate::memory::residency::{self, ReadFailed};
use crate::reads;

/// A sealed copy of a segment whose file has an unfinished name.
pub(crate) struct SealedCopy {
    active: Active,
    sealed: Segment,
}

/// Writes a copy of `cut` that holds just its served records, sealed, over its file.
pub(crate) fn rewrite(latch: &mut Latch, cut: &Segment) -> Result<Segment, Error> {
    let sealed = copy_aside(latch, cut, CUT)?.take_name(latch)?; // durable before the only other copy goes
    if cut.is_packed() {
        // Opening prefers the file with more heights: until the packed file goes, a crash undoes the cut, and no more.
        latch.remove(&cut.name())?;
        latch.apply(Op::SyncDir)?;
    }
    Ok(sealed)
}

/// Writes such a copy aside, whose name ends in `unfinished`: the file of `cut` stays as it is.
pub(crate) fn copy_aside(
    latch: &mut Latch,
    cut: &Segment,
    unfinished: &str,
) -> Result<SealedCopy, Error> {
    // A seal without the hash of its newest block would part the next block from it.
    let old = latch.dir().join(cut.name());
    let tip = cut.read_tip().map_err(|_| Error::not_delivered(&old))?;
    let mut active = Active::create_aside(latch, header_for(cut, &old)?, unfinished)?;
    for height in cut.base()..cut.end_height() {
        active.append_stored(latch, height, cut.stored(height))?;
    }
    if let (Some(copied), Some((height, hash))) = (active.tip, tip) {
        let timestamp = Some(copied.timestamp).filter(|time| *time > 0);
        let timestamp = timestamp.unwrap_or_else(|| cut.tip_timestamp());
        active.tip = Some(LastBlock { height, hash, timestamp });
    }
    // The map that was written is kept: it notes what it cannot read later where the copy noted what was damaged.
    let sealed = active.seal(latch)?;
    Ok(SealedCopy { active, sealed })
}

impl SealedCopy {
    /// Gives the file the name of a segment, in place of whatever had it.
    pub(crate) fn take_name(mut self, latch: &mut Latch) -> Result<Segment, Error> {
        self.active.take_name(latch)?;
        Ok(self.sealed)
    }
}

/// The header of a segment with space for the records of `cut` and no more, as far as their lengths can be read.
fn header_for(cut: &Segment, path: &Path) -> Result<SegmentHeader, Error> {
    let room =
        |height| reads::again(|_| true, || residency::with_blocking_reads(|| room(cut, height)));
    let bytes = (cut.base()..cut.end_height()).map(room).sum::<Result<u64, ReadFailed>>();
    let bytes = match bytes {
        // The copy may succeed where this failed. All of them fit into the old file.
        Err(ReadFailed) if !cut.is_packed() => cut.header.capacity - cut.header.data_offset,
        bytes => bytes.map_err(|_| Error::not_delivered(path))?,
    };
    Ok(SegmentHeader::new(cut.header.identity, cut.base(), cut.count(), bytes))
}

/// Bytes of a segment that the record at `height` fills; 0 if it is not there.
fn room(cut: &Segment, height: u64) -> u64 {
    let read = || cut.peek(height).and_then(|record| Some((record.header().ok()?, record)));
    let Some((head, record)) = read() else { return 0 };
    // A damaged head may say anything: no record has more hashes and logs than have space in it.
    let logs_max = record.stored_len() / (8 * TERMS_MAX) as u64;
    let head = RecordHeader {
        transactions: head.transactions.min((record.stored_len() / 32) as u32),
        logs: head.logs.min(logs_max as u32),
        ..head
    };
    Active::bytes_for(record.stored_len(), &head)
}
