//! View of readers: an immutable list of segments and tables, replaced as a whole.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::id::Hash;
use crate::index::Locator;
use crate::index::merged_table::{Merged, uncovered};
use crate::memory::residency;
use crate::segment::{Found, RecordRef, Segment, Wanted};

/// Segments of one moment. Only the active one, the last, still gains records.
pub(crate) struct View {
    /// Ascending, each beginning where the one before ends.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Ascending by heights, disjoint.
    pub(crate) tables: Vec<Arc<Merged>>,
    /// The segments with a height that no table covers, ascending: the ones to ask themselves.
    pub(crate) loose: Vec<Arc<Segment>>,
}

impl View {
    pub(crate) fn new(segments: Vec<Arc<Segment>>, tables: Vec<Arc<Merged>>) -> Self {
        let covered = |segment: &Arc<Segment>| {
            let heights = segment.base()..segment.end_height();
            !segment.is_active() && uncovered(&tables, heights).is_none()
        };
        let loose = segments.iter().filter(|segment| !covered(segment)).cloned().collect();
        Self { segments, tables, loose }
    }

    pub(crate) fn first_height(&self) -> Option<u64> {
        self.segments.first().map(|segment| segment.base())
    }

    /// The height after the head; an acquire load of the active segment's watermark.
    pub(super) fn end_height(&self) -> Option<u64> {
        self.segments.last().map(|segment| segment.end_height())
    }

    pub(super) fn range(&self) -> Option<RangeInclusive<u64>> {
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

    /// Reads a height no further than is wanted.
    pub(super) fn read(&self, height: u64, wanted: Wanted<'_>, out: &mut Vec<u8>) -> Option<Found> {
        self.holder(height)?.read(height, wanted, out)
    }

    /// The newest record that has `hash` as `matches` says.
    pub(super) fn find(
        &self,
        hash: &Hash,
        matches: fn(&RecordRef, Locator, &Hash) -> bool,
    ) -> Option<(RecordRef, Locator)> {
        self.find_with(hash, &mut |locator| {
            let record = self.record(locator.height())?;
            matches(&record, locator, hash).then_some((record, locator))
        })
    }

    /// Reads the block with `hash`.
    pub(super) fn read_block(
        &self,
        hash: &Hash,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Found> {
        let before = out.len();
        self.find_with(hash, &mut |locator| {
            let holder = self.holder(locator.height()).filter(|_| locator.position().is_none())?;
            match holder.read(locator.height(), wanted, out)? {
                Found::Stored(record) => (record.hash() == *hash).then_some(Found::Stored(record)),
                unpacked @ Found::Unpacked { .. } => {
                    let same = holder.hash_at(locator.height()) == Some(*hash);
                    if !same {
                        out.truncate(before);
                    }
                    same.then_some(unpacked)
                }
            }
        })
    }

    /// Reads the stretch of a part that is of the transaction with `hash`; also returns its position.
    pub(super) fn read_transaction(
        &self,
        hash: &Hash,
        part: usize,
        out: &mut Vec<u8>,
    ) -> Option<(Found, usize)> {
        self.find_with(hash, &mut |locator| {
            let at = locator.position()?;
            let wanted = Wanted::Transaction { part, at, hash: Some(hash) };
            match self.read(locator.height(), wanted, out)? {
                Found::Stored(record) => {
                    (record.transaction(at) == Some(*hash)).then_some((Found::Stored(record), at))
                }
                unpacked @ Found::Unpacked { .. } => Some((unpacked, at)),
            }
        })
    }

    /// The first place, the newest first, at which `hash` may be and that `found` takes.
    #[inline]
    fn find_with<T>(&self, hash: &Hash, found: &mut impl FnMut(Locator) -> Option<T>) -> Option<T> {
        let (active, sealed) = self.active();
        // What is newest is asked for most: nothing else need be in memory for it.
        if let Some(newest) = active.and_then(|segment| segment.find(hash, &mut *found)) {
            return Some(newest);
        }
        if !residency::memory_is_short() {
            self.warm(hash); // else each would be a call of the system, and none a load
        }
        let loose = sealed.iter().rev().find_map(|segment| segment.find(hash, &mut *found));
        loose.or_else(|| self.tables.iter().rev().find_map(|table| table.find(hash, &mut *found)))
    }

    /// The active segment, and the others that no table covers whole.
    fn active(&self) -> (Option<&Segment>, &[Arc<Segment>]) {
        match self.loose.split_last() {
            Some((last, sealed)) if last.is_active() => (Some(last), sealed),
            _ => (None, &self.loose),
        }
    }

    /// Loads the place in each table where `hash` would be. The loads do not wait for each other,
    /// as those of one search after the other do, so that a dozen cache misses cost about as
    /// much as two: docs/benchmarks/log/store.md has the measurement.
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

pub(super) fn is_block(record: &RecordRef, locator: Locator, hash: &Hash) -> bool {
    locator.position().is_none() && record.hash() == *hash
}

pub(super) fn is_transaction(record: &RecordRef, locator: Locator, hash: &Hash) -> bool {
    locator.position().and_then(|at| record.transaction(at)) == Some(*hash)
}
