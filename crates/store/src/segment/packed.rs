//! A packed segment: a whole range of heights in one packed file.
//!
//! A read unpacks a height into memory in the form of a record, so that all readers of records read
//! it. It happens on threads that may wait. The newest unpacked records are kept: a batch, or a
//! search for logs, reads a height several times.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::param::page_size;

use super::packed_codec::{
    PackedBytes, PackedCodec, PackedDamage, PackedHeader, PackedRange, RANGE_BLOCKS_MAX,
};
use super::record_ref::RecordRef;
use crate::error::Error;
use crate::format::{Encoded, Record, SegmentHeader, Slot, slot_offset};
use crate::id::Hash;
use crate::index::{Entry, Locator, prefix};
use crate::memory::residency::ReadFailed;
use crate::memory::{Map, PinnedMap, residency};
use crate::reads;

/// Memory of unpacked records that are kept, by all stores of the process together.
const KEPT_BYTES: u64 = 16 << 20;

/// An open packed file, its path and its codec.
pub(crate) struct Packed {
    range: Box<dyn PackedRange>,
    pub(crate) codec: Arc<dyn PackedCodec>,
    header: PackedHeader,
    /// Number that no other open file has.
    number: u64,
}

/// Packed file that was opened, and its bytes on disk.
pub(crate) struct OpenedPacked {
    pub(crate) packed: Arc<Packed>,
    pub(crate) disk_bytes: u64,
    pub(crate) bytes: u64,
    /// Time of the newest block, 0 if it is not known.
    pub(crate) last_timestamp: u64,
    /// Hash of the newest block, if it was read: a repair needs it when the file has lost it.
    pub(crate) last_hash: Option<Hash>,
}

impl OpenedPacked {
    /// Reads time and hash of the newest block.
    fn of(packed: Packed, bytes: u64, disk_bytes: u64) -> Result<Self, ReadFailed> {
        let last_timestamp = packed.last_timestamp();
        let last_hash = residency::with_blocking_reads(|| packed.hash(packed.header.end() - 1))?;
        Ok(Self { packed: Arc::new(packed), disk_bytes, bytes, last_timestamp, last_hash })
    }

    /// Header of a segment with these heights, and an index in which no slot is in use.
    pub(super) fn segment_header(&self) -> SegmentHeader {
        let found = self.packed.header();
        let slots = slot_offset(found.heights);
        SegmentHeader {
            slot_count: found.heights,
            base_height: found.first,
            identity: found.identity,
            data_offset: slots,
            capacity: slots + self.bytes,
        }
    }
}

/// Maps a file; also returns its length and its bytes on disk. `None` if it is empty.
fn map_file(path: &Path) -> io::Result<Option<(Map, u64, u64)>> {
    let file = reads::open_regular(path)?;
    let len = reads::length(&file)?;
    // The kernel maps no empty file.
    if len == 0 {
        return Ok(None);
    }
    let map = Map::new(&file, len, 0, 0)?;
    map.publish(len, len);
    Ok(Some((map, len, reads::disk_bytes(&file)?)))
}

impl Packed {
    /// Opens the file at `path`. An error of the disk says nothing about the file.
    pub(crate) fn open(
        path: &Path,
        codec: &Arc<dyn PackedCodec>,
    ) -> Result<Result<OpenedPacked, PackedDamage>, Error> {
        reads::again(Error::is_disk_failure, || Self::open_once(path, codec))
    }

