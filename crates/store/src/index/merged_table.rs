//! Merged hash tables: what keeps a look-up by hash as cheap at 1,000 segments as at 10.
//!
//! Every sealed segment carries its own table. Eight neighbouring ones are merged into a file of
//! level 1, eight of those into one of level 2, and so on: a look-up asks at most seven tables a
//! level. The files are derived data. One that is missing, stale or damaged is left out or
//! removed at opening, and the segments that it covered are asked themselves. A table may end inside
//! a packed file, which was segments when it was made: the next table has the other heights.
//!
//! ```text
//! 0   magic "neveidx\0"          40  length of the table      u64
//! 8   version              u32   48  block hash at `last`    [32]
//! 12  level                u32   80  crc32 of the table       u32
//! 16  first height         u64   84  crc32 of 0..84           u32
//! 24  last height          u64   88  zero up to 4096
//! 32  chain id             u64   4096  the table, see table.rs
//! ```

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::active_table::{Entry, Locator};
use super::table;
use super::table::Table;
use crate::disk::{Latch, Op, UNFINISHED, table_name};
use crate::error::Error;
use crate::format::{FormatError, PAGE, VERSION, array, le_u32, le_u64};
use crate::id::Hash;
use crate::memory::residency::Cold;
use crate::memory::{Map, residency};
use crate::reads;

/// Tables that are merged into one of the next level.
pub(crate) const FANOUT: usize = 8;

const MAGIC: [u8; 8] = *b"neveidx\0";
const HEADER_CRC_AT: usize = 84;
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
}

impl MergedHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.level.to_le_bytes());
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&self.last.to_le_bytes());
        bytes.extend_from_slice(&self.chain_id.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&self.last_hash.0);
        bytes.extend_from_slice(&self.table_crc.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        array(&bytes, 0)
    }

    pub(crate) fn parse(page: &[u8; PAGE]) -> Result<Self, FormatError> {
        if page[..8] != MAGIC || le_u32(page, 8) != VERSION {
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
        })
    }
}

/// A merged table that can be read.
pub(crate) struct Merged {
    pub(crate) header: MergedHeader,
    map: Map,
    homes: OnceLock<u64>,
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
        let mut page = [0; PAGE];
        match reads::read_exact(&file, &mut page, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Ok(Err("merged hash table is shorter than its header"));
            }
            Err(error) => return Err(read(error)),
        }
        let header = match MergedHeader::parse(&page) {
            Ok(header) => header,
            Err(damage) => return Ok(Err(damage)),
        };
        if (PAGE as u64).checked_add(header.length) != Some(len) {
            return Ok(Err("merged hash table has another length than its header says"));
        }
        let map = Map::new(&file, len, PAGE as u64, PAGE as u64).map_err(read)?;
        map.publish(len, len);
        let unreadable = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&unreadable);
        // A page that the disk does not deliver later only sets a flag: the writer then removes the table.
        map.on_unreadable(move |_, _| flag.store(true, Ordering::Relaxed));
        Ok(Ok(Self { header, map, homes: OnceLock::new(), unreadable }))
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

    pub(crate) fn first_prefix(&self, hash: &Hash) -> Result<u64, Cold> {
        self.table()?.first_prefix(hash)
    }

    pub(crate) fn find<T>(
        &self,
        hash: &Hash,
        found: impl FnMut(Locator) -> Option<Result<T, Cold>>,
    ) -> Option<Result<T, Cold>> {
        match self.table() {
            Ok(table) => table.find(hash, found),
            Err(cold) => Some(Err(cold)),
        }
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

    fn crc(&self, path: &Path, pause: &mut dyn FnMut(u64)) -> std::io::Result<u32> {
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

    pub(crate) fn table(&self) -> Result<Table<'_>, Cold> {
        Table::remembered(&self.map, self.bytes(), &self.homes)
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

/// Writes the merge of `sources` aside and gives it its name. `header` comes with everything
/// known but length and checksum. Entries of heights that it does not name are left out.
pub(crate) fn write(
    latch: &mut Latch,
    mut header: MergedHeader,
    sources: &[Table<'_>],
) -> Result<Merged, Error> {
    let heights = header.first..=header.last;
    let inside = |entry: &Entry| heights.contains(&entry.1.height());
    // Counted first: the length decides where each entry goes.
    let count = sources.iter().map(|source| source.entries().filter(inside).count()).sum();
    header.length = table::encoded_len(table::merge(sources).filter(inside), count);
    let name = table_name(header.first, header.last);
    let unfinished = format!("{name}{UNFINISHED}");
    latch.allocate(&unfinished, PAGE as u64 + header.length)?;
    let entries = table::merge(sources).filter(inside);
    header.table_crc = write_table(latch, &unfinished, entries, count)?;
    if residency::has_failed() {
        return Err(residency::ReadFailed.into()); // the table lacks entries, and never gets its name
    }
    latch.apply(Op::Write { name: &unfinished, offset: 0, bytes: &header.to_bytes() })?;
    // Before the rename: a crash leaves the whole table, or no file of that name.
    latch.apply(Op::Sync { name: &unfinished })?;
    latch.apply(Op::Rename { from: &unfinished, to: &name })?;
    latch.apply(Op::SyncDir)?;
    let path = latch.dir().join(&name);
    Merged::open(&path)?.map_err(|damage| Error::read(path, std::io::Error::other(damage)))
}

/// Writes the table in chunks of about this many bytes.
const PIECE_BYTES: usize = 256 << 10;

fn write_table(
    latch: &mut Latch,
    name: &str,
    entries: impl Iterator<Item = Entry>,
    count: usize,
) -> Result<u32, Error> {
    let (mut piece, mut offset) = (Vec::with_capacity(PIECE_BYTES), PAGE as u64);
    let mut crc = crc32fast::Hasher::new();
    table::stream(entries, count, |bytes| {
        piece.extend_from_slice(bytes);
        crc.update(bytes);
        if piece.len() < PIECE_BYTES {
            return Ok::<(), Error>(());
        }
        latch.apply(Op::Write { name, offset, bytes: &piece })?;
        offset += piece.len() as u64;
        piece.clear();
        Ok(())
    })?;
    latch.apply(Op::Write { name, offset, bytes: &piece })?;
    Ok(crc.finalize())
}

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
        };
        let mut page = [0; PAGE];
        page[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        assert_eq!(&page[..12], b"neveidx\0\x01\0\0\0");
        assert_eq!((page[12], page[16], page[24], page[32], page[40]), (2, 3, 4, 5, 6));
        assert_eq!((page[48], page[79], page[80]), (7, 7, 8));
        assert_eq!(MergedHeader::parse(&page), Ok(header));
        for at in 0..HEADER_LEN {
            let mut bad = page;
            bad[at] ^= 0x10;
            assert!(MergedHeader::parse(&bad).is_err(), "byte {at}");
        }
    }
}
