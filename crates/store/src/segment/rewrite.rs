//! Replacing a segment's file by one that ends earlier, or by one in place of a removed file.
//!
//! The old file keeps its bytes for replies under way; the new one takes its name in one step.
//! Damaged records are copied as they are, with the checksums that they had.

use std::path::Path;

use super::active::{Active, LastBlock};
use super::opened_segment::{OpenedSegment, inspect};
use super::segment::Segment;
use crate::disk::{Latch, Op, segment_name};
use crate::error::Error;
use crate::format::{RecordHeader, SegmentHeader, TERMS_MAX};
use crate::memory::residency;

/// Writes a copy of `cut` that holds just its served records, sealed, over its file.
pub(crate) fn rewrite(latch: &mut Latch, cut: &Segment) -> Result<Segment, Error> {
    let mut active = Active::create_aside(latch, header_for(cut))?;
    for height in cut.base()..cut.end_height() {
        active.append_stored(latch, cut, height)?;
    }
    if let (Some(tip), Some((height, hash))) = (active.tip, cut.tip()) {
        active.tip = Some(LastBlock { height, hash, ..tip });
    }
    active.seal(latch)?;
    active.take_name(latch)?; // durable before the only other copy goes
    if cut.is_packed() {
        // Opening prefers the packed file: until it goes, a crash undoes the cut, and no more.
        latch.apply(Op::Remove { name: &cut.name() })?;
        latch.apply(Op::SyncDir)?;
    }
    reopen(latch.dir(), cut.base())
}

/// The header of a segment with room for the records of `cut` and no more.
fn header_for(cut: &Segment) -> SegmentHeader {
    let room = |height| {
        let read = || cut.peek(height).and_then(|record| Some((record.header().ok()?, record)));
        let Some((head, record)) = residency::loaded(read) else { return 0 };
        // A damaged head may say anything: no record has more hashes and logs than have room in it.
        let logs_max = record.stored_len() / (8 * TERMS_MAX) as u64;
        let head = RecordHeader {
            transactions: head.transactions.min((record.stored_len() / 32) as u32),
            logs: head.logs.min(logs_max as u32),
            ..head
        };
        Active::bytes_for(record.stored_len(), &head)
    };
    let bytes = (cut.base()..cut.end_height()).map(room).sum();
    SegmentHeader::new(cut.header.identity, cut.base(), cut.count(), bytes)
}

fn reopen(dir: &Path, base: u64) -> Result<Segment, Error> {
    let path = dir.join(segment_name(base));
    match inspect(&path, base)? {
        OpenedSegment::Sealed(header, seal) => Segment::open_sealed(&path, header, &seal),
        _ => Err(Error::read(path, std::io::Error::other("a rewritten segment is not sealed"))),
    }
}
