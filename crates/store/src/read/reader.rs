//! Reader: the interface through which callers read.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use super::criteria::Criteria;
use super::log_search::Candidates;
use super::quarantine_status::QuarantineStatus;
use super::resident::Resident;
use super::view::{Archived, View};
use crate::id::Hash;
use crate::segment::RecordRef;
use crate::sync::ArcSwap;

/// Size of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Number of segment files.
    pub segments: usize,
    /// Merged hash tables.
    pub tables: usize,
    /// Bytes on disk, with bytes allocated ahead and quarantined files.
    pub disk_bytes: u64,
    /// Heights in packed files.
    pub packed_blocks: u64,
    /// Bytes of packed files.
    pub packed_bytes: u64,
    /// Files that are set aside: damaged, or below a gap.
    pub quarantined: u64,
    /// Bytes of these.
    pub quarantined_bytes: u64,
}

/// A segment with damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// First height of the segment.
    pub base: u64,
    /// Heights of damaged records, ascending. Without any, only an index or the header is damaged.
    pub heights: Vec<u64>,
}

/// Reads committed records, from any thread, without locks.
///
/// These calls wait for a disk. A thread that must not wait reads by [`Reader::resident`].
#[derive(Clone)]
pub struct Reader {
    view: Arc<ArcSwap<View>>,
    aside: Arc<QuarantineStatus>,
}

impl Reader {
    pub(crate) fn new(view: Arc<ArcSwap<View>>, aside: Arc<QuarantineStatus>) -> Self {
        Self { view, aside }
    }

    /// The heights between the served range and the newest segment that is set aside below it:
    /// once they are stored, that segment is served again. `None` if there is no such gap.
    pub fn gap(&self) -> Option<Range<u64>> {
        let first = self.view.load().first_height()?;
        Some(self.aside.end()?..first).filter(|gap| !gap.is_empty())
    }

    /// The served heights, first to head; `None` while there are none.
    pub fn range(&self) -> Option<RangeInclusive<u64>> {
        self.view.load().range()
    }

    /// The newest served record.
    pub fn head(&self) -> Option<RecordRef> {
        self.resident().head().ok()?
    }

    /// The record at `height`, if it is in the served range.
    pub fn record(&self, height: u64) -> Option<RecordRef> {
        self.resident().record(height).ok()?
    }

    /// The record of the block with `hash`.
    pub fn block(&self, hash: &Hash) -> Option<RecordRef> {
        self.resident().block(hash).ok()?
    }

    /// The record that holds the transaction with `hash`, and its position there.
    pub fn transaction(&self, hash: &Hash) -> Option<(RecordRef, usize)> {
        self.resident().transaction(hash).ok()?
    }

    /// Returns a reader of packed files and of the view beside them.
    pub(super) fn beside(&self, archived: Archived) -> Self {
        let view = ArcSwap::from_pointee(View::beside(archived));
        Self { view: Arc::new(view), aside: Arc::clone(&self.aside) }
    }

    /// Returns a reader of the view of this moment. Heights that are evicted or withdrawn from now on stay in it,
    /// and so do their bytes on the disk.
    #[must_use]
    pub fn pinned(&self) -> Self {
        Self { view: Arc::new(ArcSwap::new(self.view())), aside: Arc::clone(&self.aside) }
    }

    /// Returns the reader for threads that must not wait.
    #[inline]
    pub fn resident(&self) -> Resident<'_> {
        Resident { view: &self.view }
    }

    /// The logs of `heights` that meet all `criteria`, by height and position. A log meets a
    /// criterion if one of its terms is among the criterion's keys; so nothing meets one without
    /// keys, and without criteria all logs come. Different values may share a key: the caller
    /// compares what it finds.
    ///
    /// It goes through the records as they are now. The first height that is not there, or cannot
    /// be read, is an error, and the end: what came before is then
    /// not the whole answer.
    pub fn logs(&self, heights: RangeInclusive<u64>, criteria: &Criteria) -> Candidates {
        Candidates::new(self.view.load_full(), heights, criteria.clone())
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Base height and records of each sealed segment, ascending.
    pub fn unpacked(&self) -> Vec<(u64, u32)> {
        let view = self.view.load();
        let sealed =
            view.segments.iter().filter(|segment| !segment.is_active() && !segment.is_packed());
        sealed.map(|segment| (segment.base(), segment.count())).collect()
    }

    /// First height and heights of each packed file, ascending.
    pub fn packed(&self) -> Vec<(u64, u32)> {
        let view = self.view.load();
        let packed = view.segments.iter().filter(|segment| segment.is_packed());
        packed.map(|segment| (segment.base(), segment.count())).collect()
    }

    /// Base height and records of each sealed or packed segment, ascending.
    pub fn sealed(&self) -> Vec<(u64, u32)> {
        let view = self.view.load();
        let sealed = view.segments.iter().filter(|segment| !segment.is_active());
        sealed.map(|segment| (segment.base(), segment.count())).collect()
    }

    /// Segments in which damage was found, the newest first.
    pub fn damaged(&self) -> Vec<Damaged> {
        let view = self.view.load();
        let damaged = view.segments.iter().rev().filter(|segment| segment.checked.has_damage());
        damaged
            .map(|segment| Damaged { base: segment.base(), heights: segment.damaged().collect() })
            .collect()
    }

    /// Merged hash tables that were found damaged and are not removed yet.
    pub fn damaged_tables(&self) -> usize {
        self.view.load().tables.iter().filter(|table| table.is_unreadable()).count()
    }

    /// Records that were found damaged and are not repaired.
    pub fn damaged_records(&self) -> u64 {
        let view = self.view.load();
        view.segments.iter().map(|segment| u64::from(segment.checked.damaged())).sum()
    }

    /// Disk used by the store.
    pub fn usage(&self) -> Usage {
        let view = self.view.load();
        let (segments, tables) = (view.segments.len(), view.tables.len());
        let (quarantined, quarantined_bytes) = self.aside.usage();
        let disk_bytes = view.disk_bytes() + quarantined_bytes;
        let packed = || view.segments.iter().filter(|segment| segment.is_packed());
        Usage {
            segments,
            packed_blocks: packed().map(|segment| u64::from(segment.count())).sum(),
            packed_bytes: packed().map(|segment| segment.disk_bytes).sum(),
            tables,
            disk_bytes,
            quarantined,
            quarantined_bytes,
        }
    }
}
