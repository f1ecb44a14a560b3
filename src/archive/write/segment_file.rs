//! A packed file as a segment: its entry in the manifest, and what its span has of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use neve_archive::{Digest, Key, SegmentEntry, SegmentPages};
use neve_record::packed::Codec;
use object_store::Error;
use tokio::task::spawn_blocking;

use crate::archive::error::Failed;
use crate::archive::local::{OpenedFile, PackedOnDisk, unless_evicted};

/// A packed file in memory.
pub(super) struct SegmentFile {
    pub(super) segment: SegmentEntry,
    pub(super) pages: SegmentPages,
    /// Hashes of its blocks and transactions, and terms of its logs.
    pub(super) content: (Vec<Key>, Vec<u64>),
    pub(super) bytes: Vec<u8>,
}

/// Reads a file, on a thread of its own if that is wanted; `None` if it was evicted.
pub(super) async fn read_aside(
    file: PackedOnDisk,
    is_aside: bool,
) -> Result<Option<SegmentFile>, Failed> {
    if !is_aside {
        return read_file(&file);
    }
    let reading = spawn_blocking(move || read_file(&file));
    reading.await.map_err(|source| Error::JoinError { source })?
}

fn read_file(file: &PackedOnDisk) -> Result<Option<SegmentFile>, Failed> {
    let Some(bytes) = unless_evicted(file.read())? else { return Ok(None) };
    segment_of(&Codec::default(), &file.path, bytes).map(Some)
}

/// Entry of a packed file in the manifest, its pages and its content. All checksums are compared first.
fn segment_of(codec: &Codec, path: &Path, bytes: Vec<u8>) -> Result<SegmentFile, Failed> {
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
    let content = opened.keys().map_err(packed)?;
    let pages = opened.into_pages(); // nothing else has the bytes then
    Ok(SegmentFile { segment, pages, content, bytes: Arc::unwrap_or_clone(bytes) })
}
