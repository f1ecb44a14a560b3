//! A segment file, byte by byte.

use std::fs::File;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::digest::{FileDigests, TableEdges};
use super::finding::{MISPLACED, Stored, Visitor, damaged, finding, first_not_zero};
use crate::disk::parse_segment_name;
use crate::error::Error;
use crate::format::{
    Encoding, HEADER_RESERVED, PAGE, PARTS_MAX, RecordHeader, SEAL_OFFSET, SECTION_HASHES,
    SECTION_LOGS, SLOT_LEN, Seal, SegmentHeader, Slot, aligned, all_terms, array, slot_offset,
    transaction_hash,
};
use crate::id::{Hash, Identity};
use crate::index::postings::Builder;
use crate::index::{Entry, entries_of, table};
use crate::reads;
use crate::segment::PackedHeader;

/// Number of times that a slot is read again which a running server may be writing, and the time
/// between.
const REREADS_MAX: u32 = 20;
const REREAD_WAIT: Duration = Duration::from_millis(5);

/// Content of a segment file, as far as it was read.
#[derive(Default)]
pub(super) struct Outcome {
    header: Option<SegmentHeader>,
    pub(super) sealed: bool,
    records: u64,
    tip: Option<(u64, Hash)>,
    pub(super) first_parent: Option<Hash>,
    /// Digests of the hash table's entries that the records make.
    pub(super) digests: FileDigests,
}

impl Outcome {
    /// Content of a packed file.
    pub(super) fn packed(
        found: &PackedHeader,
        records: u64,
        tip: Option<(u64, Hash)>,
        digests: FileDigests,
    ) -> Self {
        let header = SegmentHeader::new(found.identity, found.first, found.heights, 0);
        let (header, first_parent) = (Some(header), Some(found.parent));
        Self { header, sealed: true, records, tip, first_parent, digests }
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Height and hash of the newest intact record.
    pub(super) fn tip(&self) -> Option<(u64, Hash)> {
        self.tip
    }

    pub(super) fn base(&self) -> Option<u64> {
        self.header.map(|header| header.base_height)
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.base().filter(|_| self.records > 0)
    }

    /// True if the file has one of `heights`.
    pub(super) fn has_any(&self, heights: &RangeInclusive<u64>) -> bool {
        let ends = self.first().zip(self.tip());
        ends.is_some_and(|(first, (last, _))| first <= *heights.end() && *heights.start() <= last)
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        self.header.map(|header| header.identity)
    }
}

/// Verifies the segment file at `path`, called `name` in what is reported.
pub(super) fn verify(
    path: &Path,
    name: &str,
    edges: &TableEdges,
    visitor: &mut dyn Visitor,
) -> Result<Outcome, Error> {
    let file = reads::open_regular(path).map_err(|error| Error::read(path, error))?;
    let (entries, logs) = (Vec::new(), Builder::default());
    let outcome = Outcome { digests: FileDigests::new(edges), ..Outcome::default() };
    SegmentCheck { path, name, file, visitor, outcome, entries, logs, buffer: Vec::new() }.run()
}

struct SegmentCheck<'a> {
    path: &'a Path,
    name: &'a str,
    file: File,
    visitor: &'a mut dyn Visitor,
    outcome: Outcome,
    /// The hash table's entries, as the records give them.
    entries: Vec<Entry>,
    /// The index of logs, as the records give it.
    logs: Builder,
    /// Buffer for all records: fresh memory for each costs more than reading into it.
    buffer: Vec<u8>,
}

