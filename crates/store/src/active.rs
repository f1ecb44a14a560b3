//! The segment being written: append, publish, seal.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::disk::{Latch, Op};
use crate::error::Error;
use crate::format::{
    ALIGN, PAGE, RecordHead, SEAL_LEN, SEAL_OFFSET, SECTION_HASHES, SECTION_LOGS, SLOT_LEN, Seal,
    Section, SegmentHeader, Slot, TERMS_MAX, aligned, all_terms, array, slot_offset,
};
use crate::hashes::{entries_of, homes_for};
use crate::log_index::LogIndex;
use crate::postings::{self, LOGS_MAX};
use crate::record::{Encoded, Hash, Part, Record};
use crate::segment::{Lookup, Segment, UNFINISHED, disk_bytes, segment_name};
use crate::table;

/// The newest record's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(crate) height: u64,
    pub(crate) hash: Hash,
    pub(crate) timestamp: u64,
}

/// The active segment, its writer's side.
pub(crate) struct Active {
    pub(crate) segment: Arc<Segment>,
    name: String,
    /// Where the next record goes. Everything before it is committed.
    position: u64,
    pub(crate) tip: Option<Tip>,
}

impl Active {
    /// Makes an empty active segment. Its header becomes safe with the first sync of its records;
    /// without one the file is not worth keeping.
    pub(crate) fn create(latch: &mut Latch, header: SegmentHeader) -> Result<Self, Error> {
        let mut active = Self::create_aside(latch, header)?;
        active.take_name(latch)?;
        Ok(active)
    }

    /// Makes an empty active segment whose file is removed at the next opening, unless
    /// [`Active::take_name`] was called before.
    pub(crate) fn create_aside(latch: &mut Latch, header: SegmentHeader) -> Result<Self, Error> {
        let name = format!("{}{UNFINISHED}", segment_name(header.base_height));
        latch.allocate(&name, header.capacity)?;
        latch.apply(Op::Write { name: &name, offset: 0, bytes: &header.to_bytes() })?;
        let segment = Arc::new(Segment::open_active(&latch.dir().join(&name), header)?);
        Ok(Self { segment, name, position: header.data_offset, tip: None })
    }

    /// Gives the file the name of a segment, in place of whatever had it.
    pub(crate) fn take_name(&mut self, latch: &mut Latch) -> Result<(), Error> {
        let name = segment_name(self.segment.base());
        latch.apply(Op::Rename { from: &self.name, to: &name })?;
        self.name = name;
        latch.apply(Op::SyncDir)
    }

    /// Its file's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of a segment that a record of `len` bytes fills: itself, and hash table and index of
    /// logs at their longest.
    pub(crate) fn bytes_for(len: u64, head: &RecordHead) -> u64 {
        aligned(len) + table_len_max(head.transactions as usize + 1) + index_len_max(head.logs)
    }

    /// Whether the record and, later, hash table and index of logs have room.
    pub(crate) fn fits(&self, record: &Record) -> bool {
        let header = &self.segment.header;
        let entries = self.table_len() + record.transactions.len() + 1;
        let (logs, index) = match &self.segment.logs {
            LogIndex::Active(logs) => (logs.logs(), logs.len_max()),
            LogIndex::Sealed(_) | LogIndex::Absent => (0, 0),
        };
        let index = index + index_len_max(record.logs.len() as u32);
        let end = self.position + aligned(record.encoded_len()) + table_len_max(entries) + index;
        self.segment.count() < header.span
            && end <= header.capacity
            && logs + record.logs.len() as u64 <= LOGS_MAX
    }

    fn table_len(&self) -> usize {
        match &self.segment.lookup {
            Lookup::Active(table) => table.len(),
            Lookup::Sealed { .. } => 0,
        }
    }

    /// Writes the record, then its slot, then lets readers see both.
    pub(crate) fn append(&mut self, latch: &mut Latch, record: &Record) -> Result<(), Error> {
        let Encoded { head, bounds, encodings } = record.encode();
        let mut writing = Writing::new(latch, &self.name, self.position);
        writing.add(&head)?;
        record.parts.iter().try_for_each(|Part { bytes, .. }| writing.add(bytes))?;
        let slot = Slot {
            offset: self.position,
            length: record.encoded_len() as u32,
            record_crc: writing.finish()?,
            bounds,
            encodings,
            flags: record.flags,
        };
        let at = slot_offset(self.segment.count());
        let bytes = &slot.to_bytes(record.height);
        latch.apply(Op::Write { name: &self.name, offset: at, bytes })?;
        self.commit(&slot, &RecordHead::of(record), &head);
        Ok(())
    }

