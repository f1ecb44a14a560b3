//! Packing: settled sealed segments that fill a whole range become one packed file.
//!
//! The file is written aside, synced, and renamed; then readers see it in place of the segments, and
//! only then are the segments' files removed. Responses in flight keep the old files mapped.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::built_segments::remove;
use super::options::range_blocks;
use super::writer::Writer;
use crate::disk::{Latch, Op, UNFINISHED, packed_name};
use crate::error::Error;
use crate::id::Identity;
use crate::memory::residency::{self, Cold};
use crate::reads;
use crate::segment::{
    PackFailed, Packed, PackedCodec, PackedDamage, PackedFile, PackedKeys, RecordRef, Segment,
};

/// Bytes that are written at once.
const WRITTEN_AT_ONCE: usize = 1 << 20;
/// A packed file takes less than this part of its segments. Without space for that, packing would be for nothing.
const PACKED_AT_LEAST: u64 = 3;

/// Heights that may be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packable {
    /// Highest settled height.
    pub settled: u64,
    /// Newest bytes of the store that stay unpacked.
    pub unpacked_bytes: u64,
}

/// Segments that are due to be packed.
pub struct Packing {
    latch: Latch,
    codec: Arc<dyn PackedCodec>,
    identity: Identity,
    range_blocks: u32,
    /// Ascending neighbors that fill one range.
    sources: Vec<Arc<Segment>>,
}

/// A packed file that readers do not see yet.
pub struct NewPacked {
    segment: Segment,
    name: String,
    sources: Vec<Arc<Segment>>,
    as_it_came: Vec<(&'static str, u64)>,
}

/// Result of packing.
pub enum PackOutcome {
    /// A file was written.
    Packed(Box<NewPacked>),
    /// Nothing was written; the same heights may be packed later.
    Stopped,
    /// The heights cannot be packed.
    Unpackable(UnpackableRange),
}

/// A range that stays unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackableRange {
    /// First height of the range.
    pub first: u64,
    /// Kind of the error in lower case, for metrics.
    pub reason: &'static str,
    /// The codec's error.
    pub error: String,
}

/// Heights that were packed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackedHeights {
    /// First of the heights.
    pub first: u64,
    /// Number of heights.
    pub heights: u64,
    /// Bytes on disk before.
    pub bytes_before: u64,
    /// Bytes on disk now.
    pub bytes: u64,
    /// Heights of which a part is stored as it came, by reason.
    pub as_it_came: Vec<(&'static str, u64)>,
}

impl PackedHeights {
    /// Heights of `segment`, which takes the place of `sources`.
    fn of(
        segment: &Segment,
        sources: &[Arc<Segment>],
        as_it_came: Vec<(&'static str, u64)>,
    ) -> Self {
        Self {
            first: segment.base(),
            heights: segment.count().into(),
            bytes_before: bytes_of(sources),
            bytes: segment.disk_bytes,
            as_it_came,
        }
    }
}

/// Result of [`Writer::end_pack`].
pub enum PackEnd {
    /// Readers see the packed heights. The caller runs the second value on another thread, and gives its result
    /// to [`Writer::remove_packed`].
    Packed(PackedHeights, NewName),
    /// The segments were evicted or replaced meanwhile. Another range may be due.
    Overtaken,
    /// The range stays unpacked, and is not due again while the store is open. Another range may be due.
    Unpackable(UnpackableRange),
    /// Nothing was packed, and the same range may be due again.
    NotPacked,
}

/// Name of a packed file that a loss of power would take back.
pub struct NewName {
    latch: Latch,
    sources: Vec<Arc<Segment>>,
}

/// Segments of which a packed file, or parts, have the heights for good. Dropping the last reference gives their maps
/// and their bytes on disk back, which may take long.
pub struct Replaced(pub(crate) Vec<Arc<Segment>>);

impl NewName {
    /// Makes the name durable.
    pub fn run(mut self) -> Result<Replaced, Error> {
        self.latch.apply(Op::SyncDir)?;
        Ok(Replaced(self.sources))
    }
}

impl Writer {
    /// Finds the newest range to pack: whole, up to height `settled`, intact, and older than the
    /// newest `unpacked_bytes` of the store. The caller runs the result on another thread.
    pub fn begin_pack(&self, settled: u64, unpacked_bytes: u64) -> Option<Packing> {
        let (codec, identity) = (self.codec.clone()?, self.stamp?.identity);
        let range_blocks = range_blocks(self.options.segment_blocks);
        let sources = self.due_ranges(Packable { settled, unpacked_bytes }).into_iter().next()?;
        let latch = self.latch.beside_in_reserve();
        Some(Packing { latch, codec, identity, range_blocks, sources })
    }

