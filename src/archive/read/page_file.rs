//! Pages of one object on the disk: a sparse file. A page that is there proves itself, so that nothing else
//! says which ones are.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use neve_archive::{Digest, ObjectName, PAGE_BYTES, PageList};
use neve_store::PackedPages;
use tokio::sync::watch;

use super::fetch::ObjectNotRead;
use super::turns;
use crate::shared::ClientAddress;
use crate::shared::lock::lock;

/// Pages of one read: 4 MiB. A longer one would keep others from the store for seconds.
pub(super) const RUN_PAGES_MAX: usize = 64;
/// Pages of one read that brings a whole segment in place of two reads: 8 MiB. Segments of mainnet have about 70.
pub(super) const WHOLE_PAGES_MAX: usize = 128;
/// Pages of all objects that are in memory because the disk does not take them: 16 MiB.
const UNWRITTEN_MAX: usize = 256;
/// Number of them now.
static UNWRITTEN: AtomicUsize = AtomicUsize::new(0);

type Landing = watch::Receiver<Option<Result<(), ObjectNotRead>>>;
type Takeoff = watch::Sender<Option<Result<(), ObjectNotRead>>>;

/// Files of pages that are open, also those that only a request has, and the bytes of their lists.
pub(super) struct OpenPages {
    files_max: usize,
    list_bytes_max: usize,
    /// Number of files, and the bytes of their lists together.
    open: Mutex<(usize, usize)>,
    /// Files that requests of each address have, and the number of these requests.
    lent: Mutex<HashMap<ClientAddress, HashMap<Digest, usize>>>,
}

/// A file of pages that a request of an address has, until it is dropped.
pub(super) struct LentPages {
    all: Arc<OpenPages>,
    address: ClientAddress,
    digest: Digest,
}

/// Place of a file of pages, until it is dropped.
pub(super) struct OpenPlace {
    all: Arc<OpenPages>,
    list_bytes: usize,
}

impl OpenPages {
    /// Allows so many files, and so many bytes of their lists together.
    pub(super) fn new(files_max: usize, list_bytes_max: usize) -> Arc<Self> {
        let (open, lent) = (Mutex::default(), Mutex::default());
        Arc::new(Self { files_max, list_bytes_max, open, lent })
    }

    /// Files that may stay open while no request needs them, as the others are for requests. Those of one address may
    /// have as many, so that some are left to others.
    pub(super) fn kept_max(&self) -> usize {
        (self.files_max / 2).max(1)
    }

    /// Takes a place for a file with a list of so many bytes. `None` if there are too many.
    pub(super) fn take(self: &Arc<Self>, list_bytes: usize) -> Option<OpenPlace> {
        let (files, bytes) = &mut *lock(&self.open);
        if *files >= self.files_max || *bytes + list_bytes > self.list_bytes_max {
            return None;
        }
        (*files, *bytes) = (*files + 1, *bytes + list_bytes);
        Some(OpenPlace { all: Arc::clone(self), list_bytes })
    }

    /// Notes that a request of an address has a file. `None` if its requests have too many others.
    pub(super) fn lend(
        self: &Arc<Self>,
        address: ClientAddress,
        digest: Digest,
    ) -> Option<LentPages> {
        let mut lent = lock(&self.lent);
        let files = lent.entry(address).or_default();
        if files.len() >= self.kept_max() && !files.contains_key(&digest) {
            return None;
        }
        *files.entry(digest).or_default() += 1;
        Some(LentPages { all: Arc::clone(self), address, digest })
    }
}

impl Drop for LentPages {
    fn drop(&mut self) {
        let mut lent = lock(&self.all.lent);
        let Entry::Occupied(mut files) = lent.entry(self.address) else { return };
        if let Entry::Occupied(mut requests) = files.get_mut().entry(self.digest) {
            *requests.get_mut() -= 1;
            if *requests.get() == 0 {
                requests.remove();
            }
        }
        if files.get().is_empty() {
            files.remove(); // as many addresses are kept as have a file
        }
    }
}

impl Drop for OpenPlace {
    fn drop(&mut self) {
        let (files, bytes) = &mut *lock(&self.all.open);
        (*files, *bytes) = (*files - 1, *bytes - self.list_bytes);
    }
}

