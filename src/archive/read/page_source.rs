//! Bringing pages: from the disk if they were kept before, else by one ranged read for neighboring ones.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use metrics::counter;
use neve_archive::{Digest, ObjectName, PAGE_BYTES, PageList, object_digest};
use neve_store::ArchivedSegment;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tracing::warn;

use super::fetch::{NotRead, ObjectReader, Payer};
use super::page_dir::PageDir;
use super::page_file::PageFile;
use crate::fetch::{Evidence, RejectedPage};
use crate::shared::lock::lock;

/// Objects whose pages are known: 4 KB each.
const OPEN_MAX: usize = 1024;

/// Objects, their pages on the disk, and the runtime that reads.
pub(super) struct PageSource {
    pub(super) objects: ObjectReader,
    pub(super) dir: PageDir,
    /// Keeps pages that differ from their digests.
    pub(super) evidence: Evidence,
    /// Reads go on here, also if the request that began them ends.
    pub(super) runtime: Handle,
    pub(super) files: Mutex<HashMap<Digest, Arc<PageFile>>>,
    /// Segments that were opened, or are being opened by one request for all.
    pub(super) segments: Mutex<HashMap<Digest, Arc<OnceCell<Opened>>>>,
}

/// Pages of a segment, and the segment over them.
pub(super) type Opened = (Arc<PageFile>, ArchivedSegment);

impl PageSource {
    /// Brings pages of an object, unless they are here. One flight brings a page.
    pub(super) async fn ensure_pages(
        self: &Arc<Self>,
        file: &Arc<PageFile>,
        pages: &BTreeSet<usize>,
        payer: Payer,
    ) -> Result<(), NotRead> {
        match self.fly(file, pages, payer).await {
            // A flight of others, who have no read left: the caller may have one.
            Err((NotRead::Refused, false)) => self.fly(file, pages, payer).await,
            outcome => outcome,
        }
        .map_err(|(why, _)| why)
    }

    /// Brings pages. An error says whether a flight of the caller failed.
    async fn fly(
        self: &Arc<Self>,
        file: &Arc<PageFile>,
        pages: &BTreeSet<usize>,
        payer: Payer,
    ) -> Result<(), (NotRead, bool)> {
        let boarding = file.board(pages);
        count_pages("hit", boarding.here);
        for (pages, told) in boarding.mine {
            let (source, file) = (Arc::clone(self), Arc::clone(file));
            self.runtime.spawn(async move {
                let outcome = source.bring(&file, pages.clone(), payer).await;
                file.land(pages);
                told.send_replace(Some(outcome));
            });
        }
        for (mut landing, is_mine) in boarding.landings {
            let outcome = landing.wait_for(Option::is_some).await;
            let outcome = outcome.ok().and_then(|outcome| *outcome);
            outcome.unwrap_or(Err(NotRead::Failed)).map_err(|why| (why, is_mine))?;
        }
        Ok(())
    }

    async fn bring(
        &self,
        file: &Arc<PageFile>,
        pages: Range<usize>,
        payer: Payer,
    ) -> Result<(), NotRead> {
        if self.dir.has(&file.name) {
            let (file, pages) = (Arc::clone(file), pages.clone());
            let count = pages.len();
            let kept = tokio::task::spawn_blocking(move || file.recheck(pages)).await;
            if kept.unwrap_or(false) {
                count_pages("hit", count);
                return Ok(());
            }
        }
        count_pages("miss", pages.len());
        self.read(file, pages, payer).await
    }