    /// Finds the ranges that are due, the newest first.
    pub(crate) fn due_ranges(&self, packable: Packable) -> Vec<Vec<Arc<Segment>>> {
        // Of a segment that is split no part goes before the whole one.
        if self.codec.is_none() || self.stamp.is_none() || !self.first_parts.is_empty() {
            return Vec::new();
        }
        let range_blocks = range_blocks(self.options.segment_blocks);
        let (mut group, mut ranges) = (Vec::new(), Vec::new());
        for segment in &self.sources(packable.settled, packable.unpacked_bytes) {
            add(&mut group, segment, range_blocks);
            if is_whole(&group, range_blocks) && !self.unpackable.contains(&group[0].base()) {
                ranges.push(std::mem::take(&mut group));
            }
        }
        ranges
    }

    /// The segments that may be packed as far as each of them says alone, the newest first.
    pub(crate) fn sources(&self, settled: u64, unpacked_bytes: u64) -> Vec<Arc<Segment>> {
        let (view, mut bytes) = (self.view.load(), 0);
        // Packed bytes are not of the hot window, however new they are.
        let unpacked = view.segments.iter().rev().filter(|segment| !segment.is_packed());
        let cold = unpacked.filter(|segment| {
            // Before its bytes are added: the segment across the bound stays unpacked as a whole.
            let is_hot = bytes < unpacked_bytes;
            bytes += segment.disk_bytes;
            !is_hot && is_source(segment, settled)
        });
        cold.cloned().collect()
    }

    /// Takes the result of [`Packing::run`]: readers see the packed heights. Nothing here waits for the disk,
    /// because heads wait for the writer's thread.
    pub fn end_pack(&mut self, outcome: Result<PackOutcome, Error>) -> Result<PackEnd, Error> {
        match outcome {
            Ok(PackOutcome::Packed(new)) => self.show_packed(*new),
            Ok(PackOutcome::Stopped) => Ok(PackEnd::NotPacked),
            // Remembered, or the same range would be packed again and again, and no other one.
            Ok(PackOutcome::Unpackable(range)) => {
                self.unpackable.insert(range.first);
                Ok(PackEnd::Unpackable(range))
            }
            Err(error) => {
                // Nothing that is served has changed.
                tracing::warn!(%error, "range not packed");
                if error.is_latched() { Err(error) } else { Ok(PackEnd::NotPacked) }
            }
        }
    }

    /// Gives a packed file its name, and shows it to readers in place of its segments.
    fn show_packed(&mut self, new: NewPacked) -> Result<PackEnd, Error> {
        let NewPacked { segment, name, sources, as_it_came } = new;
        let unfinished = format!("{name}{UNFINISHED}");
        let (mut segments, tables) = self.lists();
        // While the thread packed, the writer may have evicted, repaired or withdrawn some of them.
        let Some(served) = places_of(&sources, &segments) else {
            return self.latch.remove(&unfinished).map(|()| PackEnd::Overtaken);
        };
        match self.latch.apply(Op::Rename { from: &unfinished, to: &name }) {
            Err(error) if error.is_disk_full() => {
                tracing::warn!(%error, "range not packed");
                let removed = self.latch.remove(&unfinished);
                return removed.map(|()| PackEnd::NotPacked);
            }
            renamed => renamed?,
        }
        let packed = PackedHeights::of(&segment, &sources, as_it_came);
        segments.splice(served, [Arc::new(segment)]);
        self.publish(segments, tables);
        Ok(PackEnd::Packed(packed, NewName { latch: self.latch.beside(), sources }))
    }

