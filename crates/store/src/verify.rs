//! Reading everything and believing nothing: the store's half of `neve verify`.
//!
//! Files are read with `pread` into buffers, not through maps, so that a damaged disk is an error
//! and not a signal. No lock is taken: a server may run on the directory meanwhile. What it
//! evicts is skipped, what it is just writing is read again before it is called damaged.

mod segment_file;
mod table_file;

use std::io;
use std::path::Path;

use crate::error::Error;
use crate::format::{Damage, Encoding, PARTS_MAX, Terms};
use crate::merge::parse_table_name;
use crate::record::Hash;
use crate::recover::list;
use crate::segment::parse_segment_name;
use crate::stamp::{Identity, Stamp};
use segment_file::Outcome;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file name.
    pub file: String,
    /// The height that it is about, if it is about one.
    pub height: Option<u64>,
    /// Where in the file.
    pub offset: u64,
    /// A short label that scripts may rely on.
    pub kind: &'static str,
    /// The whole story.
    pub detail: String,
}

/// A record as it was read: checksum, head and position are good.
#[derive(Debug)]
pub struct Stored<'a> {
    /// The segment file's name.
    pub file: &'a str,
    /// Where the record begins in it.
    pub offset: u64,
    /// Its height.
    pub height: u64,
    /// The block's time.
    pub timestamp: u64,
    /// The block's hash.
    pub hash: Hash,
    /// The parent's hash.
    pub parent: Hash,
    /// The hashes of its transactions.
    pub transactions: Vec<Hash>,
    /// The terms of its logs.
    pub logs: Vec<Terms>,
    /// The caller's bits.
    pub flags: u32,
    /// The chain that its segment says to hold.
    pub identity: Identity,
    /// Its parts and how they are encoded; absent ones are empty.
    pub parts: [(&'a [u8], Encoding); PARTS_MAX],
}

/// Who hears about it.
pub trait Visitor {
    /// Something is wrong.
    fn finding(&mut self, finding: Finding);

    /// A record, in height order within its segment.
    fn record(&mut self, record: &Stored<'_>);

    /// So many more bytes were looked at.
    fn progress(&mut self, bytes: u64);
}

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Segment files.
    pub segments: u64,
    /// Records.
    pub records: u64,
    /// Merged hash tables.
    pub tables: u64,
    /// First and last height, if there is any.
    pub range: Option<(u64, u64)>,
}

/// Bytes that verifying `path`, a store or one segment file, will look at.
pub fn total_bytes(path: &Path) -> Result<u64, Error> {
    let read = |error| Error::read(path, error);
    if !path.is_dir() {
        return Ok(path.metadata().map_err(read)?.len());
    }
    let names = list(path)?;
    let length = |name: &String| path.join(name).metadata().map_or(0, |metadata| metadata.len());
    Ok(names.iter().filter(|name| parse_segment_name(name).is_some()).map(length).sum())
}

/// Verifies one segment file, wherever it lies. Its neighbours and the stamp are not needed.
pub fn segment(path: &Path, visitor: &mut dyn Visitor) -> Result<Summary, Error> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let outcome = segment_file::verify(path, name, visitor)?;
    Ok(Summary {
        segments: 1,
        records: outcome.records(),
        tables: 0,
        range: outcome.first().zip(outcome.tip().map(|(height, _)| height)),
    })
}

/// Verifies the store in `dir`.
pub fn directory(dir: &Path, visitor: &mut dyn Visitor) -> Result<Summary, Error> {
    let names = list(dir)?;
    let empty = !names.iter().any(|name| parse_segment_name(name).is_some());
    let stamp = if empty { None } else { stamp(dir, visitor)? }; // it comes with the first block
    let mut walk = Walk { visitor, stamp, before: None, outcomes: Vec::new() };
    for name in names.iter().filter(|name| parse_segment_name(name).is_some()) {
        walk.segment(dir, name)?;
    }
    let Walk { visitor, outcomes, .. } = walk;
    let mut summary = Summary {
        segments: outcomes.len() as u64,
        records: outcomes.iter().map(Outcome::records).sum(),
        tables: 0,
        range: outcomes.iter().find_map(Outcome::first).zip(last(&outcomes)),
    };
    for name in names.iter().filter(|name| parse_table_name(name).is_some()) {
        summary.tables += u64::from(table_file::verify(dir, name, &outcomes, visitor)?);
    }
    Ok(summary)
}

fn last(outcomes: &[Outcome]) -> Option<u64> {
    outcomes.iter().rev().find_map(Outcome::tip).map(|(height, _)| height)
}

fn stamp(dir: &Path, visitor: &mut dyn Visitor) -> Result<Option<Stamp>, Error> {
    let finding = |detail: String| finding(crate::stamp::STAMP_NAME, None, 0, "stamp", detail);
    match Stamp::load(dir) {
        Ok(None) => visitor.finding(finding("the directory has no stamp".into())),
        Ok(stamp) => return Ok(stamp),
        Err(Error::BadStamp { reason, .. }) => visitor.finding(finding(reason)),
        Err(error) => return Err(error),
    }
    Ok(None)
}

/// Goes over the segments in height order and holds each against the one before.
struct Walk<'v> {
    visitor: &'v mut dyn Visitor,
    stamp: Option<Stamp>,
    /// The newest record of the segment before.
    before: Option<(u64, Hash)>,
    outcomes: Vec<Outcome>,
}

impl Walk<'_> {
    fn segment(&mut self, dir: &Path, name: &str) -> Result<(), Error> {
        let outcome = match segment_file::verify(&dir.join(name), name, self.visitor) {
            Ok(outcome) => outcome,
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                // Evicted meanwhile, and with it all before it.
                (self.before, self.outcomes) = (None, Vec::new());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.check_identity(name, &outcome);
        self.check_joins(name, &outcome);
        self.before = outcome.tip().or(self.before);
        self.outcomes.push(outcome);
        Ok(())
    }

    fn check_identity(&mut self, name: &str, outcome: &Outcome) {
        let (Some(stamp), Some(found)) = (self.stamp, outcome.identity()) else { return };
        if found != stamp.identity {
            let detail = format!("segment holds {found}, the stamp says {}", stamp.identity);
            self.visitor.finding(finding(name, None, 0, "identity", detail));
        }
    }

    fn check_joins(&mut self, name: &str, outcome: &Outcome) {
        let Some(((height, hash), base)) = self.before.zip(outcome.base()) else { return };
        if base != height + 1 {
            let detail = format!("segment begins at {base}, the one before ends at {height}");
            self.visitor.finding(finding(name, Some(base), 0, "gap", detail));
        } else if let Some(parent) = outcome.first_parent.filter(|parent| *parent != hash) {
            let detail = format!("block {base} has parent {parent}, block {height} is {hash}");
            self.visitor.finding(finding(name, Some(base), 0, "parent_link", detail));
        }
    }
}

fn finding(
    file: &str,
    height: Option<u64>,
    offset: u64,
    kind: &'static str,
    detail: impl Into<String>,
) -> Finding {
    Finding { file: file.to_owned(), height, offset, kind, detail: detail.into() }
}

/// The first byte of `bytes`, which lie at `offset`, that is not zero.
fn first_not_zero(bytes: &[u8], offset: u64) -> Option<u64> {
    bytes.iter().position(|byte| *byte != 0).map(|at| offset + at as u64)
}

/// A label for damage that a header can have.
fn damaged(file: &str, offset: u64, kind: &'static str, damage: Damage) -> Finding {
    finding(file, None, offset, kind, damage)
}
