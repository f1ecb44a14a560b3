//! Opening a directory: what is whole is served, what is in doubt goes.
//!
//! The upstream is the truth, so nothing is healed here. The segment that was being written is
//! walked record by record up to the first doubt. Sealed segments are believed by their header;
//! `verify` reads the rest. If segments do not join up, the longest unbroken run stays.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustix::fs::FlockOperation;

use crate::active::{self, Active};
use crate::disk::{Disk, Latch, Op};
use crate::error::Error;
use crate::format::{OTHER_VERSION, Seal, SegmentHeader};
use crate::merge::{Merged, parse_table_name};
use crate::options::{Opened, Options};
use crate::record::Hash;
use crate::segment::{self, Segment, UNFINISHED, parse_segment_name, segment_name};
use crate::stamp::{Identity, Stamp};
use crate::view::{Reader, View};
use crate::writer::Writer;

/// The file whose lock the writer holds. It stays empty.
pub(crate) const LOCK_NAME: &str = "lock";

pub(crate) fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Opened, Error> {
    let lock = lock(disk.dir())?;
    let stamp = Stamp::load(disk.dir())?;
    let mut opening = Opening {
        latch: Latch::new(disk, options.disk_reserve_bytes),
        notes: Vec::new(),
        expected: options.expected,
        found: None,
        stamp,
    };
    opening.check_identity(stamp.map(|stamp| stamp.identity))?;
    let names = list(opening.latch.dir())?;
    opening.remove_unfinished(&names)?;
    let (segments, active) = opening.open_segments(&names)?;
    let tables = opening.open_tables(&names, &segments)?;
    opening.finish(options, lock, segments, active, tables)
}

fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join(LOCK_NAME);
    let options = File::options().write(true).create(true).truncate(false).clone();
    let file = options.open(&path).map_err(|error| Error::read(&path, error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked { dir: dir.to_owned() }),
        Err(error) => Err(Error::read(path, error.into())),
    }
}

