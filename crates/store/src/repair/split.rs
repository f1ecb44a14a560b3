//! Splitting segments that reach across a multiple of the range's length, so that their heights can be packed:
//! an earlier release wrote them, or another span.
//!
//! The parts are built aside on any thread. All except the first get their names; when these are durable the
//! first one replaces the old file. So a crash leaves the whole segment, or all of its parts.

use std::sync::Arc;

use crate::disk::{Latch, Op, SPLIT};
use crate::error::Error;
use crate::segment::Segment;
use crate::write::{
    BackfillWriter, BuiltSegments, FirstPart, Options, Replaced, Writer, range_blocks,
};

/// A segment that is to be split.
pub struct Splitting {
    old: Arc<Segment>,
    history: BackfillWriter,
}

/// Parts of a segment that readers do not see yet.
pub struct NewParts {
    old: Arc<Segment>,
    built: BuiltSegments,
}

/// Names of parts that a loss of power would take back. The first part has none yet.
pub struct NewPartNames {
    latch: Latch,
    old: Arc<Segment>,
    first: FirstPart,
}

impl Splitting {
    /// Returns the first height of the old segment.
    pub fn first(&self) -> u64 {
        self.old.base()
    }

    /// Writes the parts aside. `proceed` is called before each height; it may wait, and splitting ends when it
    /// returns false. `None` if it ended, or if a record is damaged, which is repaired first.
    pub fn run(mut self, proceed: &mut dyn FnMut() -> bool) -> Result<Option<NewParts>, Error> {
        let base = self.old.base();
        self.history.check_room(self.old.disk_bytes)?; // without it all that is written would be for nothing
        for height in base..self.old.end_height() {
            if !proceed() {
                return Ok(None);
            }
            if !self.history.append_stored(&self.old, height)? {
                // Noted, so that a repair comes next and not this split again.
                let at = (height - base) as u32;
                self.old.checked.note_damaged(base, at, "record does not follow the one before");
                return Ok(None);
            }
        }
        let built = self.history.finish()?;
        Ok(Some(NewParts { old: self.old, built }))
    }
}

impl NewPartNames {
    /// Makes the names durable.
    pub fn run(mut self) -> Result<Self, Error> {
        self.latch.apply(Op::SyncDir)?;
        Ok(self)
    }
}

impl Writer {
    /// Finds the newest segment across a multiple of the range's length that could be packed otherwise. The caller
    /// runs the result on another thread.
    pub fn begin_split(&self, settled: u64, unpacked_bytes: u64) -> Option<Splitting> {
        let (codec, identity) = (self.codec.clone()?, self.stamp?.identity);
        let span = range_blocks(self.options.segment_blocks);
        let range = |height: u64| height / u64::from(span);
        let reaches_across =
            |segment: &Arc<Segment>| range(segment.base()) != range(segment.end_height() - 1);
        let sources = self.sources(settled, unpacked_bytes);
        // A segment that was cut is written anew first.
        let is_free = !self.rewrite_due && self.first_parts.is_empty();
        let old = sources.into_iter().find(reaches_across).filter(|_| is_free)?;
        let options = Options { segment_blocks: span, ..self.options };
        let history = BackfillWriter::new(&self.latch, options, identity, Some(codec));
        Some(Splitting { old, history: history.with_unfinished(SPLIT).in_reserve() })
    }

    /// Takes the result of [`Splitting::run`]: readers see the parts. The caller runs the returned value on another
    /// thread, and gives its result to [`Writer::end_split`]. `None` if there are no parts, or if the segment was
    /// evicted or replaced meanwhile: then the parts are removed. Otherwise nothing here waits for the disk.
    pub fn show_parts(
        &mut self,
        parts: Result<Option<NewParts>, Error>,
    ) -> Result<Option<NewPartNames>, Error> {
        match parts {
            Ok(Some(parts)) => self.show(parts),
            Ok(None) => Ok(None),
            Err(error) => {
                // Nothing that is served has changed.
                tracing::warn!(%error, "segment not split");
                if error.is_latched() { Err(error) } else { Ok(None) }
            }
        }
    }

    /// Gives the parts their names, except the first, and shows all to readers; unless the segment is no longer served.
    fn show(&mut self, parts: NewParts) -> Result<Option<NewPartNames>, Error> {
        let NewParts { old, mut built } = parts;
        let (mut segments, tables) = self.lists();
        let at = segments.iter().position(|segment| Arc::ptr_eq(segment, &old));
        let (Some(at), Some((segment, unfinished))) = (at, built.segments.first().cloned()) else {
            return Ok(None);
        };
        let first = FirstPart { segment, unfinished };
        if !self.name_other_parts(&mut built)? {
            return Ok(None);
        }
        let parts = std::mem::take(&mut built.segments);
        segments.splice(at..=at, parts.into_iter().map(|(part, _)| part));
        self.publish(segments, tables);
        Ok(Some(NewPartNames { latch: self.latch.beside(), old, first }))
    }

    /// Gives all parts except the first their names. False if the disk has no space for one: then those that have a name are
    /// removed.
    fn name_other_parts(&mut self, built: &mut BuiltSegments) -> Result<bool, Error> {
        for part in 1..built.segments.len() {
            let (segment, unfinished) = &built.segments[part];
            match self.latch.apply(Op::Rename { from: unfinished, to: &segment.name() }) {
                Err(error) if error.is_disk_full() => {
                    tracing::warn!(%error, "segment not split");
                    let named = built.segments.drain(1..part).map(|(segment, _)| segment.name());
                    return self.remove_segments(named).map(|()| false);
                }
                renamed => renamed?,
            }
        }
        Ok(true)
    }

    /// Takes the result of [`NewPartNames::run`]: the first part replaces the file of the old segment; on a full disk
    /// [`Writer::restore_lost`] does that later. The caller drops the returned value on another thread. After a sync that
    /// failed nothing more is written.
    pub fn end_split(&mut self, named: Result<NewPartNames, Error>) -> Result<Replaced, Error> {
        let NewPartNames { old, first, .. } = named.inspect_err(|error| self.latch.stop(error))?;
        self.first_parts.push(first);
        self.name_first_parts()?;
        Ok(Replaced(vec![old]))
    }

    /// Gives first parts their names. If the disk has no space for a name, the part waits for the next call. Until then the
    /// whole segment is on disk, so nothing of it is packed.
    pub(crate) fn name_first_parts(&mut self) -> Result<(), Error> {
        while let Some(FirstPart { segment, unfinished }) = self.first_parts.last() {
            let name = segment.name();
            // An eviction or a repair may have taken the name meanwhile. Settled heights are not withdrawn.
            let is_served = self.lists().0.iter().any(|served| Arc::ptr_eq(served, segment));
            let named = if is_served {
                self.latch.apply(Op::Rename { from: unfinished, to: &name })
            } else {
                self.latch.remove(unfinished)
            };
            match named {
                Err(error) if error.is_disk_full() => {
                    tracing::warn!(%error, "segment part not named yet");
                    return Ok(());
                }
                named => named?,
            }
            self.names_due = true;
            self.first_parts.pop();
        }
        Ok(())
    }
}
