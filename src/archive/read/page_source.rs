//! Bringing pages: from the disk if they were kept before, else by one ranged read for neighboring ones.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use metrics::counter;
use neve_archive::{Digest, ObjectName, PAGE_BYTES, PageList};
use neve_store::{ArchivedSegment, PackedPages};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::fetch::{ObjectNotRead, ObjectReader, Payer, ReadPlace};
use super::page_dir::PageDir;
use super::page_file::{
    Flight, LentPages, OpenPages, OpenPlace, PageFile, RUN_PAGES_MAX, WHOLE_PAGES_MAX,
};
use super::turns;
use crate::fetch::{Evidence, RejectedPage};
use crate::shared::lock::lock;

/// Bytes that evidence has of an object which is rejected as a whole.
const EVIDENCE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the lists of all files of pages. One list has at most 512 KiB; those of 2,048 segments of mainnet have 8 MiB.
pub(super) const LIST_BYTES_MAX: usize = 64 << 20;
/// Flights of others that a caller waits for if they are refused.
const FLIGHTS_MAX: u32 = 4;

/// Objects, their pages on the disk, and the runtime that reads.
pub(super) struct PageSource {
    pub(super) objects: ObjectReader,
    pub(super) dir: PageDir,
    /// Keeps pages that differ from their digests.
    pub(super) evidence: Evidence,
    /// Reads go on here, also if the request that began them ends.
    pub(super) runtime: Handle,
    /// Bounds of the files of pages: a descriptor each, and the list, of 4 KB in mainnet.
    pub(super) open: Arc<OpenPages>,
    /// Objects whose pages are known.
    pub(super) files: Mutex<HashMap<Digest, Arc<PageFile>>>,
    /// Segments that were opened, or are being opened by one request for all.
    pub(super) segments: Mutex<HashMap<Digest, Arc<OnceCell<OpenedPages>>>>,
}

/// Place of a segment that is being opened. One that stays empty goes with the last request that has it: a manifest
/// may name a million segments that cannot be opened.
pub(super) struct OpeningSegment<'p> {
    pub(super) cell: Arc<OnceCell<OpenedPages>>,
    pages: &'p PageSource,
    digest: Digest,
}

impl Drop for OpeningSegment<'_> {
    fn drop(&mut self) {
        let mut cells = lock(&self.pages.segments);
        let is_own = cells.get(&self.digest).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        // Two: that of the map and this one. Others are made under the lock only.
        if is_own && self.cell.get().is_none() && Arc::strong_count(&self.cell) == 2 {
            cells.remove(&self.digest);
        }
    }
}

/// Pages of a segment, and the segment over them.
pub(super) type OpenedPages = (Arc<PageFile>, ArchivedSegment);

impl PageSource {
    /// Does work that waits for the disk or takes long, on a thread that may.
    pub(super) async fn off<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ObjectNotRead> {
        // Aborted if the request ends before a thread has begun.
        let working = AbortOnDropHandle::new(self.runtime.spawn_blocking(work));
        working.await.map_err(|_| ObjectNotRead::Failed)
    }