    /// Takes the result of [`NewName::run`]: the names of the segments are removed. The caller drops the
    /// returned value on another thread. After a sync that failed nothing more is written.
    pub fn remove_packed(&mut self, named: Result<Replaced, Error>) -> Result<Replaced, Error> {
        let replaced = named.inspect_err(|error| self.latch.stop(error))?;
        let (segments, _) = self.lists();
        for source in &replaced.0 {
            // A repair or a withdrawal may have given the name to another file meanwhile.
            let name = source.name();
            if segments.iter().all(|segment| segment.name() != name) {
                self.latch.remove(&name)?;
            }
        }
        self.names_due = true;
        Ok(replaced)
    }
}

/// True if a segment may be packed, as far as that can be told of it alone.
fn is_source(segment: &Segment, settled: u64) -> bool {
    !segment.is_active()
        && !segment.checked.has_damage()
        && segment.end_height() <= settled.saturating_add(1)
}

/// Puts `segment` before the others of its range, which follow it; or begins another range with it.
fn add(group: &mut Vec<Arc<Segment>>, segment: &Arc<Segment>, range_blocks: u32) {
    let range = |height: u64| height / u64::from(range_blocks);
    let joins = group.first().is_some_and(|next| {
        next.base() == segment.end_height() && range(next.base()) == range(segment.base())
    });
    // A gap, or another range: what was gathered above it cannot become one file with it.
    if !joins {
        group.clear();
    }
    group.insert(0, Arc::clone(segment));
}

/// Finds neighbors among the served segments; `None` unless all are served.
fn places_of(neighbors: &[Arc<Segment>], served: &[Arc<Segment>]) -> Option<Range<usize>> {
    let at = served.iter().position(|segment| Arc::ptr_eq(segment, &neighbors[0]))?;
    let places = at..at + neighbors.len();
    let found = served.get(places.clone())?;
    let same = found.iter().zip(neighbors).all(|(found, one)| Arc::ptr_eq(found, one));
    same.then_some(places)
}

/// Bytes that the segments take on disk.
fn bytes_of(segments: &[Arc<Segment>]) -> u64 {
    segments.iter().map(|segment| segment.disk_bytes).sum()
}

/// True if the segments fill one range.
fn is_whole(group: &[Arc<Segment>], range_blocks: u32) -> bool {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return false };
    first.base().is_multiple_of(range_blocks.into())
        && last.end_height() - first.base() == u64::from(range_blocks)
}

impl Packing {
    /// Returns the first height of the range.
    pub fn first(&self) -> u64 {
        self.sources[0].base()
    }

    /// Packs, and writes the file aside. `proceed` is called before each height of each pass; it may
    /// wait, and packing ends when it returns false.
    pub fn run(self, proceed: &mut dyn FnMut() -> bool) -> Result<PackOutcome, Error> {
        // A damaged record is repaired first.
        let Some(records) = self.records() else { return Ok(PackOutcome::Stopped) };
        self.latch.check_room(bytes_of(&self.sources) / PACKED_AT_LEAST)?;
        let made = residency::with_blocking_reads(|| {
            self.codec.pack(self.identity, self.range_blocks, &records, proceed)
        })?;
        // Also if the codec refuses them: of damaged bytes that says nothing about the range.
        if !self.are_intact(proceed)? {
            return Ok(PackOutcome::Stopped);
        }
        match made {
            Ok(made) => self.write_aside(made, &records),
            Err(PackFailed::Stopped) => Ok(PackOutcome::Stopped),
            Err(PackFailed::Unpackable { reason, error }) => {
                let first = self.first();
                Ok(PackOutcome::Unpackable(UnpackableRange { first, reason, error }))
            }
        }
    }

    /// Reads the records of the range; `None` if one cannot be read.
    fn records(&self) -> Option<Vec<RecordRef>> {
        let record = |height: u64| {
            let holder = self.sources.iter().find(|source| height < source.end_height())?;
            residency::loading(|| holder.record(height)).ok()?
        };
        let first = self.first();
        let mut records = Vec::with_capacity(self.range_blocks as usize);
        for height in first..first + u64::from(self.range_blocks) {
            records.push(record(height)?);
        }
        Some(records)
    }

