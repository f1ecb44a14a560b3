//! A slot of the height index.

use std::sync::LazyLock;

use crc32fast::Hasher;

use super::bytes::{
    ALIGN, Encoding, FormatError, HASHES_MAX, PAGE, PARTS_MAX, le_u32, le_u64, put,
};
use super::record::{HEADER_LEN, RecordHeader, header_len};

pub(crate) const INDEX_OFFSET: u64 = PAGE as u64;
pub(crate) const SLOT_LEN: usize = 64;
const BOUNDS_AT: usize = 16;
const ENCODINGS_AT: usize = BOUNDS_AT + 4 * (PARTS_MAX + 1);
const FLAGS_AT: usize = ENCODINGS_AT + PARTS_MAX + 1;
const SLOT_CRC_AT: usize = FLAGS_AT + 4;
const _: () = assert!(SLOT_CRC_AT + 4 == SLOT_LEN, "a slot is one cache line");

/// Offset of slot `slot` in a segment.
pub(crate) fn slot_offset(slot: u32) -> u64 {
    INDEX_OFFSET + u64::from(slot) * SLOT_LEN as u64
}

/// A slot of the height index: the place of a record and of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) record_crc: u32,
    /// Place where part i begins and ends, relative to `offset`: `bounds[i]..bounds[i + 1]`.
    pub(crate) bounds: [u32; PARTS_MAX + 1],
    pub(crate) encodings: [Encoding; PARTS_MAX],
    pub(crate) flags: u32,
}

/// Begin of each checksum.
static HASHER: LazyLock<Hasher> = LazyLock::new(Hasher::new);

impl Slot {
    pub(crate) fn to_bytes(self, height: u64) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        put(&mut bytes, 0, self.offset.to_le_bytes());
        put(&mut bytes, 8, self.length.to_le_bytes());
        put(&mut bytes, 12, self.record_crc.to_le_bytes());
        for (at, bound) in self.bounds.iter().enumerate() {
            put(&mut bytes, BOUNDS_AT + 4 * at, bound.to_le_bytes());
        }
        for (at, encoding) in self.encodings.iter().enumerate() {
            bytes[ENCODINGS_AT + at] = encoding.code();
        }
        put(&mut bytes, FLAGS_AT, self.flags.to_le_bytes());
        let crc = Self::crc(&bytes, height);
        put(&mut bytes, SLOT_CRC_AT, crc.to_le_bytes());
        bytes
    }

    /// The height is part of the checksum, so that a slot in the wrong place is not believed.
    fn crc(bytes: &[u8; SLOT_LEN], height: u64) -> u32 {
        // A copy: to make one asks the processor what it can.
        let mut crc = HASHER.clone();
        crc.update(&height.to_le_bytes());
        crc.update(&bytes[..SLOT_CRC_AT]);
        crc.finalize()
    }

    fn read(bytes: &[u8; SLOT_LEN]) -> Self {
        Self {
            offset: le_u64(bytes, 0),
            length: le_u32(bytes, 8),
            record_crc: le_u32(bytes, 12),
            bounds: std::array::from_fn(|at| le_u32(bytes, BOUNDS_AT + 4 * at)),
            encodings: std::array::from_fn(|at| Encoding::from_code(bytes[ENCODINGS_AT + at])),
            flags: le_u32(bytes, FLAGS_AT),
        }
    }

    /// Checks a slot against the limits of its segment.
    pub(crate) fn parse(
        bytes: &[u8; SLOT_LEN],
        height: u64,
        limit: u64,
    ) -> Result<Self, FormatError> {
        if le_u32(bytes, SLOT_CRC_AT) != Self::crc(bytes, height) {
            return Err("index slot fails its checksum");
        }
        let slot = Self::read(bytes);
        // A file from a mirror source may be forged: a right checksum is no right place.
        let good = slot.end().is_some_and(|end| end <= limit)
            && slot.offset.is_multiple_of(ALIGN)
            && slot.bounds[0] as usize >= HEADER_LEN
            && slot.bounds.is_sorted()
            && slot.bounds[PARTS_MAX] == slot.length;
        if good { Ok(slot) } else { Err("index slot has impossible geometry") }
    }

    /// First byte after the record; `None` when it overflows.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.length))
    }
}

impl RecordHeader {
    /// True if the head fits the slot that led to it.
    pub(crate) fn fits(&self, height: u64, slot: &Slot) -> bool {
        self.height == height
            && u64::from(self.transactions) <= HASHES_MAX
            && header_len(self.transactions as usize, self.logs as usize) == slot.bounds[0] as usize
    }
}