    /// Computes on a thread that may take long, once a processor is free for it.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ObjectNotRead> {
        self.off(move || turns::compute(work)).await
    }

    /// Pages of one read: a longer one would keep others from the store, or from the rate.
    pub(super) fn run_pages_max(&self) -> usize {
        self.rate_pages_max().clamp(1, RUN_PAGES_MAX)
    }

    /// Pages of one read of a whole segment, in place of several.
    pub(super) fn whole_pages_max(&self) -> usize {
        self.rate_pages_max().clamp(1, WHOLE_PAGES_MAX)
    }

    /// Pages that an address may read in a second: half of the rate.
    pub(super) fn address_pages_max(&self) -> usize {
        2 * self.rate_pages_max()
    }

    /// Pages of a quarter of a second.
    fn rate_pages_max(&self) -> usize {
        (self.objects.read_bytes_max() / PAGE_BYTES as u64) as usize
    }

    /// Brings pages of an object, unless they are here, by reads of at most `run_max` pages. One flight brings a page.
    pub(super) async fn ensure_pages(
        self: &Arc<Self>,
        file: &Arc<PageFile>,
        pages: &BTreeSet<usize>,
        run_max: usize,
        payer: Payer,
    ) -> Result<(), ObjectNotRead> {
        for _ in 0..FLIGHTS_MAX {
            match self.fly(file, pages, run_max, payer).await {
                // The flight was of a client without a read left, or only read ahead: the caller may have a read.
                Err((ObjectNotRead::Refused, false)) => {}
                outcome => return outcome.map_err(|(why, _)| why),
            }
        }
        Err(ObjectNotRead::Refused)
    }

    /// Finds out which of these pages the disk has since before the start. Reads beside them are none of their own then.
    pub(super) async fn recall(
        &self,
        file: &Arc<PageFile>,
        pages: &BTreeSet<usize>,
    ) -> Result<(), ObjectNotRead> {
        if file.absent(pages, RUN_PAGES_MAX).1 == 0 || !self.dir.has(&file.name) {
            return Ok(());
        }
        let (file, pages) = (Arc::clone(file), pages.clone());
        self.off(move || file.recall(&pages)).await
    }

    /// Brings pages. An error says whether a flight of the caller failed.
    async fn fly(
        self: &Arc<Self>,
        file: &Arc<PageFile>,
        pages: &BTreeSet<usize>,
        run_max: usize,
        payer: Payer,
    ) -> Result<(), (ObjectNotRead, bool)> {
        let boarding = file.board(pages, run_max);
        count_pages("hit", boarding.here);
        for flight in boarding.mine {
            self.begin(flight, file, payer);
        }
        for (mut landing, is_mine) in boarding.landings {
            let outcome = landing.wait_for(Option::is_some).await;
            let outcome = outcome.ok().and_then(|outcome| *outcome);
            outcome.unwrap_or(Err(ObjectNotRead::Failed)).map_err(|why| (why, is_mine))?;
        }
        Ok(())
    }

    /// Begins a flight. On the runtime, not in the task of the caller: other requests wait for the same pages, and its
    /// client may go.
    fn begin(self: &Arc<Self>, flight: Flight, file: &Arc<PageFile>, payer: Payer) {
        let (source, file) = (Arc::clone(self), Arc::clone(file));
        self.runtime.spawn(async move {
            let outcome = source.bring(&file, flight.pages(), payer).await;
            flight.ended(outcome.map_err(|why| told(why, payer)));
        });
    }

    async fn bring(
        self: &Arc<Self>,
        file: &Arc<PageFile>,
        mut pages: Range<usize>,
        payer: Payer,
    ) -> Result<(), ObjectNotRead> {
        if self.dir.has(&file.name) {
            let (over, all) = (Arc::clone(file), pages.clone());
            let lacks = self.off(move || over.recheck(all)).await.unwrap_or(pages.clone());
            count_pages("hit", pages.len() - lacks.len());
            // One lost page must not send for those beside it: they may be a MiB.
            pages = lacks;
            if pages.is_empty() {
                return Ok(());
            }
        }
        count_pages("miss", pages.len());
        self.read(file, pages, payer).await
    }

    /// Reads pages and keeps them. Those whose digests differ are read once more.
    async fn read(
        self: &Arc<Self>,
        file: &Arc<PageFile>,
        mut pages: Range<usize>,
        payer: Payer,
    ) -> Result<(), ObjectNotRead> {
        // Once more only: a network may flip a bit, but an object that is wrong stays so.
        for _ in 0..2 {
            let bytes = match self.objects.read(&file.name, file.extent(&pages), payer).await {
                Err(ObjectNotRead::Changed) => Bytes::new(), // the object ends before them
                read => read?,
            };
            let (source, file, these) = (Arc::clone(self), Arc::clone(file), pages.clone());
            let bad = self.off(move || source.take_in(&file, &these, &bytes)).await?;
            let (Some(first), Some(last)) = (bad.first(), bad.last()) else { return Ok(()) };
            pages = *first..last + 1;
        }
        Err(ObjectNotRead::Changed)
    }

    /// Keeps those of these pages that their digests prove. Returns the others.
    fn take_in(&self, file: &PageFile, pages: &Range<usize>, bytes: &Bytes) -> Vec<usize> {
        let part = |of: Range<usize>| {
            let at = |page: usize| ((page - pages.start) * PAGE_BYTES).min(bytes.len());
            bytes.slice(at(of.start)..at(of.end))
        };
        let bad = file.unproven(pages, bytes);
        for run in file.new_runs(pages, &bad) {
            let kept = file.keep(run.clone(), &part(run));
            for removed in self.dir.grow(&file.name, kept, file.bytes()) {
                self.forget(&removed.digest); // else the disk would keep its bytes
            }
        }
        bad.iter().for_each(|page| self.reject(&file.name, *page, &part(*page..page + 1)));
        bad
    }

    /// Drops a page that differs from its digest, and keeps it as evidence.
    fn reject(&self, name: &ObjectName, page: usize, bytes: &[u8]) {
        warn!(object = %name, page, "archive page differs from its digest");
        self.count_rejected(name, page, bytes);
    }

    /// Counts a page that is not used, and keeps it as evidence.
    pub(super) fn count_rejected(&self, name: &ObjectName, page: usize, bytes: &[u8]) {
        counter!("neve_archive_refused_pages_total").increment(1);
        self.evidence.keep_page(&RejectedPage { object: name.to_string(), page, bytes });
    }

    /// Closes an object: the next request compares its pages with their digests before it reads them.
    pub(super) fn forget(&self, digest: &Digest) {
        lock(&self.segments).remove(digest);
        lock(&self.files).remove(digest);
    }

    /// Pages of an object, which the disk is asked for at first.
    pub(super) async fn file(
        self: &Arc<Self>,
        name: ObjectName,
        bytes: u64,
        list: &PageList,
    ) -> Result<Arc<PageFile>, ObjectNotRead> {
        let known = lock(&self.files).get(&name.digest).cloned();
        if let Some(file) = known {
            return Ok(file);
        }
        let (source, list) = (Arc::clone(self), list.clone());
        self.off(move || source.open(name, bytes, list)).await?
    }

    /// Returns the place of a segment, for the request that opens it and those that wait for it.
    pub(super) fn opening(&self, digest: Digest) -> OpeningSegment<'_> {
        let mut cells = lock(&self.segments);
        let cell = cells.entry(digest).or_default();
        if cell.get().is_some_and(|(_, segment)| segment.has_damage()) {
            *cell = Arc::default(); // read anew
            // The disk may have changed its pages: they are compared with their digests again.
            lock(&self.files).remove(&digest);
        }
        OpeningSegment { cell: Arc::clone(cell), pages: self, digest }
    }

    /// Opens the file of pages of an object, unless another request has done so meanwhile.
    fn open(
        &self,
        name: ObjectName,
        bytes: u64,
        list: PageList,
    ) -> Result<Arc<PageFile>, ObjectNotRead> {
        let place = self.place(list.bytes())?;
        let file = Arc::new(PageFile::new(name, bytes, list, self.dir.file(&name, bytes), place));
        Ok(Arc::clone(lock(&self.files).entry(name.digest).or_insert(file)))
    }

    /// Takes a place for a file of pages. If there are too many, those go that no request has: they are opened again.
    fn place(&self, list_bytes: usize) -> Result<OpenPlace, ObjectNotRead> {
        let are_few = lock(&self.files).len() < self.open.kept_max();
        if let Some(place) = are_few.then(|| self.open.take(list_bytes)).flatten() {
            return Ok(place);
        }
        let segments = mem::take(&mut *lock(&self.segments));
        let files = mem::take(&mut *lock(&self.files));
        drop((segments, files)); // each one is closed, without the locks
        self.open.take(list_bytes).ok_or_else(no_files)
    }

    /// Notes that a request has the pages of an object, until that is dropped.
    pub(super) fn lend(
        &self,
        payer: Payer,
        digest: Digest,
    ) -> Result<Option<LentPages>, ObjectNotRead> {
        let lent = payer.address().map(|address| self.open.lend(address, digest));
        lent.map(|lent| lent.ok_or_else(no_files)).transpose()
    }

    /// Gets an object whole, from the disk if it was kept before. Each part of a read waits for a place.
    pub(super) async fn whole(
        self: &Arc<Self>,
        name: ObjectName,
        bytes: u64,
        payer: Payer,
    ) -> Result<Vec<u8>, ObjectNotRead> {
        self.whole_in(name, bytes, payer, WholeRead::default()).await
    }

    /// Gets an object whole, in a place for all of it that lasts until it is dropped.
    pub(super) async fn whole_held(
        self: &Arc<Self>,
        name: ObjectName,
        bytes: u64,
        payer: Payer,
    ) -> Result<(Vec<u8>, ReadPlace<'_>), ObjectNotRead> {
        let is_paid = !self.dir.has(&name);
        if is_paid {
            self.pay(bytes, payer)?; // before the place: a read beyond the rate waits for nothing
        }
        let place = self.objects.hold(bytes, payer).await?;
        let read = WholeRead { place: Some(&place), is_paid };
        let found = self.whole_in(name, bytes, payer, read).await?;
        Ok((found, place))
    }

    async fn whole_in(
        self: &Arc<Self>,
        name: ObjectName,
        bytes: u64,
        payer: Payer,
        WholeRead { place, mut is_paid }: WholeRead<'_>,
    ) -> Result<Vec<u8>, ObjectNotRead> {
        let source = Arc::clone(self);
        if let Some(found) = self.off(move || source.kept_whole(&name, bytes)).await? {
            return Ok(found);
        }
        // Once more if its bytes are not those of its name.
        for _ in 0..2 {
            if !is_paid {
                self.pay(bytes, payer)?;
            }
            is_paid = false;
            let found = self.read_whole(&name, bytes, payer, place).await?;
            let source = Arc::clone(self);
            let taken = self.off(move || source.take_in_whole(&name, found)).await?;
            if let Some(found) = taken {
                return Ok(found);
            }
        }
        Err(ObjectNotRead::Changed)
    }

    /// Takes all parts of an object from the rate. They are a debt that the next reads wait for.
    fn pay(&self, bytes: u64, payer: Payer) -> Result<(), ObjectNotRead> {
        self.objects.pay(bytes.div_ceil(self.part_max()), bytes, payer)
    }

    fn part_max(&self) -> u64 {
        (self.run_pages_max() * PAGE_BYTES) as u64
    }

    /// Reads an object in parts, which are paid: one of 1 GiB would have all places at the store for minutes. Its bytes
    /// are in memory once.
    async fn read_whole(
        &self,
        name: &ObjectName,
        bytes: u64,
        payer: Payer,
        place: Option<&ReadPlace<'_>>,
    ) -> Result<Vec<u8>, ObjectNotRead> {
        let mut found = Vec::new();
        // An error instead of an abort: the manifest says the length, and memory may be short.
        found.try_reserve_exact(bytes as usize).map_err(|_| ObjectNotRead::Failed)?;
        let mut at = 0;
        while at < bytes {
            let end = bytes.min(at + self.part_max());
            found.extend_from_slice(&self.objects.read_paid(name, at..end, payer, place).await?);
            at = end;
        }
        Ok(found)
    }

    /// Reads an object from the disk.
    fn kept_whole(&self, name: &ObjectName, bytes: u64) -> Option<Vec<u8>> {
        if !self.dir.has(name) {
            return None;
        }
        let mut found = vec![0; bytes as usize];
        self.dir.file(name, bytes)?.read_exact_at(&mut found, 0).ok()?;
        (turns::object_digest(&found) == name.digest).then_some(found)
    }

    /// Keeps an object, if its bytes are those of its name.
    fn take_in_whole(&self, name: &ObjectName, found: Vec<u8>) -> Option<Vec<u8>> {
        if turns::object_digest(&found) != name.digest {
            self.reject(name, 0, found.get(..EVIDENCE_BYTES_MAX).unwrap_or(&found));
            return None;
        }
        let bytes = found.len() as u64;
        let file = self.dir.file(name, bytes);
        if file.is_some_and(|file| file.write_all_at(&found, 0).is_ok()) {
            let removed = self.dir.grow(name, bytes, bytes);
            removed.iter().for_each(|removed| self.forget(&removed.digest));
        }
        Some(found)
    }
}

/// State of a read of a whole object.
#[derive(Default)]
struct WholeRead<'p> {
    /// Place for all of the object.
    place: Option<&'p ReadPlace<'p>>,
    /// True if it was taken from the rate.
    is_paid: bool,
}

/// Outcome of a flight for the tasks that wait for it. A flight that only reads ahead may do less than they may.
fn told(why: ObjectNotRead, payer: Payer) -> ObjectNotRead {
    match (why, payer) {
        (ObjectNotRead::Failed, Payer::Ahead(_)) => ObjectNotRead::Refused,
        _ => why,
    }
}

/// Counts a request that needs too many files of pages.
fn no_files() -> ObjectNotRead {
    counter!("neve_archive_refused_reads_total", "reason" => "files").increment(1);
    ObjectNotRead::Refused
}

fn count_pages(outcome: &'static str, pages: usize) {
    counter!("neve_archive_cache_pages_total", "outcome" => outcome).increment(pages as u64);
}

#[cfg(test)]
pub(super) mod tests;
