//! The read side of one segment, active or sealed.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::checked::Checked;
use super::packed::{OpenedPacked, Packed};
use super::packed_codec::RANGE_BLOCKS_MAX;
use super::record_ref::RecordRef;
use super::unreadable;
use crate::disk::{packed_name, segment_name};
use crate::error::Error;
use crate::format::{
    FormatError, INDEX_OFFSET, SECTION_HASHES, SLOT_LEN, Seal, SegmentHeader, Slot, slot_offset,
};
use crate::id::Hash;
use crate::index::table::Table;
use crate::index::{ActiveLogs, ActiveTable, Locator, LogIndex};
use crate::memory::residency::Cold;
use crate::memory::{Map, PinCounts, residency};
use crate::reads;

/// Index of the hashes of a segment.
pub(crate) enum Lookup {
    /// The writer is still adding.
    Active(ActiveTable),
    /// The section written at sealing: where it lies in the file.
    Sealed {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Homes in its header, once it was read.
        homes: OnceLock<u64>,
    },
    /// The heights are in a packed file.
    Packed(Arc<Packed>),
}

impl Lookup {
    fn sealed(offset: u64, length: u64) -> Self {
        Self::Sealed { offset, length, homes: OnceLock::new() }
    }
}

/// Maps a segment's file with nothing readable yet; also returns the bytes that it takes on disk.
fn map_file(path: &Path, header: &SegmentHeader) -> Result<(Map, u64), Error> {
    let map = || {
        let file = reads::open_regular(path)?;
        let map = Map::new(&file, header.capacity, INDEX_OFFSET, header.data_offset)?;
        Ok((map, reads::disk_bytes(&file)?))
    };
    reads::again(reads::is_disk_failure, map).map_err(|error| Error::read(path, error))
}

/// Returns zeros in place of the index of a packed segment: each slot says that no record is here, so code for
/// unpacked heights finds none. All packed segments share one map, because the kernel limits their number.
fn empty_slots() -> std::io::Result<Arc<Map>> {
    static EMPTY: OnceLock<Arc<Map>> = OnceLock::new();
    if let Some(map) = EMPTY.get() {
        return Ok(Arc::clone(map));
    }
    // Two threads may come here at once; the second map is dropped.
    let map = Arc::new(Map::zeros(INDEX_OFFSET, slot_offset(RANGE_BLOCKS_MAX))?);
    Ok(Arc::clone(EMPTY.get_or_init(|| map)))
}

/// A segment that can be read.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) map: Arc<Map>,
    places: PinCounts,
    pub(crate) lookup: Lookup,
    pub(crate) logs: LogIndex,
    /// Most records that are served. After a withdrawal they are fewer than the sealed ones in the map, until
    /// the file is rewritten.
    pub(crate) count_max: u32,
    /// Time of the newest block, once sealed; 0 if it is not known.
    pub(crate) last_timestamp: u64,
    /// Bytes that it takes on disk.
    pub(crate) disk_bytes: u64,
    /// Hash of the newest block, once sealed.
    pub(super) last_hash: Option<Hash>,
    /// Results of the records' checks. All readers of the file share them.
    pub(crate) checked: Checked,
}

impl Segment {
    /// Opens a sealed segment.
    pub(crate) fn open_sealed(
        path: &Path,
        header: SegmentHeader,
        seal: &Seal,
    ) -> Result<Self, Error> {
        let (map, disk_bytes) = map_file(path, &header)?;
        // All at once: a sealed file never changes.
        map.publish(slot_offset(seal.count), seal.end);
        Ok(Self::sealed(header, Arc::new(map), seal, disk_bytes))
    }

    pub(crate) fn sealed(
        header: SegmentHeader,
        map: Arc<Map>,
        seal: &Seal,
        disk_bytes: u64,
    ) -> Self {
        let section = seal.section(SECTION_HASHES).unwrap_or_default();
        let checked = Checked::new(header.slot_count);
        unreadable::note_in(&checked, &map, header);
        Self {
            header,
            map,
            places: PinCounts::new(),
            lookup: Lookup::sealed(section.offset, section.length),
            logs: LogIndex::of(seal),
            count_max: seal.count,
            last_timestamp: seal.last_timestamp,
            disk_bytes,
            last_hash: Some(seal.last_hash),
            checked,
        }
    }

    /// Makes a segment of the heights of a packed file.
    pub(crate) fn packed(opened: OpenedPacked) -> std::io::Result<Self> {
        let header = opened.segment_header();
        Ok(Self {
            header,
            map: empty_slots()?,
            places: PinCounts::new(),
            lookup: Lookup::Packed(opened.packed),
            logs: LogIndex::Absent,
            count_max: header.slot_count,
            last_timestamp: opened.last_timestamp,
            disk_bytes: opened.disk_bytes,
            last_hash: opened.last_hash,
            // Packed heights need no check by record: each frame has its own checksum, which a
            // read compares.
            checked: Checked::new(header.slot_count),
        })
    }

