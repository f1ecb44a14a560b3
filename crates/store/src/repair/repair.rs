//! Writing a sealed segment anew: intact records as they are stored, damaged ones as fetched again.
//!
//! The new file is built aside, like history, on any thread. [`crate::Writer::replace`] gives it
//! the old one's name in one step; responses in flight keep the old file mapped.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::disk::Op;
use crate::error::Error;
use crate::format::Record;
use crate::id::Hash;
use crate::memory::residency;
use crate::segment::Segment;
use crate::write::{BackfillWriter, BuiltSegments, Options, Writer};

/// A sealed segment that is being written anew.
pub struct Repair {
    pub(crate) old: Arc<Segment>,
    pub(crate) history: BackfillWriter,
}

impl Repair {
    /// Options with which one segment has space for all records of `old`, of which some may come in
    /// a longer form. What is not used is given back.
    pub(crate) fn options(old: &Segment, options: Options) -> Options {
        if old.is_packed() {
            return Options { segment_blocks: old.count(), ..options };
        }
        let records = old.header.capacity - old.header.data_offset;
        // A record that is fetched again may be longer, as precompressed parts can be added.
        let segment_bytes = (2 * records).max(Options::SEGMENT_BYTES_MIN);
        Options { segment_blocks: old.count(), segment_bytes, ..options }
    }

    /// Heights of the segment.
    pub fn heights(&self) -> RangeInclusive<u64> {
        self.old.base()..=self.old.end_height() - 1
    }

    /// Hash of the newest block.
    pub fn last_hash(&self) -> Option<Hash> {
        Some(self.old.tip()?.1)
    }

    /// Heights whose records are damaged, ascending. It reads those that were not read yet, and all packed ones.
    pub fn damaged(&self) -> Vec<u64> {
        let is_damaged = |height: &u64| {
            let record = residency::loading(|| self.old.proven(*height));
            // A record that the disk does not deliver is fetched again, like a damaged one.
            record.map_or(true, |record| record.is_none())
        };
        self.heights().filter(is_damaged).collect()
    }

    /// Adds the record of the next height as it is stored. False if it is damaged.
    pub fn keep(&mut self, height: u64) -> Result<bool, Error> {
        self.history.append_stored(&self.old, height)
    }

    /// Adds the next height, in place of a damaged record.
    pub fn append(&mut self, record: &Record) -> Result<(), Error> {
        self.history.append(record)
    }

    /// Seals what was added and makes it safe.
    pub fn finish(self) -> Result<BuiltSegments, Error> {
        self.history.finish()
    }
}

/// Finds the sealed segment that has the heights of `new`.
fn place_of(new: &[(Arc<Segment>, String)], segments: &[Arc<Segment>]) -> Option<usize> {
    let ((first, _), (last, _)) = (new.first()?, new.last()?);
    // Blocks name their parents: with the same newest block all others are the same.
    let same = |old: &Arc<Segment>| {
        old.base() == first.base() && !old.is_active() && old.tip() == last.tip()
    };
    segments.iter().position(same)
}

impl Writer {
    /// Returns what writes the sealed segment that begins at `base` anew, on any thread; `None` if
    /// there is none.
    pub fn repair(&self, base: u64) -> Result<Option<Repair>, Error> {
        let identity = self.stamp.ok_or(Error::Unbound)?.identity;
        let view = self.view.load();
        let sealed = |segment: &&Arc<Segment>| segment.base() == base && !segment.is_active();
        let Some(old) = view.segments.iter().find(sealed).cloned() else { return Ok(None) };
        let options = Repair::options(&old, self.options);
        Ok(Some(Repair { history: BackfillWriter::new(&self.latch, options, identity, None), old }))
    }

    /// Serves a segment that was written anew in place of the old one, and gives it that one's
    /// name. False if the old one has gone meanwhile, or holds other heights. On a full disk the old one stays.
    pub fn replace(&mut self, mut built: BuiltSegments) -> Result<bool, Error> {
        let (mut segments, tables) = self.lists();
        let mut new = std::mem::take(&mut built.segments);
        let Some(at) = place_of(&new, &segments) else {
            built.segments = new; // they are removed
            return Ok(false);
        };
        if let Err(error) = self.name_new(&mut new, segments[at].is_packed()) {
            if error.is_disk_full() {
                built.segments = new; // they are removed, also those that have names
            }
            return Err(error);
        }
        let old = segments.splice(at..=at, new.into_iter().map(|(new, _)| new)).next();
        self.publish(segments, tables);
        if let Some(packed) = old.filter(|old| old.is_packed()) {
            self.remove_segments(std::iter::once(packed.name()))?;
        }
        Ok(true)
    }

    /// Gives new segments their names, and makes these durable if `durable` says so.
    fn name_new(&mut self, new: &mut [(Arc<Segment>, String)], durable: bool) -> Result<(), Error> {
        // The first one last: it replaces the old file, which has the heights of all.
        for (segment, unfinished) in new.iter_mut().rev() {
            let name = segment.name();
            self.latch.apply(Op::Rename { from: unfinished, to: &name })?;
            *unfinished = name;
        }
        self.names_due = true;
        // Before the only other copy goes.
        if durable { self.latch.apply(Op::SyncDir) } else { Ok(()) }
    }
}
