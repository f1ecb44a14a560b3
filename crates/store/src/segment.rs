//! The read side of one segment, active or sealed.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::error::Error;
use crate::format::{
    self, Damage, Encoding, HEAD_LEN, INDEX_OFFSET, PAGE, PARTS_MAX, RecordHead, SECTION_HASHES,
    SLOT_LEN, Seal, SegmentHeader, Slot, Terms, slot_offset,
};
use crate::hashes::{ActiveTable, Locator};
use crate::held::{Held, Places};
use crate::log_index::{ActiveLogs, LogIndex};
use crate::map::Map;
use crate::record::Hash;
use crate::residency::{self, look};
use crate::table::Table;

const SUFFIX: &str = ".seg";
/// What is written aside and renamed when complete; `open` removes leftovers.
pub(crate) const UNFINISHED: &str = ".new";

/// The file name of the segment whose first slot is for `base_height`.
pub(crate) fn segment_name(base_height: u64) -> String {
    format!("{base_height:020}{SUFFIX}")
}

/// The base height in a segment's file name; `None` if it is no such name.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let well_formed = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if well_formed { digits.parse().ok() } else { None }
}

/// How hashes are found in a segment.
pub(crate) enum Lookup {
    /// The writer is still adding.
    Active(ActiveTable),
    /// The section written at sealing: where it lies in the file.
    Sealed {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// What its head says, once it was read.
        homes: OnceLock<u64>,
    },
}

impl Lookup {
    fn sealed(offset: u64, length: u64) -> Self {
        Self::Sealed { offset, length, homes: OnceLock::new() }
    }
}

/// A segment that can be read.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) map: Arc<Map>,
    places: Places,
    pub(crate) lookup: Lookup,
    pub(crate) logs: LogIndex,
    /// At most so many records are served, whatever the map has: less than sealed after a
    /// withdrawal, until the file is rewritten.
    pub(crate) count_max: u32,
    /// Time of the newest block, once sealed.
    pub(crate) last_timestamp: u64,
    /// Bytes that it takes on disk.
    pub(crate) disk_bytes: u64,
}

