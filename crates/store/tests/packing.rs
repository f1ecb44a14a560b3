//! Packing by a made-up codec: what readers, openings and verifications see of packed files, and
//! what a fault at any change of the file system leaves.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use neve_store::disk::{Disk, Op, RealDisk};
use neve_store::residency::{self, Cold};
use neve_store::{
    Criteria, Error, Found, Hash, Opened, Options, PackEnd, Record, Retention, SearchError, Wanted,
};

use crate::support::toy::UNPACKABLE;
use crate::support::{
    self, IDENTITY, Recorder, assert_clean, assert_exactly, block, every, files, injected, logs,
    naive_logs, open_as, rewrite, small, verify,
};

/// A disk of which one change fails.
struct FailsOnce {
    real: RealDisk,
    at: usize,
    done: AtomicUsize,
    /// True if a new name is not durable yet.
    renamed: AtomicBool,
}

impl Disk for FailsOnce {
    fn dir(&self) -> &Path {
        self.real.dir()
    }

    fn apply(&self, op: Op<'_>) -> io::Result<()> {
        if self.done.fetch_add(1, Ordering::Relaxed) == self.at {
            return Err(io::Error::from_raw_os_error(5));
        }
        match op {
            Op::Rename { .. } => self.renamed.store(true, Ordering::Relaxed),
            Op::SyncDir => self.renamed.store(false, Ordering::Relaxed),
            // Power may keep a removal and lose a rename before it.
            Op::Remove { name } if !name.contains(".new") => {
                assert!(
                    !self.renamed.load(Ordering::Relaxed),
                    "{name} goes before a name is durable"
                );
            }
            _ => {}
        }
        self.real.apply(op)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.real.free_bytes()
    }
}

fn open_failing(dir: &Path, at: usize) -> (Opened, Arc<FailsOnce>) {
    let disk = Arc::new(FailsOnce {
        real: RealDisk::new(dir),
        at,
        done: AtomicUsize::new(0),
        renamed: AtomicBool::new(false),
    });
    let options = Options { segment_blocks: 5, ..small() };
    (open_as(Arc::clone(&disk) as _, options, true), disk)
}

fn open(dir: &Path) -> Opened {
    open_failing(dir, usize::MAX).0
}

fn fill(dir: &Path) -> Vec<Record> {
    support::fill(&mut open(dir))
}

/// Packs all that is due. Stops at the first error.
fn pack(store: &mut Opened, settled: u64) -> u64 {
    support::pack(store, settled).unwrap_or_default()
}

#[test]
fn whole_settled_ranges_are_packed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    assert_eq!(pack(&mut store, 6), 0, "no whole range is settled");
    assert_eq!(pack(&mut store, 14), 8, "4 to 11");
    assert!(store.writer.begin_pack(21, 1 << 30).is_none(), "all is within the newest bytes");
    assert_eq!(pack(&mut store, 21), 8, "12 to 19");
    let packed = ["04", "08", "12", "16"].map(|base| format!("000000000000000000{base}.pack"));
    assert_eq!(files(dir.path(), ".pack"), packed);
    assert_eq!(files(dir.path(), ".seg").len(), 2, "2 to 3, and 20 to 21");
    assert_exactly(&store.reader, &records);
    for key in records.iter().flat_map(|record| record.logs.iter().flatten().copied()) {
        let criteria = [vec![key]];
        assert_eq!(logs(&store.reader, 2..=21, &criteria), naive_logs(&records, &criteria));
    }
    let usage = store.reader.usage();
    assert_eq!((usage.packed_blocks, usage.segments), (16, 6));
    drop(store);
    assert_clean(dir.path());
    assert_eq!(verify(dir.path()).records.len(), records.len());
    assert_exactly(&open(dir.path()).reader, &records);
}

/// Storing stops at the reserve, and only packing gives space back.
#[test]
fn half_of_the_reserve_is_for_packing() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let recorder = Recorder::new(dir.path());
    let options = Options { segment_blocks: 5, disk_reserve_bytes: 1 << 20, ..small() };
    let mut store = recorder.open_as(options, true);
    *recorder.free.lock().unwrap() = Some(1 << 19);
    assert_eq!(support::pack(&mut store, 21).unwrap(), 0, "the disk is full");
    assert_exactly(&store.reader, &records);
    *recorder.free.lock().unwrap() = Some((1 << 20) - 1);
    assert_eq!(support::pack(&mut store, 21).unwrap(), 16, "4 to 19");
    assert_exactly(&store.reader, &records);
}

