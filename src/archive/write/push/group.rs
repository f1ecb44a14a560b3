//! Segments of one group of heights, as they are put.

use neve_archive::{Manifest, SegmentEntry, SegmentPages, Span, span_groups};

use super::segment_file::SegmentFile;
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;
use crate::archive::write::change::put_unless_deleted;

/// A segment that the archive has now.
pub(super) struct PutSegment {
    pub(super) segment: SegmentEntry,
    pub(super) pages: SegmentPages,
    /// Hashes of its blocks and transactions, and terms of its logs.
    pub(super) content: (Span, Vec<u64>),
    /// False if it was there before.
    pub(super) is_put: bool,
}

/// Segments of one group of heights, and their hashes.
#[derive(Default)]
pub(super) struct SegmentGroup {
    pub(super) number: u64,
    pub(super) segments: Vec<SegmentEntry>,
    /// Pages of these.
    pub(super) pages: Vec<SegmentPages>,
    /// Hashes of each.
    pub(super) spans: Vec<Span>,
    /// First heights of segments, and the terms of their logs.
    pub(super) terms: Vec<(u64, u64)>,
}

impl SegmentGroup {
    /// Makes the group of segments of an archive with ranges of so many heights.
    pub(super) fn of(segments: Vec<PutSegment>, range: u32) -> Self {
        let mut group = Self::default();
        segments.into_iter().for_each(|put| group.add(put, range));
        group
    }

    fn add(&mut self, put: PutSegment, range: u32) {
        let PutSegment { segment, pages, content: (span, terms), .. } = put;
        self.number = span_groups(segment.first, range);
        self.segments.push(segment);
        self.pages.push(pages);
        self.spans.push(span);
        self.terms.extend(terms.into_iter().map(|term| (segment.first, term)));
    }
}

/// Puts a segment that was read.
pub(super) async fn put_segment(
    archive: &ArchiveStore,
    manifest: &Manifest,
    read: SegmentFile,
) -> Result<PutSegment, Failed> {
    let SegmentFile { segment, pages, content, bytes } = read;
    let name = manifest.segment_name(&segment);
    let is_put = put_unless_deleted(archive, manifest, &name, bytes).await?;
    Ok(PutSegment { segment, pages, content, is_put })
}
