//! The segment being written: append, publish, seal.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::segment::{Lookup, Segment};
use crate::disk::{Latch, Op, PieceWriter, UNFINISHED, segment_name};
use crate::error::Error;
use crate::format::{
    ALIGN, Encoded, PAGE, Part, Record, RecordHeader, SEAL_LEN, SEAL_OFFSET, SECTION_HASHES,
    SECTION_LOGS, SLOT_LEN, Seal, Section, SegmentHeader, Slot, TERMS_MAX, aligned, all_terms,
    array, slot_offset,
};
use crate::id::Hash;
use crate::index::postings::LOGS_MAX;
use crate::index::{LogIndex, entries_of, homes_for, postings, table};
use crate::reads;

/// The newest record's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastBlock {
    pub(crate) height: u64,
    pub(crate) hash: Hash,
    /// 0 if it is not known.
    pub(crate) timestamp: u64,
}

/// The active segment, its writer's side.
pub(crate) struct Active {
    pub(crate) segment: Arc<Segment>,
    name: String,
    /// Place where the next record goes. Everything before it is committed.
    position: u64,
    pub(crate) tip: Option<LastBlock>,
}

impl Active {
    /// Makes an empty active segment. Its header becomes safe with the first sync of its records;
    /// without one the file is not worth keeping.
    pub(crate) fn create(latch: &mut Latch, header: SegmentHeader) -> Result<Self, Error> {
        let mut active = Self::create_aside(latch, header, UNFINISHED)?;
        active.take_name(latch)?;
        Ok(active)
    }

    /// Makes an empty active segment whose file is removed at the next opening, unless
    /// [`Active::take_name`] was called before. Its name ends in `unfinished`.
    pub(crate) fn create_aside(
        latch: &mut Latch,
        header: SegmentHeader,
        unfinished: &str,
    ) -> Result<Self, Error> {
        let name = format!("{}{unfinished}", segment_name(header.base_height));
        latch.allocate(&name, header.capacity)?;
        latch.apply(Op::Write { name: &name, offset: 0, bytes: &header.to_bytes() })?;
        // The map belongs to the file and not to its name, so it outlives the rename.
        Self::open(latch.dir(), name, header)
    }

    /// Opens the file `name`, with nothing committed yet.
    fn open(dir: &Path, name: String, header: SegmentHeader) -> Result<Self, Error> {
        let segment = Arc::new(Segment::open_active(&dir.join(&name), header)?);
        Ok(Self { segment, name, position: header.data_offset, tip: None })
    }

    /// Gives the file the name of a segment, in place of any other file of that name.
    pub(crate) fn take_name(&mut self, latch: &mut Latch) -> Result<(), Error> {
        let name = segment_name(self.segment.base());
        latch.apply(Op::Rename { from: &self.name, to: &name })?;
        self.name = name;
        // Without it a power failure could lose the name of synced records.
        latch.apply(Op::SyncDir)
    }

    /// Name of the file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of a segment that a record of `len` bytes fills: itself, and hash table and index of
    /// logs at their longest.
    pub(crate) fn bytes_for(len: u64, head: &RecordHeader) -> u64 {
        aligned(len) + table_len_max(head.transactions as usize + 1) + index_len_max(head.logs)
    }

    /// True if the record and, later, hash table and index of logs have space.
    pub(crate) fn fits(&self, record: &Record) -> bool {
        self.has_room(record.encoded_len(), &RecordHeader::of(record))
    }

    /// Checks [`Self::fits`] for a record of `len` bytes.
    pub(crate) fn has_room(&self, len: u64, head: &RecordHeader) -> bool {
        let header = &self.segment.header;
        let entries = self.table_len() + head.transactions as usize + 1;
        let (logs, index) = match &self.segment.logs {
            LogIndex::Active(logs) => (logs.logs(), logs.len_max()),
            LogIndex::Sealed(_) | LogIndex::Absent => (0, 0),
        };
        // Space for the index is counted at its longest, as its postings are known at the seal only.
        let index = index + index_len_max(head.logs);
        let end = self.position + aligned(len) + table_len_max(entries) + index;
        self.segment.count() < header.slot_count
            && end <= header.capacity
            && logs + u64::from(head.logs) <= LOGS_MAX
    }

