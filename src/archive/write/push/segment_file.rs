//! A packed file as a segment: its entry in the manifest, and what the objects of its span have of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use neve_archive::{Digest, SegmentEntry, SegmentPages, Span};
use neve_record::packed::Codec;

use crate::archive::error::Failed;
use crate::archive::local::{HashTails, OpenedFile, PackedOnDisk, unless_evicted};

/// A packed file in memory.
pub(super) struct SegmentFile {
    pub(super) segment: SegmentEntry,
    pub(super) pages: SegmentPages,
    /// Hashes of its blocks and transactions, and terms of its logs.
    pub(super) content: (Span, Vec<u64>),
    pub(super) bytes: Vec<u8>,
}

/// Reads a file; `None` if it was evicted.
pub(super) fn read_file(
    file: &PackedOnDisk,
    tails: &HashTails,
) -> Result<Option<SegmentFile>, Failed> {
    let Some(bytes) = unless_evicted(file.read())? else { return Ok(None) };
    segment_of(&Codec::default(), &file.path, bytes, tails).map(Some)
}

/// Entry of a packed file in the manifest, its pages and its content. All checksums are compared first.
fn segment_of(
    codec: &Codec,
    path: &Path,
    bytes: Vec<u8>,
    tails: &HashTails,
) -> Result<SegmentFile, Failed> {
    let packed = |why: String| Failed::Packed { path: PathBuf::from(path), why };
    let bytes = Arc::new(bytes);
    let opened = OpenedFile::of(codec, Arc::clone(&bytes)).map_err(packed)?;
    let header = opened.header();
    let segment = SegmentEntry {
        first: header.first,
        bytes: bytes.len() as u64,
        digest: opened.pages.pages.object_digest(),
        last: opened.last().map_err(packed)?,
        parent: Digest(header.parent.0),
    };
    let keys = opened.keys_by(tails).map_err(packed)?;
    let span = Span::empty(header.first, header.heights, 1).and_then(|span| span.with(None, &keys));
    let span = span.map_err(|error| packed(error.to_string()))?;
    let content = (span, opened.terms().map_err(packed)?);
    let pages = opened.into_pages(); // nothing else has the bytes then
    Ok(SegmentFile { segment, pages, content, bytes: Arc::unwrap_or_clone(bytes) })
}
