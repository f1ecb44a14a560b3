//! What readers see: an immutable list of segments and tables, replaced as a whole.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::hashes::Locator;
use crate::logs::Candidates;
use crate::merge::Merged;
use crate::record::Hash;
use crate::residency;
use crate::segment::{RecordRef, Segment};

/// One moment's segments. Only the active one, the last, still gains records.
pub(crate) struct View {
    /// Ascending, each beginning where the one before ends.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Ascending by heights, disjoint.
    pub(crate) tables: Vec<Arc<Merged>>,
    /// The segments that no table covers, ascending: the ones to ask themselves.
    pub(crate) loose: Vec<Arc<Segment>>,
}

impl View {
    pub(crate) fn new(segments: Vec<Arc<Segment>>, tables: Vec<Arc<Merged>>) -> Self {
        let covered = |segment: &Arc<Segment>| {
            let (first, end) = (segment.base(), segment.end_height());
            !segment.is_active() && tables.iter().any(|table| table.covers(first, end - 1))
        };
        let loose = segments.iter().filter(|segment| !covered(segment)).cloned().collect();
        Self { segments, tables, loose }
    }

    pub(crate) fn first_height(&self) -> Option<u64> {
        self.segments.first().map(|segment| segment.base())
    }

    /// The height after the head; an acquire load of the active segment's watermark.
    fn end_height(&self) -> Option<u64> {
        self.segments.last().map(|segment| segment.end_height())
    }

    fn range(&self) -> Option<RangeInclusive<u64>> {
        let (first, end) = (self.first_height()?, self.end_height()?);
        (first < end).then(|| first..=end - 1)
    }

    pub(crate) fn record(&self, height: u64) -> Option<RecordRef> {
        self.holder(height)?.record(height)
    }

    /// The segment that has `height`, unless it is above the head.
    pub(crate) fn holder(&self, height: u64) -> Option<&Segment> {
        let newest = self.segments.last()?;
        if height >= newest.base() {
            return Some(newest); // most requests are for the newest blocks
        }
        let after = self.segments.partition_point(|segment| segment.base() <= height);
        self.segments.get(after.checked_sub(1)?).map(Arc::as_ref)
    }

    /// The newest record that has `hash` as `matches` says.
    fn find(&self, hash: &Hash, matches: fn(&RecordRef, Locator, &Hash) -> bool) -> Option<Found> {
        let found = |locator: Locator| {
            let record = self.record(locator.height())?;
            matches(&record, locator, hash).then_some((record, locator))
        };
        let (active, sealed) = self.active();
        // What is newest is asked for most: nothing else need be in memory for it.
        if let Some(newest) = active.and_then(|segment| segment.find(hash, found)) {
            return Some(newest);
        }
        if !residency::pages_go() {
            self.warm(hash); // else each would be a call of the system, and none a load
        }
        let loose = sealed.iter().rev().find_map(|segment| segment.find(hash, found));
        loose.or_else(|| self.tables.iter().rev().find_map(|table| table.find(hash, found)))
    }

    /// The active segment, and the others that no table covers.
    fn active(&self) -> (Option<&Segment>, &[Arc<Segment>]) {
        match self.loose.split_last() {
            Some((last, sealed)) if last.is_active() => (Some(last), sealed),
            _ => (None, &self.loose),
        }
    }

    /// Loads the place in each table where `hash` would be. The loads do not wait for each other,
    /// as those of one search after the other do, so that a dozen cache misses cost about as
    /// much as two: docs/DECISIONS.md has the measurement.
    fn warm(&self, hash: &Hash) {
        let tables = self.tables.iter().map(|table| table.first_prefix(hash));
        let loose = self.loose.iter().map(|segment| segment.first_prefix(hash));
        std::hint::black_box(tables.chain(loose).fold(0, |all, prefix| all ^ prefix));
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        let segments = self.segments.iter().map(|segment| segment.disk_bytes);
        segments.sum::<u64>() + self.tables.iter().map(|table| table.disk_bytes()).sum::<u64>()
    }
}

type Found = (RecordRef, Locator);

fn is_block(record: &RecordRef, locator: Locator, hash: &Hash) -> bool {
    locator.position().is_none() && record.hash() == *hash
}

fn is_transaction(record: &RecordRef, locator: Locator, hash: &Hash) -> bool {
    locator.position().and_then(|at| record.transaction(at)) == Some(*hash)
}

/// What the store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Segment files.
    pub segments: usize,
    /// Merged hash tables.
    pub tables: usize,
    /// Bytes on disk, what is allocated ahead included.
    pub disk_bytes: u64,
}

/// Reads committed records, from any thread, without locks.
#[derive(Clone)]
pub struct Reader {
    view: Arc<ArcSwap<View>>,
}

impl Reader {
    pub(crate) fn new(view: Arc<ArcSwap<View>>) -> Self {
        Self { view }
    }

    /// The served heights, first to head; `None` while there are none.
    pub fn range(&self) -> Option<RangeInclusive<u64>> {
        self.view.load().range()
    }

    /// The newest served record.
    pub fn head(&self) -> Option<RecordRef> {
        let view = self.view.load();
        view.record(view.end_height()?.checked_sub(1)?)
    }

    /// The record at `height`, if it is in the served range.
    pub fn record(&self, height: u64) -> Option<RecordRef> {
        self.view.load().record(height)
    }

    /// The record of the block with `hash`.
    pub fn block(&self, hash: &Hash) -> Option<RecordRef> {
        Some(self.view.load().find(hash, is_block)?.0)
    }

    /// The record that holds the transaction with `hash`, and its position there.
    pub fn transaction(&self, hash: &Hash) -> Option<(RecordRef, usize)> {
        let (record, locator) = self.view.load().find(hash, is_transaction)?;
        Some((record, locator.position()?))
    }

    /// The logs of `heights` that meet all `criteria`, by height and position. A log meets a
    /// criterion if one of its terms is among the criterion's keys; so nothing meets one without
    /// keys, and without criteria all logs come. Different values may share a key: the caller
    /// compares what it finds.
    ///
    /// It goes through the records as they are now. The first height that is not there, or cannot
    /// be read, is an error, and the end: what came before is then
    /// not the whole answer.
    pub fn logs(&self, heights: RangeInclusive<u64>, criteria: Vec<Vec<u64>>) -> Candidates {
        Candidates::new(self.view.load_full(), heights, criteria)
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Base height and records of each sealed segment, ascending.
    pub fn sealed(&self) -> Vec<(u64, u32)> {
        let view = self.view.load();
        let sealed = view.segments.iter().filter(|segment| !segment.is_active());
        sealed.map(|segment| (segment.base(), segment.count())).collect()
    }

    /// What the store takes on disk.
    pub fn usage(&self) -> Usage {
        let view = self.view.load();
        let (segments, tables) = (view.segments.len(), view.tables.len());
        Usage { segments, tables, disk_bytes: view.disk_bytes() }
    }
}
