//! View of readers: an immutable list of segments and tables, replaced as a whole.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use super::archived::{ArchivedPlace, ArchivedSegment};
use super::criteria::Criteria;
use crate::id::Hash;
use crate::index::Locator;
use crate::index::merged_table::{Merged, uncovered};
use crate::memory::residency;
use crate::memory::residency::Cold;
use crate::segment::{Found, RecordRef, Segment, Wanted};

/// Segments of one moment. Only the active one, the last, still gains records.
pub(crate) struct View {
    /// Ascending, each beginning where the one before ends.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Ascending by heights, disjoint.
    pub(crate) tables: Vec<Arc<Merged>>,
    /// The segments with a height that no table covers, ascending: the ones to ask themselves.
    pub(crate) loose: Vec<Arc<Segment>>,
    /// Packed files that are not of the store, for one request, and the view beside them: this one then has no segments.
    pub(super) archived: Option<Box<Archived>>,
}

impl View {
    pub(crate) fn new(segments: Vec<Arc<Segment>>, tables: Vec<Arc<Merged>>) -> Self {
        let covered = |segment: &Arc<Segment>| {
            let heights = segment.base()..segment.end_height();
            !segment.is_active() && uncovered(&tables, heights).is_none()
        };
        let loose = segments.iter().filter(|segment| !covered(segment)).cloned().collect();
        Self { segments, tables, loose, archived: None }
    }

    /// A view of packed files and of the view beside them.
    pub(super) fn beside(archived: Archived) -> Self {
        let (segments, tables, loose) = (Vec::new(), Vec::new(), Vec::new());
        Self { segments, tables, loose, archived: Some(Box::new(archived)) }
    }

    pub(crate) fn first_height(&self) -> Option<u64> {
        let own = self.segments.first().map(|segment| segment.base());
        own.or_else(|| self.archived.as_ref()?.base.first_height())
    }

    /// The height after the head; an acquire load of the active segment's watermark.
    pub(super) fn end_height(&self) -> Option<u64> {
        let own = self.segments.last().map(|segment| segment.end_height());
        own.or_else(|| self.archived.as_ref()?.base.end_height())
    }

    pub(super) fn range(&self) -> Option<RangeInclusive<u64>> {
        let (first, end) = (self.first_height()?, self.end_height()?);
        (first < end).then(|| first..=end - 1)
    }

    /// Returns the head; `None` if no height is served.
    pub(super) fn newest(&self) -> Option<u64> {
        self.end_height()?.checked_sub(1)
    }

    #[inline]
    pub(crate) fn record(&self, height: u64) -> Result<Option<RecordRef>, Cold> {
        match self.holder(height) {
            Some(holder) => holder.record(height),
            None => Ok(None),
        }
    }

    /// The segment that has `height`, unless it is above the head.
    pub(crate) fn holder(&self, height: u64) -> Option<&Segment> {
        let Some(newest) = self.segments.last() else { return self.archived(height) };
        if height >= newest.base() {
            return Some(newest); // most requests are for the newest blocks
        }
        let after = self.segments.partition_point(|segment| segment.base() <= height);
        match after.checked_sub(1) {
            Some(at) => self.segments.get(at).map(Arc::as_ref),
            None => self.archived(height),
        }
    }

    /// Height before which an archived segment is read, if `height` is in one: the store has the others.
    pub(super) fn archived_end(&self, height: u64) -> u64 {
        let first = self.first_height().filter(|first| self.archived.is_some() && height < *first);
        first.unwrap_or(u64::MAX)
    }

    /// Height after those below the store that have no log of the criteria, if `height` is one of these.
    pub(super) fn end_without(&self, criteria: &Criteria, height: u64) -> Option<u64> {
        let archived = self.archived.as_ref()?;
        let end = self.first_height().unwrap_or(u64::MAX);
        archived
            .end_without(criteria, height)
            .map(|without| without.min(end))
            .filter(|end| *end > height)
    }

    #[cold]
    fn archived(&self, height: u64) -> Option<&Segment> {
        self.archived.as_ref()?.holder(height)
    }