/// Pages of an object.
pub(super) struct PageFile {
    pub(super) name: ObjectName,
    bytes: u64,
    list: PageList,
    _place: OpenPlace,
    /// `None` if the disk does not give one.
    file: Option<File>,
    /// Pages that were compared with the list since the start, a bit each.
    proven: Box<[AtomicU64]>,
    /// Pages that the disk did not take.
    unwritten: Mutex<HashMap<usize, Bytes>>,
    /// Pages that are being brought.
    landings: Mutex<HashMap<usize, Landing>>,
}

/// Pages that one caller brings, and those that it waits for.
pub(super) struct Boarding {
    /// Number of pages that are here.
    pub(super) here: usize,
    /// Neighboring pages that the caller is to bring.
    pub(super) mine: Vec<Flight>,
    /// Flights to wait for, and whether they are the caller's.
    pub(super) landings: Vec<(Landing, bool)>,
}

/// Neighboring pages that one read brings. At its end, also by a panic, other reads may bring the pages that it did
/// not.
pub(super) struct Flight {
    file: Arc<PageFile>,
    pages: Range<usize>,
    /// Wakes the tasks that wait; `None` once it did.
    told: Option<Takeoff>,
}

impl Flight {
    /// Returns the numbers of the pages that the read brings.
    pub(super) fn pages(&self) -> Range<usize> {
        self.pages.clone()
    }

    /// Tells those who wait how it ended.
    pub(super) fn ended(mut self, outcome: Result<(), ObjectNotRead>) {
        // First: a task that wakes boards anew, and must not find this flight.
        self.file.land(self.pages());
        if let Some(told) = self.told.take() {
            told.send_replace(Some(outcome));
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            self.file.land(self.pages());
            drop(told); // those who wait are told by its end
        }
    }
}

impl PageFile {
    /// Makes the pages of an object of `bytes` bytes. The list must be the one of its name.
    pub(super) fn new(
        name: ObjectName,
        bytes: u64,
        list: PageList,
        file: Option<File>,
        place: OpenPlace,
    ) -> Self {
        let words = list.len().div_ceil(u64::BITS as usize);
        let proven = (0..words).map(|_| AtomicU64::new(0)).collect();
        let (unwritten, landings) = (Mutex::default(), Mutex::default());
        Self { name, bytes, list, _place: place, file, proven, unwritten, landings }
    }

    /// Pages with these bytes.
    pub(super) fn pages(&self, bytes: Range<u64>) -> Range<usize> {
        let first = bytes.start / PAGE_BYTES as u64;
        let end = bytes.end.min(self.bytes).div_ceil(PAGE_BYTES as u64);
        first as usize..end as usize
    }

    /// Bytes of these pages in the object.
    pub(super) fn extent(&self, pages: &Range<usize>) -> Range<u64> {
        let at = |page: usize| (page as u64 * PAGE_BYTES as u64).min(self.bytes);
        at(pages.start)..at(pages.end)
    }

    fn is_proven(&self, page: usize) -> bool {
        // Acquire: the page was written before.
        let word = self.proven.get(page / u64::BITS as usize);
        word.is_some_and(|word| word.load(Ordering::Acquire) & bit(page) != 0)
    }

    /// Those of the pages that are not here and that no read brings.
    fn absent_of(&self, pages: impl Iterator<Item = usize>) -> Vec<usize> {
        let landings = lock(&self.landings);
        pages.filter(|page| !self.is_proven(*page) && !landings.contains_key(page)).collect()
    }

    /// Counts those of the pages that are not here and that no read brings. Returns the number of reads of at most
    /// `run_max` pages that they take, and the number of pages.
    pub(super) fn absent(&self, pages: &BTreeSet<usize>, run_max: usize) -> (usize, usize) {
        let (absent, mut run) = (self.absent_of(pages.iter().copied()), 0..0);
        let reads = absent.iter().filter(|page| !joins(&mut run, **page, run_max)).count();
        (reads, absent.len())
    }

    /// Pages between absent ones of these, if they are absent too and a gap has at most `gap_max`: then one read
    /// brings both sides, and not two.
    pub(super) fn between(&self, pages: &BTreeSet<usize>, gap_max: usize) -> Vec<usize> {
        let absent = self.absent_of(pages.iter().copied());
        let gaps = absent.iter().zip(absent.iter().skip(1)).map(|(below, above)| below + 1..*above);
        let are_absent = |gap: &Range<usize>| self.absent_of(gap.clone()).len() == gap.len();
        gaps.filter(|gap| gap.len() <= gap_max && are_absent(gap)).flatten().collect()
    }

