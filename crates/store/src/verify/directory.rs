//! A whole store, or one segment file of it.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::digest::TableEdges;
use super::finding::{Finding, Stored, Summary, Visitor, damaged, finding};
use super::packed_file;
use super::segment_file::{self, Outcome};
use super::table_file;
use crate::disk::{
    STAMP_NAME, Stamp, list, parse_packed_name, parse_quarantined_name, parse_segment_name,
    parse_table_name,
};
use crate::error::Error;
use crate::format::OTHER_VERSION;
use crate::id::{Hash, Identity};
use crate::reads;
use crate::segment::{OpenedSegment, PackedCodec, Segment, inspect};

/// Bytes that verifying `path`, a store or one segment file, will look at.
pub fn total_bytes(path: &Path) -> Result<u64, Error> {
    let read = |error| Error::read(path, error);
    // `neve verify --segment` has a file.
    if !path.is_dir() {
        return reads::length_of(path).map_err(read);
    }
    let names = list(path)?;
    // An eviction may remove it meanwhile; the sum is for progress only.
    let length = |name: &String| reads::length_of(&path.join(name)).unwrap_or(0);
    Ok(names.iter().filter(|name| base_of(name).is_some()).map(length).sum())
}

/// Verifies one segment file, wherever it lies. Its neighbours and the stamp are not needed.
pub fn segment(path: &Path, visitor: &mut dyn Visitor) -> Result<Summary, Error> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    Ok(summary(&file(path, name, &TableEdges::default(), visitor)?))
}

/// Totals of one file.
fn summary(outcome: &Outcome) -> Summary {
    Summary {
        segments: 1,
        records: outcome.records(),
        tables: 0,
        range: outcome.first().zip(outcome.tip().map(|(height, _)| height)),
    }
}

/// Verifies one packed file by `codec`, whatever its name is.
pub(crate) fn packed(
    path: &Path,
    codec: &dyn PackedCodec,
    visitor: &mut dyn Visitor,
) -> Result<Summary, Error> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let edges = TableEdges::default();
    Ok(summary(&packed_file::verify_with(path, name, codec, &edges, visitor)?))
}

/// True if `dir` has a file with heights, or one that was made of such a file. A lock or a stamp alone
/// does not make a store: there is nothing to look at, so nothing may be called clean.
pub fn is_store(dir: &Path) -> Result<bool, Error> {
    let ours = |name: &String| {
        base_of(name).is_some()
            || parse_quarantined_name(name).is_some()
            || parse_table_name(name).is_some()
    };
    Ok(list(dir)?.iter().any(ours))
}

/// First height in the name of a segment file or a packed file.
fn base_of(name: &str) -> Option<u64> {
    parse_segment_name(name).or_else(|| parse_packed_name(name))
}

fn file(
    path: &Path,
    name: &str,
    edges: &TableEdges,
    visitor: &mut dyn Visitor,
) -> Result<Outcome, Error> {
    // An extension alone: a copy may have any name.
    if path.extension().is_some_and(|extension| extension == "pack") {
        return packed_file::verify(path, name, edges, visitor);
    }
    segment_file::verify(path, name, edges, visitor)
}

/// Verifies the store in `dir`.
pub fn directory(dir: &Path, visitor: &mut dyn Visitor) -> Result<Summary, Error> {
    let names = list(dir)?;
    let empty = !names.iter().any(|name| base_of(name).is_some());
    let stamp = if empty { None } else { stamp(dir, visitor)? }; // it comes with the first block
    if empty {
        names.iter().filter_map(|name| nothing_but(name)).for_each(|found| visitor.finding(found));
    }
    let edges = TableEdges::of(names.iter().filter_map(|name| parse_table_name(name)));
    let mut walk = Walk::new(visitor, stamp, edges);
    walk.all(dir, names.iter().filter(|name| base_of(name).is_some()).cloned().collect())?;
    let Walk { visitor: Unvisited { visitor, .. }, outcomes, .. } = walk;
    let outcomes: Vec<_> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let mut summary = total(&outcomes);
    // Tables last: they are compared with what the segments have.
    for name in names.iter().filter(|name| parse_table_name(name).is_some()) {
        summary.tables += u64::from(table_file::verify(dir, name, &outcomes, visitor)?);
    }
    Ok(summary)
}

/// Totals of all segments.
fn total(outcomes: &[Outcome]) -> Summary {
    Summary {
        segments: outcomes.len() as u64,
        records: outcomes.iter().map(Outcome::records).sum(),
        tables: 0,
        range: outcomes.iter().find_map(Outcome::first).zip(last(outcomes)),
    }
}