    fn table_len(&self) -> usize {
        match &self.segment.lookup {
            Lookup::Active(table) => table.len(),
            Lookup::Sealed { .. } | Lookup::Packed(_) => 0,
        }
    }

    /// Writes the record, then its slot, then lets readers see both.
    pub(crate) fn append(&mut self, latch: &mut Latch, record: &Record) -> Result<(), Error> {
        let Encoded { head, bounds, encodings } = record.encode();
        let mut writing = PieceWriter::new(latch, &self.name, self.position);
        writing.add(&head)?;
        record.parts.iter().try_for_each(|Part { bytes, .. }| writing.add(bytes))?;
        // The slot comes last: a crash before it leaves bytes that no slot names.
        let slot = Slot {
            offset: self.position,
            length: record.encoded_len() as u32,
            record_crc: writing.finish()?,
            bounds,
            encodings,
            flags: record.flags,
        };
        self.write_slot(latch, &slot, record.height)?;
        self.commit(&slot, &RecordHeader::of(record), &head);
        Ok(())
    }

    /// Writes the slot of the next record, whose bytes are written.
    fn write_slot(&self, latch: &mut Latch, slot: &Slot, height: u64) -> Result<(), Error> {
        let offset = slot_offset(self.segment.count());
        latch.apply(Op::Write { name: &self.name, offset, bytes: &slot.to_bytes(height) })
    }

    /// Writes the record at `height` as it is stored in another segment, damaged or not: a new checksum would hide
    /// the damage. `None` is a record that cannot be read there.
    pub(crate) fn append_stored(
        &mut self,
        latch: &mut Latch,
        height: u64,
        stored: Option<(Slot, Vec<u8>)>,
    ) -> Result<(), Error> {
        let Some((slot, bytes)) = stored else {
            // No slot is written: zeros fail its checksum, so each opening finds the damage.
            self.commit_damaged(height, self.position);
            return Ok(());
        };
        let slot = Slot { offset: self.position, ..slot };
        let mut writing = PieceWriter::new(latch, &self.name, self.position);
        writing.add(&bytes)?;
        let crc = writing.finish()?;
        self.write_slot(latch, &slot, height)?;
        let head = RecordHeader::read(&bytes).filter(|head| head.fits(height, &slot));
        match head.filter(|_| crc == slot.record_crc) {
            Some(head) => self.commit(&slot, &head, &bytes),
            None => self.commit_damaged(height, aligned(slot.offset + u64::from(slot.length))),
        }
        Ok(())
    }

    /// Makes the next slot readable, whose record cannot be found nor served.
    fn commit_damaged(&mut self, height: u64, end: u64) {
        let at = self.segment.count();
        self.segment.checked.note_damaged(
            self.segment.base(),
            at,
            "damaged where it was copied from",
        );
        // Runs count heights: without an entry all later heights would be one off.
        if let LogIndex::Active(logs) = &self.segment.logs {
            logs.push(std::iter::empty());
        }
        self.position = end;
        self.segment.map.publish(slot_offset(at + 1), end);
        // Hash and time of a damaged record are not known: those of an older block would be wrong.
        self.tip = Some(LastBlock { height, hash: Hash::default(), timestamp: 0 });
    }

    /// Makes a written record findable, then readable.
    /// `record` are its bytes, at least those before its parts.
    fn commit(&mut self, slot: &Slot, head: &RecordHeader, record: &[u8]) {
        // Hashes and logs first: a reader that sees the height must find them.
        if let Lookup::Active(table) = &self.segment.lookup {
            entries_of(head.height, &head.hash, record, head.transactions)
                .for_each(|entry| table.insert(entry));
        }
        if let LogIndex::Active(logs) = &self.segment.logs {
            logs.push(all_terms(record, head));
        }
        self.position = aligned(slot.offset + u64::from(slot.length));
        // It was written just now, or its checksum was compared just now.
        self.segment.checked.note_intact(self.segment.count());
        let slots_end = slot_offset(self.segment.count() + 1);
        self.segment.map.publish(slots_end, self.position);
        self.tip =
            Some(LastBlock { height: head.height, hash: head.hash, timestamp: head.timestamp });
    }