impl SegmentCheck<'_> {
    fn run(mut self) -> Result<Outcome, Error> {
        let len = reads::length(&self.file).map_err(|error| Error::read(self.path, error))?;
        if len < PAGE as u64 {
            let detail = format!("no segment; the file has {len} bytes, a file header has {PAGE}");
            self.report(None, 0, "segment_header", &detail);
            return Ok(self.outcome);
        }
        let page: [u8; PAGE] = array(&self.read(0, PAGE)?, 0);
        // Without a header neither index nor records have a place.
        let Some(header) = self.header(&page, len) else { return Ok(self.outcome) };
        self.outcome.header = Some(header);
        let seal = self.seal(&page, &header);
        self.outcome.sealed = seal.is_some();
        let position = self.records(&header, seal.as_ref())?;
        // The sections of an active segment are in memory only.
        if let Some(seal) = seal {
            self.seal_agrees(&seal, position);
            self.hash_table(&seal)?;
            self.log_index(&seal)?;
        }
        self.visitor.progress(len.saturating_sub(position));
        Ok(self.outcome)
    }

    fn report(&mut self, height: Option<u64>, offset: u64, kind: &'static str, detail: &str) {
        self.visitor.finding(finding(self.name, height, offset, kind, detail));
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes, offset, len)?;
        Ok(bytes)
    }

    fn read_into(&self, bytes: &mut Vec<u8>, offset: u64, len: usize) -> Result<(), Error> {
        bytes.resize(len, 0);
        reads::read_exact(&self.file, bytes, offset).map_err(|error| Error::read(self.path, error))
    }

    /// Nothing may stand in the reserved bytes of the header.
    fn reserved(&mut self, page: &[u8; PAGE]) {
        for range in HEADER_RESERVED {
            if let Some(at) = first_not_zero(&page[range.clone()], range.start as u64) {
                self.report(None, at, "reserved", "a byte that must be zero is not");
            }
        }
    }

    fn header(&mut self, page: &[u8; PAGE], len: u64) -> Option<SegmentHeader> {
        self.reserved(page);
        let header = match SegmentHeader::parse(page) {
            Ok(header) => header,
            Err(damage) => {
                self.visitor.finding(damaged(self.name, 0, "segment_header", damage));
                return None;
            }
        };
        if parse_segment_name(self.name).is_some_and(|base| base != header.base_height) {
            let detail = format!("the header says base height {}", header.base_height);
            self.report(None, 16, "segment_header", &detail);
        }
        if header.capacity != len {
            let detail = format!("the file has {len} bytes, its header says {}", header.capacity);
            self.report(None, 72, "segment_header", &detail);
            // The capacity places the records, so nothing behind the header can be believed.
            return None;
        }
        Some(header)
    }

    fn seal(&mut self, page: &[u8; PAGE], header: &SegmentHeader) -> Option<Seal> {
        Seal::parse(page, header).unwrap_or_else(|damage| {
            self.visitor.finding(damaged(self.name, SEAL_OFFSET as u64, "seal", damage));
            None
        })
    }

    /// Checks index and records; returns where the next record would go.
    fn records(&mut self, header: &SegmentHeader, seal: Option<&Seal>) -> Result<u64, Error> {
        let slots = self.read(slot_offset(0), header.slot_count as usize * SLOT_LEN)?;
        self.visitor.progress(header.data_offset);
        let count = seal.map(|seal| seal.count);
        let mut position = header.data_offset;
        for at in 0..header.slot_count {
            let slot: [u8; SLOT_LEN] = array(&slots, at as usize * SLOT_LEN);
            // An unsealed segment has no count: its first empty slot is its end.
            let expected = count.map_or(slot != [0; SLOT_LEN], |count| at < count);
            if !expected {
                self.index_end(at, &slots);
                break;
            }
            position = self.record(header, at, slot, position)?;
        }
        // The hash table is built from sorted entries.
        self.entries.sort_unstable();
        self.entries.iter().for_each(|entry| self.outcome.digests.add(*entry));
        Ok(position)
    }

    /// Nothing may stand behind the last slot in use.
    fn index_end(&mut self, at: u32, slots: &[u8]) {
        let rest = &slots[at as usize * SLOT_LEN..];
        if let Some(offset) = first_not_zero(rest, slot_offset(at)) {
            self.report(None, offset, "index", "an unused index slot is not zero");
        }
    }

    /// Checks one slot and its record; returns where the next record should begin.
    fn record(
        &mut self,
        header: &SegmentHeader,
        at: u32,
        slot: [u8; SLOT_LEN],
        position: u64,
    ) -> Result<u64, Error> {
        let height = header.base_height + u64::from(at);
        let slot = match self.slot(header, at, slot)? {
            Ok(slot) => slot,
            Err(damage) => {
                self.report(Some(height), slot_offset(at), "index", damage);
                // The next record is expected here still: one damaged slot must not misplace all others.
                return Ok(position);
            }
        };
        if slot.offset != position {
            let detail = format!("{MISPLACED}{}, expected {position}", slot.offset);
            self.report(Some(height), slot_offset(at), "index", &detail);
        }
        self.stored_record(header, height, &slot)
    }

    /// Checks the record of a slot, and the padding behind it; returns where they end.
    fn stored_record(
        &mut self,
        header: &SegmentHeader,
        height: u64,
        slot: &Slot,
    ) -> Result<u64, Error> {
        // The capacity in a forged header need not be a multiple of 8.
        let end = aligned(slot.offset + u64::from(slot.length)).min(header.capacity);
        // The buffer is taken, because its bytes go to methods of this value.
        let mut buffer = std::mem::take(&mut self.buffer);
        self.read_into(&mut buffer, slot.offset, (end - slot.offset) as usize)?;
        self.visitor.progress(buffer.len() as u64);
        let (bytes, padding) = buffer.split_at(slot.length as usize);
        if let Some(offset) = first_not_zero(padding, slot.offset + bytes.len() as u64) {
            self.report(Some(height), offset, "padding", "a byte between records is not zero");
        }
        self.content(header, height, slot, bytes);
        self.buffer = buffer;
        Ok(end)
    }

    /// A slot of an unsealed segment may be caught in the middle of being written.
    fn slot(
        &mut self,
        header: &SegmentHeader,
        at: u32,
        mut slot: [u8; SLOT_LEN],
    ) -> Result<Result<Slot, &'static str>, Error> {
        let height = header.base_height + u64::from(at);
        let mut parsed = Slot::parse(&slot, height, header.capacity);
        for _ in 0..REREADS_MAX {
            // A server may be writing the slot just now: a torn read of it is no damage.
            if parsed.is_ok() || self.outcome.sealed {
                break;
            }
            wait(REREAD_WAIT);
            slot = array(&self.read(slot_offset(at), SLOT_LEN)?, 0);
            parsed = Slot::parse(&slot, height, header.capacity);
        }
        Ok(parsed)
    }

    fn content(&mut self, header: &SegmentHeader, height: u64, slot: &Slot, bytes: &[u8]) {
        let Some(head) = self.record_head(height, slot, bytes) else { return };
        // The first record of the file has its parent in another file.
        let linked = self.outcome.tip.is_none_or(|(_, hash)| hash == head.parent);
        if !linked {
            let detail = format!("block {height} does not follow the block before it");
            self.report(Some(height), slot.offset, "parent_link", &detail);
        }
        self.entries.extend(entries_of(height, &head.hash, bytes, head.transactions));
        // An unsealed segment has its log index in memory, so there is nothing to compare.
        if self.outcome.sealed {
            self.logs.push_height(all_terms(bytes, &head));
        }
        self.outcome.tip = Some((height, head.hash));
        self.outcome.first_parent = self.outcome.first_parent.or(Some(head.parent));
        self.outcome.records += 1;
        self.visitor.record(&stored(self.name, header, slot, &head, bytes));
    }

    /// Checks a record alone; returns its head if it is intact.
    fn record_head(&mut self, height: u64, slot: &Slot, bytes: &[u8]) -> Option<RecordHeader> {
        if crc32fast::hash(bytes) != slot.record_crc {
            self.report(Some(height), slot.offset, "record", "record fails its checksum");
            // No later check: a false length or hash would only repeat this finding.
            return None;
        }
        let head = RecordHeader::read(bytes).filter(|head| head.fits(height, slot));
        if head.is_none() {
            self.report(Some(height), slot.offset, "record", "record head does not fit its slot");
        }
        head
    }

    fn seal_agrees(&mut self, seal: &Seal, position: u64) {
        if seal.data_end != position {
            let detail = format!("records end at {position}, the seal says {}", seal.data_end);
            self.report(None, SEAL_OFFSET as u64, "seal", &detail);
        }
        if self.outcome.tip.is_some_and(|(_, hash)| hash != seal.last_hash) {
            self.report(None, SEAL_OFFSET as u64, "seal", "the seal names another last block");
        }
    }

    fn hash_table(&mut self, seal: &Seal) -> Result<(), Error> {
        let Some(section) = seal.section(SECTION_HASHES) else {
            self.report(None, SEAL_OFFSET as u64, "hash_table", "segment has no hash table");
            return Ok(());
        };
        let bytes = self.read(section.offset, section.length as usize)?;
        if crc32fast::hash(&bytes) != section.crc {
            self.report(None, section.offset, "hash_table", "hash table fails its checksum");
        // A checksum only tells that the bytes are as they were written.
        } else if bytes != table::build(&self.entries) {
            let detail = "hash table is not that of the segment's blocks and transactions";
            self.report(None, section.offset, "hash_table", detail);
        }
        Ok(())
    }

    fn log_index(&mut self, seal: &Seal) -> Result<(), Error> {
        let Some(section) = seal.section(SECTION_LOGS) else {
            self.report(None, SEAL_OFFSET as u64, "log_index", "segment has no index of logs");
            return Ok(());
        };
        let bytes = self.read(section.offset, section.length as usize)?;
        if crc32fast::hash(&bytes) != section.crc {
            self.report(None, section.offset, "log_index", "index of logs fails its checksum");
        } else if bytes != std::mem::take(&mut self.logs).build() {
            let detail = "index of logs is not that of the segment's records";
            self.report(None, section.offset, "log_index", detail);
        }
        Ok(())
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "verify runs on a thread of its own, not on a runtime"
)]
fn wait(time: Duration) {
    std::thread::sleep(time);
}

fn stored<'a>(
    file: &'a str,
    header: &SegmentHeader,
    slot: &Slot,
    head: &RecordHeader,
    bytes: &'a [u8],
) -> Stored<'a> {
    let transactions = 0..head.transactions as usize;
    Stored {
        file,
        offset: slot.offset,
        height: head.height,
        timestamp: head.timestamp,
        hash: head.hash,
        parent: head.parent,
        transactions: transactions.map_while(|at| transaction_hash(bytes, at)).collect(),
        logs: all_terms(bytes, head).collect(),
        flags: slot.flags,
        identity: header.identity,
        parts: parts_of(slot, bytes),
    }
}

/// Parts of a record and their encodings, as its slot says.
fn parts_of<'a>(slot: &Slot, bytes: &'a [u8]) -> [(&'a [u8], Encoding); PARTS_MAX] {
    std::array::from_fn(|at| {
        let range = slot.bounds[at] as usize..slot.bounds[at + 1] as usize;
        (bytes.get(range).unwrap_or_default(), slot.encodings[at])
    })
}