impl Segment {
    /// Opens a sealed segment.
    pub(crate) fn open_sealed(
        path: &Path,
        header: SegmentHeader,
        seal: &Seal,
    ) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::read(path, error))?;
        let map = Map::new(&file, header.capacity, INDEX_OFFSET, header.data_offset)
            .map_err(|error| Error::read(path, error))?;
        map.publish(slot_offset(seal.count), seal.end);
        let disk_bytes = disk_bytes(&file).map_err(|error| Error::read(path, error))?;
        Ok(Self::sealed(header, Arc::new(map), seal, disk_bytes))
    }

    pub(crate) fn sealed(
        header: SegmentHeader,
        map: Arc<Map>,
        seal: &Seal,
        disk_bytes: u64,
    ) -> Self {
        let section = seal.section(SECTION_HASHES).unwrap_or_default();
        Self {
            header,
            map,
            places: Places::new(),
            lookup: Lookup::sealed(section.offset, section.length),
            logs: LogIndex::of(seal),
            count_max: seal.count,
            last_timestamp: seal.last_timestamp,
            disk_bytes,
        }
    }

    /// Maps a segment that is being written, with nothing committed yet.
    pub(crate) fn open_active(path: &Path, header: SegmentHeader) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::read(path, error))?;
        let map = Map::new(&file, header.capacity, INDEX_OFFSET, header.data_offset)
            .map_err(|error| Error::read(path, error))?;
        Ok(Self {
            header,
            map: Arc::new(map),
            places: Places::new(),
            lookup: Lookup::Active(ActiveTable::new()),
            logs: LogIndex::Active(ActiveLogs::new()),
            count_max: header.span,
            last_timestamp: 0,
            disk_bytes: header.capacity,
        })
    }

    /// The same segment without its records from `count` on.
    pub(crate) fn cut(&self, count: u32) -> Self {
        let (offset, length) = match self.lookup {
            Lookup::Sealed { offset, length, .. } => (offset, length),
            Lookup::Active(_) => (0, 0), // findable again when the file is rewritten
        };
        Self {
            header: self.header,
            map: Arc::clone(&self.map),
            places: Places::new(),
            lookup: Lookup::sealed(offset, length),
            logs: self.logs.cut(),
            count_max: count,
            last_timestamp: self.last_timestamp,
            disk_bytes: self.disk_bytes,
        }
    }

    pub(crate) fn base(&self) -> u64 {
        self.header.base_height
    }

    /// Committed records. What is below never changes; an acquire load.
    pub(crate) fn count(&self) -> u32 {
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

    /// The record at `height`, if committed here. The slot's checksum is checked each time, at
    /// a few nanoseconds: opening believes a sealed segment's index, and a damaged slot must
    /// lead to a miss and not to another block's bytes.
    pub(crate) fn record(&self, height: u64) -> Option<RecordRef> {
        let at = height.checked_sub(self.base()).filter(|at| *at < u64::from(self.count()))?;
        let offset = slot_offset(at as u32);
        let slot = self.map.bytes(offset..offset + SLOT_LEN as u64)?;
        let slot = residency::read_array(&self.map, slot)?;
        let slot = Slot::parse(&slot, height, self.header.capacity).ok()?;
        self.map.bytes(slot.offset..slot.end()?)?; // all of it below the watermark
        Some(RecordRef { map: self.places.hold(&self.map), height, slot })
    }

    /// The first candidate for `hash` that `found` takes.
    pub(crate) fn find<T>(
        &self,
        hash: &Hash,
        found: impl FnMut(Locator) -> Option<T>,
    ) -> Option<T> {
        match &self.lookup {
            Lookup::Active(table) => table.find(hash, found),
            Lookup::Sealed { homes, .. } => {
                Table::remembered(&self.map, self.table_bytes(), homes).find(hash, found)
            }
        }
    }

    pub(crate) fn first_prefix(&self, hash: &Hash) -> u64 {
        match &self.lookup {
            Lookup::Active(_) => 0,
            Lookup::Sealed { homes, .. } => {
                Table::remembered(&self.map, self.table_bytes(), homes).first_prefix(hash)
            }
        }
    }

    /// The sealed hash table; empty for an active segment.
    pub(crate) fn table_bytes(&self) -> &[u8] {
        match self.lookup {
            Lookup::Sealed { offset, length, .. } => {
                self.map.bytes(offset..offset.saturating_add(length)).unwrap_or_default()
            }
            Lookup::Active(_) => &[],
        }
    }
}

/// Blocks of the file system that a file takes, in bytes.
pub(crate) fn disk_bytes(file: &File) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.blocks() * 512)
}

/// A segment file's header page, read and checked.
pub(crate) enum Opened {
    /// It is sealed.
    Sealed(SegmentHeader, Seal),
    /// It is not: its records must be walked.
    Active(SegmentHeader),
    /// It cannot be believed.
    Damaged(Damage),
}

/// Reads the header page of the segment file at `path`, named for `base_height`.
pub(crate) fn inspect(path: &Path, base_height: u64) -> Result<Opened, Error> {
    let mut page = [0; PAGE];
    let len = match read_page(path, &mut page) {
        Ok(len) => len,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Ok(Opened::Damaged("segment file is shorter than its header"));
        }
        Err(source) => return Err(Error::Read { path: PathBuf::from(path), source }),
    };
    Ok(inspect_page(&page, base_height, len))
}

fn read_page(path: &Path, page: &mut [u8; PAGE]) -> std::io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path)?;
    file.read_exact_at(page, 0)?;
    Ok(file.metadata()?.len())
}

fn inspect_page(page: &[u8; PAGE], base_height: u64, len: u64) -> Opened {
    let header = match SegmentHeader::parse(page) {
        Ok(header) => header,
        Err(damage) => return Opened::Damaged(damage),
    };
    if header.base_height != base_height {
        return Opened::Damaged("segment header has another height than the file name");
    }
    if header.capacity != len {
        return Opened::Damaged("segment file has another length than its header says");
    }
    match Seal::parse(page, &header) {
        Ok(Some(seal)) => Opened::Sealed(header, seal),
        // A seal that is not whole was being written, or is damaged: the records will tell.
        Ok(None) | Err(_) => Opened::Active(header),
    }
}

