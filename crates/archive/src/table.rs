//! Form that span and terms share: a header of 32 bytes, then entries of one length, ascending.

use crate::error::ArchiveError;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 32;
const VERSION: u32 = 1;

/// Header of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableHeader {
    /// First height of the table.
    pub(crate) first: u64,
    /// Heights of a segment.
    pub(crate) range: u32,
    /// Number of segments.
    pub(crate) segments: u32,
}

/// Kind of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableKind {
    pub(crate) magic: &'static [u8; 8],
    /// Word for errors.
    pub(crate) what: &'static str,
    pub(crate) entry_bytes: usize,
}

impl TableHeader {
    /// Returns the bytes of an object: header and entries.
    pub(crate) fn to_bytes(self, kind: TableKind, table: &[u8]) -> Vec<u8> {
        let Self { first, range, segments } = self;
        let entries = (table.len() / kind.entry_bytes) as u32;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + table.len());
        bytes.extend_from_slice(kind.magic);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&range.to_le_bytes());
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&segments.to_le_bytes());
        bytes.extend_from_slice(&entries.to_le_bytes());
        bytes.extend_from_slice(table);
        bytes
    }

    /// Reads an object: its header and the bytes of its entries. Heights are not checked.
    pub(crate) fn read(kind: TableKind, bytes: &[u8]) -> Result<(Self, &[u8]), ArchiveError> {
        let malformed = |why: &str| ArchiveError::malformed(kind.what, why);
        let (header, table) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| malformed("no whole header"))?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        if !header.starts_with(kind.magic) {
            return Err(malformed("other first bytes"));
        }
        let (version, read) = (word(8).into(), VERSION.into());
        if version != read {
            return Err(ArchiveError::Version { what: kind.what, version, read });
        }
        let first = u64::from(word(16)) | u64::from(word(20)) << 32;
        if (word(28) as usize).checked_mul(kind.entry_bytes) != Some(table.len()) {
            return Err(malformed("a count of entries that does not fit"));
        }
        Ok((Self { first, range: word(12), segments: word(24) }, table))
    }
}

/// Length of an object with so many bytes of entries.
pub(crate) fn object_bytes(table: usize) -> u64 {
    table as u64 + HEADER_BYTES as u64
}

/// Returns the whole entries of a part of an object, which begins at `offset`.
pub(crate) fn entries_in<const ENTRY: usize>(offset: u64, part: &[u8]) -> &[[u8; ENTRY]] {
    // A part may begin inside the header or inside an entry.
    let header = (HEADER_BYTES as u64).saturating_sub(offset) as usize;
    let behind = offset.saturating_sub(HEADER_BYTES as u64);
    let begun = (behind.next_multiple_of(ENTRY as u64) - behind) as usize;
    part.get(header + begun..).unwrap_or_default().as_chunks::<ENTRY>().0
}

/// Returns the first bytes of the first entry that begins in each page of an object; all ones if none does.
pub(crate) fn fences<const ENTRY: usize, const KEY: usize>(
    table: &[u8],
    page_bytes: usize,
) -> Vec<[u8; KEY]> {
    let pages = (HEADER_BYTES + table.len()).div_ceil(page_bytes);
    let fence = |page: usize| {
        let at = (page * page_bytes).saturating_sub(HEADER_BYTES).next_multiple_of(ENTRY);
        let entry = table.get(at..at + KEY);
        entry.map_or([u8::MAX; KEY], |entry| std::array::from_fn(|at| entry[at]))
    };
    (0..pages).map(fence).collect()
}