#[test]
fn range_that_cannot_be_packed_is_named_once_and_the_next_one_is_packed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    store.writer.bind(IDENTITY, 1).unwrap();
    let mut records: Vec<_> = (2..22).map(|height| block(height, 0)).collect();
    // The last one of the heights 12 to 15.
    records[13].timestamp = UNPACKABLE;
    records.iter().for_each(|record| store.writer.append(record).unwrap());
    store.writer.sync().unwrap();
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(pack(&mut store, 11), 8, "4 to 11");
    let mut next = || {
        let due = store.writer.begin_pack(21, 0)?;
        Some((due.first(), store.writer.end_pack(due.run(&mut || true)).unwrap()))
    };
    let Some((16, PackEnd::Packed(..))) = next() else { panic!("16 to 19 are packed") };
    let Some((12, PackEnd::Unpackable(range))) = next() else { panic!("12 to 15 are not") };
    assert_eq!((range.first, range.reason), (12, "test"));
    assert!(next().is_none(), "it is not due again");
    assert_exactly(&store.reader, &records);
}

#[test]
fn a_reader_gets_a_record_or_what_is_wanted_of_a_packed_height() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    assert_eq!(pack(&mut store, 14), 8, "4 to 11");
    let reader = &store.reader;
    let wanted = Wanted::Part { part: 1, flags: 0 };
    for record in &records {
        let mut out = [Vec::new(), Vec::new(), Vec::new()];
        let [by_height, by_block, counted] = &mut out;
        let found = [
            reader.resident().read(record.height, wanted, by_height).unwrap().unwrap(),
            reader.resident().read_block(&record.hash, wanted, by_block).unwrap().unwrap(),
            reader.resident().read(record.height, Wanted::Count, counted).unwrap().unwrap(),
        ];
        assert!(found.iter().all(|found| found.height() == record.height));
        let is_packed = (4..12).contains(&record.height);
        let unpacked = if is_packed { &record.parts[1].bytes[..] } else { &[] };
        assert_eq!(out, [unpacked, unpacked, &[]]);
        for found in found {
            match found {
                Found::Stored(stored) => {
                    assert_eq!(stored.part(1).slice.as_ref(), record.parts[1].bytes);
                    assert!(!is_packed);
                }
                Found::Unpacked { .. } => assert!(is_packed),
            }
        }
        for (at, hash) in record.transactions.iter().enumerate() {
            let mut out = Vec::new();
            let (found, position) =
                reader.resident().read_transaction(hash, 2, &mut out).unwrap().unwrap();
            assert_eq!((found.height(), position), (record.height, at));
            assert_eq!(out, if is_packed { &record.parts[2].bytes[..] } else { &[] });
        }
        let mut out = Vec::new();
        let none = Wanted::Transaction { part: 2, at: 99, hash: None };
        assert!(reader.resident().read(record.height, none, &mut out).unwrap().is_some());
        assert!(
            reader.resident().read_transaction(&Hash([9; 32]), 2, &mut out).unwrap().is_none()
                && out.is_empty()
        );
    }
    let mut out = Vec::new();
    assert!(
        reader.resident().read(22, wanted, &mut out).unwrap().is_none()
            && reader.resident().read(1, wanted, &mut out).unwrap().is_none()
    );
    assert_eq!(reader.resident().read_head(wanted, &mut out).unwrap().unwrap().height(), 21);
}

#[test]
fn readers_keep_records_of_segments_that_are_packed_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    let before = store.reader.record(5).unwrap();
    assert_eq!(pack(&mut store, 21), 16);
    assert_eq!(before.part(1).slice.as_ref(), records[3].parts[1].bytes);
    let after = store.reader.record(5).unwrap();
    drop(store);
    assert_eq!(after.part(1).slice.as_ref(), records[3].parts[1].bytes);
}

#[test]
fn a_fault_at_any_change_leaves_all_heights() {
    let counted = tempfile::tempdir().unwrap();
    fill(counted.path());
    let (mut store, disk) = open_failing(counted.path(), usize::MAX);
    let before = disk.done.load(Ordering::Relaxed);
    assert_eq!(pack(&mut store, 21), 16);
    let after = disk.done.load(Ordering::Relaxed);
    assert!(after - before >= 4 * 6, "{before} to {after}");
    injected(after - before, "changes, of which each fails");
    for at in (before..after).step_by(every()) {
        let dir = tempfile::tempdir().unwrap();
        let records = fill(dir.path());
        let (mut store, _) = open_failing(dir.path(), at);
        pack(&mut store, 21);
        assert_exactly(&store.reader, &records);
        drop(store);
        let mut store = open(dir.path());
        assert_exactly(&store.reader, &records);
        pack(&mut store, 21);
        assert_eq!(store.reader.usage().packed_blocks, 16, "change {at}");
        assert_exactly(&store.reader, &records);
        drop(store);
        assert_clean(dir.path());
    }
}