    fn open_once(
        path: &Path,
        codec: &Arc<dyn PackedCodec>,
    ) -> Result<Result<OpenedPacked, PackedDamage>, Error> {
        let failed = |_: ReadFailed| Error::not_delivered(path);
        let damaged = |what: &str| Ok(Err(PackedDamage::Damaged(what.into())));
        let mapped = map_file(path).map_err(|error| Error::read(path, error))?;
        let Some((map, bytes, disk_bytes)) = mapped else {
            return damaged("packed file is empty");
        };
        let opened =
            residency::with_blocking_reads(|| codec.open(PackedBytes::mapped(Arc::new(map))));
        let range = match opened.map_err(failed)? {
            Err(damage) => return Ok(Err(damage)),
            Ok(range) => range,
        };
        let packed = Self::of(range, codec);
        // All packed segments share the slots of the longest range.
        if packed.header.heights > RANGE_BLOCKS_MAX {
            return damaged("packed file holds more than a range");
        }
        OpenedPacked::of(packed, bytes, disk_bytes).map(Ok).map_err(failed)
    }

    /// Time of the newest block; 0, which is not known, if it is damaged or the disk does not deliver it. The time of an
    /// older block would have the range evicted too early.
    fn last_timestamp(&self) -> u64 {
        let newest = self.header.end() - 1;
        let read = || residency::with_blocking_reads(|| self.range.record(newest));
        let record = reads::again(|_| true, read).ok().and_then(Result::ok);
        record.map_or(0, |record| record.timestamp)
    }

    /// Makes it of a file that the codec opened.
    pub(crate) fn of(range: Box<dyn PackedRange>, codec: &Arc<dyn PackedCodec>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let (header, number) = (range.header(), NUMBERS.fetch_add(1, Ordering::Relaxed));
        Self { range, codec: Arc::clone(codec), header, number }
    }

    pub(crate) fn header(&self) -> PackedHeader {
        self.header
    }

    pub(crate) fn hash(&self, height: u64) -> Option<Hash> {
        self.range.hash(height)
    }

    /// Unpacks a height, unless that was done just now.
    pub(crate) fn record(&self, height: u64) -> Result<RecordRef, PackedDamage> {
        let key = (self.number, height);
        if let Some(kept) = kept().get(key) {
            return Ok(kept);
        }
        // Without the lock: two threads may unpack one height, which costs time only.
        let unpacked = self.to_record(height, &self.range.record(height)?)?;
        let _gone = kept().put(key, &unpacked); // unmapped without the lock
        Ok(unpacked)
    }

    /// Unpacks a height to copy it: the hash is made again, and no record of memory is taken.
    pub(crate) fn proven(&self, height: u64) -> Result<RecordRef, PackedDamage> {
        self.to_record(height, &self.range.proven(height)?)
    }

    fn to_record(&self, height: u64, record: &Record) -> Result<RecordRef, PackedDamage> {
        if Some(record.hash) != self.hash(height) || record.height != height {
            return Err(PackedDamage::Damaged("packed height is another block".into()));
        }
        in_memory(record).map_err(|error| PackedDamage::NoMemory(error.to_string()))
    }

    /// The first candidate for `hash` that `found` takes.
    pub(crate) fn find<T>(
        &self,
        hash: &Hash,
        found: impl FnMut(Locator) -> Option<T>,
    ) -> Result<Option<T>, PackedDamage> {
        let candidates = self.range.candidates(hash)?.into_iter();
        let locators = candidates.map(|(height, position)| match position {
            None => Locator::block(height),
            Some(position) => Locator::transaction(height, position),
        });
        Ok(locators.into_iter().find_map(found))
    }

    pub(crate) fn range(&self) -> &dyn PackedRange {
        &*self.range
    }

    /// The entries of all hashes, sorted.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, PackedDamage> {
        let mut entries = Vec::new();
        for height in self.header.first..self.header.end() {
            let record = self.range.record(height)?;
            entries.extend(entries_of(&record));
        }
        // Tables are built and merged from ascending entries.
        entries.sort_unstable();
        Ok(entries)
    }

    pub(crate) fn heights_of_terms(&self, terms: &[u64]) -> Result<Vec<u64>, PackedDamage> {
        self.range.heights_of_terms(terms)
    }
}