    /// Boards the reads of pages that are not here. Pages that no read brings are the caller's, in runs of `run_max`.
    pub(super) fn board(self: &Arc<Self>, pages: &BTreeSet<usize>, run_max: usize) -> Boarding {
        // Held to the end, so that no other caller boards a page inside a run.
        let mut landings = lock(&self.landings);
        let mut boarding = Boarding { here: 0, mine: Vec::new(), landings: Vec::new() };
        for page in pages.iter().copied() {
            if self.is_proven(page) {
                boarding.here += 1;
                continue;
            }
            if let Some(landing) = landings.get(&page) {
                boarding.landings.push((landing.clone(), false));
                continue;
            }
            let landing = match boarding.mine.last_mut() {
                Some(flight) if flight.pages.end == page && flight.pages.len() < run_max => {
                    flight.pages.end += 1;
                    flight.told.as_ref().map(watch::Sender::subscribe)
                }
                _ => None,
            };
            let landing = landing.unwrap_or_else(|| {
                let (told, landing) = watch::channel(None);
                let (file, pages) = (Arc::clone(self), page..page + 1);
                boarding.mine.push(Flight { file, pages, told: Some(told) });
                boarding.landings.push((landing.clone(), true));
                landing
            });
            landings.insert(page, landing);
        }
        boarding
    }

    /// The pages are brought, or could not be.
    fn land(&self, pages: Range<usize>) {
        let mut landings = lock(&self.landings);
        pages.for_each(|page| drop(landings.remove(&page)));
    }

    /// Finds out which of these pages the disk has, page by page. Pages that are here or on their way are left out.
    pub(super) fn recall(&self, pages: &BTreeSet<usize>) {
        for page in self.absent_of(pages.iter().copied()) {
            self.is_kept(page);
        }
    }

    /// Compares pages of the disk with the list, from both ends. Returns those from the first to the last one that the
    /// disk lacks.
    pub(super) fn recheck(&self, mut pages: Range<usize>) -> Range<usize> {
        while pages.start < pages.end && self.is_kept(pages.start) {
            pages.start += 1;
        }
        while pages.start < pages.end && self.is_kept(pages.end - 1) {
            pages.end -= 1;
        }
        pages
    }

    /// Compares a page of the disk with the list.
    fn is_kept(&self, page: usize) -> bool {
        let found = self.on_disk(self.extent(&(page..page + 1)));
        // A hole of the file reads as zeros, and costs no digest.
        let is_hole = |bytes: &Vec<u8>| bytes.iter().all(|byte| *byte == 0);
        let found = found.filter(|bytes| self.list.is_of_zeros(page) || !is_hole(bytes));
        let is_right = found.is_some_and(|bytes| turns::compute(|| self.list.proves(page, &bytes)));
        is_right.then(|| self.note_proven(page)).is_some()
    }

    /// Those of these pages that `bytes` are not.
    pub(super) fn unproven(&self, pages: &Range<usize>, bytes: &[u8]) -> Vec<usize> {
        let is_other = |page: &usize| {
            let from = (page - pages.start) * PAGE_BYTES;
            let piece = bytes.get(from..).map(|rest| &rest[..rest.len().min(PAGE_BYTES)]);
            !piece.is_some_and(|piece| turns::compute(|| self.list.proves(*page, piece)))
        };
        pages.clone().filter(is_other).collect()
    }

    /// Runs of those of these pages that are neither here nor among `bad`, which ascend.
    pub(super) fn new_runs(&self, pages: &Range<usize>, bad: &[usize]) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        let is_new = |page: &usize| bad.binary_search(page).is_err() && !self.is_proven(*page);
        for page in pages.clone().filter(is_new) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// Keeps pages that are proven. Returns the bytes that the disk took.
    pub(super) fn keep(&self, pages: Range<usize>, bytes: &Bytes) -> u64 {
        let start = self.extent(&pages).start;
        let file = self.file.as_ref();
        // Not synced: after a start each page is compared with its digest before its first use.
        if file.is_some_and(|file| file.write_all_at(bytes, start).is_ok()) {
            pages.for_each(|page| self.note_proven(page));
            return bytes.len() as u64;
        }
        let mut unwritten = lock(&self.unwritten);
        for (at, page) in pages.enumerate() {
            // Relaxed: the number belongs to no other datum. Racing threads pass the bound by a page each.
            if UNWRITTEN.load(Ordering::Relaxed) >= UNWRITTEN_MAX {
                break;
            }
            UNWRITTEN.fetch_add(1, Ordering::Relaxed);
            let from = at * PAGE_BYTES;
            let piece = bytes.slice(from..(from + PAGE_BYTES).min(bytes.len()));
            if unwritten.insert(page, Bytes::copy_from_slice(&piece)).is_some() {
                UNWRITTEN.fetch_sub(1, Ordering::Relaxed);
            }
            self.note_proven(page);
        }
        0
    }

