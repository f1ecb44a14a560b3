//! Segment files and tables that opening a directory may serve.

use std::path::Path;
use std::sync::Arc;

use crate::disk::segment_name;
use crate::error::Error;
use crate::format::{Seal, SegmentHeader};
use crate::index::merged_table::Merged;
use crate::segment::{OpenedSegment, Segment, inspect};

/// A segment file that begins at a height of the one before it.
pub(super) struct Leftover {
    pub(super) name: String,
    /// True if the one before it has all of its blocks.
    pub(super) is_copy: bool,
}

/// Takes leftovers out of `found`, which is ascending: power went before the removal of segments that a longer
/// one replaces, or before the first part of one that was split replaced it. The longer one is whole.
pub(super) fn take_leftovers(
    dir: &Path,
    found: &mut Vec<Candidate>,
) -> Result<Vec<Leftover>, Error> {
    let bases: Vec<u64> = found.iter().map(|one| one.header().base_height).collect();
    let (mut kept, mut leftovers) = (Vec::<Candidate>::with_capacity(found.len()), Vec::new());
    for candidate in found.drain(..) {
        match kept.last() {
            Some(before) if candidate.is_left_behind(before, &bases) => {
                let is_copy = before.has_all_of(&candidate, dir)?;
                leftovers.push(Leftover { name: candidate.name(), is_copy });
            }
            _ => kept.push(candidate),
        }
    }
    *found = kept;
    Ok(leftovers)
}

/// A segment file whose header was believed.
pub(super) enum Candidate {
    Sealed(SegmentHeader, Seal),
    Active(SegmentHeader),
    Packed(Box<Segment>),
}

impl Candidate {
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

    /// True if the heights of this sealed segment are in `before`, or reach into a file that begins where `before` ends,
    /// which `bases` names.
    fn is_left_behind(&self, before: &Self, bases: &[u64]) -> bool {
        let (Self::Sealed(header, _), Self::Sealed(..)) = (self, before) else { return false };
        let end = before.end_height();
        let goes_on = || bases.binary_search(&end).is_ok();
        header.base_height < end && (self.end_height() <= end || goes_on())
    }

    /// True if this sealed segment has the blocks of another one, whose heights chain: the newest decides.
    fn has_all_of(&self, other: &Self, dir: &Path) -> Result<bool, Error> {
        let (Self::Sealed(header, seal), Self::Sealed(_, last)) = (self, other) else {
            return Ok(false);
        };
        let segment = Segment::open_sealed(&dir.join(self.name()), *header, seal)?;
        let is_within = other.end_height() <= self.end_height();
        Ok(is_within && segment.hash_at(other.end_height() - 1) == Some(last.last_hash))
    }

    /// True if sealed segments, of which `bases` names the first heights, hold all heights of a packed file: power
    /// went before one or the other was removed. A repair may have written the segments because the file is damaged.
    pub(super) fn is_in_segments(&self, dir: &Path, bases: &[u64]) -> Result<bool, Error> {
        let Self::Packed(packed) = self else { return Ok(false) };
        let (mut at, mut last) = (packed.base(), None);
        while at < packed.end_height() && bases.binary_search(&at).is_ok() {
            match inspect(&dir.join(segment_name(at)), at)? {
                OpenedSegment::Sealed(_, seal) if seal.count > 0 => {
                    at += u64::from(seal.count);
                    last = Some((at - 1, seal.last_hash));
                }
                _ => return Ok(false),
            }
        }
        let failed = |_| Error::not_delivered(dir.join(packed.name()));
        let tip = packed.read_tip().map_err(failed)?;
        // With the same last block all below it are the same: hashes chain.
        Ok(at == packed.end_height() && last.is_some() && last == tip)
    }
}

/// True if a segment with `base` continues `run`. An unsealed one only ever comes last.
pub(super) fn joins(run: &[Candidate], base: u64) -> bool {
    matches!(
        run.last(),
        Some(last @ (Candidate::Sealed(..) | Candidate::Packed(_))) if last.end_height() == base
    )
}

/// Opens a merged table; `None` if it is damaged, or of other blocks than those that are here.
pub(super) fn open_table(path: &Path, segments: &[Arc<Segment>]) -> Result<Option<Merged>, Error> {
    let Ok(table) = Merged::open(path)? else { return Ok(None) };
    Ok(speaks_of(&table, segments)?.then_some(table))
}

/// True if the table was made from these very blocks: hashes chain, so its last one decides.
fn speaks_of(table: &Merged, segments: &[Arc<Segment>]) -> Result<bool, Error> {
    let last = table.header.last;
    let after = segments.partition_point(|segment| segment.base() <= last);
    let holder = after.checked_sub(1).map(|at| &segments[at]);
    let Some(holder) = holder.filter(|holder| !holder.is_active()) else { return Ok(false) };
    Ok(holder.read_hash(last)? == Some(table.header.last_hash))
}
