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

mod bytes;
mod header;
mod record;
mod seal;
mod slot;

pub use bytes::{
    Encoding, HASHES_MAX, HEIGHT_MAX, PARTS_MAX, RECORD_BYTES_MAX, SLOT_COUNT_MAX, TERMS_MAX,
    Terms, VERSION,
};
pub use record::{Part, Record, RecordHeader};

pub(crate) use bytes::{ALIGN, FormatError, OTHER_VERSION, PAGE, aligned, array, le_u32, le_u64};
pub(crate) use header::SegmentHeader;
pub(crate) use record::{
    Encoded, HEADER_COUNT_AT, HEADER_HASH_AT, HEADER_LEN, all_terms, header_len, transaction_hash,
};
pub(crate) use seal::{
    HEADER_RESERVED, SEAL_LEN, SEAL_OFFSET, SECTION_HASHES, SECTION_LOGS, Seal, Section,
};
pub(crate) use slot::{INDEX_OFFSET, SLOT_LEN, Slot, slot_offset};