/// Finding of a store without a segment that is served, for a file that was set aside.
fn nothing_but(name: &str) -> Option<Finding> {
    parse_quarantined_name(name)?;
    let detail = "set aside, and the store has no other segment; run neve serve";
    Some(finding(name, None, 0, "quarantined", detail))
}

/// Highest height. The name of a file may be higher than its content.
fn last(outcomes: &[Outcome]) -> Option<u64> {
    outcomes.iter().filter_map(Outcome::tip).map(|(height, _)| height).max()
}

fn stamp(dir: &Path, visitor: &mut dyn Visitor) -> Result<Option<Stamp>, Error> {
    let finding = |detail: String| finding(STAMP_NAME, None, 0, "stamp", detail);
    match Stamp::load(dir) {
        Ok(None) => visitor.finding(finding("the directory has no stamp".into())),
        Ok(stamp) => return Ok(stamp),
        Err(Error::BadStamp { reason, .. }) => visitor.finding(finding(reason)),
        Err(error) => return Err(error),
    }
    Ok(None)
}

/// Visitor of a store whose files may be replaced meanwhile: it gets no record twice.
struct Unvisited<'v> {
    visitor: &'v mut dyn Visitor,
    /// Highest height that it had when a file was replaced.
    visited: Option<u64>,
}

impl Visitor for Unvisited<'_> {
    fn finding(&mut self, finding: Finding) {
        self.visitor.finding(finding);
    }

    fn record(&mut self, record: &Stored<'_>) {
        if self.visited.is_none_or(|visited| record.height > visited) {
            self.visitor.record(record);
        }
    }

    fn is_done(&self) -> bool {
        self.visitor.is_done()
    }

    fn codec(&self) -> Option<Arc<dyn PackedCodec>> {
        self.visitor.codec()
    }

    fn progress(&mut self, bytes: u64) {
        self.visitor.progress(bytes);
    }
}

/// Goes over the segments in height order and holds each against the one before.
struct Walk<'v> {
    visitor: Unvisited<'v>,
    stamp: Option<Stamp>,
    edges: TableEdges,
    /// The newest record of the file before, and the name of that file.
    before: Option<((u64, Hash), String)>,
    /// Names of the files, and what was found in them.
    outcomes: Vec<(String, Outcome)>,
    /// Height after the newest packed one.
    packed_end: Option<u64>,
}

impl<'v> Walk<'v> {
    fn new(visitor: &'v mut dyn Visitor, stamp: Option<Stamp>, edges: TableEdges) -> Self {
        Self {
            visitor: Unvisited { visitor, visited: None },
            stamp,
            edges,
            before: None,
            outcomes: Vec::new(),
            packed_end: None,
        }
    }
}