    /// Makes a written record findable, then readable.
    /// `record` are its bytes, at least those before its parts.
    fn commit(&mut self, slot: &Slot, head: &RecordHead, record: &[u8]) {
        if let Lookup::Active(table) = &self.segment.lookup {
            entries_of(head.height, &head.hash, record, head.transactions)
                .for_each(|entry| table.insert(entry));
        }
        if let LogIndex::Active(logs) = &self.segment.logs {
            logs.push(all_terms(record, head));
        }
        self.position = aligned(slot.offset + u64::from(slot.length));
        let slots_end = slot_offset(self.segment.count() + 1);
        self.segment.map.publish(slots_end, self.position);
        self.tip = Some(Tip { height: head.height, hash: head.hash, timestamp: head.timestamp });
    }

    pub(crate) fn sync(&self, latch: &mut Latch) -> Result<(), Error> {
        latch.apply(Op::Sync { name: &self.name })
    }

    /// Writes the sections and, once they and all records are safe, the seal; gives the unused end
    /// back. The segment must have a record.
    pub(crate) fn seal(&self, latch: &mut Latch) -> Result<Segment, Error> {
        let (Lookup::Active(hashes), LogIndex::Active(logs)) =
            (&self.segment.lookup, &self.segment.logs)
        else {
            unreachable_seal()
        };
        let hashes = table::build(&hashes.sorted_entries());
        let sections = vec![
            self.section(latch, SECTION_HASHES, self.position, &hashes)?,
            self.section(latch, SECTION_LOGS, self.position + hashes.len() as u64, &logs.build())?,
        ];
        let seal = self.seal_sector(sections);
        self.sync(latch)?;
        let sector = seal.to_bytes();
        latch.apply(Op::Write { name: &self.name, offset: SEAL_OFFSET as u64, bytes: &sector })?;
        self.sync(latch)?;
        latch.apply(Op::Punch {
            name: &self.name,
            offset: seal.end.next_multiple_of(PAGE as u64),
        })?;
        self.sealed(latch, &seal)
    }

    fn section(
        &self,
        latch: &mut Latch,
        kind: u32,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Section, Error> {
        latch.apply(Op::Write { name: &self.name, offset, bytes })?;
        let (length, crc) = (bytes.len() as u64, crc32fast::hash(bytes));
        Ok(Section { kind, encoding: 0, offset, length, crc })
    }

    fn seal_sector(&self, sections: Vec<Section>) -> Seal {
        let tip = self.tip.expect("a segment without records is never sealed");
        Seal {
            count: self.segment.count(),
            data_end: self.position,
            last_timestamp: tip.timestamp,
            end: sections.last().map_or(self.position, |last| last.offset + last.length),
            last_hash: tip.hash,
            sections,
        }
    }

    fn sealed(&self, latch: &Latch, seal: &Seal) -> Result<Segment, Error> {
        let header = self.segment.header;
        let map = Arc::clone(&self.segment.map);
        map.publish(slot_offset(seal.count), seal.end);
        let path = latch.dir().join(&self.name);
        let file = File::open(&path).map_err(|error| Error::read(&path, error))?;
        let bytes = disk_bytes(&file).map_err(|error| Error::read(&path, error))?;
        Ok(Segment::sealed(header, map, seal, bytes))
    }
}

#[allow(clippy::panic, reason = "Active is only ever made with an active lookup")]
fn unreachable_seal() -> ! {
    panic!("an active segment has an active hash table and index of logs")
}

fn table_len_max(entries: usize) -> u64 {
    16 + 16 * (homes_for(entries) + entries) as u64
}

fn index_len_max(logs: u32) -> u64 {
    let postings = u64::from(logs) * TERMS_MAX as u64;
    postings::encoded_len(1, postings, postings)
}

/// Opens a segment that was not sealed: commits the records that are whole and linked, drops the
/// rest, and clears their slots so that they cannot come back.
pub(crate) fn recover(
    latch: &mut Latch,
    header: SegmentHeader,
    parent: Option<Hash>,
    notes: &mut Vec<String>,
) -> Result<Active, Error> {
    let name = segment_name(header.base_height);
    let path = latch.dir().join(&name);
    let segment = Arc::new(Segment::open_active(&path, header)?);
    let mut active = Active { segment, name, position: header.data_offset, tip: None };
    let read = |error| Error::read(&path, error);
    let file = File::open(&path).map_err(read)?;
    let slots = read_slots(&file, &header).map_err(read)?;
    let mut parent = parent;
    for slot in slots.chunks_exact(SLOT_LEN) {
        let Some((slot, head, bytes)) = active.next_whole(&file, slot, parent) else { break };
        active.commit(&slot, &head, &bytes);
        parent = Some(head.hash);
    }
    active.clear_seal(latch, &file)?;
    active.clear_rest(latch, &slots, notes)?;
    Ok(active)
}

fn read_slots(file: &File, header: &SegmentHeader) -> std::io::Result<Vec<u8>> {
    let mut slots = vec![0; header.span as usize * SLOT_LEN];
    file.read_exact_at(&mut slots, slot_offset(0))?;
    Ok(slots)
}

impl Active {
    /// The record of the next slot, if slot and record are intact and the record follows.
    fn next_whole(
        &self,
        file: &File,
        slot: &[u8],
        parent: Option<Hash>,
    ) -> Option<(Slot, RecordHead, Vec<u8>)> {
        let header = &self.segment.header;
        let height = self.segment.end_height();
        let slot = Slot::parse(&array(slot, 0), height, header.capacity).ok()?;
        if slot.offset != self.position {
            return None;
        }
        let mut bytes = vec![0; slot.length as usize];
        file.read_exact_at(&mut bytes, slot.offset).ok()?;
        let head = RecordHead::read(&bytes)?;
        let linked = parent.is_none_or(|parent| parent == head.parent);
        let intact = crc32fast::hash(&bytes) == slot.record_crc && head.fits(height, &slot);
        (intact && linked).then_some((slot, head, bytes))
    }

