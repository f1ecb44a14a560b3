//! Segments that are brought whole: for readers that go through heights in order, with the next one, and those that
//! many requests read from.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use metrics::counter;
use neve_archive::{Digest, PAGE_BYTES, SegmentEntry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::archived_files::{ArchivedFiles, Known, ReadExtent};
use super::budget::Budget;
use super::fetch::{ObjectNotRead, Payer};
use crate::shared::ClientAddress;
use crate::shared::lock::lock;

/// Heights in a row after which the rest is brought.
const IN_ORDER_MIN: u32 = 4;
/// Readers that are remembered.
const READERS_MAX: usize = 64;
/// Segments that are brought at a time.
const SEGMENTS_MAX: usize = 2;
/// Requests that read from a segment after which the rest of it is brought: this part of its pages, and the
/// fewest.
const HOT_PART: u64 = 8;
const HOT_MIN: u64 = 4;
/// Segments of which requests are counted.
const COUNTED_MAX: usize = 256;

/// Readers, and segments that are being brought for them.
pub(super) struct Prefetch {
    /// Next height of each reader, and its heights in a row; the last used is the last.
    readers: Mutex<VecDeque<(u64, u32)>>,
    /// Segments of which requests are counted; the last used is the last.
    counted: Mutex<VecDeque<CountedReads>>,
    /// Segments that are being brought.
    under_way: Mutex<HashSet<Digest>>,
    places: Arc<Semaphore>,
}

/// Requests that read from a segment.
struct CountedReads {
    digest: Digest,
    reads: u64,
    /// True if it was brought whole before, and pages of it went since.
    was_whole: bool,
}

/// A segment that is being brought, until it is dropped, and its place.
struct UnderWay {
    prefetch: Arc<Prefetch>,
    digest: Digest,
    _place: OwnedSemaphorePermit,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.prefetch.under_way).remove(&self.digest);
    }
}

impl Default for Prefetch {
    fn default() -> Self {
        let (readers, counted, under_way) = (Mutex::default(), Mutex::default(), Mutex::default());
        let places = Arc::new(Semaphore::new(SEGMENTS_MAX));
        Self { readers, counted, under_way, places }
    }
}

impl Prefetch {
    /// Notes that a height was read. True if its reader goes through heights in order.
    fn note(&self, height: u64) -> bool {
        let mut readers = lock(&self.readers);
        let at = readers.iter().position(|(next, _)| *next == height);
        let row = at.and_then(|at| readers.remove(at)).map_or(1, |(_, row)| row.saturating_add(1));
        if readers.len() == READERS_MAX {
            readers.pop_front();
        }
        readers.push_back((height.saturating_add(1), row));
        row >= IN_ORDER_MIN
    }

    /// Notes that a request read from a segment. True from the one on after which the rest is brought, until it is
    /// here. A segment that was here before must earn the bytes of all its pages first.
    fn is_hot(&self, entry: &SegmentEntry) -> bool {
        let mut counted = lock(&self.counted);
        let at = counted.iter().position(|counted| counted.digest == entry.digest);
        let new = || CountedReads { digest: entry.digest, reads: 0, was_whole: false };
        let mut segment = at.and_then(|at| counted.remove(at)).unwrap_or_else(new);
        segment.reads += 1;
        let pages = entry.bytes.div_ceil(PAGE_BYTES as u64);
        let least = if segment.was_whole { pages } else { pages / HOT_PART };
        let is_hot = segment.reads >= least.max(HOT_MIN);
        if counted.len() == COUNTED_MAX {
            counted.pop_front();
        }
        counted.push_back(segment);
        is_hot
    }

    /// Notes that all of a segment is here. Requests that read from it later are counted anew: its pages went.
    fn note_whole(&self, entry: &SegmentEntry) {
        let mut counted = lock(&self.counted);
        if let Some(segment) = counted.iter_mut().find(|counted| counted.digest == entry.digest) {
            (segment.reads, segment.was_whole) = (0, true);
        }
    }

    /// Takes a segment to bring; `None` if it is in flight, or if no place is free.
    fn take(self: &Arc<Self>, entry: &SegmentEntry) -> Option<UnderWay> {
        // The place first: a segment that gets none is not in flight.
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let (is_new, digest) = (lock(&self.under_way).insert(entry.digest), entry.digest);
        is_new.then(|| UnderWay { prefetch: Arc::clone(self), digest, _place: place })
    }

