//! Merged hash tables: what keeps a look-up by hash as cheap at 1,000 segments as at 10.
//!
//! Every sealed segment carries its own table. Eight neighbouring ones are merged into a file of
//! level 1, eight of those into one of level 2, and so on: a look-up asks at most seven tables a
//! level. The files are derived data. One that is missing, stale or damaged is left out or
//! removed at opening, and the segments that it covered are asked themselves. A table may end inside
//! a packed file, which was segments when it was made: the next table has the other heights.
//!
//! ```text
//! 0   magic "neveidx\0"          48  block hash at `last`    [32]
//! 8   version, 2           u32   80  crc32 of the table       u32
//! 12  level                u32   84  number of entries        u32
//! 16  first height         u64   88  bits of an ordinal       u32
//! 24  last height          u64   92  crc32 of 0..92           u32
//! 32  chain id             u64   96  zero up to 4096
//! 40  length of the table  u64   4096  the table, see compact_table.rs
//! ```
//!
//! Version 1 had tables in the form of `table.rs`, with 24 bytes a hash. It is removed at opening as a damaged one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::active_table::{Entry, Locator};
use super::compact_table::{CompactTable, TableShape, bits};
use super::compact_writer;
use super::table::Table;
use crate::disk::{Latch, Op, UNFINISHED, table_name};
use crate::error::Error;
use crate::format::{FormatError, PAGE, array, le_u32, le_u64};
use crate::id::Hash;
use crate::memory::residency::Cold;
use crate::memory::{Map, residency};
use crate::reads;

/// Tables that are merged into one of the next level.
pub(crate) const FANOUT: usize = 8;

const MAGIC: [u8; 8] = *b"neveidx\0";
const TABLE_VERSION: u32 = 2;
const HEADER_CRC_AT: usize = 92;
pub(crate) const HEADER_LEN: usize = HEADER_CRC_AT + 4;

/// A merged table's header, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MergedHeader {
    pub(crate) level: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) chain_id: u64,
    pub(crate) length: u64,
    pub(crate) last_hash: Hash,
    pub(crate) table_crc: u32,
    pub(crate) entries: u32,
    pub(crate) ordinal_bits: u32,
}

impl MergedHeader {
    /// Form of the table; `None` if there is none of these heights with so many entries.
    pub(crate) fn shape(&self) -> Option<TableShape> {
        TableShape::new(self.entries, self.first, self.last, self.ordinal_bits)
    }

    /// Form of the table in a file of `len` bytes.
    fn shape_in(&self, len: u64) -> Result<TableShape, FormatError> {
        let shape = self.shape().filter(|shape| shape.len() == self.length);
        let shape = shape.filter(|shape| shape.len() + PAGE as u64 == len);
        shape.ok_or("merged hash table has another length than its header says")
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&TABLE_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.level.to_le_bytes());
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.last.to_le_bytes());
        bytes.extend_from_slice(&self.chain_id.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&self.last_hash.0);
        bytes.extend_from_slice(&self.table_crc.to_le_bytes());
        bytes.extend_from_slice(&self.entries.to_le_bytes());
        bytes.extend_from_slice(&self.ordinal_bits.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        array(&bytes, 0)
    }

    pub(crate) fn parse(page: &[u8; PAGE]) -> Result<Self, FormatError> {
        if page[..8] != MAGIC || le_u32(page, 8) != TABLE_VERSION {
            return Err("not a merged hash table of this format version");
        }
        if le_u32(page, HEADER_CRC_AT) != crc32fast::hash(&page[..HEADER_CRC_AT]) {
            return Err("merged hash table's header fails its checksum");
        }
        Ok(Self {
            level: le_u32(page, 12),
            first: le_u64(page, 16),
            last: le_u64(page, 24),
            chain_id: le_u64(page, 32),
            length: le_u64(page, 40),
            last_hash: Hash(array(page, 48)),
            table_crc: le_u32(page, 80),
            entries: le_u32(page, 84),
            ordinal_bits: le_u32(page, 88),
        })
    }
}

/// Reads the header of a table, and the form of the table, from a file of `len` bytes.
pub(super) fn read_header(
    file: &File,
    len: u64,
) -> io::Result<Result<(MergedHeader, TableShape), FormatError>> {
    let mut page = [0; PAGE];
    match reads::read_exact(file, &mut page, 0) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Ok(Err("merged hash table is shorter than its header"));
        }
        read => read?,
    }
    Ok(MergedHeader::parse(&page).and_then(|header| Ok((header, header.shape_in(len)?))))
}

/// A merged table that can be read.
pub(crate) struct Merged {
    pub(crate) header: MergedHeader,
    shape: TableShape,
    map: Map,
    unreadable: Arc<AtomicBool>,
}

