//! The bytes of a segment file and their codec. `docs/FORMAT.md` says the same in prose.
//!
//! ```text
//! segment file, `capacity` bytes long from creation to removal
//!   0               header page: creation sector at 0, seal sector at 512, zero up to 4096
//!   INDEX_OFFSET    `span` slots of 64 bytes, slot i for height base_height + i
//!   data_offset     records in height order, each at a multiple of 8, zero between them
//!   (sealed only)   sections, each at a multiple of 8: the hash table, the index of logs
//!   end             unused; a hole once sealed
//!
//! creation sector            seal sector (all zero while active)     slot
//!    0  magic "neveseg\0"     512  magic "sealed\0\0"                  0  record offset    u64
//!    8  version          u32  520  record count             u32        8  record length    u32
//!   12  span             u32  524  section count            u32       12  record crc32     u32
//!   16  base height      u64  528  end of records           u64       16  part bounds   8 * u32
//!   24  chain id         u64  536  time of the last block   u64       48  part encodings 7 * u8
//!   32  genesis hash    [32]  544  end of sections          u64       55  zero              u8
//!   64  data offset      u64  552  hash of the last block  [32]       56  caller's flags   u32
//!   72  capacity         u64  584  section table     4 * 32           60  crc32 of the height
//!   80  crc32 of 0..80   u32  712  crc32 of 512..712        u32           and of 0..60     u32
//!
//! section table entry        record head
//!    0  kind             u32    0  height                u64
//!    4  encoding         u32    8  time                  u64
//!    8  offset           u64   16  block hash           [32]
//!   16  length           u64   48  parent hash          [32]
//!   24  crc32            u32   80  transaction count     u32
//!   28  zero             u32   84  log count             u32
//!                              88  transaction hashes  [32]*
//!                                  terms of the logs  5 * u64 *
//! ```
//!
//! Integers are little-endian. Bytes called zero are zero, and `verify` looks.

use crate::record::{Hash, Record};
use crate::stamp::Identity;

/// Parts that a record can have.
pub const PARTS_MAX: usize = 7;
/// Transactions that a record can have: a position takes 16 bits of a hash table entry.
pub const HASHES_MAX: u64 = 0xfffe;
/// Terms that a log can have.
pub const TERMS_MAX: usize = 5;
/// What a log is found by: keys of the caller's, 0 where there is none. The store only compares
/// them.
pub type Terms = [u64; TERMS_MAX];
/// Bytes that a record can have. Mainnet's largest are below 2 MiB; this bounds what a reader
/// trusts a length for.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;
/// Slots that a segment can have, which bounds the memory that opening takes.
pub const SPAN_MAX: u32 = 1 << 20;
/// The greatest height: it shares 64 bits of a hash table entry with a position.
pub(crate) const HEIGHT_MAX: u64 = (1 << 47) - 1;

/// Of segment files. A file of another one is not opened.
pub const VERSION: u32 = 1;
pub(crate) const PAGE: usize = 4096;
pub(crate) const ALIGN: u64 = 8;
pub(crate) const INDEX_OFFSET: u64 = PAGE as u64;
pub(crate) const SEAL_OFFSET: usize = 512;

const SEGMENT_MAGIC: [u8; 8] = *b"neveseg\0";
const SEAL_MAGIC: [u8; 8] = *b"sealed\0\0";

// The creation sector.
const SPAN_AT: usize = 8 + 4;
const BASE_AT: usize = SPAN_AT + 4;
const CHAIN_AT: usize = BASE_AT + 8;
const GENESIS_AT: usize = CHAIN_AT + 8;
const DATA_AT: usize = GENESIS_AT + 32;
const CAPACITY_AT: usize = DATA_AT + 8;
const CREATION_CRC_AT: usize = CAPACITY_AT + 8;
const CREATION_LEN: usize = CREATION_CRC_AT + 4;
const _: () = assert!(CREATION_LEN == 84 && CREATION_LEN <= SEAL_OFFSET);

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

/// Where slot `slot` of a segment lies.
pub(crate) fn slot_offset(slot: u32) -> u64 {
    INDEX_OFFSET + u64::from(slot) * SLOT_LEN as u64
}

/// Bytes of a header page that are zero whatever the state.
pub(crate) const HEADER_RESERVED: [std::ops::Range<usize>; 2] =
    [CREATION_LEN..SEAL_OFFSET, SEAL_OFFSET + SEAL_LEN..PAGE];

const SECTIONS_MAX: usize = 4;
const SECTION_LEN: usize = 32;

