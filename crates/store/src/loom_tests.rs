//! Every order in which threads can meet at what the store publishes (`RUSTFLAGS="--cfg loom"`).
//!
//! Watermarks, hash table, checked bits and the list of segments are the store's own. In the models of one part files
//! are cells whose bytes loom watches: a byte that is read while another thread may write it is an error. The last
//! model runs the writer itself over files: a record that is readable before its bytes are written is a wrong one.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;

use crate::format::{Part, Record};
use crate::id::{Hash, Identity};
use crate::index::{ActiveTable, Locator};
use crate::memory::Watermarks;
use crate::segment::Checked;
use crate::sync::ArcSwap;
use crate::{Opened, Options, Reader, Retention, Writer, open};

/// First byte of the second region: the first has a slot a record.
const DATA: u64 = 8;

/// Checks all orders with at most three preemptions, which find nearly all faults of such code.
fn check(work: impl Fn() + Send + Sync + 'static) {
    check_up_to(3, work);
}

fn check_up_to(preemptions: usize, work: impl Fn() + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(work);
}

/// A segment of a slot and a byte for each record.
struct File {
    base: u64,
    watermarks: Watermarks,
    slots: [UnsafeCell<u64>; 2],
    bytes: [UnsafeCell<u64>; 2],
    table: ActiveTable,
}

#[allow(unsafe_code, reason = "loom checks the accesses")]
impl File {
    fn new(base: u64) -> Arc<Self> {
        let cells = || [UnsafeCell::new(0), UnsafeCell::new(0)];
        let (watermarks, table) = (Watermarks::new(0, DATA), ActiveTable::new());
        Arc::new(Self { base, watermarks, slots: cells(), bytes: cells(), table })
    }

    fn count(&self) -> u64 {
        self.watermarks.first_end()
    }

    /// Writes as `Active::append` does: the record, its slot, the table, then the watermarks.
    fn append(&self) {
        let at = self.count();
        let height = self.base + at;
        // SAFETY: no thread reads above the watermarks; loom would tell.
        self.bytes[at as usize].with_mut(|byte| unsafe { *byte = height + 100 });
        // SAFETY: as above.
        self.slots[at as usize].with_mut(|slot| unsafe { *slot = DATA + at });
        self.table.insert((prefix(height), Locator::block(height)));
        self.watermarks.publish(at + 1, DATA + at + 1);
    }

    /// Reads as `Segment::record` does: the count, the slot, the record below the other watermark.
    fn record(&self, height: u64) -> Option<u64> {
        let at = height.checked_sub(self.base).filter(|at| *at < self.count())?;
        // SAFETY: it is below the first watermark.
        let slot = self.slots[at as usize].with(|slot| unsafe { *slot });
        assert!(self.watermarks.covers(&(slot..slot + 1)), "the record is readable with its slot");
        // SAFETY: it is below the second watermark.
        Some(self.bytes[(slot - DATA) as usize].with(|byte| unsafe { *byte }))
    }

    fn find(&self, height: u64) -> Option<Locator> {
        let mut hash = Hash::default();
        hash.0[..8].copy_from_slice(&prefix(height).to_le_bytes());
        self.table.find(&hash, Some)
    }
}

/// All of them at home in one place, so that they meet there.
fn prefix(height: u64) -> u64 {
    height + 1
}

#[test]
fn record_that_is_counted_can_be_read_and_found() {
    check(|| {
        let file = File::new(10);
        let writer = Arc::clone(&file);
        let writing = thread::spawn(move || (0..2).for_each(|_| writer.append()));
        let seen = file.count();
        for height in 10..10 + seen {
            assert_eq!(file.record(height), Some(height + 100));
            assert_eq!(file.find(height).map(Locator::height), Some(height));
        }
        writing.join().expect("it does not panic");
        assert_eq!((file.count(), file.record(11)), (2, Some(111)));
    });
}

#[test]
fn damaged_record_is_never_intact_again() {
    check(|| {
        let checked = Checked::new(1);
        let (other, third) = (checked.clone(), checked.clone());
        let damaging = thread::spawn(move || other.note_damaged(0, 0, "test"));
        let reading = thread::spawn(move || third.note_intact(0));
        damaging.join().expect("it does not panic");
        reading.join().expect("it does not panic");
        assert!(checked.is_damaged(0) && !checked.is_intact(0) && checked.damaged() == 1);
    });
}