/// A committed record. It keeps its segment mapped, evicted or not.
#[derive(Clone)]
pub struct RecordRef {
    map: Arc<Held>,
    height: u64,
    slot: Slot,
}

impl RecordRef {
    /// Its height.
    pub fn height(&self) -> u64 {
        self.height
    }

    /// The caller's bits.
    pub fn flags(&self) -> u32 {
        self.slot.flags
    }

    /// Bytes that the record takes in its segment, without padding.
    pub fn stored_len(&self) -> u64 {
        self.slot.length.into()
    }

    /// CRC-32 of the record as stored, made when it was written: records with different bytes have
    /// different ones, but for one pair in 2^32 and for those who want them to agree.
    pub fn checksum(&self) -> u32 {
        self.slot.record_crc
    }

    /// Part `at` of the record; empty if it was stored without one.
    pub fn part(&self, at: usize) -> PartRef {
        self.clone().into_part(at)
    }

    /// The same, with the record's hold on its segment.
    pub fn into_part(self, at: usize) -> PartRef {
        let (offset, len, encoding) = self.place(at);
        PartRef { slice: SegmentSlice { map: self.map, offset, len }, encoding }
    }

    /// The bytes of part `at` and what they are, unless they cannot be read now.
    pub fn read_part(&self, at: usize) -> Option<(Cow<'_, [u8]>, Encoding)> {
        let (offset, len, encoding) = self.place(at);
        let bytes = self.map.bytes(offset..offset + u64::from(len))?;
        Some((residency::read(&self.map, bytes)?, encoding))
    }

    /// Where part `at` begins, how long it is, and what it is.
    fn place(&self, at: usize) -> (u64, u32, Encoding) {
        let encoding = self.slot.encodings.get(at).copied().unwrap_or_default();
        let at = at.min(PARTS_MAX - 1);
        let offset = self.slot.offset + u64::from(self.slot.bounds[at]);
        (offset, self.slot.bounds[at + 1].saturating_sub(self.slot.bounds[at]), encoding)
    }

    /// The block's hash.
    pub fn hash(&self) -> Hash {
        self.head().hash
    }

    /// The parent's hash.
    pub fn parent(&self) -> Hash {
        self.head().parent
    }

    /// The block's time, seconds since 1970.
    pub fn timestamp(&self) -> u64 {
        self.head().timestamp
    }

    /// How many transactions it has.
    pub fn transaction_count(&self) -> u32 {
        self.head().transactions
    }

    /// The hash of transaction `at`.
    pub fn transaction(&self, at: usize) -> Option<Hash> {
        let count = self.head().transactions as usize;
        let (from, end) = (format::head_len(at, 0), format::head_len(at + 1, 0));
        let hash = (at < count).then(|| self.start(end)?.get(from..end))??;
        Some(Hash(residency::read_array(&self.map, hash)?))
    }

    /// How many logs it has.
    pub fn log_count(&self) -> u32 {
        self.head().logs
    }

    /// The terms of its logs, in order; none if they cannot be read now.
    pub fn terms(&self) -> impl Iterator<Item = Terms> + '_ {
        let head = self.head();
        format::all_terms(self.head_bytes().unwrap_or_default(), &head)
    }

    /// The whole record as stored.
    pub(crate) fn bytes(&self) -> &[u8] {
        let end = self.slot.offset + u64::from(self.slot.length);
        self.map.bytes(self.slot.offset..end).expect("`Segment::record` looked")
    }

    /// Touches what is before the parts: hashes, and the terms of logs.
    pub fn load_head(&self) {
        touch(self.head_bytes().unwrap_or_default());
    }

    /// What is before the parts, unless that must not be touched now.
    fn head_bytes(&self) -> Option<&[u8]> {
        self.start(self.slot.bounds[0] as usize).filter(|start| look(start))
    }

    /// The first `len` bytes of it, which were not looked at.
    fn start(&self, len: usize) -> Option<&[u8]> {
        let len = u64::from(self.slot.bounds[0]).min(len as u64);
        self.map.bytes(self.slot.offset..self.slot.offset + len)
    }

    pub(crate) fn head(&self) -> RecordHead {
        let bytes = self.start(HEAD_LEN).expect("a checked slot leaves room for a head");
        // If it cannot be read now, whoever asks is going to drop it: see `if_resident`.
        let bytes = residency::read_array::<HEAD_LEN>(&self.map, bytes);
        bytes.and_then(|bytes| RecordHead::read(&bytes)).unwrap_or_default()
    }
}

