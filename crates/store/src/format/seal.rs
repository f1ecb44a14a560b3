//! The seal sector: that a segment is final, and which sections follow its records.

use super::bytes::{FormatError, PAGE, array, le_u32, le_u64, put};
use super::header::{CREATION_LEN, SegmentHeader};
use crate::id::Hash;

/// The seal has a sector of its own, so that writing it cannot tear the header.
pub(crate) const SEAL_OFFSET: usize = 512;
const SEAL_MAGIC: [u8; 8] = *b"sealed\0\0";

// The seal sector, relative to SEAL_OFFSET.
const COUNT_AT: usize = 8;
const SECTION_COUNT_AT: usize = COUNT_AT + 4;
const DATA_END_AT: usize = SECTION_COUNT_AT + 4;
const LAST_TIME_AT: usize = DATA_END_AT + 8;
const END_AT: usize = LAST_TIME_AT + 8;
const LAST_HASH_AT: usize = END_AT + 8;
const SECTIONS_AT: usize = LAST_HASH_AT + 32;
const SEAL_CRC_AT: usize = SECTIONS_AT + SECTIONS_MAX * SECTION_LEN;
pub(crate) const SEAL_LEN: usize = SEAL_CRC_AT + 4;
const _: () =
    assert!(SEAL_LEN == 204 && SEAL_LEN <= 512, "a sector is written whole or not at all");
/// Kinds that there is space for: two are in use.
const SECTIONS_MAX: usize = 4;
const SECTION_LEN: usize = 32;

/// Bytes of a header page that are zero whatever the state.
pub(crate) const HEADER_RESERVED: [std::ops::Range<usize>; 2] =
    [CREATION_LEN..SEAL_OFFSET, SEAL_OFFSET + SEAL_LEN..PAGE];

/// Kind of a section.
pub(crate) const SECTION_HASHES: u32 = 1;
pub(crate) const SECTION_LOGS: u32 = 2;

/// An entry of the seal sector's section table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Section {
    pub(crate) kind: u32,
    pub(crate) encoding: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) crc: u32,
}

impl Section {
    fn write(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.kind.to_le_bytes());
        put(bytes, 4, self.encoding.to_le_bytes());
        put(bytes, 8, self.offset.to_le_bytes());
        put(bytes, 16, self.length.to_le_bytes());
        put(bytes, 24, self.crc.to_le_bytes());
    }

    fn parse(bytes: &[u8]) -> Self {
        Self {
            kind: le_u32(bytes, 0),
            encoding: le_u32(bytes, 4),
            offset: le_u64(bytes, 8),
            length: le_u64(bytes, 16),
            crc: le_u32(bytes, 24),
        }
    }
}

/// A segment's seal sector, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seal {
    pub(crate) count: u32,
    pub(crate) data_end: u64,
    /// Time of the newest block; 0 if it is not known.
    pub(crate) last_timestamp: u64,
    pub(crate) end: u64,
    pub(crate) last_hash: Hash,
    pub(crate) sections: Vec<Section>,
}

impl Seal {
    pub(crate) fn to_bytes(&self) -> [u8; SEAL_LEN] {
        debug_assert!(self.sections.len() <= SECTIONS_MAX);
        let mut bytes = [0; SEAL_LEN];
        put(&mut bytes, 0, SEAL_MAGIC);
        put(&mut bytes, COUNT_AT, self.count.to_le_bytes());
        put(&mut bytes, SECTION_COUNT_AT, (self.sections.len() as u32).to_le_bytes());
        put(&mut bytes, DATA_END_AT, self.data_end.to_le_bytes());
        put(&mut bytes, LAST_TIME_AT, self.last_timestamp.to_le_bytes());
        put(&mut bytes, END_AT, self.end.to_le_bytes());
        put(&mut bytes, LAST_HASH_AT, self.last_hash.0);
        let table = bytes[SECTIONS_AT..SEAL_CRC_AT].chunks_exact_mut(SECTION_LEN);
        self.sections.iter().zip(table).for_each(|(section, bytes)| section.write(bytes));
        let crc = crc32fast::hash(&bytes[..SEAL_CRC_AT]);
        put(&mut bytes, SEAL_CRC_AT, crc.to_le_bytes());
        bytes
    }

    /// Checks a header page's seal sector. `None`: all zero, the segment is active.
    pub(crate) fn parse(
        page: &[u8; PAGE],
        header: &SegmentHeader,
    ) -> Result<Option<Self>, FormatError> {
        let bytes = &page[SEAL_OFFSET..SEAL_OFFSET + SEAL_LEN];
        // Never written: the segment is active, or was when neve stopped.
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if bytes[..8] != SEAL_MAGIC
            || le_u32(bytes, SEAL_CRC_AT) != crc32fast::hash(&bytes[..SEAL_CRC_AT])
        {
            return Err("seal sector fails its checksum");
        }
        let seal = Self::of(bytes);
        seal.check_geometry(header).map(|()| Some(seal))
    }

    /// Fields of a seal sector.
    fn of(bytes: &[u8]) -> Self {
        let sections = (le_u32(bytes, SECTION_COUNT_AT) as usize).min(SECTIONS_MAX);
        let table = bytes[SECTIONS_AT..SEAL_CRC_AT].chunks_exact(SECTION_LEN);
        Self {
            count: le_u32(bytes, COUNT_AT),
            data_end: le_u64(bytes, DATA_END_AT),
            last_timestamp: le_u64(bytes, LAST_TIME_AT),
            end: le_u64(bytes, END_AT),
            last_hash: Hash(array(bytes, LAST_HASH_AT)),
            sections: table.take(sections).map(Section::parse).collect(),
        }
    }

    fn check_geometry(&self, header: &SegmentHeader) -> Result<(), FormatError> {
        let inside = |section: &Section| {
            section.offset >= self.data_end
                && section.offset.checked_add(section.length).is_some_and(|end| end <= self.end)
        };
        // A file from a mirror source may be forged: a right checksum is no right place.
        let good = (1..=header.slot_count).contains(&self.count)
            && (header.data_offset..=self.end).contains(&self.data_end)
            && self.end <= header.capacity
            && self.sections.iter().all(inside);
        if good { Ok(()) } else { Err("seal sector has impossible geometry") }
    }

    pub(crate) fn section(&self, kind: u32) -> Option<Section> {
        self.sections.iter().find(|section| section.kind == kind).copied()
    }
}