#[test]
fn damage_that_two_threads_find_counts_once() {
    check(|| {
        let checked = Checked::new(1);
        let other = checked.clone();
        let damaging = thread::spawn(move || other.note_damaged(0, 0, "test"));
        checked.note_damaged(0, 0, "test");
        damaging.join().expect("it does not panic");
        assert_eq!(checked.damaged(), 1);
    });
}

/// The writer appends, rolls and evicts as `Writer` does: a new list each time. What a reader has of a list
/// is one range without a gap, and stays readable after it is evicted.
#[test]
fn reader_sees_one_range_while_segments_roll_and_are_evicted() {
    check(|| {
        let view = Arc::new(ArcSwap::from_pointee(vec![File::new(0)]));
        view.load().iter().for_each(|file| file.append());
        let published = Arc::clone(&view);
        let writing = thread::spawn(move || {
            let mut files = Vec::clone(&published.load());
            let next = File::new(1);
            files.push(Arc::clone(&next));
            published.store(Arc::new(files.clone())); // rolled: the newest is empty
            next.append();
            files.remove(0);
            published.store(Arc::new(files)); // evicted
            next.append();
        });
        let mut newest = 0;
        for _ in 0..2 {
            let seen = view.load();
            let (first, last) = (&seen[0], &seen[seen.len() - 1]);
            let (start, end) = (first.base, last.base + last.count());
            assert!(start < end && end >= newest, "{start}..{end} after {newest}");
            for height in start..end {
                let holder = seen.iter().rev().find(|file| file.base <= height);
                assert_eq!(holder.and_then(|file| file.record(height)), Some(height + 100));
            }
            newest = end;
        }
        writing.join().expect("it does not panic");
    });
}

/// The block of a height.
fn record(height: u64) -> Record {
    let hash = |height: u64| Hash([(height as u8).wrapping_add(1); 32]);
    Record {
        height,
        timestamp: 1_000 + height,
        hash: hash(height),
        parent: hash(height.wrapping_sub(1)),
        transactions: Vec::new(),
        logs: Vec::new(),
        flags: 0,
        parts: vec![Part::uncompressed(vec![height as u8 + 100; 8])],
    }
}

/// A store in memory whose segments have one height each, with height 0.
fn store() -> (tempfile::TempDir, Writer, Reader) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("Linux has it");
    let options = Options {
        segment_blocks: 1,
        segment_bytes: 64 << 10,
        disk_reserve_bytes: 0,
        expected: None,
    };
    let Opened { mut writer, reader, .. } = open(dir.path(), options).expect("it is empty");
    writer.bind(Identity { chain_id: 1, genesis: Hash([9; 32]) }, 1).expect("it is not bound");
    writer.append(&record(0)).expect("it is the first");
    (dir, writer, reader)
}

/// Each height of the served range is there whole, by height and by hash. Returns the newest.
fn newest_of_whole(reader: &Reader) -> u64 {
    let range = reader.range().expect("the store is never empty");
    for height in range.clone() {
        let wanted = record(height);
        // It may be evicted meanwhile.
        for found in [reader.record(height), reader.block(&wanted.hash)].into_iter().flatten() {
            assert_eq!((found.height(), found.hash()), (height, wanted.hash));
            assert_eq!(found.part(0).slice.as_ref(), wanted.parts[0].bytes);
        }
    }
    let newest = *range.end();
    assert!(reader.head().is_some_and(|head| head.height() >= newest));
    newest
}

#[test]
fn writer_that_appends_rolls_and_evicts_shows_whole_records_only() {
    check_up_to(2, || {
        let (_dir, mut writer, reader) = store();
        let writing = thread::spawn(move || {
            writer.append(&record(1)).expect("it follows"); // rolls
            let one = Retention { blocks: Some(1), ..Retention::default() };
            let evicted = writer.evict(&one, 0).expect("files can be removed");
            assert_eq!(evicted.heights, 1);
        });
        let seen = [newest_of_whole(&reader), newest_of_whole(&reader)];
        assert!(seen.is_sorted(), "{seen:?}");
        writing.join().expect("it does not panic");
        assert_eq!(reader.range(), Some(1..=1));
        assert!(reader.record(0).is_none());
        newest_of_whole(&reader);
    });
}