    /// Writes what the codec made. A file that must not replace the segments is removed again.
    fn write_aside(
        mut self,
        made: PackedFile,
        records: &[RecordRef],
    ) -> Result<PackOutcome, Error> {
        let first = self.first();
        let written = self.write(made.bytes, records);
        if !matches!(written, Ok(Ok(_))) {
            self.remove_unfinished();
        }
        Ok(match written? {
            Ok(segment) => {
                let (name, sources, as_it_came) =
                    (packed_name(first), self.sources, made.as_it_came);
                PackOutcome::Packed(Box::new(NewPacked { segment, name, sources, as_it_came }))
            }
            Err(error) => {
                PackOutcome::Unpackable(UnpackableRange { first, reason: "read_back", error })
            }
        })
    }

    /// Name of the file until it replaces the segments.
    fn unfinished(&self) -> String {
        format!("{}{UNFINISHED}", packed_name(self.first()))
    }

    /// Removes the file, if it is there.
    fn remove_unfinished(&self) {
        let unfinished = self.unfinished();
        if reads::is_there(&self.latch.dir().join(&unfinished)).unwrap_or(true) {
            // A latch of its own: this one may have stopped.
            remove(&mut self.latch.beside(), &unfinished);
        }
    }

    /// Compares the checksums of all records again: their bytes may have changed since their first read, and the packed
    /// file gives them a new checksum. The codec has compared all that it made with these bytes before.
    fn are_intact(&self, proceed: &mut dyn FnMut() -> bool) -> Result<bool, Error> {
        for source in &self.sources {
            for height in source.base()..source.end_height() {
                // A damaged record is noted, so that the range is repaired before it is packed.
                let is_intact =
                    proceed() && residency::with_blocking_reads(|| source.is_intact_now(height))?;
                if !is_intact {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Writes the file aside, opens it and compares its indexes; or says why it must not replace the segments.
    fn write(
        &mut self,
        bytes: Vec<u8>,
        records: &[RecordRef],
    ) -> Result<Result<Segment, String>, Error> {
        let unfinished = self.unfinished();
        self.latch.allocate(&unfinished, bytes.len() as u64)?;
        for (at, bytes) in bytes.chunks(WRITTEN_AT_ONCE).enumerate() {
            let offset = (at * WRITTEN_AT_ONCE) as u64;
            self.latch.apply(Op::Write { name: &unfinished, offset, bytes })?;
        }
        drop(bytes); // before the keys of the range take memory
        // Before the rename: the name promises a whole file, also after a loss of power.
        self.latch.apply(Op::Sync { name: &unfinished })?;
        self.read_back(&self.latch.dir().join(&unfinished), records)
    }

    /// Opens the written file and compares its indexes with the records.
    fn read_back(
        &self,
        path: &Path,
        records: &[RecordRef],
    ) -> Result<Result<Segment, String>, Error> {
        // Segments are removed for it, so it is read once as any other.
        let opened = match Packed::open(path, &self.codec)? {
            Ok(opened) => opened,
            Err(damage) => return Ok(Err(damage.to_string())),
        };
        // Nothing else reads an index before a client asks for a hash or for logs.
        let compared = residency::loading(|| check_indexes(&opened.packed, records));
        if let Err(damage) = compared.map_err(|_| Error::not_delivered(path))? {
            return Ok(Err(format!("wrong index: {damage}")));
        }
        Segment::packed(opened).map(Ok).map_err(|error| Error::read(path, error))
    }
}

/// Compares the indexes of a packed file with the hashes and the terms of its records.
fn check_indexes(packed: &Packed, records: &[RecordRef]) -> Result<Result<(), PackedDamage>, Cold> {
    let mut keys = PackedKeys::default();
    records.iter().try_for_each(|record| keys.add_stored(record))?;
    Ok(packed.range().check_indexes(&keys))
}
