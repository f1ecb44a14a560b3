//! A packed file: all checksums, and each height as its codec unpacks it.

use std::fs::File;
use std::io;
use std::path::Path;

use super::digest::{FileDigests, TableEdges};
use super::finding::{Stored, Visitor, finding};
use super::segment_file::Outcome;
use crate::disk::parse_packed_name;
use crate::error::Error;
use crate::format::{PARTS_MAX, Record};
use crate::id::{Hash, Identity};
use crate::reads;
use crate::segment::{
    PackedBytes, PackedCodec, PackedDamage, PackedHeader, PackedKeys, PackedRange,
    entries_of_record,
};

const KIND: &str = "packed";
/// Bytes of a file that is read whole: many small reads of it take longer. One of mainnet has 8 MB.
const IN_MEMORY_MAX: u64 = 256 << 20;
/// Most findings about one file. A forged file could give thousands, each after much work.
const FINDINGS_MAX: u32 = 16;

/// Verifies the packed file at `path`, called `name` in what is reported.
pub(super) fn verify(
    path: &Path,
    name: &str,
    edges: &TableEdges,
    visitor: &mut dyn Visitor,
) -> Result<Outcome, Error> {
    if let Some(codec) = visitor.codec() {
        return verify_with(path, name, &*codec, edges, visitor);
    }
    visitor.finding(finding(name, None, 0, KIND, "packed files cannot be read here"));
    Ok(Outcome::default())
}

/// Verifies the packed file at `path` by `codec`.
pub(super) fn verify_with(
    path: &Path,
    name: &str,
    codec: &dyn PackedCodec,
    edges: &TableEdges,
    visitor: &mut dyn Visitor,
) -> Result<Outcome, Error> {
    let read = |error| Error::read(path, error);
    let file = reads::open_regular(path).map_err(read)?;
    let len = reads::length(&file).map_err(read)?;
    let bytes = bytes_of(file, len, codec).map_err(read)?;
    let outcome = match bytes.and_then(|bytes| codec.open(bytes)) {
        Ok(range) => heights(&*range, name, edges, visitor),
        Err(damage) => {
            visitor.finding(finding(name, None, 0, KIND, damage.to_string()));
            Outcome::default()
        }
    };
    visitor.progress(len);
    Ok(outcome)
}

/// Bytes of a file of `len` bytes, if its header says so too: in memory, unless they are many.
fn bytes_of(
    file: File,
    len: u64,
    codec: &dyn PackedCodec,
) -> io::Result<Result<PackedBytes, PackedDamage>> {
    let mut start = vec![0; (codec.start_bytes() as u64).min(len) as usize];
    reads::read_exact(&file, &mut start, 0)?;
    let said = match codec.start(&start) {
        Ok(start) => start.bytes,
        Err(damage) => return Ok(Err(damage)),
    };
    if said != len {
        let damage = format!("the file has {len} bytes, its header says {said}");
        return Ok(Err(PackedDamage::Damaged(damage)));
    }
    // Each height reads the tables of the file: from memory as long as that is small enough.
    if len > IN_MEMORY_MAX {
        return Ok(Ok(PackedBytes::on_disk(file, len)));
    }
    let mut bytes = vec![0; len as usize];
    reads::read_exact(&file, &mut bytes, 0)?;
    Ok(Ok(PackedBytes::in_memory(bytes)))
}

fn heights(
    range: &dyn PackedRange,
    name: &str,
    edges: &TableEdges,
    visitor: &mut dyn Visitor,
) -> Outcome {
    let header = range.header();
    if parse_packed_name(name).is_some_and(|base| base != header.first) {
        let detail = format!("the header says first height {}", header.first);
        visitor.finding(finding(name, None, 0, KIND, detail));
    }
    let mut check = PackedCheck::new(range, name, visitor);
    if let Err(damage) = range.check() {
        check.report(None, KIND, damage.to_string());
    }
    check.run(edges)
}

struct PackedCheck<'c> {
    range: &'c dyn PackedRange,
    name: &'c str,
    identity: Identity,
    /// Hash of the block before, if that was read.
    before: Option<Hash>,
    visitor: &'c mut dyn Visitor,
    findings: u32,
}

impl<'c> PackedCheck<'c> {
    fn new(range: &'c dyn PackedRange, name: &'c str, visitor: &'c mut dyn Visitor) -> Self {
        let PackedHeader { identity, parent, .. } = range.header();
        Self { range, name, identity, before: Some(parent), visitor, findings: 0 }
    }

    /// Checks all heights, and then the indexes.
    fn run(mut self, edges: &TableEdges) -> Outcome {
        let header = self.range.header();
        let (mut records, mut tip, mut digests) = (0, None, FileDigests::new(edges));
        let mut keys = PackedKeys::default();
        for height in header.first..header.end() {
            if self.is_over() {
                return Outcome::packed(&header, records, tip, digests);
            }
            if let Some(record) = self.height(height) {
                entries_of_record(&record).for_each(|entry| digests.add(entry));
                keys.add(&record);
                (records, tip) = (records + 1, Some((height, record.hash)));
            }
        }
        // Without a height that is damaged the indexes cannot be made again.
        if records == u64::from(header.heights)
            && let Err(damage) = self.range.check_indexes(&keys)
        {
            self.report(None, "index", damage.to_string());
        }
        Outcome::packed(&header, records, tip, digests)
    }

    fn report(&mut self, height: Option<u64>, kind: &'static str, detail: String) {
        self.findings += 1;
        self.visitor.finding(finding(self.name, height, 0, kind, detail));
    }

    /// True if the rest of the file tells nothing more: its reader has heard enough, or it has too many faults.
    fn is_over(&mut self) -> bool {
        if self.findings == FINDINGS_MAX {
            self.report(None, KIND, "more findings are not looked for".into());
        }
        self.findings > FINDINGS_MAX || self.visitor.is_done()
    }

    fn height(&mut self, height: u64) -> Option<Record> {
        let record = match self.range.record(height) {
            Ok(record) => record,
            Err(damage) => {
                self.report(Some(height), "record", damage.to_string());
                // The next height has nothing to be compared with.
                self.before = None;
                return None;
            }
        };
        if record.height != height || Some(record.hash) != self.range.hash(height) {
            self.report(Some(height), "record", "the directory names another block".into());
        }
        if self.before.is_some_and(|before| before != record.parent) {
            let detail = format!("block {height} has parent {}", record.parent);
            self.report(Some(height), "parent_link", detail);
        }
        self.before = Some(record.hash);
        self.visitor.record(&stored(self.name, self.identity, &record));
        Some(record)
    }
}

fn stored<'r>(name: &'r str, identity: Identity, record: &'r Record) -> Stored<'r> {
    let mut parts = [Default::default(); PARTS_MAX];
    for (place, part) in parts.iter_mut().zip(&record.parts) {
        *place = (&part.bytes[..], part.encoding);
    }
    Stored {
        file: name,
        offset: 0,
        height: record.height,
        timestamp: record.timestamp,
        hash: record.hash,
        parent: record.parent,
        transactions: record.transactions.clone(),
        logs: record.logs.clone(),
        flags: record.flags,
        identity,
        parts,
    }
}