impl Merged {
    /// Opens the file, checking its header but not the table: that is `verify`'s work. An error of the disk says
    /// nothing about the table.
    pub(crate) fn open(path: &Path) -> Result<Result<Self, FormatError>, Error> {
        reads::again(Error::is_disk_failure, || Self::open_once(path))
    }

    fn open_once(path: &Path) -> Result<Result<Self, FormatError>, Error> {
        let read = |error| Error::read(path, error);
        let file = match reads::open_regular(path) {
            Ok(file) => file,
            // A FIFO of that name would stop the opening.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                return Ok(Err("not a regular file"));
            }
            Err(error) => return Err(read(error)),
        };
        let len = reads::length(&file).map_err(read)?;
        let (header, shape) = match read_header(&file, len).map_err(read)? {
            Ok(found) => found,
            Err(damage) => return Ok(Err(damage)),
        };
        let map = Map::new(&file, len, PAGE as u64, PAGE as u64).map_err(read)?;
        map.publish(len, len);
        let unreadable = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&unreadable);
        // A page that the disk does not deliver later only sets a flag: the writer then removes the table.
        map.on_unreadable(move |_, _| flag.store(true, Ordering::Relaxed));
        Ok(Ok(Self { header, shape, map, unreadable }))
    }

    pub(crate) fn name(&self) -> String {
        table_name(self.header.first, self.header.last)
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        PAGE as u64 + self.header.length
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let from = PAGE as u64;
        self.map.bytes(from..from + self.header.length).expect("open published the whole table")
    }

    pub(crate) fn covers(&self, first: u64, last: u64) -> bool {
        self.header.first <= first && last <= self.header.last
    }

    /// Reads the starts of the bucket of `hash`, for the side effect on the cache.
    pub(crate) fn load_starts(&self, hash: &Hash) -> Result<u64, Cold> {
        self.table().load_starts(hash)
    }

    pub(crate) fn find<T>(
        &self,
        hash: &Hash,
        found: impl FnMut(Locator) -> Option<Result<T, Cold>>,
    ) -> Option<Result<T, Cold>> {
        self.table().find(hash, found)
    }

    /// True if the disk did not deliver some of it, or other bytes than were written.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Compares the table's bytes on the disk with its checksum. If they differ it counts as unreadable, and the writer
    /// removes it. `pause` hears of each chunk how many bytes it has, and may wait.
    pub(crate) fn check(&self, dir: &Path, pause: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let path = dir.join(self.name());
        let damage = match self.crc(&path, pause) {
            Ok(crc) if crc == self.header.table_crc => return Ok(()),
            Ok(_) => "table fails its checksum".to_owned(),
            // Evicted, or merged into a larger one.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if reads::is_of_the_file(&error) => error.to_string(),
            Err(error) => return Err(Error::read(path, error)),
        };
        if !self.unreadable.swap(true, Ordering::Relaxed) {
            tracing::warn!(file = self.name(), reason = damage, "damaged hash table");
        }
        Ok(())
    }

    fn crc(&self, path: &Path, pause: &mut dyn FnMut(u64)) -> io::Result<u32> {
        let file = reads::open_regular(path)?;
        let (mut crc, mut piece) = (crc32fast::Hasher::new(), vec![0; PIECE_BYTES]);
        let (mut offset, end) = (PAGE as u64, self.disk_bytes());
        while offset < end {
            piece.truncate((end - offset).min(PIECE_BYTES as u64) as usize);
            reads::again(reads::is_disk_failure, || reads::read_exact(&file, &mut piece, offset))?;
            crc.update(&piece);
            offset += piece.len() as u64;
            pause(piece.len() as u64);
        }
        Ok(crc.finalize())
    }

    pub(crate) fn table(&self) -> CompactTable<'_> {
        CompactTable::new(self.shape, self.bytes(), Some(&self.map))
    }
}

/// Returns the first and the last of `heights` that no table has. `tables` are ascending and disjoint.
pub(crate) fn uncovered(tables: &[Arc<Merged>], heights: Range<u64>) -> Option<(u64, u64)> {
    let from = tables.partition_point(|table| table.header.last < heights.start);
    let end = tables.partition_point(|table| table.header.first < heights.end);
    let tables = tables.get(from..end)?;
    let after = |height, table: &Arc<Merged>| {
        let header = &table.header;
        if header.first <= height { height.max(header.last + 1) } else { height }
    };
    let before = |end, table: &Arc<Merged>| {
        let header = &table.header;
        if header.last + 1 >= end { end.min(header.first) } else { end }
    };
    let first = tables.iter().fold(heights.start, after);
    let end = tables.iter().rev().fold(heights.end, before);
    (first < end).then(|| (first, end - 1))
}

