//! Replacing a segment's file by one that ends earlier: what a withdrawal needs.
//!
//! The old file keeps its bytes for replies under way; the new one takes its name in one step.

use std::path::Path;

use bytes::Bytes;

use crate::active::Active;
use crate::disk::Latch;
use crate::error::Error;
use crate::format::SegmentHeader;
use crate::record::{Part, Record};
use crate::segment::{self, RecordRef, Segment, segment_name};

/// Writes a copy of `cut` that holds just its served records, sealed, over its file.
pub(crate) fn rewrite(latch: &mut Latch, cut: &Segment) -> Result<Segment, Error> {
    let records = || (cut.base()..cut.end_height()).filter_map(|height| cut.record(height));
    let bytes =
        records().map(|record| Active::bytes_for(record.bytes().len() as u64, &record.head()));
    let header = SegmentHeader::new(cut.header.identity, cut.base(), cut.count(), bytes.sum());
    let mut active = Active::create_aside(latch, header)?;
    for record in records().map(|record| copy(&record)) {
        active.append(latch, &record)?;
    }
    active.seal(latch)?;
    active.take_name(latch)?;
    reopen(latch.dir(), cut.base())
}

fn copy(record: &RecordRef) -> Record {
    let parts = (0..crate::PARTS_MAX).map(|at| record.part(at));
    Record {
        height: record.height(),
        timestamp: record.timestamp(),
        hash: record.hash(),
        parent: record.parent(),
        transactions: (0..).map_while(|at| record.transaction(at)).collect(),
        logs: record.terms().collect(),
        flags: record.flags(),
        parts: parts
            .map(|part| Part {
                bytes: Bytes::copy_from_slice(part.slice.as_ref()),
                encoding: part.encoding,
            })
            .collect(),
    }
}

fn reopen(dir: &Path, base: u64) -> Result<Segment, Error> {
    let path = dir.join(segment_name(base));
    match segment::inspect(&path, base)? {
        segment::Opened::Sealed(header, seal) => Segment::open_sealed(&path, header, &seal),
        _ => Err(Error::read(path, std::io::Error::other("a rewritten segment is not sealed"))),
    }
}