/// The entries of a record in a hash table.
pub(crate) fn entries_of(record: &Record) -> impl Iterator<Item = Entry> + '_ {
    let block = (prefix(&record.hash), Locator::block(record.height));
    let transaction = |(at, hash)| (prefix(hash), Locator::transaction(record.height, at));
    std::iter::once(block).chain(record.transactions.iter().enumerate().map(transaction))
}

/// The record in memory, as a segment has it.
fn in_memory(record: &Record) -> io::Result<RecordRef> {
    let Encoded { head, bounds, encodings } = record.encode();
    let parts = record.parts.iter().map(|part| &part.bytes[..]);
    let pieces: Vec<&[u8]> = std::iter::once(&head[..]).chain(parts).collect();
    let mut crc = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| crc.update(piece));
    let slot = Slot {
        offset: 0,
        length: record.encoded_len() as u32,
        record_crc: crc.finalize(),
        bounds,
        encodings,
        flags: record.flags,
    };
    let map = PinnedMap::alone(Map::in_memory(&pieces)?);
    Ok(RecordRef { map, height: record.height, slot })
}

/// Number of an open packed file, and a height.
type Key = (u64, u64);

/// Unpacked records; the oldest make space for new ones.
#[derive(Default)]
struct Kept {
    records: HashMap<Key, RecordRef>,
    order: VecDeque<Key>,
    bytes: u64,
}

fn kept() -> MutexGuard<'static, Kept> {
    static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of a record: its bytes are mapped, and a map takes whole pages.
fn memory_of(record: &RecordRef) -> u64 {
    record.stored_len().next_multiple_of(page_size() as u64)
}

impl Kept {
    fn get(&self, key: Key) -> Option<RecordRef> {
        self.records.get(&key).cloned()
    }

    /// Keeps a record. Returns those that it drops for it: to unmap them takes time, so the caller does that without the lock.
    fn put(&mut self, key: Key, record: &RecordRef) -> Vec<RecordRef> {
        let bytes = memory_of(record);
        // A large one would drive out all others.
        if bytes > KEPT_BYTES / 4 || self.records.contains_key(&key) {
            return Vec::new();
        }
        self.bytes += bytes;
        self.order.push_back(key);
        self.records.insert(key, record.clone());
        std::iter::from_fn(|| self.make_room()).collect()
    }

    /// Removes the oldest record if all together take too much.
    fn make_room(&mut self) -> Option<RecordRef> {
        let key = if self.bytes > KEPT_BYTES { self.order.pop_front()? } else { return None };
        let oldest = self.records.remove(&key)?;
        self.bytes -= memory_of(&oldest);
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Part;

    fn record(bytes: usize) -> RecordRef {
        let part = Part { bytes: vec![7; bytes].into(), ..Part::default() };
        in_memory(&Record { parts: vec![part], ..Record::default() }).unwrap()
    }

    #[test]
    fn short_records_are_counted_by_the_pages_that_they_take() {
        let (mut kept, record) = (Kept::default(), record(1));
        let pages = KEPT_BYTES / page_size() as u64;
        for height in 0..pages {
            assert!(kept.put((1, height), &record).is_empty(), "height {height}");
        }
        assert_eq!(kept.put((1, pages), &record).len(), 1);
        assert!(kept.get((1, 0)).is_none() && kept.get((1, 1)).is_some());
        assert!(kept.get((1, pages)).is_some() && kept.get((2, pages)).is_none());
        assert_eq!((kept.records.len() as u64, kept.bytes), (pages, KEPT_BYTES));
    }

    #[test]
    fn record_that_would_drive_out_many_is_not_kept() {
        let mut kept = Kept::default();
        let large = record(KEPT_BYTES as usize / 4);
        assert!(kept.put((1, 1), &large).is_empty() && kept.get((1, 1)).is_none());
        let long = record(KEPT_BYTES as usize / 4 - 4096);
        (0..9).for_each(|height| drop(kept.put((1, height), &long)));
        assert_eq!(kept.records.len(), 4);
        assert!(kept.put((1, 8), &long).is_empty(), "it is there");
    }
}