/// The file names in `dir`, sorted, so that segments come in height order.
pub(crate) fn list(dir: &Path) -> Result<Vec<String>, Error> {
    let read = |error| Error::read(dir, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        names.extend(entry.map_err(read)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// A segment file whose header was believed.
enum Candidate {
    Sealed(SegmentHeader, Seal),
    Active(SegmentHeader),
}

impl Candidate {
    fn header(&self) -> &SegmentHeader {
        match self {
            Self::Sealed(header, _) | Self::Active(header) => header,
        }
    }

    /// The height after its last record; for an unsealed one at least its base.
    fn end_height(&self) -> u64 {
        match self {
            Self::Sealed(header, seal) => header.base_height + u64::from(seal.count),
            Self::Active(header) => header.base_height,
        }
    }
}

struct Opening {
    latch: Latch,
    notes: Vec<String>,
    /// The chain that the caller wants.
    expected: Option<Identity>,
    /// The chain that the segments are of.
    found: Option<Identity>,
    stamp: Option<Stamp>,
}

impl Opening {
    fn check_identity(&self, found: Option<Identity>) -> Result<(), Error> {
        let known = self.stamp.map(|stamp| stamp.identity).or(self.found);
        match (found, self.expected.or(known)) {
            (Some(found), Some(expected)) if found != expected => {
                Err(Error::WrongChain { dir: self.latch.dir().to_owned(), found, expected })
            }
            _ => Ok(()),
        }
    }

    fn remove_unfinished(&mut self, names: &[String]) -> Result<(), Error> {
        let unfinished = names.iter().filter(|name| name.ends_with(UNFINISHED));
        unfinished.into_iter().try_for_each(|name| self.latch.apply(Op::Remove { name }))
    }

    fn open_segments(
        &mut self,
        names: &[String],
    ) -> Result<(Vec<Arc<Segment>>, Option<Active>), Error> {
        let mut runs: Vec<Vec<Candidate>> = Vec::new();
        for base in names.iter().filter_map(|name| parse_segment_name(name)) {
            let Some(candidate) = self.inspect(base)? else { continue };
            match runs.last_mut() {
                Some(run) if joins(run, base) => run.push(candidate),
                _ => runs.push(vec![candidate]),
            }
        }
        // Ties go to the newer run: the newest heights are asked for most.
        let longest = (0..runs.len()).max_by_key(|at| heights(&runs[*at]));
        let kept = longest.map(|at| runs.remove(at)).unwrap_or_default();
        for gone in runs.iter().flatten() {
            self.drop_segment(gone.header().base_height, "does not join the longest run")?;
        }
        self.open_run(kept)
    }

    /// Looks at a segment's header; removes the file if it is damaged.
    fn inspect(&mut self, base: u64) -> Result<Option<Candidate>, Error> {
        let path = self.latch.dir().join(segment_name(base));
        let candidate = match segment::inspect(&path, base)? {
            segment::Opened::Sealed(header, seal) => Candidate::Sealed(header, seal),
            segment::Opened::Active(header) => Candidate::Active(header),
            segment::Opened::Damaged(OTHER_VERSION) => return Err(Error::OtherVersion { path }),
            segment::Opened::Damaged(damage) => {
                return self.drop_segment(base, damage).map(|()| None);
            }
        };
        let identity = candidate.header().identity;
        self.check_identity(Some(identity))?;
        self.found = Some(identity);
        Ok(Some(candidate))
    }

    fn drop_segment(&mut self, base: u64, why: &str) -> Result<(), Error> {
        let name = segment_name(base);
        self.notes.push(format!("{name}: removed, {why}"));
        self.latch.apply(Op::Remove { name: &name })
    }

    fn open_run(
        &mut self,
        run: Vec<Candidate>,
    ) -> Result<(Vec<Arc<Segment>>, Option<Active>), Error> {
        let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(run.len());
        let mut active = None;
        for candidate in run {
            match candidate {
                Candidate::Sealed(header, seal) => {
                    let path = self.latch.dir().join(segment_name(header.base_height));
                    segments.push(Arc::new(Segment::open_sealed(&path, header, &seal)?));
                }
                Candidate::Active(header) => {
                    active = self.open_active(header, last_hash(&segments))?;
                    segments.extend(active.as_ref().map(|active| Arc::clone(&active.segment)));
                }
            }
        }
        Ok((segments, active))
    }

    fn open_active(
        &mut self,
        header: SegmentHeader,
        parent: Option<Hash>,
    ) -> Result<Option<Active>, Error> {
        let active = active::recover(&mut self.latch, header, parent, &mut self.notes)?;
        if active.tip.is_some() {
            return Ok(Some(active));
        }
        let name = segment_name(header.base_height);
        self.latch.apply(Op::Remove { name: &name })?; // nothing in it yet, and the next may differ
        Ok(None)
    }

    /// Opens the merged tables that speak of the blocks that are here; removes the others.
    fn open_tables(
        &mut self,
        names: &[String],
        segments: &[Arc<Segment>],
    ) -> Result<Vec<Arc<Merged>>, Error> {
        let mut tables: Vec<Arc<Merged>> = Vec::new();
        // By first height, the longer one first, so that a finished merge hides its sources.
        let mut found: Vec<(u64, u64)> =
            names.iter().filter_map(|name| parse_table_name(name)).collect();
        found.sort_unstable_by_key(|(first, last)| (*first, std::cmp::Reverse(*last)));
        for (first, last) in found {
            let name = crate::merge::table_name(first, last);
            let after = tables.last().is_none_or(|table| table.header.last < first);
            match Merged::open(&self.latch.dir().join(&name))? {
                Ok(table) if after && speaks_of(&table, segments) => tables.push(Arc::new(table)),
                _ => self.latch.apply(Op::Remove { name: &name })?,
            }
        }
        Ok(tables)
    }

    fn finish(
        self,
        options: Options,
        lock: File,
        segments: Vec<Arc<Segment>>,
        active: Option<Active>,
        tables: Vec<Arc<Merged>>,
    ) -> Result<Opened, Error> {
        let head = segments.last().and_then(|last| last.record(last.end_height() - 1));
        let view = Arc::new(ArcSwap::from_pointee(View::new(segments, tables)));
        let mut writer = Writer {
            latch: self.latch,
            options,
            view: Arc::clone(&view),
            stamp: self.stamp,
            active,
            head: head.map(|head| (head.height(), head.hash())),
            rewrite_due: false,
            names_due: false,
            _lock: lock,
        };
        if let (None, Some(identity)) = (self.stamp, self.found) {
            writer.bind(identity, 0)?; // it was lost, and the segments know
        }
        Ok(Opened { writer, reader: Reader::new(view), notes: self.notes })
    }
}

/// Whether a segment with `base` continues `run`. An unsealed one only ever comes last.
fn joins(run: &[Candidate], base: u64) -> bool {
    matches!(run.last(), Some(last @ Candidate::Sealed(..)) if last.end_height() == base)
}

fn heights(run: &[Candidate]) -> u64 {
    let first = run.first().map_or(0, |first| first.header().base_height);
    run.last().map_or(0, |last| last.end_height() - first)
}

fn last_hash(segments: &[Arc<Segment>]) -> Option<Hash> {
    let last = segments.last()?;
    Some(last.record(last.end_height() - 1)?.hash())
}

/// Whether the table was made from these very blocks: hashes chain, so its last one decides.
fn speaks_of(table: &Merged, segments: &[Arc<Segment>]) -> bool {
    let last = table.header.last;
    let after = segments.partition_point(|segment| segment.base() <= last);
    let holder = after.checked_sub(1).map(|at| &segments[at]);
    let record = holder.filter(|holder| !holder.is_active()).and_then(|holder| holder.record(last));
    record.is_some_and(|record| record.hash() == table.header.last_hash)
}