/// Segments of one height each are merged eight by eight, so tables end anywhere in a range.
#[test]
fn range_in_which_a_merged_table_ends_is_packed() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (2..40).map(|height| block(height, 0)).collect();
    let mut store = open(dir.path());
    store.writer.bind(IDENTITY, 1).unwrap();
    let append = |store: &mut Opened, records: &[Record]| {
        for record in records {
            store.writer.append(record).unwrap();
            store.writer.seal().unwrap();
        }
        store.writer.merge_tables().unwrap()
    };
    let table = |first: u64, last: u64| format!("{first:020}-{last:020}.idx");
    assert_eq!(append(&mut store, &records[..10]), 1);
    assert_eq!(files(dir.path(), ".idx"), [table(2, 9)], "it ends inside 8 to 11");
    assert_eq!(pack(&mut store, 11), 8, "4 to 11");
    assert_exactly(&store.reader, &records[..10]);
    // The next table has the rest of the range, and no height twice.
    assert_eq!(append(&mut store, &records[10..17]), 1);
    assert_eq!(files(dir.path(), ".idx"), [table(2, 9), table(10, 18)]);
    assert_eq!(pack(&mut store, 18), 4, "12 to 15");
    assert_exactly(&store.reader, &records[..17]);
    append(&mut store, &records[17..]);
    pack(&mut store, 39);
    assert_eq!(store.reader.usage().packed_blocks, 36, "4 to 39");
    assert_exactly(&store.reader, &records);
    let tables = files(dir.path(), ".idx");
    drop(store);
    assert_clean(dir.path());
    assert_exactly(&open(dir.path()).reader, &records);
    assert_eq!(files(dir.path(), ".idx"), tables, "opening removes none of them");
}

/// A repair writes segments again, whose ends are not those of the tables.
#[test]
fn packed_range_in_which_a_table_ends_is_repaired_and_withdrawn() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (2..18).map(|height| block(height, 0)).collect();
    let mut store = open(dir.path());
    store.writer.bind(IDENTITY, 1).unwrap();
    for record in &records {
        store.writer.append(record).unwrap();
        store.writer.seal().unwrap();
    }
    assert_eq!(store.writer.merge_tables().unwrap(), 2, "2 to 9, and 10 to 17");
    assert_eq!(pack(&mut store, 17), 12, "4 to 15");
    rewrite(&mut store, 8);
    assert_exactly(&store.reader, &records);
    store.writer.sync().unwrap();
    assert_clean(dir.path());
    store.writer.withdraw(11).unwrap();
    assert_exactly(&store.reader, &records[..9]);
    assert_eq!(files(dir.path(), ".idx").len(), 1, "10 to 17 is gone");
    drop(store);
    assert_clean(dir.path());
    assert_exactly(&open(dir.path()).reader, &records[..9]);
}

/// Writes packed heights anew and withdraws from them. Stops at the first error.
fn change(store: &mut Opened) -> Result<(), Error> {
    let mut repair = store.writer.repair(8)?.expect("it is there");
    repair.heights().try_for_each(|height| repair.keep(height).map(|kept| assert!(kept)))?;
    assert!(store.writer.replace(repair.finish()?)?);
    store.writer.withdraw(10)
}

#[test]
fn fault_at_any_change_of_packed_heights_loses_none_below() {
    let counted = tempfile::tempdir().unwrap();
    fill(counted.path());
    pack(&mut open(counted.path()), 21);
    let (mut store, disk) = open_failing(counted.path(), usize::MAX);
    let before = disk.done.load(Ordering::Relaxed);
    change(&mut store).unwrap();
    let after = disk.done.load(Ordering::Relaxed);
    for at in (before..after).step_by(every()) {
        let dir = tempfile::tempdir().unwrap();
        let records = fill(dir.path());
        pack(&mut open(dir.path()), 21);
        let (mut store, _) = open_failing(dir.path(), at);
        let _ = change(&mut store);
        drop(store);
        let store = open(dir.path());
        for record in &records[..8] {
            let found = store.reader.record(record.height);
            assert_eq!(found.map(|found| found.hash()), Some(record.hash), "change {at}");
        }
    }
}

#[test]
fn segment_that_reaches_beyond_a_packed_file_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let name = "00000000000000000010.seg";
    pack(&mut open(dir.path()), 21);
    // As a release before packing would have written it.
    let other = tempfile::tempdir().unwrap();
    let mut store = neve_store::open_on(Arc::new(RealDisk::new(other.path())), small()).unwrap();
    store.writer.bind(IDENTITY, 1).unwrap();
    records[8..].iter().for_each(|record| store.writer.append(record).unwrap());
    store.writer.seal().unwrap();
    drop(store);
    fs::copy(other.path().join(name), dir.path().join(name)).unwrap();
    assert_exactly(&open(dir.path()).reader, &records);
    assert!(!dir.path().join(name).exists());
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let aside = names.filter(|name| name.to_string_lossy().contains(".quarantined-"));
    assert_eq!(aside.count(), 1);
}

