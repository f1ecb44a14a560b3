//! Readers that go through heights in order: they get the rest of the segment, and the next one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use metrics::counter;
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

/// Readers, and segments that are being brought for them.
pub(super) struct Prefetch {
    /// Next height of each reader, and its heights in a row; the last used is the last.
    readers: Mutex<VecDeque<(u64, u32)>>,
    places: Arc<Semaphore>,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self { readers: Mutex::default(), places: Arc::new(Semaphore::new(SEGMENTS_MAX)) }
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

    /// Brings the rest of the segment of a height, and the next segment below `end`, for a reader in order.
    pub(super) fn begin(
        &self,
        (files, known): (&Arc<ArchivedFiles>, &Arc<Known>),
        height: u64,
        end: u64,
        payer: Payer,
    ) {
        if !self.note(height) {
            return;
        }
        let next = height.saturating_add(u64::from(known.manifest.range));
        for height in [height, next].into_iter().filter(|height| *height < end) {
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