    /// Takes over the checks of records from `before`, which has the same records.
    pub(crate) fn with_checked(mut self, before: &Self) -> Self {
        self.checked = before.checked.clone();
        self
    }

    /// Maps a segment that is being written, with nothing committed yet.
    pub(crate) fn open_active(path: &Path, header: SegmentHeader) -> Result<Self, Error> {
        let (map, _) = map_file(path, &header)?;
        let checked = Checked::new(header.slot_count);
        unreadable::note_in(&checked, &map, header);
        Ok(Self {
            header,
            map: Arc::new(map),
            places: PinCounts::new(),
            lookup: Lookup::Active(ActiveTable::new()),
            logs: LogIndex::Active(ActiveLogs::new()),
            count_max: header.slot_count,
            last_timestamp: 0,
            disk_bytes: header.capacity,
            last_hash: None,
            checked,
        })
    }

    /// Returns the segment without its records from `count` on.
    pub(crate) fn cut(&self, count: u32) -> Self {
        let lookup = match &self.lookup {
            Lookup::Sealed { offset, length, .. } => Lookup::sealed(*offset, *length),
            Lookup::Active(_) => Lookup::sealed(0, 0), // findable again when the file is rewritten
            Lookup::Packed(packed) => Lookup::Packed(Arc::clone(packed)),
        };
        Self {
            header: self.header,
            map: Arc::clone(&self.map),
            places: PinCounts::new(),
            lookup,
            logs: self.logs.cut(),
            // The time stays, though it is that of a withdrawn block: retention needs one, and a
            // time that is too late evicts nothing too early.
            count_max: count,
            last_timestamp: self.last_timestamp,
            disk_bytes: self.disk_bytes,
            last_hash: None,
            checked: self.checked.clone(),
        }
    }

    pub(crate) fn base(&self) -> u64 {
        self.header.base_height
    }

    /// Committed records. What is below never changes; an acquire load.
    pub(crate) fn count(&self) -> u32 {
        // The watermark is the only record of the count: a count of its own could be ahead of the
        // slots or behind them.
        let slots = (self.map.first_end() - INDEX_OFFSET) / SLOT_LEN as u64;
        (slots as u32).min(self.count_max)
    }

    /// The height after the newest committed one.
    pub(crate) fn end_height(&self) -> u64 {
        self.base() + u64::from(self.count())
    }

    pub(crate) fn is_active(&self) -> bool {
        matches!(self.lookup, Lookup::Active(_))
    }

