//! Merged hash tables of a directory, read whole by programs that do not open the store.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use super::compact_table::{TableEntries, TableShape};
use super::merged_table::{self, MergedHeader};
use crate::disk::parse_table_name;
use crate::format::PAGE;
use crate::reads;

/// Bytes that are read at once for the checksum.
const PIECE_BYTES: u64 = 1 << 20;

/// A merged hash table of a directory. Its writer may delete the file meanwhile.
#[derive(Debug)]
pub struct HashTable {
    file: File,
    header: MergedHeader,
    shape: TableShape,
}

/// A hash of a merged table, as far as the table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergedHash {
    /// Height of the block.
    pub height: u64,
    /// Position of the transaction; `None` for the block itself.
    pub transaction: Option<u16>,
    /// Bytes 2 to 7 of the hash.
    pub bytes: [u8; 6],
}

impl HashTable {
    /// Opens the tables that overlap `heights`. One that cannot be opened, or has a damaged header, is left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(dir: &Path, heights: Range<u64>) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in reads::entries(dir)? {
            let name = entry?.file_name();
            let Some((first, last)) = name.to_str().and_then(parse_table_name) else { continue };
            if first < heights.end && heights.start <= last {
                match Self::open(&dir.join(&name)) {
                    Ok(table) => found.extend(table),
                    Err(error) => tracing::debug!(?name, %error, "hash table not opened"),
                }
            }
        }
        Ok(found)
    }

    /// `None` for a table that is damaged, or not there any more.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match reads::open_regular(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                return Ok(None);
            }
            opened => opened?,
        };
        let read = merged_table::read_header(&file, reads::length(&file)?)?;
        Ok(read.ok().map(|(header, shape)| Self { file, header, shape }))
    }

    /// Returns the heights of which the table has all hashes.
    pub fn heights(&self) -> RangeInclusive<u64> {
        self.header.first..=self.header.last
    }

    /// Returns the id of its chain.
    pub fn chain_id(&self) -> u64 {
        self.header.chain_id
    }

    /// Passes each hash to `found`, in an order of the table's own. Returns false if the table is damaged: then some of them
    /// are wrong.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, mut found: impl FnMut(MergedHash)) -> io::Result<bool> {
        if self.checksum()? != self.header.table_crc {
            return Ok(false);
        }
        let mut entries = TableEntries::new(self.shape, |part: Range<u64>| self.part(part));
        for entry in &mut entries {
            let (prefix, locator) = entry?;
            let [_, _, bytes @ ..] = prefix.to_le_bytes();
            let transaction = locator.position().map(|at| at as u16); // an ordinal has 16 bits
            found(MergedHash { height: locator.height(), transaction, bytes });
        }
        Ok(entries.is_sound())
    }

    fn checksum(&self) -> io::Result<u32> {
        let (mut crc, length) = (crc32fast::Hasher::new(), self.header.length);
        for start in (0..length).step_by(PIECE_BYTES as usize) {
            crc.update(&self.part(start..length.min(start + PIECE_BYTES))?);
        }
        Ok(crc.finalize())
    }

    /// Reads a part of the table.
    fn part(&self, part: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (part.end - part.start) as usize];
        reads::read_exact(&self.file, &mut bytes, PAGE as u64 + part.start)?;
        Ok(bytes)
    }
}