    /// A seal that was being written must not be taken for one later.
    fn clear_seal(&self, latch: &mut Latch, file: &File) -> Result<(), Error> {
        let mut seal = [0; SEAL_LEN];
        let offset = SEAL_OFFSET as u64;
        file.read_exact_at(&mut seal, offset)
            .map_err(|error| Error::read(latch.dir().join(&self.name), error))?;
        if seal == [0; SEAL_LEN] {
            return Ok(());
        }
        latch.apply(Op::Write { name: &self.name, offset, bytes: &[0; SEAL_LEN] })
    }

    fn clear_rest(
        &self,
        latch: &mut Latch,
        slots: &[u8],
        notes: &mut Vec<String>,
    ) -> Result<(), Error> {
        let kept = self.segment.count() as usize * SLOT_LEN;
        let Some(used) = slots.iter().rposition(|byte| *byte != 0).filter(|at| *at >= kept) else {
            return Ok(());
        };
        let dropped = (used - kept) / SLOT_LEN + 1;
        notes.push(format!(
            "{}: dropped {dropped} unfinished or damaged record(s) from height {} on",
            self.name,
            self.segment.end_height()
        ));
        let offset = slot_offset(self.segment.count());
        let zeros = vec![0; dropped * SLOT_LEN];
        latch.apply(Op::Write { name: &self.name, offset, bytes: &zeros })?;
        self.sync(latch)
    }
}

/// Bytes from which a piece of a record is written by itself: copying it first would cost more.
const LARGE: usize = 16 << 10;

/// A record that is being written: small pieces are collected, large ones go as they are.
struct Writing<'w> {
    latch: &'w mut Latch,
    name: &'w str,
    offset: u64,
    small: Vec<u8>,
    crc: crc32fast::Hasher,
}

impl<'w> Writing<'w> {
    fn new(latch: &'w mut Latch, name: &'w str, offset: u64) -> Self {
        Self { latch, name, offset, small: Vec::new(), crc: crc32fast::Hasher::new() }
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.crc.update(piece);
        if piece.len() < LARGE {
            self.small.extend_from_slice(piece);
            return Ok(());
        }
        self.flush()?;
        self.write(piece)
    }

    fn flush(&mut self) -> Result<(), Error> {
        let small = std::mem::take(&mut self.small);
        if small.is_empty() { Ok(()) } else { self.write(&small) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.latch.apply(Op::Write { name: self.name, offset: self.offset, bytes })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Pads it, and gives its checksum.
    fn finish(mut self) -> Result<u32, Error> {
        let end = self.offset + self.small.len() as u64;
        self.small.resize(self.small.len() + (aligned(end) - end) as usize, 0);
        self.flush()?;
        Ok(self.crc.finalize())
    }
}

const _: () = assert!(ALIGN == 8, "table_len_max and padding assume it, and 16 is a multiple");