/// Waits until all pages of mapped bytes are in memory.
fn touch(bytes: &[u8]) {
    let touched = bytes.iter().step_by(rustix::param::page_size()).chain(bytes.last());
    std::hint::black_box(touched.fold(0, |all, byte| all ^ byte));
}

/// A part of a committed record.
pub struct PartRef {
    /// Its bytes as stored.
    pub slice: SegmentSlice,
    /// What they are.
    pub encoding: Encoding,
}

/// Bytes inside a mapped segment; they stay valid as long as this value lives.
#[derive(Clone)]
pub struct SegmentSlice {
    map: Arc<Held>,
    offset: u64,
    len: u32,
}

impl SegmentSlice {
    /// The bytes `from..to` of this slice, cut to its length.
    #[must_use]
    pub fn slice(&self, from: u32, to: u32) -> Self {
        self.clone().into_slice(from, to)
    }

    /// The same in its place.
    #[must_use]
    pub fn into_slice(self, from: u32, to: u32) -> Self {
        let to = to.min(self.len);
        let from = from.min(to);
        Self { map: self.map, offset: self.offset + u64::from(from), len: to - from }
    }

    /// Takes `next` in, if it begins behind this slice with just the byte `between` in front of it.
    #[must_use]
    pub fn join(&mut self, between: u8, next: &Self) -> bool {
        let end = self.offset + u64::from(self.len);
        let Some(len) = self.len.checked_add(1).and_then(|len| len.checked_add(next.len)) else {
            return false;
        };
        let joins = next.offset == end + 1
            && self.map.same(&next.map)
            && self.map.bytes(end..end + 1) == Some(&[between]);
        if joins {
            self.len = len;
        }
        joins
    }

    /// Whether its bytes may be touched where [`residency`] is minded.
    pub fn look(&self) -> bool {
        self.look_in(0..self.len())
    }

    /// The same of some of its bytes.
    pub fn look_in(&self, range: Range<usize>) -> bool {
        look(&self.as_ref()[range])
    }

    /// Whether they may be sent, by copies where [`residency::pages_go`].
    pub fn look_to_send(&self) -> bool {
        residency::look_to_send(self.as_ref())
    }

    /// Copies some of its bytes, if those are in memory, to be sent: without touching them where
    /// [`residency::pages_go`].
    pub fn copy_in(&self, range: Range<usize>, into: &mut [u8]) -> bool {
        residency::copy_to_send(&self.map, &self.as_ref()[range], into)
    }

    /// Touches every page, which waits until all are in memory.
    pub fn load(&self) {
        self.load_in(0..self.len());
    }

    /// The same of some of its bytes.
    pub fn load_in(&self, range: Range<usize>) {
        touch(&self.as_ref()[range]);
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl AsRef<[u8]> for SegmentSlice {
    fn as_ref(&self) -> &[u8] {
        self.map
            .bytes(self.offset..self.offset + u64::from(self.len))
            .expect("a slice is made of committed bytes only")
    }
}

impl std::fmt::Debug for SegmentSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SegmentSlice({} bytes at {})", self.len, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        assert_eq!(segment_name(7), "00000000000000000007.seg");
        assert_eq!(parse_segment_name(&segment_name(u64::MAX)), Some(u64::MAX));
        for bad in [
            "7.seg",
            "0000000000000000000+.seg",
            "00000000000000000007.idx",
            ".seg",
            "",
            "99999999999999999999.seg",
            "00000000000000000007.seg.new",
        ] {
            assert_eq!(parse_segment_name(bad), None, "{bad}");
        }
    }
}