    /// Reads a height no further than is wanted.
    pub(super) fn read(
        &self,
        height: u64,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Found>, Cold> {
        match self.holder(height) {
            Some(holder) => holder.read(height, wanted, out),
            None => Ok(None),
        }
    }

    /// The newest record of the places at which `hash` may be that `take` takes.
    #[inline]
    pub(super) fn find<T>(
        &self,
        hash: &Hash,
        mut take: impl FnMut(RecordRef, Locator) -> Result<Option<T>, Cold>,
    ) -> Result<Option<T>, Cold> {
        let mut found = None;
        self.find_with(hash, &mut |locator| {
            if let Some(record) = self.record(locator.height())? {
                found = take(record, locator)?;
            }
            Ok(found.is_some())
        })?;
        Ok(found)
    }

    /// Reads the block with `hash`.
    pub(super) fn read_block(
        &self,
        hash: &Hash,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Found>, Cold> {
        let (before, mut block) = (out.len(), None);
        self.find_with(hash, &mut |locator| {
            let holder = self.holder(locator.height()).filter(|_| locator.position().is_none());
            let Some(holder) = holder else { return Ok(false) };
            let Some(found) = holder.read(locator.height(), wanted, out)? else {
                return Ok(false);
            };
            let same = match &found {
                Found::Stored(record) => record.is_block(hash)?,
                Found::Unpacked { .. } => holder.hash_at(locator.height()) == Some(*hash),
            };
            // The table has parts of hashes only, so another block may be found under this one.
            if same {
                block = Some(found);
            } else {
                out.truncate(before);
            }
            Ok(same)
        })?;
        Ok(block)
    }

    /// Reads the stretch of a part that is of the transaction with `hash`; also returns its position.
    pub(super) fn read_transaction(
        &self,
        hash: &Hash,
        part: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<(Found, usize)>, Cold> {
        let mut transaction = None;
        self.find_with(hash, &mut |locator| {
            let Some(at) = locator.position() else { return Ok(false) };
            let wanted = Wanted::Transaction { part, at, hash: Some(hash) };
            // A stale table may name a height that is gone, or of another block.
            let Some(found) = self.read(locator.height(), wanted, out)? else { return Ok(false) };
            let same = match &found {
                Found::Stored(record) => record.is_transaction(at, hash)?,
                Found::Unpacked { .. } => true,
            };
            if same {
                transaction = Some((found, at));
            }
            Ok(same)
        })?;
        Ok(transaction)
    }

    /// Passes the places at which `hash` may be to `found`, the newest first, until it returns true.
    /// The record is no result: a result of one byte is not copied at each level.
    #[inline]
    pub(super) fn find_with(
        &self,
        hash: &Hash,
        found: &mut impl FnMut(Locator) -> Result<bool, Cold>,
    ) -> Result<(), Cold> {
        let (active, sealed) = self.active();
        let found = &mut |locator| match found(locator) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(cold) => Some(Err(cold)),
        };
        // What is newest is asked for most: nothing else need be in memory for it.
        if let Some(newest) = active.and_then(|segment| segment.find(hash, &mut *found)) {
            return newest;
        }
        if !residency::memory_is_short() {
            self.warm(hash)?; // else each would be a system call, and none a load
        }
        let loose = sealed.iter().rev().find_map(|segment| segment.find(hash, &mut *found));
        let tables = || self.tables.iter().rev().find_map(|table| table.find(hash, &mut *found));
        let in_store = loose.or_else(tables);
        let archived = || self.archived.as_ref()?.find(hash, &mut *found);
        in_store.or_else(archived).unwrap_or(Ok(()))
    }

    /// The active segment, and the others that no table covers whole.
    fn active(&self) -> (Option<&Segment>, &[Arc<Segment>]) {
        match self.loose.split_last() {
            Some((last, sealed)) if last.is_active() => (Some(last), sealed),
            _ => (None, &self.loose),
        }
    }

    /// Loads the place in each table where `hash` would be, and the starts of its bucket in each merged one. The loads
    /// do not wait for each other, as those of one search after the other do, so that a dozen cache misses cost about
    /// as much as two: docs/benchmarks/log/store.md has the measurement.
    fn warm(&self, hash: &Hash) -> Result<(), Cold> {
        let starts = self.tables.iter().map(|table| table.load_starts(hash));
        let loose = self.loose.iter().map(|segment| segment.first_prefix(hash));
        let all = starts.chain(loose).try_fold(0, |all, read| Ok(all ^ read?))?;
        // Else the compiler sees that nothing uses the loads, and leaves them out.
        std::hint::black_box(all);
        Ok(())
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        let segments = self.segments.iter().map(|segment| segment.disk_bytes);
        segments.sum::<u64>() + self.tables.iter().map(|table| table.disk_bytes()).sum::<u64>()
    }
}

/// Packed files beside a view.
pub(super) struct Archived {
    /// Served range. A copy of its lists would cost each request as much as the store has segments.
    pub(super) base: Arc<View>,
    /// Ascending by height; they may have gaps.
    pub(super) segments: Vec<ArchivedSegment>,
    pub(super) places: Vec<ArchivedPlace>,
    pub(super) without: Vec<(Criteria, Vec<Range<u64>>)>,
}

impl Archived {
    /// Height after the heights that have no log of the criteria, if `height` is one of those.
    pub(super) fn end_without(&self, criteria: &Criteria, height: u64) -> Option<u64> {
        let of_them = self.without.iter().filter(|(of, _)| of == criteria);
        let ends = of_them.filter_map(|(_, heights)| {
            let after = heights.partition_point(|range| range.start <= height);
            let range = heights.get(after.checked_sub(1)?)?;
            range.contains(&height).then_some(range.end)
        });
        ends.max()
    }

    /// The segment that has `height`, if any has: the store's own from its first height on.
    pub(super) fn holder(&self, height: u64) -> Option<&Segment> {
        if self.base.first_height().is_some_and(|first| height >= first) {
            return self.base.holder(height);
        }
        let after = self.segments.partition_point(|segment| segment.0.base() <= height);
        self.segments.get(after.checked_sub(1)?).map(|segment| &*segment.0)
    }

    /// Passes the places of `hash` to `found` until it takes one: those in the view, and then the given ones.
    #[cold]
    pub(super) fn find(
        &self,
        hash: &Hash,
        found: &mut dyn FnMut(Locator) -> Option<Result<(), Cold>>,
    ) -> Option<Result<(), Cold>> {
        let mut is_taken = false;
        let in_view = self.base.find_with(hash, &mut |locator| match found(locator) {
            Some(taken) => {
                is_taken = true;
                taken.map(|()| true)
            }
            None => Ok(false),
        });
        // A look-up in a table may be cold before any place is found.
        if is_taken || in_view.is_err() {
            return Some(in_view);
        }
        let mut places = self.places.iter().filter(|place| place.hash == *hash);
        places.find_map(|place| found(place.locator()))
    }
}