    /// Reads whole pages of an index and compares them with the list again: its entries have no checksum, and the disk may
    /// have changed them. `None` if one differs or cannot be read; the next request brings it.
    pub(super) fn read_index(&self, pages: Range<usize>) -> Option<Vec<u8>> {
        let bytes = self.extent(&pages);
        let found = self.read(bytes.start, (bytes.end - bytes.start) as usize);
        let bad = self.unproven(&pages, found.as_deref().unwrap_or_default());
        bad.iter().for_each(|page| self.note_lost(*page));
        found.filter(|_| bad.is_empty())
    }

    fn note_lost(&self, page: usize) {
        if let Some(word) = self.proven.get(page / u64::BITS as usize) {
            word.fetch_and(!bit(page), Ordering::Release);
        }
    }

    fn note_proven(&self, page: usize) {
        if let Some(word) = self.proven.get(page / u64::BITS as usize) {
            // Release: a reader that sees the bit finds the page.
            word.fetch_or(bit(page), Ordering::Release);
        }
    }

    fn on_disk(&self, bytes: Range<u64>) -> Option<Vec<u8>> {
        debug_assert!(!serves(), "a serving thread waits for the disk");
        let mut found = vec![0; (bytes.end - bytes.start) as usize];
        let file = self.file.as_ref()?;
        turns::wait(|| file.read_exact_at(&mut found, bytes.start)).ok()?;
        Some(found)
    }

    /// Reads bytes page by page, as far as some pages are in memory only.
    fn mixed(&self, bytes: &Range<u64>) -> Option<Vec<u8>> {
        let mut found = Vec::new();
        for page in self.pages(bytes.clone()) {
            let extent = self.extent(&(page..page + 1));
            // The lock goes back before the disk is read.
            let kept = lock(&self.unwritten).get(&page).cloned();
            let whole = match kept {
                Some(kept) => kept.to_vec(),
                None => self.on_disk(extent.clone())?,
            };
            let from = bytes.start.max(extent.start) - extent.start;
            let end = bytes.end.min(extent.end) - extent.start;
            found.extend_from_slice(whole.get(from as usize..end as usize)?);
        }
        Some(found)
    }
}

impl Drop for PageFile {
    fn drop(&mut self) {
        UNWRITTEN.fetch_sub(lock(&self.unwritten).len(), Ordering::Relaxed);
    }
}

impl PackedPages for PageFile {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let bytes = offset..offset.checked_add(len as u64)?;
        if bytes.end > self.bytes || !self.pages(bytes.clone()).all(|page| self.is_proven(page)) {
            return None;
        }
        if lock(&self.unwritten).is_empty() { self.on_disk(bytes) } else { self.mixed(&bytes) }
    }
}

/// True if memory has pages that the disk did not take.
pub(super) fn has_unwritten() -> bool {
    UNWRITTEN.load(Ordering::Relaxed) > 0
}

/// True on a thread that serves: it must not wait for pages.
fn serves() -> bool {
    let current = thread::current();
    let name = current.name().unwrap_or_default();
    ["http-", "admin-"].iter().any(|serving| name.starts_with(serving))
}

/// Adds a page to a run that ends before it and has fewer than `run_max` pages. Otherwise begins a new run, and
/// returns false.
pub(super) fn joins(run: &mut Range<usize>, page: usize, run_max: usize) -> bool {
    let is_next = run.end == page && (1..run_max).contains(&run.len());
    *run = if is_next { run.start..page + 1 } else { page..page + 1 };
    is_next
}

fn bit(page: usize) -> u64 {
    1 << (page % u64::BITS as usize)
}

#[cfg(test)]
mod tests;
