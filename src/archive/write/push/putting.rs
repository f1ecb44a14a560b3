//! Putting the segments of a group, also ahead of its turn.

use std::cell::Cell;
use std::path::Path;
use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt, stream};
use neve_archive::Manifest;
use object_store::Error;
use tokio::task::spawn_blocking;

use super::group::{PutSegment, put_segment};
use super::order::unbroken;
use super::segment_file::read_file;
use super::{Pushed, firsts, missing};
use crate::archive::error::Failed;
use crate::archive::local::{PackedOnDisk, hash_tails};
use crate::archive::store::ArchiveStore;

/// Archive and directory of a push, and the number of files that it puts at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Putting<'p> {
    pub(super) archive: &'p ArchiveStore,
    pub(super) dir: &'p Path,
    /// Files that are read and put at once.
    pub(super) at_once: usize,
}

/// Segments of the next group that were put.
pub(super) struct PutAhead {
    /// First heights of the files.
    pub(super) firsts: Vec<u64>,
    pub(super) put: Result<Vec<PutSegment>, Failed>,
}

impl Putting<'_> {
    /// True if work goes to threads of its own. That of a server stays on its thread of the lowest priority.
    fn is_aside(self) -> bool {
        self.at_once > 1
    }

    /// Does work that takes long.
    pub(super) async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failed> {
        if !self.is_aside() {
            return Ok(work());
        }
        Ok(spawn_blocking(work).await.map_err(|source| Error::JoinError { source })?)
    }

    /// Puts the segments of files that the archive lacks, and counts them. A file that was evicted before has none.
    pub(super) async fn put_segments(
        self,
        manifest: &Manifest,
        files: Vec<PackedOnDisk>,
        counts: &Cell<Pushed>,
    ) -> Result<Vec<PutSegment>, Failed> {
        let (dir, of) = (self.dir.to_owned(), files.clone());
        let tails = self.work(move || hash_tails(&dir, &of)).await?;
        let putting = |(file, tails)| async move {
            let read = self.work(move || read_file(&file, &tails)).await?;
            let Some(read) = read? else { return Ok(None) };
            put_segment(self.archive, manifest, read).await.map(Some)
        };
        let files = stream::iter(files.into_iter().zip(tails)).map(putting);
        let (mut files, mut segments) = (pin!(files.buffered(self.at_once)), Vec::new());
        // One by one: those before a bad file are there, and count.
        while let Some(put) = files.try_next().await? {
            counts.set(counts.get().with(put.as_ref()));
            segments.extend(put);
        }
        Ok(segments)
    }

    /// Puts the segments of the next group, behind those that begin `before`. `None` without such a group, if it must wait
    /// for these, and for a server, which has one thread.
    pub(super) async fn put_ahead(
        self,
        manifest: &Manifest,
        mut before: Vec<u64>,
        next: &[PackedOnDisk],
        counts: &Cell<Pushed>,
    ) -> Option<PutAhead> {
        if !self.is_aside() || next.is_empty() {
            return None;
        }
        let missing = missing(next, manifest, &mut Pushed::default()).ok()?;
        let firsts = firsts(&missing);
        before.extend(&firsts);
        unbroken(manifest, before.into_iter()).ok()?;
        let put = self.put_segments(manifest, missing, counts).await;
        Some(PutAhead { firsts, put })
    }
}
