//! Segments that are brought whole: for readers that go through heights in order, with the next one, and those that
//! many requests read from.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use metrics::counter;
use neve_archive::{Digest, PAGE_BYTES, SegmentEntry};
use tokio::sync::Semaphore;

use super::archived_files::{ArchivedFiles, Known};
use super::budget::Budget;
use super::fetch::{NotRead, Payer};
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
    /// Segments, and the requests that read from them; the last used is the last.
    counted: Mutex<VecDeque<(Digest, u64)>>,
    places: Arc<Semaphore>,
}

impl Default for Prefetch {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(SEGMENTS_MAX));
        Self { readers: Mutex::default(), counted: Mutex::default(), places }
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

    /// Notes that a request read from a segment. True if it is the one after which the rest is brought.
    fn is_hot(&self, entry: &SegmentEntry) -> bool {
        let mut counted = lock(&self.counted);
        let at = counted.iter().position(|(digest, _)| *digest == entry.digest);
        let count = at.and_then(|at| counted.remove(at)).map_or(1, |(_, count)| count + 1);
        if counted.len() == COUNTED_MAX {
            counted.pop_front();
        }
        counted.push_back((entry.digest, count));
        count == (entry.bytes.div_ceil(PAGE_BYTES as u64) / HOT_PART).max(HOT_MIN)
    }

    /// Brings the rest of the segment of a height if the request `has_read` from it as many others did. Brings
    /// it and the next segment below `end` for a reader in order.
    pub(super) fn begin(
        &self,
        (files, known): (&Arc<ArchivedFiles>, &Arc<Known>),
        height: u64,
        end: u64,
        (payer, has_read): (Payer, bool),
    ) {
        let is_in_order = self.note(height);
        let entry =
            known.segments(&(height..=height)).ok().and_then(|found| found.first().copied());
        let is_hot = entry.is_some_and(|entry| has_read && self.is_hot(entry));
        let next = height.saturating_add(u64::from(known.manifest.range));
        let wanted = [(height, is_in_order || is_hot), (next, is_in_order)];
        for (height, _) in wanted.into_iter().filter(|(height, wanted)| *wanted && *height < end) {
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
            let (files, known) = (Arc::clone(files), Arc::clone(known));
            let runtime = files.pages.runtime.clone();
            runtime.spawn(async move {
                if bring(&files, &known, height, payer).await == Ok(true) {
                    counter!("neve_archive_prefetched_segments_total").increment(1);
                }
                drop(place);
            });
        }
    }
}

/// Brings a segment whole. False if it is here.
async fn bring(
    files: &ArchivedFiles,
    known: &Known,
    height: u64,
    payer: Payer,
) -> Result<bool, NotRead> {
    let entries = known.segments(&(height..=height))?;
    let entry = entries.first().ok_or(NotRead::Unknown)?;
    let budget = Budget::of_a_request(payer, 0);
    let (file, _) = files.open(&known.manifest, entry, &budget).await?;
    let pages = file.pages(0..entry.bytes).collect();
    if file.absent(&pages).0 == 0 {
        return Ok(false);
    }
    files.bring(&file, &pages, &budget).await.map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_is_hot_once_requests_read_from_an_eighth_of_its_pages() {
        let prefetch = Prefetch::default();
        let segment = |number: u8, pages: u64| SegmentEntry {
            first: 0,
            bytes: pages * PAGE_BYTES as u64,
            digest: Digest([number; 32]),
            last: Digest([0; 32]),
            parent: Digest([0; 32]),
        };
        let hot_at = |entry: SegmentEntry| {
            (1..=100).filter(|_| prefetch.is_hot(&entry)).count().min(1)
                + (1..=100).take_while(|_| !prefetch.is_hot(&entry)).count()
        };
        assert_eq!(hot_at(segment(1, 128)), 101, "once, and never again");
        let hot: Vec<_> = (1..=20).map(|_| prefetch.is_hot(&segment(2, 128))).collect();
        assert_eq!(hot.iter().position(|hot| *hot), Some(15), "the 16th");
        let hot: Vec<_> = (1..=20).map(|_| prefetch.is_hot(&segment(3, 5))).collect();
        assert_eq!(hot.iter().position(|hot| *hot), Some(3), "the 4th");
        (10..=255).for_each(|number| _ = prefetch.is_hot(&segment(number, 5)));
        assert!(lock(&prefetch.counted).len() <= COUNTED_MAX);
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