impl Walk<'_> {
    fn all(&mut self, dir: &Path, mut names: VecDeque<String>) -> Result<(), Error> {
        while let Some(name) = names.pop_front() {
            if !self.segment(dir, &name)? {
                names = self.without(dir, &name)?;
            }
        }
        Ok(())
    }

    /// Finds the files to go on with instead of one that is gone: it was evicted, and with it all before it, or its
    /// heights are in a packed file now.
    fn without(&mut self, dir: &Path, gone: &str) -> Result<VecDeque<String>, Error> {
        let names = list(dir)?.into_iter().filter(|name| base_of(name).is_some());
        let mut names: VecDeque<String> = names.collect();
        let lowest = names.iter().find_map(|name| base_of(name));
        self.outcomes.retain(|(name, _)| base_of(name) >= lowest);
        let is_new = |name: &String| self.outcomes.iter().all(|(walked, _)| walked != name);
        let covers = |name: &String| {
            parse_packed_name(name).is_some_and(|base| Some(base) <= base_of(gone)) && is_new(name)
        };
        if let Some(at) = names.iter().rposition(covers) {
            names.drain(..at);
            // It may have heights of files before, too.
            let base = names.front().and_then(|name| base_of(name));
            self.visitor.visited = self.before.as_ref().map(|((height, _), _)| *height);
            self.outcomes.retain(|(name, _)| base_of(name) < base);
        } else {
            // A repair writes the heights of a packed file into a segment, and a removed file comes back.
            names.retain(|name| base_of(name) >= base_of(gone));
        }
        let newest = |(name, outcome): &(String, Outcome)| Some((outcome.tip()?, name.clone()));
        self.before = self.outcomes.iter().rev().find_map(newest);
        Ok(names)
    }

    /// Verifies a file. Returns false if it is gone.
    fn segment(&mut self, dir: &Path, name: &str) -> Result<bool, Error> {
        // A segment whose heights are packed waits for its removal.
        let is_packed = self.packed_end > base_of(name) && parse_segment_name(name).is_some();
        if is_packed || self.is_left_behind(dir, name) {
            self.check_leftover(dir, name);
            return Ok(true);
        }
        let outcome = match file(&dir.join(name), name, &self.edges, &mut self.visitor) {
            Ok(outcome) => outcome,
            Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(false);
            }
            Err(error) => return self.report_unread(name, error).map(|()| true),
        };
        self.note_outcome(name, outcome);
        Ok(true)
    }

    /// Reports an error that is one of this file alone.
    fn report_unread(&mut self, name: &str, error: Error) -> Result<(), Error> {
        match error {
            Error::Read { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
                self.visitor.finding(damaged(name, 0, "segment_header", "not a regular file"));
            }
            Error::Read { source, .. } if reads::is_disk_failure(&source) => {
                let detail = format!("the disk fails to deliver it: {source}");
                self.visitor.finding(finding(name, None, 0, "unreadable", detail));
            }
            error => return Err(error),
        }
        Ok(())
    }

    /// Compares the content of a file with the stamp and the file before, and notes it.
    fn note_outcome(&mut self, name: &str, outcome: Outcome) {
        self.check_identity(name, outcome.identity());
        self.check_joins(name, &outcome);
        if parse_packed_name(name).is_some() {
            self.packed_end = outcome.tip().map(|(height, _)| height + 1);
        }
        if let Some(tip) = outcome.tip() {
            self.before = Some((tip, name.to_owned()));
        }
        self.outcomes.push((name.to_owned(), outcome));
    }

    /// True if a sealed segment has no block that the sealed segment before it lacks: it waits for its removal, or is a
    /// part of the one before it, which waits for its end.
    fn is_left_behind(&self, dir: &Path, name: &str) -> bool {
        let found = parse_segment_name(name).zip(self.before.as_ref());
        let Some((base, ((last, _), before_name))) = found else { return false };
        let sealed = |name: &str| match inspect(&dir.join(name), parse_segment_name(name)?) {
            Ok(OpenedSegment::Sealed(header, seal)) => Some((header, seal)),
            _ => None,
        };
        // As opening does: of other blocks there, it is set aside. Hashes chain, so the newest one decides.
        let is_copy = || {
            let (header, seal) = sealed(name)?;
            let newest = (header.base_height + u64::from(seal.count)).checked_sub(1)?;
            let (header, whole) = sealed(before_name)?;
            let before = Segment::open_sealed(&dir.join(before_name), header, &whole).ok()?;
            Some(newest <= *last && before.hash_at(newest) == Some(seal.last_hash))
        };
        base <= *last && is_copy() == Some(true)
    }

    /// Looks at the header of a segment that waits for its removal: an opening refuses one that it cannot remove.
    fn check_leftover(&mut self, dir: &Path, name: &str) {
        let Some(base) = parse_segment_name(name) else { return };
        match inspect(&dir.join(name), base) {
            Ok(OpenedSegment::Sealed(header, _) | OpenedSegment::Active(header)) => {
                self.check_identity(name, Some(header.identity));
            }
            Ok(OpenedSegment::Damaged(OTHER_VERSION)) => {
                self.visitor.finding(damaged(name, 0, "segment_header", OTHER_VERSION));
            }
            _ => {} // set aside or removed
        }
    }

    fn check_identity(&mut self, name: &str, found: Option<Identity>) {
        let (Some(stamp), Some(found)) = (self.stamp, found) else { return };
        if found != stamp.identity {
            let detail = format!("segment holds {found}, the stamp says {}", stamp.identity);
            self.visitor.finding(finding(name, None, 0, "identity", detail));
        }
    }

    fn check_joins(&mut self, name: &str, outcome: &Outcome) {
        let before = self.before.as_ref().map(|(newest, _)| *newest);
        let Some(((height, hash), base)) = before.zip(outcome.base()) else { return };
        if base != height + 1 {
            let detail = format!("segment begins at {base}, the one before ends at {height}");
            self.visitor.finding(finding(name, Some(base), 0, "gap", detail));
        } else if let Some(parent) = outcome.first_parent.filter(|parent| *parent != hash) {
            let detail = format!("block {base} has parent {parent}, block {height} is {hash}");
            self.visitor.finding(finding(name, Some(base), 0, "parent_link", detail));
        }
    }
}