// A slot.
pub(crate) const SLOT_LEN: usize = 64;
const BOUNDS_AT: usize = 16;
const ENCODINGS_AT: usize = BOUNDS_AT + 4 * (PARTS_MAX + 1);
const FLAGS_AT: usize = ENCODINGS_AT + PARTS_MAX + 1;
const SLOT_CRC_AT: usize = FLAGS_AT + 4;
const _: () = assert!(SLOT_CRC_AT + 4 == SLOT_LEN, "a slot is one cache line");

// A record head.
const HEAD_HASH_AT: usize = 16;
const HEAD_PARENT_AT: usize = HEAD_HASH_AT + 32;
const HEAD_COUNT_AT: usize = HEAD_PARENT_AT + 32;
pub(crate) const HEAD_LEN: usize = HEAD_COUNT_AT + 8;
const _: () = assert!(HEAD_LEN == 88 && HEAD_LEN.is_multiple_of(ALIGN as usize));

/// How a part is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Encoding {
    /// As it is sent.
    #[default]
    Plain,
    /// A form that this program does not know; a newer one wrote it.
    Other(u8),
}

impl Encoding {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Self {
        if code == 0 { Self::Plain } else { Self::Other(code) }
    }
}

/// Intact, and written by another release: not to be read, and not to be thrown away either.
pub(crate) const OTHER_VERSION: Damage = "segment is of another format version";

/// What is wrong with some bytes, in words for a person.
pub(crate) type Damage = &'static str;

pub(crate) fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes is an array of N bytes")
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// `offset` rounded up to where the next record or section may begin.
pub(crate) fn aligned(offset: u64) -> u64 {
    offset.next_multiple_of(ALIGN)
}

const TERMS_LEN: usize = 8 * TERMS_MAX;

/// Bytes of a record before its first part.
pub(crate) fn head_len(transactions: usize, logs: usize) -> usize {
    HEAD_LEN + 32 * transactions + TERMS_LEN * logs
}

/// A segment's creation sector, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) span: u32,
    pub(crate) base_height: u64,
    pub(crate) identity: Identity,
    pub(crate) data_offset: u64,
    pub(crate) capacity: u64,
}

impl SegmentHeader {
    /// A segment of `span` slots whose records may take `data_bytes`.
    pub(crate) fn new(identity: Identity, base_height: u64, span: u32, data_bytes: u64) -> Self {
        let data_offset = slot_offset(span);
        let capacity = (data_offset + data_bytes).next_multiple_of(PAGE as u64);
        Self { span, base_height, identity, data_offset, capacity }
    }

    pub(crate) fn to_bytes(self) -> [u8; CREATION_LEN] {
        let mut bytes = [0; CREATION_LEN];
        put(&mut bytes, 0, SEGMENT_MAGIC);
        put(&mut bytes, 8, VERSION.to_le_bytes());
        put(&mut bytes, SPAN_AT, self.span.to_le_bytes());
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
    pub(crate) fn parse(page: &[u8; PAGE]) -> Result<Self, Damage> {
        if page[..8] != SEGMENT_MAGIC {
            return Err("not a segment file: wrong magic");
        }
        if le_u32(page, CREATION_CRC_AT) != crc32fast::hash(&page[..CREATION_CRC_AT]) {
            return Err("segment header fails its checksum");
        }
        if le_u32(page, 8) != VERSION {
            return Err(OTHER_VERSION);
        }
        let header = Self {
            span: le_u32(page, SPAN_AT),
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

    fn check_geometry(&self) -> Result<(), Damage> {
        let good = (1..=SPAN_MAX).contains(&self.span)
            && self.base_height <= HEIGHT_MAX
            && self.data_offset == slot_offset(self.span)
            && self.capacity >= self.data_offset;
        if good { Ok(()) } else { Err("segment header has impossible geometry") }
    }
}

/// What a section holds.
pub(crate) const SECTION_HASHES: u32 = 1;
pub(crate) const SECTION_LOGS: u32 = 2;

/// One entry of the seal sector's section table.
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
    pub(crate) fn parse(page: &[u8; PAGE], header: &SegmentHeader) -> Result<Option<Self>, Damage> {
        let bytes = &page[SEAL_OFFSET..SEAL_OFFSET + SEAL_LEN];
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if bytes[..8] != SEAL_MAGIC
            || le_u32(bytes, SEAL_CRC_AT) != crc32fast::hash(&bytes[..SEAL_CRC_AT])
        {
            return Err("seal sector fails its checksum");
        }
        let sections = (le_u32(bytes, SECTION_COUNT_AT) as usize).min(SECTIONS_MAX);
        let table = bytes[SECTIONS_AT..SEAL_CRC_AT].chunks_exact(SECTION_LEN);
        let seal = Self {
            count: le_u32(bytes, COUNT_AT),
            data_end: le_u64(bytes, DATA_END_AT),
            last_timestamp: le_u64(bytes, LAST_TIME_AT),
            end: le_u64(bytes, END_AT),
            last_hash: Hash(array(bytes, LAST_HASH_AT)),
            sections: table.take(sections).map(Section::parse).collect(),
        };
        seal.check_geometry(header).map(|()| Some(seal))
    }

    fn check_geometry(&self, header: &SegmentHeader) -> Result<(), Damage> {
        let inside = |section: &Section| {
            section.offset >= self.data_end
                && section.offset.checked_add(section.length).is_some_and(|end| end <= self.end)
        };
        let good = (1..=header.span).contains(&self.count)
            && (header.data_offset..=self.end).contains(&self.data_end)
            && self.end <= header.capacity
            && self.sections.iter().all(inside);
        if good { Ok(()) } else { Err("seal sector has impossible geometry") }
    }

    pub(crate) fn section(&self, kind: u32) -> Option<Section> {
        self.sections.iter().find(|section| section.kind == kind).copied()
    }
}

/// One slot of the height index: where a record is and where its parts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) record_crc: u32,
    /// Where part i begins and ends, relative to `offset`: `bounds[i]..bounds[i + 1]`.
    pub(crate) bounds: [u32; PARTS_MAX + 1],
    pub(crate) encodings: [Encoding; PARTS_MAX],
    pub(crate) flags: u32,
}

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
        let mut crc = crc32fast::Hasher::new();
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
    pub(crate) fn parse(bytes: &[u8; SLOT_LEN], height: u64, limit: u64) -> Result<Self, Damage> {
        if le_u32(bytes, SLOT_CRC_AT) != Self::crc(bytes, height) {
            return Err("index slot fails its checksum");
        }
        let slot = Self::read(bytes);
        let good = slot.end().is_some_and(|end| end <= limit)
            && slot.offset.is_multiple_of(ALIGN)
            && slot.bounds[0] as usize >= HEAD_LEN
            && slot.bounds.is_sorted()
            && slot.bounds[PARTS_MAX] == slot.length;
        if good { Ok(slot) } else { Err("index slot has impossible geometry") }
    }