#[test]
fn a_flipped_byte_is_found_and_never_served() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    assert_eq!(pack(&mut open(dir.path()), 21), 16);
    let name = "00000000000000000008.pack";
    let good = fs::read(dir.path().join(name)).unwrap();
    for at in (0..good.len()).step_by(7 * every()) {
        let copy = tempfile::tempdir().unwrap();
        for file in fs::read_dir(dir.path()).unwrap() {
            let path = file.unwrap().path();
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(copy.path().join(name), &bad).unwrap();
        assert!(!verify(copy.path()).findings.is_empty(), "byte {at}");
        let store = open(copy.path());
        for record in &records {
            let Some(found) = store.reader.record(record.height) else {
                assert!(record.height < 12, "byte {at}: height {} is missed", record.height);
                continue;
            };
            assert_eq!(found.hash(), record.hash, "byte {at}");
            for (part, wanted) in record.parts.iter().enumerate() {
                assert_eq!(found.part(part).slice.as_ref(), wanted.bytes, "byte {at}");
            }
        }
    }
}

#[test]
fn packed_heights_are_evicted_withdrawn_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    assert_eq!(pack(&mut store, 21), 16);
    let keep = Retention { blocks: Some(13), ..Retention::default() };
    let evicted = store.writer.evict(&keep, 0).unwrap();
    assert_eq!((evicted.segments, evicted.heights), (2, 6), "2 to 3, and 4 to 7");
    rewrite(&mut store, 8);
    assert_eq!(files(dir.path(), ".pack").len(), 2, "12 and 16");
    assert_exactly(&store.reader, &records[6..]);
    store.writer.withdraw(18).unwrap();
    assert_eq!(files(dir.path(), ".pack").len(), 1, "12");
    assert_exactly(&store.reader, &records[6..16]);
    drop(store);
    assert_exactly(&open(dir.path()).reader, &records[6..16]);
    assert_clean(dir.path());
}

#[test]
fn bytes_of_packed_files_count_for_retention() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    assert_eq!(pack(&mut store, 21), 16);
    let on_disk = |name: &str| dir.path().join(name).metadata().unwrap().blocks() * 512;
    let packed: u64 = files(dir.path(), ".pack").iter().map(|name| on_disk(name)).sum();
    let usage = store.reader.usage();
    assert!(packed > 0 && usage.packed_bytes > 0 && usage.disk_bytes >= packed, "{usage:?}");
    let mut evict = |bytes: u64| {
        let keep = Retention { bytes: Some(bytes), ..Retention::default() };
        store.writer.evict(&keep, 0).unwrap()
    };
    assert_eq!(evict(usage.disk_bytes).segments, 0);
    let segment = on_disk("00000000000000000002.seg");
    let oldest = on_disk("00000000000000000004.pack");
    let evicted = evict(usage.disk_bytes - 1);
    assert_eq!((evicted.segments, evicted.bytes), (1, segment), "2 to 3");
    // Without the bytes of packed files the store would be far below.
    let evicted = evict(usage.disk_bytes - segment - 1);
    assert_eq!((evicted.segments, evicted.heights, evicted.bytes), (1, 4, oldest), "4 to 7");
    assert_exactly(&store.reader, &records[6..]);
    assert_eq!(store.reader.usage().disk_bytes, usage.disk_bytes - segment - oldest);
}

#[test]
fn packing_of_a_range_that_goes_meanwhile_is_overtaken() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    let due = store.writer.begin_pack(7, 0).expect("4 to 7");
    let keep = Retention { blocks: Some(13), ..Retention::default() };
    assert_eq!(store.writer.evict(&keep, 0).unwrap().heights, 6);
    let ended = store.writer.end_pack(due.run(&mut || true)).unwrap();
    assert!(matches!(ended, PackEnd::Overtaken));
    assert_eq!(pack(&mut store, 21), 12, "8 to 19");
    assert_exactly(&store.reader, &records[6..]);
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
}

/// Each key is a look into the index of the file, and other connections of the thread wait.
#[test]
fn many_keys_are_looked_up_by_a_thread_that_may_wait() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let mut store = open(dir.path());
    assert_eq!(pack(&mut store, 14), 8, "4 to 11");
    let search = |keys: u64| {
        let keys = (1..=keys).map(|key| key << 32 | 0xabcd).collect();
        match store.reader.logs(4..=11, &Criteria::new(vec![keys])).next_examined(&|_| true) {
            Some(Err(SearchError::Cold(cold))) => Err(cold),
            found => Ok(found.is_some()),
        }
    };
    assert_eq!(residency::if_resident(|| search(256)), Ok(false));
    assert_eq!(residency::if_resident(|| search(257)), Err(Cold));
    assert_eq!(residency::loading(|| search(257)), Ok(false));
}
