//! Segment files, packed files and tables that opening a directory may serve.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Latch, segment_name};
use crate::error::Error;
use crate::format::{Seal, SegmentHeader};
use crate::id::Hash;
use crate::index::merged_table::Merged;
use crate::memory::residency;
use crate::segment::Segment;

/// Takes the longest run out of `found` that ends at the newest head. `found` is ascending by base height, and so is the run.
///
/// Two files may have the same heights: a crash came before one was removed, or a full disk kept its name. Of two runs of
/// one length that of segments is taken: a repair may have written them because the packed file is damaged.
pub(super) fn take_run(found: &mut Vec<SegmentCandidate>) -> Vec<SegmentCandidate> {
    let runs = longest_runs(found);
    let rank = |at: &usize| {
        let one = &found[*at];
        // An unsealed file counts as ending where it begins: its records make it the newer one.
        (one.end_height(), one.is_active(), Reverse((runs[*at].0, one.is_packed())))
    };
    let mut next = (0..found.len()).max_by_key(rank);
    let mut run = Vec::new();
    while let Some(at) = next {
        // A file before another one has a lower index.
        run.push(found.remove(at));
        next = runs[at].1;
    }
    run.reverse();
    run
}

/// Finds the longest run that ends with each file: its first height, and the file before this one in it.
fn longest_runs(found: &[SegmentCandidate]) -> Vec<(u64, Option<usize>)> {
    let mut runs: Vec<(u64, Option<usize>)> = Vec::with_capacity(found.len());
    let mut by_end = HashMap::<u64, usize>::new();
    for (at, one) in found.iter().enumerate() {
        let before = by_end.get(&one.base()).copied();
        runs.push((before.map_or(one.base(), |before| runs[before].0), before));
        // An unsealed one only ever comes last.
        if !one.is_active() {
            let rank = |at: usize| (runs[at].0, found[at].is_packed());
            let best = by_end.entry(one.end_height()).or_insert(at);
            if rank(at) < rank(*best) {
                *best = at;
            }
        }
    }
    runs
}

/// A segment file whose header was believed.
pub(super) enum SegmentCandidate {
    Sealed(SegmentHeader, Seal),
    Active(SegmentHeader),
    Packed(Box<Segment>),
}

impl SegmentCandidate {
    pub(super) fn header(&self) -> &SegmentHeader {
        match self {
            Self::Sealed(header, _) | Self::Active(header) => header,
            Self::Packed(segment) => &segment.header,
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Packed(segment) => segment.name(),
            Self::Sealed(..) | Self::Active(_) => segment_name(self.header().base_height),
        }
    }

    /// The height after its last record; for an unsealed one its base.
    pub(super) fn end_height(&self) -> u64 {
        match self {
            Self::Sealed(header, seal) => header.base_height + u64::from(seal.count),
            Self::Active(header) => header.base_height,
            Self::Packed(segment) => segment.end_height(),
        }
    }

    pub(super) fn base(&self) -> u64 {
        self.header().base_height
    }

    fn is_active(&self) -> bool {
        matches!(self, Self::Active(_))
    }

    fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    fn last_hash(&self) -> Option<Hash> {
        match self {
            Self::Sealed(_, seal) => Some(seal.last_hash),
            Self::Packed(segment) => Some(segment.tip()?.1),
            Self::Active(_) => None,
        }
    }

    /// Reason to keep a file that is not among the `served` ones. `None` if these have all of its blocks, intact: a crash
    /// came before its removal.
    pub(super) fn why_kept(&self, served: &[Arc<Segment>]) -> Option<&'static str> {
        let first = served.first().map_or(u64::MAX, |segment| segment.base());
        if self.base() < first {
            let is_below = self.end_height() <= first;
            let why = ["another file has some of its heights", "heights above it are missing"];
            return Some(why[usize::from(is_below)]);
        }
        let last = self.end_height().saturating_sub(1);
        let same = holder(served, last).and_then(|holder| holder.read_hash(last).ok()?);
        // Neither a crash nor a full disk leaves a segment beside parts of it.
        let base = |height| holder(served, height).map(|holder| holder.base());
        let is_within_one = self.is_packed() || base(self.base()) == base(last);
        // Hashes chain: with the same last block all below it are the same.
        if same.is_none() || same != self.last_hash() || !is_within_one {
            return Some("another file has its heights");
        }
        // Every record is read: after this the file is removed, and it may be the only intact one.
        let is_copy = (self.base()..=last).all(|height| is_intact(served, height));
        (!is_copy).then_some("the file that has its heights, too, is damaged")
    }
}

/// The segment of `served` that has `height`.
fn holder(served: &[Arc<Segment>], height: u64) -> Option<&Arc<Segment>> {
    let after = served.partition_point(|segment| segment.base() <= height);
    served[..after].last().filter(|segment| height < segment.end_height())
}

/// True if the record at `height` of the served segments is intact.
fn is_intact(served: &[Arc<Segment>], height: u64) -> bool {
    let proven = || holder(served, height)?.proven(height).ok()?;
    residency::loaded(proven).is_some()
}

/// Opens a merged table; `None` if it is damaged, or of other blocks than those that are here.
pub(super) fn open_table(path: &Path, segments: &[Arc<Segment>]) -> Result<Option<Merged>, Error> {
    let Ok(table) = Merged::open(path)? else { return Ok(None) };
    Ok(speaks_of(&table, segments)?.then_some(table))
}

/// Removes a merged table. It is derived from segments, so that loses nothing.
pub(super) fn remove_table(latch: &mut Latch, name: &str) -> Result<(), Error> {
    latch.remove(name)?;
    tracing::info!(file = name, "unused hash table removed");
    Ok(())
}

/// True if the table was made from these very blocks: hashes chain, so its last one decides.
fn speaks_of(table: &Merged, segments: &[Arc<Segment>]) -> Result<bool, Error> {
    let last = table.header.last;
    let after = segments.partition_point(|segment| segment.base() <= last);
    let holder = after.checked_sub(1).map(|at| &segments[at]);
    // Merged tables are made of sealed segments only.
    let Some(holder) = holder.filter(|holder| !holder.is_active()) else { return Ok(false) };
    Ok(holder.read_hash(last)? == Some(table.header.last_hash))
}