    /// First byte after the record; `None` when it overflows.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.length))
    }
}

/// The fixed part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RecordHead {
    pub(crate) height: u64,
    pub(crate) timestamp: u64,
    pub(crate) hash: Hash,
    pub(crate) parent: Hash,
    pub(crate) transactions: u32,
    pub(crate) logs: u32,
}

impl RecordHead {
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            height: record.height,
            timestamp: record.timestamp,
            hash: record.hash,
            parent: record.parent,
            transactions: record.transactions.len() as u32,
            logs: record.logs.len() as u32,
        }
    }

    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.height.to_le_bytes());
        bytes.extend_from_slice(&self.timestamp.to_le_bytes());
        bytes.extend_from_slice(&self.hash.0);
        bytes.extend_from_slice(&self.parent.0);
        bytes.extend_from_slice(&self.transactions.to_le_bytes());
        bytes.extend_from_slice(&self.logs.to_le_bytes());
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEAD_LEN)?;
        Some(Self {
            height: le_u64(bytes, 0),
            timestamp: le_u64(bytes, 8),
            hash: Hash(array(bytes, HEAD_HASH_AT)),
            parent: Hash(array(bytes, HEAD_PARENT_AT)),
            transactions: le_u32(bytes, HEAD_COUNT_AT),
            logs: le_u32(bytes, HEAD_COUNT_AT + 4),
        })
    }

    /// Whether the head fits the slot that led to it.
    pub(crate) fn fits(&self, height: u64, slot: &Slot) -> bool {
        self.height == height
            && u64::from(self.transactions) <= HASHES_MAX
            && head_len(self.transactions as usize, self.logs as usize) == slot.bounds[0] as usize
    }
}

/// The hash of transaction `at` of the record in `bytes`.
pub(crate) fn transaction_hash(bytes: &[u8], at: usize) -> Option<Hash> {
    let from = head_len(at, 0);
    let hash = bytes.get(from..from + 32)?;
    Some(Hash(array(hash, 0)))
}

/// The terms of log `at` of the record in `bytes`, which has so many transactions.
pub(crate) fn log_terms(bytes: &[u8], transactions: u32, at: usize) -> Option<Terms> {
    let from = head_len(transactions as usize, at);
    let terms = bytes.get(from..from + TERMS_LEN)?;
    Some(std::array::from_fn(|at| le_u64(terms, 8 * at)))
}

/// The terms of all logs of the record in `bytes`, in order.
pub(crate) fn all_terms<'a>(
    bytes: &'a [u8],
    head: &RecordHead,
) -> impl Iterator<Item = Terms> + use<'a> {
    let (transactions, logs) = (head.transactions, head.logs as usize);
    (0..logs).map_while(move |at| log_terms(bytes, transactions, at))
}
