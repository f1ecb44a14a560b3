//! Check of one merged hash table against the segments that it covers. A table may be larger than
//! the memory, so it is read in chunks and compared by a digest of its entries.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use super::digest::Digest;
use super::finding::{Visitor, damaged, finding, first_not_zero};
use super::segment_file::Outcome;
use crate::disk::parse_table_name;
use crate::error::Error;
use crate::format::{FormatError, PAGE, array};
use crate::index::compact_table::{TableEntries, TableShape};
use crate::index::merged_table::{HEADER_LEN, MergedHeader};
use crate::reads;

const KIND: &str = "merged_table";
const PIECE_BYTES: u64 = 1 << 20;

/// Verifies the merged table `name` of `dir`; `false` if it is gone meanwhile.
pub(super) fn verify(
    dir: &Path,
    name: &str,
    outcomes: &[Outcome],
    visitor: &mut dyn Visitor,
) -> Result<bool, Error> {
    let path = dir.join(name);
    let file = match reads::open_regular(&path) {
        Ok(file) => file,
        // A server that runs meanwhile merges tables into larger ones.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::read(path, error)),
    };
    match check(&file, name, outcomes, visitor) {
        Ok(()) => Ok(true),
        Err(error) if reads::is_disk_failure(&error) => {
            let detail = format!("the disk fails to deliver it: {error}");
            visitor.finding(finding(name, None, 0, "unreadable", detail));
            Ok(true)
        }
        Err(error) => Err(Error::read(path, error)),
    }
}

fn check(
    file: &File,
    name: &str,
    outcomes: &[Outcome],
    visitor: &mut dyn Visitor,
) -> io::Result<()> {
    let len = reads::length(file)?;
    if len < PAGE as u64 {
        visitor.finding(damaged(name, 0, KIND, "merged hash table is shorter than its header"));
        return Ok(());
    }
    let page = read(file, 0, PAGE as u64)?;
    check_reserved(&page, name, visitor);
    let damage = match header_of(&page, name) {
        Ok(header) => contents(file, len, &header, outcomes)?.map(|damage| (PAGE as u64, damage)),
        Err(damage) => Some(damage),
    };
    if let Some((offset, damage)) = damage {
        visitor.finding(damaged(name, offset, KIND, damage));
    }
    Ok(())
}

fn check_reserved(page: &[u8], name: &str, visitor: &mut dyn Visitor) {
    if let Some(at) = first_not_zero(&page[HEADER_LEN..], HEADER_LEN as u64) {
        visitor.finding(finding(name, None, at, "reserved", "a byte that must be zero is not"));
    }
}

/// Header of the table, or its damage and the offset of that.
fn header_of(page: &[u8], name: &str) -> Result<MergedHeader, (u64, FormatError)> {
    let header = MergedHeader::parse(&array(page, 0)).map_err(|damage| (0, damage))?;
    if parse_table_name(name) != Some((header.first, header.last)) {
        return Err((16, "table is of other heights than its name"));
    }
    Ok(header)
}

fn contents(
    file: &File,
    len: u64,
    header: &MergedHeader,
    outcomes: &[Outcome],
) -> io::Result<Option<&'static str>> {
    let Some(shape) = header.shape().filter(|shape| shape.len() == header.length) else {
        return Ok(Some("header names no table of its length"));
    };
    if len - PAGE as u64 != header.length {
        return Ok(Some("table has not the length that its header names"));
    }
    if crc(file, len)? != header.table_crc {
        return Ok(Some("table fails its checksum"));
    }
    compare(file, shape, &ExpectedTable::of(header, outcomes))
}

/// Compares the entries of a table with those that it must have.
fn compare(
    file: &File,
    shape: TableShape,
    held: &ExpectedTable,
) -> io::Result<Option<&'static str>> {
    let fetch = |range: Range<u64>| read(file, PAGE as u64 + range.start, range.end - range.start);
    let (mut entries, mut found) = (TableEntries::new(shape, fetch), Digest::default());
    for entry in &mut entries {
        let entry = entry?;
        // What was evicted since may still be in the table; what is held must be.
        if entry.1.height() >= held.first {
            found.add(entry);
        }
    }
    Ok(if !entries.is_sound() {
        Some("table's entries are not where look-ups search for them")
    } else if found != held.digest {
        Some("table is not that of the blocks and transactions that it covers")
    } else {
        None
    })
}

fn crc(file: &File, len: u64) -> io::Result<u32> {
    let (mut crc, mut offset) = (crc32fast::Hasher::new(), PAGE as u64);
    while offset < len {
        let piece = read(file, offset, PIECE_BYTES.min(len - offset))?;
        crc.update(&piece);
        offset += piece.len() as u64;
    }
    Ok(crc.finalize())
}

fn read(file: &File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    reads::read_exact(file, &mut bytes, offset)?;
    Ok(bytes)
}

/// The entries that a table must have.
struct ExpectedTable {
    first: u64,
    digest: Digest,
}

impl ExpectedTable {
    fn of(header: &MergedHeader, outcomes: &[Outcome]) -> Self {
        let heights = header.first..=header.last;
        let covered = |one: &&Outcome| one.sealed && one.has_any(&heights);
        let first = outcomes.iter().filter(covered).find_map(Outcome::first).unwrap_or(u64::MAX);
        let mut digest = Digest::default();
        outcomes.iter().filter(covered).for_each(|one| one.digests.join(&heights, &mut digest));
        Self { first, digest }
    }
}