    pub(crate) fn sync(&self, latch: &mut Latch) -> Result<(), Error> {
        latch.apply(Op::Sync { name: &self.name })
    }

    /// Writes the sections and, once they and all records are safe, the seal; gives the unused end
    /// back. The segment must have a record.
    pub(crate) fn seal(&self, latch: &mut Latch) -> Result<Segment, Error> {
        let seal = self.seal_sector(self.write_sections(latch)?);
        // The seal promises whole sections, so they are safe before it is written.
        self.sync(latch)?;
        let sector = seal.to_bytes();
        latch.apply(Op::Write { name: &self.name, offset: SEAL_OFFSET as u64, bytes: &sector })?;
        self.sync(latch)?;
        // Space is given back last: a crash before it costs disk only.
        latch.apply(Op::Punch {
            name: &self.name,
            offset: seal.end.next_multiple_of(PAGE as u64),
        })?;
        Ok(self.sealed(latch, &seal))
    }

    /// Writes hash table and index of logs behind the records.
    fn write_sections(&self, latch: &mut Latch) -> Result<Vec<Section>, Error> {
        let (Lookup::Active(hashes), LogIndex::Active(logs)) =
            (&self.segment.lookup, &self.segment.logs)
        else {
            unreachable_seal()
        };
        let hashes = table::build(&hashes.sorted_entries());
        let mut sections = vec![self.section(latch, SECTION_HASHES, self.position, &hashes)?];
        // An index without the logs of a damaged record would hide them.
        if self.segment.checked.damaged() == 0 {
            let offset = self.position + hashes.len() as u64;
            sections.push(self.section(latch, SECTION_LOGS, offset, &logs.build())?);
        }
        Ok(sections)
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

    fn sealed(&self, latch: &Latch, seal: &Seal) -> Segment {
        let header = self.segment.header;
        // The same map: its locked pages and those that threads remember stay so.
        let map = Arc::clone(&self.segment.map);
        map.publish(slot_offset(seal.count), seal.end);
        let path = latch.dir().join(&self.name);
        // If a program removed the file, the map stays valid, and its size is not known.
        let bytes = reads::open_regular(&path).and_then(|file| reads::disk_bytes(&file));
        let sealed = Segment::sealed(header, map, seal, bytes.unwrap_or(header.capacity));
        sealed.with_checked(&self.segment)
    }
}

#[allow(clippy::panic, reason = "Active is only ever made with an active lookup")]
fn unreachable_seal() -> ! {
    panic!("an active segment has an active hash table and index of logs")
}

fn table_len_max(entries: usize) -> u64 {
    // At worst all entries stand behind the last home.
    16 + 16 * (homes_for(entries) + entries) as u64
}

fn index_len_max(logs: u32) -> u64 {
    // At worst each posting has a key of its own.
    let postings = u64::from(logs) * TERMS_MAX as u64;
    postings::encoded_len(1, postings, postings)
}

/// An unsealed segment after opening.
pub(crate) enum Recovered {
    /// The segment has records.
    Some(Active),
    /// Nothing was written to it.
    Nothing,
    /// Something was, and its first record is not whole. The file is as it was.
    Doubtful,
    /// The disk did not deliver the record behind these, or any. The file is as it was, because that record
    /// may be whole.
    NotDelivered(Active),
}

/// Opens a segment that was not sealed: commits the records that are whole and linked, drops the
/// rest, and clears their slots so that they cannot come back.
pub(crate) fn recover(
    latch: &mut Latch,
    header: SegmentHeader,
    parent: Option<Hash>,
    notes: &mut Vec<String>,
) -> Result<Recovered, Error> {
    let mut active = Active::open(latch.dir(), segment_name(header.base_height), header)?;
    let path = latch.dir().join(&active.name);
    let read = |error| Error::read(&path, error);
    let file = reads::again(reads::is_disk_failure, || reads::open_regular(&path)).map_err(read)?;
    let slots = match active.commit_whole(&file, parent) {
        Err(error) if reads::is_disk_failure(&error) => return Ok(Recovered::NotDelivered(active)),
        slots => slots.map_err(read)?,
    };
    if active.tip.is_none() {
        let written = slots.iter().any(|byte| *byte != 0);
        return Ok(if written { Recovered::Doubtful } else { Recovered::Nothing });
    }
    // Otherwise a later crash could bring back a slot behind new ones.
    active.clear_seal(latch, &file)?;
    active.clear_rest(latch, &slots, notes)?;
    Ok(Recovered::Some(active))
}

fn read_slots(file: &File, header: &SegmentHeader) -> io::Result<Vec<u8>> {
    let mut slots = vec![0; header.slot_count as usize * SLOT_LEN];
    reads::read_exact(file, &mut slots, slot_offset(0))?;
    Ok(slots)
}

impl Active {
    /// Commits the records of the file that are whole and linked, up to the first that is not. Returns all slots.
    fn commit_whole(&mut self, file: &File, mut parent: Option<Hash>) -> io::Result<Vec<u8>> {
        let header = self.segment.header;
        let slots = reads::again(reads::is_disk_failure, || read_slots(file, &header))?;
        // Power loss may keep any subset of the unsynced writes: the first record that is not whole ends the
        // range.
        for slot in slots.chunks_exact(SLOT_LEN) {
            let Some((slot, head, bytes)) = self.next_whole(file, slot, parent)? else { break };
            self.commit(&slot, &head, &bytes);
            parent = Some(head.hash);
        }
        Ok(slots)
    }