    /// True if the heights are in a packed file.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.lookup, Lookup::Packed(_))
    }

    /// The packed file with the heights, if they are in one.
    pub(crate) fn as_packed(&self) -> Option<&Packed> {
        match &self.lookup {
            Lookup::Packed(packed) => Some(packed),
            Lookup::Active(_) | Lookup::Sealed { .. } => None,
        }
    }

    /// Name of its file, unless that is unfinished.
    pub(crate) fn name(&self) -> String {
        if self.is_packed() { packed_name(self.base()) } else { segment_name(self.base()) }
    }

    /// The record at `height`, if committed here and intact. The slot's checksum is checked each
    /// time, at a few nanoseconds; the record's own at its first read, by a thread that may wait.
    pub(crate) fn record(&self, height: u64) -> Result<Option<RecordRef>, Cold> {
        match self.slot(height)? {
            Some((at, slot)) => self.intact(height, at, slot),
            None => self.unpack(height),
        }
    }

    /// The record at slot `at`, if it is not damaged.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as below")]
    pub(super) fn intact(
        &self,
        height: u64,
        at: u32,
        slot: Slot,
    ) -> Result<Option<RecordRef>, Cold> {
        if !self.checked.is_intact(at) && !self.check(at, &slot)? {
            return Ok(None);
        }
        Ok(Some(RecordRef { map: self.places.hold(&self.map), height, slot }))
    }

    /// Returns a record also if it is damaged: for a thread that may wait and does not serve it.
    pub(crate) fn peek(&self, height: u64) -> Option<RecordRef> {
        let Some((_, slot)) = self.slot(height).ok()? else {
            return self.unpack(height).ok().flatten();
        };
        Some(RecordRef { map: self.places.hold(&self.map), height, slot })
    }

    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "copying a slot is felt: a look-up is 700 instructions"
    )]
    pub(super) fn slot(&self, height: u64) -> Result<Option<(u32, Slot)>, Cold> {
        let Some((at, bytes)) = self.slot_bytes(height) else { return Ok(None) };
        let slot = residency::read_array(&self.map, bytes)?;
        let slot = match Slot::parse(&slot, height, self.header.capacity) {
            Ok(slot) => slot,
            Err(damage) => {
                self.note_bad_slot(at, damage);
                return Ok(None);
            }
        };
        // All of it must be below the watermark.
        let Some(end) = slot.end() else { return Ok(None) };
        if self.map.bytes(slot.offset..end).is_none() {
            return Ok(None);
        }
        Ok(Some((at, slot)))
    }

    /// Number and bytes of the slot of a height.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as above")]
    fn slot_bytes(&self, height: u64) -> Option<(u32, &[u8])> {
        let at = height.checked_sub(self.base()).filter(|at| *at < u64::from(self.count()))? as u32;
        let offset = slot_offset(at);
        Some((at, self.map.bytes(offset..offset + SLOT_LEN as u64)?))
    }

    /// The slots of a packed segment are zero: they lead here.
    #[cold]
    fn note_bad_slot(&self, at: u32, damage: FormatError) {
        if !self.is_packed() {
            self.checked.note_damaged(self.base(), at, damage);
        }
    }

    /// Unpacks a whole height, if it is in a packed file and intact: work for a thread that may wait.
    #[cold]
    fn unpack(&self, height: u64) -> Result<Option<RecordRef>, Cold> {
        self.unpacked(height, |packed| {
            residency::not_here()?;
            packed.record(height)
        })
    }

    /// Returns the record at `height` as [`Self::record`] does, to copy it. The hash of a packed one is made again.
    pub(crate) fn proven(&self, height: u64) -> Result<Option<RecordRef>, Cold> {
        if !self.is_packed() {
            return self.record(height);
        }
        self.unpacked(height, |packed| {
            residency::not_here()?;
            packed.proven(height)
        })
    }

    /// Compares the checksum of a record that was not read yet. A thread that must not wait leaves
    /// that to another one.
    #[cold]
    fn check(&self, at: u32, slot: &Slot) -> Result<bool, Cold> {
        if self.checked.is_damaged(at) {
            return Ok(false);
        }
        // A checksum reads the whole record, which takes long also if all of it is in memory.
        residency::not_here()?;
        let damage = match self.map.checksum(slot.offset, slot.length) {
            Ok(crc) if crc == slot.record_crc => {
                self.checked.note_intact(at);
                // Another thread may have found it damaged meanwhile.
                return Ok(self.checked.is_intact(at));
            }
            Ok(_) => "record fails its checksum",
            Err(_) => "record cannot be read",
        };
        self.checked.note_damaged(self.base(), at, damage);
        Ok(false)
    }

    /// Compares the checksum of a record that may have been read before, and notes the result. For a thread that may
    /// wait.
    pub(crate) fn is_intact_now(&self, height: u64) -> bool {
        let slot = self.slot(height).ok().flatten();
        slot.is_some_and(|(at, slot)| self.check(at, &slot) == Ok(true))
    }

    /// Heights whose record was found damaged.
    pub(crate) fn damaged(&self) -> impl Iterator<Item = u64> + '_ {
        let slots = (0..self.count()).filter(|at| self.checked.is_damaged(*at));
        slots.map(|at| self.base() + u64::from(at))
    }

    /// The first candidate for `hash` that `found` takes.
    pub(crate) fn find<T>(
        &self,
        hash: &Hash,
        found: impl FnMut(Locator) -> Option<Result<T, Cold>>,
    ) -> Option<Result<T, Cold>> {
        match &self.lookup {
            Lookup::Active(table) => table.find(hash, found),
            Lookup::Sealed { homes, .. } => match self.sealed_table(homes) {
                Ok(table) => table.find(hash, found),
                Err(cold) => Some(Err(cold)),
            },
            Lookup::Packed(packed) => self.find_packed(packed, hash, found),
        }
    }

    pub(crate) fn first_prefix(&self, hash: &Hash) -> Result<u64, Cold> {
        match &self.lookup {
            // Only sealed tables are searched in two steps: their first places are loaded together.
            Lookup::Active(_) | Lookup::Packed(_) => Ok(0),
            Lookup::Sealed { homes, .. } => self.sealed_table(homes)?.first_prefix(hash),
        }
    }

    #[cold]
    fn find_packed<T>(
        &self,
        packed: &Packed,
        hash: &Hash,
        found: impl FnMut(Locator) -> Option<Result<T, Cold>>,
    ) -> Option<Result<T, Cold>> {
        packed.find(hash, found).unwrap_or_else(|damage| {
            // Cold is no damage: another thread reads it.
            if let Err(cold) = damage.unless_cold() {
                return Some(Err(cold));
            }
            self.checked.note_sections(self.base(), &damage.to_string());
            None
        })
    }

    /// The sealed hash table; empty for an active or a packed segment.
    pub(crate) fn table(&self) -> Result<Table<'_>, Cold> {
        match &self.lookup {
            Lookup::Active(_) | Lookup::Packed(_) => Ok(Table::new(&[])),
            Lookup::Sealed { homes, .. } => self.sealed_table(homes),
        }
    }

    fn sealed_table<'s>(&'s self, homes: &OnceLock<u64>) -> Result<Table<'s>, Cold> {
        Table::remembered(&self.map, self.table_bytes(), homes)
    }

    /// Bytes of the sealed hash table; none for an active segment.
    pub(crate) fn table_bytes(&self) -> &[u8] {
        match self.lookup {
            Lookup::Sealed { offset, length, .. } => {
                self.map.bytes(offset..offset.saturating_add(length)).unwrap_or_default()
            }
            Lookup::Active(_) | Lookup::Packed(_) => &[],
        }
    }
}
