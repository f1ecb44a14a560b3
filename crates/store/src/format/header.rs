//! The creation sector of a segment file.

use super::bytes::{
    FormatError, HEIGHT_MAX, OTHER_VERSION, PAGE, SLOT_COUNT_MAX, VERSION, array, le_u32, le_u64,
    put,
};
use super::slot::slot_offset;
use crate::id::{Hash, Identity};

const SEGMENT_MAGIC: [u8; 8] = *b"neveseg\0";
// The creation sector.
const SLOT_COUNT_AT: usize = 8 + 4;
const BASE_AT: usize = SLOT_COUNT_AT + 4;
const CHAIN_AT: usize = BASE_AT + 8;
const GENESIS_AT: usize = CHAIN_AT + 8;
const DATA_AT: usize = GENESIS_AT + 32;
const CAPACITY_AT: usize = DATA_AT + 8;
const CREATION_CRC_AT: usize = CAPACITY_AT + 8;
pub(super) const CREATION_LEN: usize = CREATION_CRC_AT + 4;
const _: () = assert!(CREATION_LEN == 84, "it ends before the seal sector");

/// A segment's creation sector, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) slot_count: u32,
    pub(crate) base_height: u64,
    pub(crate) identity: Identity,
    pub(crate) data_offset: u64,
    pub(crate) capacity: u64,
}

impl SegmentHeader {
    /// A segment of `slot_count` slots whose records may take `data_bytes`.
    pub(crate) fn new(
        identity: Identity,
        base_height: u64,
        slot_count: u32,
        data_bytes: u64,
    ) -> Self {
        let data_offset = slot_offset(slot_count);
        let capacity = (data_offset + data_bytes).next_multiple_of(PAGE as u64);
        Self { slot_count, base_height, identity, data_offset, capacity }
    }

    pub(crate) fn to_bytes(self) -> [u8; CREATION_LEN] {
        let mut bytes = [0; CREATION_LEN];
        put(&mut bytes, 0, SEGMENT_MAGIC);
        put(&mut bytes, 8, VERSION.to_le_bytes());
        put(&mut bytes, SLOT_COUNT_AT, self.slot_count.to_le_bytes());
        put(&mut bytes, BASE_AT, self.base_height.to_le_bytes());
        put(&mut bytes, CHAIN_AT, self.identity.chain_id.to_le_bytes());
        put(&mut bytes, GENESIS_AT, self.identity.genesis.0);
        put(&mut bytes, DATA_AT, self.data_offset.to_le_bytes());
        put(&mut bytes, CAPACITY_AT, self.capacity.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..CREATION_CRC_AT]);
        put(&mut bytes, CREATION_CRC_AT, crc.to_le_bytes());
        bytes
    }

    /// Checks a header page's creation sector; the geometry is trusted afterwards.
    pub(crate) fn parse(page: &[u8; PAGE]) -> Result<Self, FormatError> {
        if page[..8] != SEGMENT_MAGIC {
            return Err("not a segment file: wrong magic");
        }
        if le_u32(page, CREATION_CRC_AT) != crc32fast::hash(&page[..CREATION_CRC_AT]) {
            return Err("segment header fails its checksum");
        }
        // After the checksum: a version that cannot be trusted would send the operator astray.
        if le_u32(page, 8) != VERSION {
            return Err(OTHER_VERSION);
        }
        let header = Self {
            slot_count: le_u32(page, SLOT_COUNT_AT),
            base_height: le_u64(page, BASE_AT),
            identity: Identity {
                chain_id: le_u64(page, CHAIN_AT),
                genesis: Hash(array(page, GENESIS_AT)),
            },
            data_offset: le_u64(page, DATA_AT),
            capacity: le_u64(page, CAPACITY_AT),
        };
        header.check_geometry().map(|()| header)
    }

    fn check_geometry(&self) -> Result<(), FormatError> {
        let good = (1..=SLOT_COUNT_MAX).contains(&self.slot_count)
            && self.base_height <= HEIGHT_MAX
            && self.data_offset == slot_offset(self.slot_count)
            && self.capacity >= self.data_offset;
        if good { Ok(()) } else { Err("segment header has impossible geometry") }
    }
}