    /// The record of the next slot, if slot and record are intact and the record follows.
    fn next_whole(
        &self,
        file: &File,
        slot: &[u8],
        parent: Option<Hash>,
    ) -> io::Result<Option<(Slot, RecordHeader, Vec<u8>)>> {
        let header = &self.segment.header;
        let height = self.segment.end_height();
        let slot = Slot::parse(&array(slot, 0), height, header.capacity).ok();
        // Records follow one another: elsewhere there is an older one, or damage.
        let Some(slot) = slot.filter(|slot| slot.offset == self.position) else { return Ok(None) };
        let mut bytes = vec![0; slot.length as usize];
        let mut read = || reads::read_exact(file, &mut bytes, slot.offset);
        match reads::again(reads::is_disk_failure, &mut read) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let Some(head) = RecordHeader::read(&bytes) else { return Ok(None) };
        let linked = parent.is_none_or(|parent| parent == head.parent);
        let intact = crc32fast::hash(&bytes) == slot.record_crc && head.fits(height, &slot);
        Ok((intact && linked).then_some((slot, head, bytes)))
    }

    /// Clears a seal that was not written whole, so that no later start takes it for one.
    fn clear_seal(&self, latch: &mut Latch, file: &File) -> Result<(), Error> {
        let mut seal = [0; SEAL_LEN];
        let offset = SEAL_OFFSET as u64;
        reads::again(reads::is_disk_failure, || reads::read_exact(file, &mut seal, offset))
            .map_err(|error| Error::read(latch.dir().join(&self.name), error))?;
        // Nearly always: no seal was begun, and nothing need be written.
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
        // A later start would else take old slots behind new ones for records.
        let zeros = vec![0; dropped * SLOT_LEN];
        latch.apply(Op::Write { name: &self.name, offset, bytes: &zeros })?;
        self.sync(latch)
    }
}

const _: () = assert!(ALIGN == 8, "table_len_max and padding assume it, and 16 is a multiple");
