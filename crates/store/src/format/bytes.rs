//! Limits of the format, and integers in bytes.

/// Parts that a record can have.
pub const PARTS_MAX: usize = 7;
/// Transactions that a record can have: a position takes 16 bits of a hash table entry.
pub const HASHES_MAX: u64 = 0xfffe;
/// Terms that a log can have.
pub const TERMS_MAX: usize = 5;
/// Keys of a log, given by the caller, 0 where there is none. The store only compares
/// them.
pub type Terms = [u64; TERMS_MAX];
/// Bytes that a record can have. Mainnet's largest are below 2 MiB; this bounds what a reader
/// trusts a length for.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;
/// Slots that a segment can have, which bounds the memory that opening takes.
pub const SLOT_COUNT_MAX: u32 = 1 << 20;
/// The greatest height: it shares 64 bits of a hash table entry with a position.
pub const HEIGHT_MAX: u64 = (1 << 47) - 1;

/// Version of segment files. neve does not open a file of another version.
pub const VERSION: u32 = 1;
/// Bytes of a header page, whatever pages the kernel has.
pub(crate) const PAGE: usize = 4096;
/// Records begin at multiples of it.
pub(crate) const ALIGN: u64 = 8;

/// Form in which a part is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Encoding {
    /// Uncompressed, in the form that clients get.
    #[default]
    Uncompressed,
    /// A form that this program does not know; a newer one wrote it.
    Other(u8),
}

impl Encoding {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Uncompressed => 0,
            Self::Other(code) => code,
        }
    }

    pub(super) fn from_code(code: u8) -> Self {
        if code == 0 { Self::Uncompressed } else { Self::Other(code) }
    }
}

/// Intact, and written by another release: not to be read, and not to be thrown away either.
pub(crate) const OTHER_VERSION: FormatError = "segment is of another format version";

/// Fault of some bytes, in words for a person.
pub(crate) type FormatError = &'static str;

pub(crate) fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes is an array of N bytes")
}

pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// `offset` rounded up to where the next record or section may begin.
pub(crate) fn aligned(offset: u64) -> u64 {
    offset.next_multiple_of(ALIGN)
}