/// Sorted entries that a merge reads.
pub(crate) enum MergeSource<'a> {
    /// Table of a sealed segment.
    Sealed(Table<'a>),
    /// Entries of a packed segment.
    Packed(&'a [Entry]),
    /// A merged table.
    Merged(CompactTable<'a>),
}

impl<'a> MergeSource<'a> {
    fn entries(&self) -> Box<dyn Iterator<Item = Entry> + 'a> {
        match *self {
            Self::Sealed(table) => Box::new(table.entries()),
            Self::Packed(entries) => Box::new(entries.iter().copied()),
            Self::Merged(table) => Box::new(table.entries()),
        }
    }
}

/// Merges sorted sources into one sorted sequence.
fn merge<'a>(sources: &[MergeSource<'a>]) -> impl Iterator<Item = Entry> + use<'a> {
    let mut sources: Vec<_> = sources.iter().map(|source| source.entries().peekable()).collect();
    std::iter::from_fn(move || {
        let least = sources
            .iter_mut()
            .filter_map(|source| source.peek().copied().map(|entry| (entry, source)))
            .min_by_key(|(entry, _)| *entry)?;
        least.1.next()
    })
}

/// Writes the merge of `sources` aside and gives it its name. `header` comes with everything
/// known but entries, length and checksum. Entries of heights that it does not name are left out.
pub(crate) fn write(
    latch: &mut Latch,
    mut header: MergedHeader,
    sources: &[MergeSource<'_>],
) -> Result<Merged, Error> {
    let heights = header.first..=header.last;
    let inside = |entry: &Entry| heights.contains(&entry.1.height());
    let name = table_name(header.first, header.last);
    let unfinished = format!("{name}{UNFINISHED}");
    let entries = sources.iter().flat_map(MergeSource::entries).filter(inside);
    let Some(shape) = measure(&mut header, entries) else {
        let many = io::Error::other("too many hashes for one table");
        return Err(Error::read(latch.dir().join(name), many));
    };
    latch.allocate(&unfinished, PAGE as u64 + header.length)?;
    let write = |offset: u64, bytes: &[u8]| {
        latch.apply(Op::Write { name: &unfinished, offset: PAGE as u64 + offset, bytes })
    };
    header.table_crc = compact_writer::write(shape, merge(sources).filter(inside), write)?;
    finish(latch, header, &unfinished)
}

/// Completes the header by the number of these entries, and by the widths and the length of their table. `None` if there
/// is no table of so many.
fn measure(header: &mut MergedHeader, entries: impl Iterator<Item = Entry>) -> Option<TableShape> {
    // Counted first: number and widths decide where each entry goes.
    let (mut count, mut ordinal) = (0_u64, 0);
    for (_, locator) in entries {
        (count, ordinal) = (count + 1, ordinal.max(locator.ordinal()));
    }
    header.entries = u32::try_from(count).unwrap_or(u32::MAX);
    header.ordinal_bits = bits(ordinal);
    let shape = header.shape().filter(|_| u64::from(header.entries) == count)?;
    header.length = shape.len();
    Some(shape)
}

/// Writes the header of a table whose entries are written, gives the file its name, and opens it.
fn finish(latch: &mut Latch, header: MergedHeader, unfinished: &str) -> Result<Merged, Error> {
    if residency::has_failed() {
        return Err(residency::ReadFailed.into()); // the table lacks entries, and never gets its name
    }
    let name = table_name(header.first, header.last);
    latch.apply(Op::Write { name: unfinished, offset: 0, bytes: &header.to_bytes() })?;
    // Before the rename: a crash leaves the whole table, or no file of that name.
    latch.apply(Op::Sync { name: unfinished })?;
    latch.apply(Op::Rename { from: unfinished, to: &name })?;
    latch.apply(Op::SyncDir)?;
    let path = latch.dir().join(name);
    Merged::open(&path)?.map_err(|damage| Error::read(path, io::Error::other(damage)))
}

/// Bytes of a table that are compared with its checksum at once.
const PIECE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_are_as_documented() {
        let header = MergedHeader {
            level: 2,
            first: 3,
            last: 4,
            chain_id: 5,
            length: 6,
            last_hash: Hash([7; 32]),
            table_crc: 8,
            entries: 9,
            ordinal_bits: 10,
        };
        let mut page = [0; PAGE];
        page[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        assert_eq!(&page[..12], b"neveidx\0\x02\0\0\0");
        assert_eq!((page[12], page[16], page[24], page[32], page[40]), (2, 3, 4, 5, 6));
        assert_eq!((page[48], page[79], page[80], page[84], page[88]), (7, 7, 8, 9, 10));
        assert_eq!(MergedHeader::parse(&page), Ok(header));
        for at in 0..HEADER_LEN {
            let mut bad = page;
            bad[at] ^= 0x10;
            assert!(MergedHeader::parse(&bad).is_err(), "byte {at}");
        }
    }
}