    /// Reads pages and keeps them. Those whose digests differ are read once more.
    async fn read(
        &self,
        file: &Arc<PageFile>,
        mut pages: Range<usize>,
        payer: Payer,
    ) -> Result<(), NotRead> {
        for _ in 0..2 {
            let bytes = match self.objects.read(&file.name, file.extent(&pages), payer).await {
                Err(NotRead::Changed) => Bytes::new(), // the object ends before them
                read => read?,
            };
            let bad = file.unproven(&pages, &bytes);
            for run in file.new_runs(&pages, &bad) {
                let from = (run.start - pages.start) * PAGE_BYTES;
                let end = (run.end - pages.start) * PAGE_BYTES;
                self.keep(file, run, bytes.slice(from..end.min(bytes.len()))).await;
            }
            let (Some(first), Some(last)) = (bad.first(), bad.last()) else { return Ok(()) };
            for page in &bad {
                let from = ((page - pages.start) * PAGE_BYTES).min(bytes.len());
                let end = (from + PAGE_BYTES).min(bytes.len());
                self.reject(&file.name, *page, bytes.slice(from..end));
            }
            pages = *first..last + 1;
        }
        Err(NotRead::Changed)
    }

    async fn keep(&self, file: &Arc<PageFile>, pages: Range<usize>, bytes: Bytes) {
        let keeping = Arc::clone(file);
        let kept = tokio::task::spawn_blocking(move || keeping.keep(pages, &bytes)).await;
        for removed in self.dir.grow(&file.name, kept.unwrap_or(0)) {
            self.forget(&removed.digest); // else the disk would keep its bytes
        }
    }

    /// Drops a page that differs from its digest, and keeps it as evidence.
    fn reject(&self, name: &ObjectName, page: usize, bytes: Bytes) {
        counter!("neve_archive_refused_pages_total").increment(1);
        warn!(object = %name, page, "archive page differs from its digest");
        self.evidence.keep_page(RejectedPage { object: name.to_string(), page, bytes });
    }

    fn forget(&self, digest: &Digest) {
        lock(&self.segments).remove(digest);
        lock(&self.files).remove(digest);
    }

    /// Pages of an object, which the disk is asked for at first.
    pub(super) fn file(&self, name: ObjectName, bytes: u64, list: &PageList) -> Arc<PageFile> {
        let mut files = lock(&self.files);
        if let Some(file) = files.get(&name.digest) {
            return Arc::clone(file);
        }
        let file = self.dir.file(&name, bytes);
        let file = Arc::new(PageFile::new(name, bytes, list.clone(), file));
        if files.len() >= OPEN_MAX {
            files.clear(); // they are opened again
            lock(&self.segments).clear();
        }
        files.insert(name.digest, Arc::clone(&file));
        file
    }

    /// Gets an object whole, from the disk if it was kept before.
    pub(super) async fn whole(
        &self,
        name: &ObjectName,
        bytes: u64,
        payer: Payer,
    ) -> Result<Bytes, NotRead> {
        let (kept, file) = (self.dir.has(name), self.dir.file(name, bytes).map(Arc::new));
        if let Some(file) = file.clone().filter(|_| kept) {
            let mut found = vec![0; bytes as usize];
            let digest = name.digest;
            let read = move || {
                let read = file.read_exact_at(&mut found, 0);
                read.is_ok().then_some(found).filter(|found| object_digest(found) == digest)
            };
            if let Ok(Some(found)) = tokio::task::spawn_blocking(read).await {
                self.dir.touch(name);
                return Ok(found.into());
            }
        }
        let found = self.read_whole(name, bytes, payer).await?;
        if let Some(file) = file {
            let copied = found.clone();
            let written = tokio::task::spawn_blocking(move || file.write_all_at(&copied, 0)).await;
            if matches!(written, Ok(Ok(()))) && !kept {
                self.dir.grow(name, bytes).iter().for_each(|removed| self.forget(&removed.digest));
            }
        }
        Ok(found)
    }

    /// Reads an object whole, once more if its bytes are not those of its name.
    async fn read_whole(
        &self,
        name: &ObjectName,
        bytes: u64,
        payer: Payer,
    ) -> Result<Bytes, NotRead> {
        for _ in 0..2 {
            let found = self.objects.read(name, 0..bytes, payer).await?;
            if object_digest(&found) == name.digest {
                return Ok(found);
            }
            self.reject(name, 0, found);
        }
        Err(NotRead::Changed)
    }
}

fn count_pages(outcome: &'static str, pages: usize) {
    counter!("neve_archive_cache_pages_total", "outcome" => outcome).increment(pages as u64);
}