    /// Brings the rest of the segment of a height if the request `has_read` from it as many others did. Brings
    /// it and the next segment below `end` for a reader in order.
    pub(super) fn begin(
        self: &Arc<Self>,
        (files, known): (&Arc<ArchivedFiles>, &Arc<Known>),
        height: u64,
        end: u64,
        (address, has_read): (ClientAddress, bool),
    ) {
        let is_in_order = self.note(height);
        let segment_of = |height: u64| {
            let found = known.segments(&(height..=height)).ok();
            found.and_then(|found| found.first().map(|entry| **entry))
        };
        let entry = segment_of(height);
        // Only requests that read: pages that are here cost the store nothing.
        let is_hot = entry.is_some_and(|entry| has_read && self.is_hot(&entry));
        let next = height.saturating_add(u64::from(known.manifest.range));
        let next = Some(next).filter(|next| is_in_order && *next < end).and_then(segment_of);
        let rest = entry.filter(|_| (is_in_order || is_hot) && height < end);
        for entry in rest.into_iter().chain(next) {
            self.begin_segment((files, known), entry, address);
        }
    }

    /// Begins to bring a segment, unless it is in flight or no place is free.
    fn begin_segment(
        self: &Arc<Self>,
        (files, known): (&Arc<ArchivedFiles>, &Arc<Known>),
        entry: SegmentEntry,
        address: ClientAddress,
    ) {
        let Some(under_way) = self.take(&entry) else { return };
        let (files, known) = (Arc::clone(files), Arc::clone(known));
        let runtime = files.pages.runtime.clone();
        runtime.spawn(async move {
            let brought = bring(&files, &known, &entry, Payer::Ahead(address)).await;
            if brought.is_ok() {
                under_way.prefetch.note_whole(&entry);
            }
            if brought == Ok(true) {
                counter!("neve_archive_prefetched_segments_total").increment(1);
            }
        });
    }
}

/// Brings a segment whole, one read after the other, so that it has little of the store at a time. False if it is
/// here.
async fn bring(
    files: &ArchivedFiles,
    known: &Known,
    entry: &SegmentEntry,
    payer: Payer,
) -> Result<bool, ObjectNotRead> {
    let budget = Budget::of_a_request(payer, 0);
    let (file, _) = files.open(&known.manifest, entry, ReadExtent::Needed, &budget).await?;
    let pages = file.pages(0..entry.bytes);
    if file.absent(&pages.clone().collect(), files.pages.run_pages_max()).0 == 0 {
        return Ok(false);
    }
    let mut pages = pages.peekable();
    while pages.peek().is_some() {
        let run = pages.by_ref().take(files.pages.run_pages_max()).collect();
        files.bring(&file, &run, &budget).await?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u8, pages: u64) -> SegmentEntry {
        SegmentEntry {
            first: 0,
            bytes: pages * PAGE_BYTES as u64,
            digest: Digest([number; 32]),
            last: Digest([0; 32]),
            parent: Digest([0; 32]),
        }
    }

    #[test]
    fn segment_is_hot_from_an_eighth_of_its_pages_on_until_it_is_here() {
        let prefetch = Prefetch::default();
        let hot_from = |entry: &SegmentEntry| {
            let found: Vec<_> = (1..=200).map(|_| prefetch.is_hot(entry)).collect();
            assert!(found.is_sorted(), "until it is here: {found:?}");
            found.iter().position(|hot| *hot).map(|at| at + 1)
        };
        for (entry, first, again) in [(segment(1, 128), 16, 128), (segment(2, 5), 4, 5)] {
            assert_eq!(hot_from(&entry), Some(first));
            for _ in 0..2 {
                // All of it was brought, and pages of it went since.
                prefetch.note_whole(&entry);
                assert_eq!(hot_from(&entry), Some(again));
            }
        }
        (10..=255).for_each(|number| _ = prefetch.is_hot(&segment(number, 5)));
        assert!(lock(&prefetch.counted).len() <= COUNTED_MAX);
    }

    #[test]
    fn segment_is_brought_once_at_a_time_and_leaves_its_place_to_another() {
        let prefetch = Arc::new(Prefetch::default());
        let digest = |number| segment(number, 5);
        let first = prefetch.take(&digest(1)).expect("a place is free");
        assert!(prefetch.take(&digest(1)).is_none(), "under way");
        let second = prefetch.take(&digest(2)).expect("the other place is free");
        assert!(prefetch.take(&digest(3)).is_none(), "no place");
        drop(first);
        assert!(prefetch.take(&digest(3)).is_some());
        drop(second);
        assert!(prefetch.take(&digest(1)).is_some() && lock(&prefetch.under_way).is_empty());
    }

    #[test]
    fn reader_in_order_is_told_from_others() {
        let prefetch = Prefetch::default();
        let found: Vec<_> = (10..16)
            .map(|height| (prefetch.note(height), prefetch.note(1000 - 7 * height)))
            .collect();
        let (in_order, others): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        assert_eq!(in_order, [false, false, false, true, true, true]);
        assert!(others.iter().all(|other| !other));
        (0..2 * READERS_MAX as u64).for_each(|height| _ = prefetch.note(5000 + 9 * height));
        assert_eq!(lock(&prefetch.readers).len(), READERS_MAX);
        assert!(!prefetch.note(16), "it is forgotten");
    }
}
