//! Bringing pages: from the disk if they were kept before, else by one ranged read for neighboring ones.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use metrics::{counter, histogram};
use neve_archive::{Digest, Kind, ObjectName, PageList, object_digest};
use neve_store::ArchivedSegment;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::gate::{Gate, read_time_max};
use super::page_dir::PageDir;
use super::page_file::{NotRead, PageFile};
use crate::archive::error::Failed;
use crate::archive::store::ArchiveStore;
use crate::shared::lock::lock;

/// Objects whose pages are known: 4 KB each.
const OPEN_MAX: usize = 1024;

/// Objects, their pages on the disk, and the runtime that reads.
pub(super) struct PageSource {
    pub(super) store: ArchiveStore,
    pub(super) dir: PageDir,
    pub(super) gate: Gate,
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
    ) -> Result<(), NotRead> {
        let boarding = file.board(pages);
        for (pages, told) in boarding.mine {
            let (source, file) = (Arc::clone(self), Arc::clone(file));
            self.runtime.spawn(async move {
                let outcome = source.bring(&file, pages.clone()).await;
                file.land(pages);
                told.send_replace(Some(outcome));
            });
        }
        for mut landing in boarding.landings {
            let outcome = landing.wait_for(Option::is_some).await;
            outcome.ok().and_then(|outcome| *outcome).unwrap_or(Err(NotRead::Failed))?;
        }
        Ok(())
    }

    async fn bring(&self, file: &Arc<PageFile>, pages: Range<usize>) -> Result<(), NotRead> {
        if self.dir.has(&file.name) {
            let (file, pages) = (Arc::clone(file), pages.clone());
            let kept = tokio::task::spawn_blocking(move || file.recheck(pages)).await;
            if kept.unwrap_or(false) {
                return Ok(());
            }
        }
        let bytes = self.read(file, pages.clone()).await?;
        let kept = {
            let (file, pages) = (Arc::clone(file), pages.clone());
            tokio::task::spawn_blocking(move || file.keep(pages, &bytes)).await.unwrap_or(0)
        };
        for removed in self.dir.grow(&file.name, kept) {
            self.forget(&removed.digest); // else the disk would keep its bytes
        }
        Ok(())
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

    /// Reads pages. If a digest differs, they are read once more.
    async fn read(&self, file: &PageFile, pages: Range<usize>) -> Result<Bytes, NotRead> {
        let extent = file.extent(&pages);
        for _ in 0..2 {
            let bytes =
                self.get(&file.name, Some(extent.clone()), extent.end - extent.start).await?;
            if file.proves(pages.clone(), &bytes) {
                return Ok(bytes);
            }
            counter!("neve_archive_refused_pages_total").increment(pages.len() as u64);
            warn!(object = %file.name, page = pages.start, "archive page differs from its digest");
        }
        Err(NotRead::Changed)
    }

    /// Gets an object whole, from the disk if it was kept before.
    pub(super) async fn whole(&self, name: &ObjectName, bytes: u64) -> Result<Bytes, NotRead> {
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
        let found = self.get(name, None, bytes).await?;
        if let Some(file) = file {
            let copied = found.clone();
            let written = tokio::task::spawn_blocking(move || file.write_all_at(&copied, 0)).await;
            if matches!(written, Ok(Ok(()))) && !kept {
                self.dir.grow(name, bytes).iter().for_each(|removed| self.forget(&removed.digest));
            }
        }
        Ok(found)
    }

    /// Gets an object, or a range of it. A whole one is compared with its name.
    pub(super) async fn get(
        &self,
        name: &ObjectName,
        range: Option<Range<u64>>,
        length: u64,
    ) -> Result<Bytes, NotRead> {
        let Some(_place) = self.gate.enter(length).await else {
            count_error("resting");
            return Err(NotRead::Failed);
        };
        let kind = match name.kind {
            Kind::Segment => "segment",
            Kind::Span => "span",
            Kind::Pages => "pages",
            Kind::Filter => "filter",
        };
        counter!("neve_archive_reads_total", "kind" => kind).increment(1);
        let begun = Instant::now();
        let reading = async {
            match range {
                Some(range) => self.store.range(name, range).await,
                None => self.store.get(name, length).await,
            }
        };
        let limit = read_time_max(length);
        let read = timeout(limit, reading).await.unwrap_or(Err(Failed::Slow(limit)));
        histogram!("neve_archive_read_duration_seconds").record(begun.elapsed());
        let failed = match read {
            Ok(bytes) => {
                self.gate.note(true);
                counter!("neve_archive_read_bytes_total").increment(bytes.len() as u64);
                return Ok(bytes);
            }
            Err(failed) => failed,
        };
        debug!(object = %name, error = %failed, "archive read failed");
        let (why, reason) = match failed {
            Failed::Absent(_) => (NotRead::Absent, "absent"),
            Failed::Changed(_) => (NotRead::Changed, "changed"),
            Failed::Slow(_) => (NotRead::Failed, "slow"),
            _ => (NotRead::Failed, "failed"),
        };
        self.gate.note(why != NotRead::Failed);
        count_error(reason);
        Err(why)
    }
}

fn count_error(reason: &'static str) {
    counter!("neve_archive_read_errors_total", "reason" => reason).increment(1);
}
