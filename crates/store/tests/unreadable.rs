//! Pages that the disk does not deliver: a thread that may wait gets an error and no signal, what
//! was lost counts as damaged, and a repaired segment serves everything again.
//!
//! A file is cut short under its map. For the kernel a page behind the end of a file is one that
//! the disk fails to read: touching it is a SIGBUS.

#![cfg(not(miri))] // miri maps no files whose disk can fail

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

use neve_store::residency::{self, ReadFailed, with_blocking_reads};
use neve_store::{Criteria, Hash, Opened, Options, Part, Reader, Record, Retention};

use crate::support::{self, block, hash, open};

const HEIGHTS: u64 = 64;
const SPAN: u32 = 8;
/// Transactions enough for a hash table and an index of logs of several pages.
const TRANSACTIONS: u64 = 300;
const SLOT_LEN: usize = 64;
const PAGE: u64 = 4096;

/// Makes a record of several pages a part.
fn record(height: u64) -> Record {
    let transactions = (1..=TRANSACTIONS).map(|at| hash(height * 1000 + at, 0)).collect();
    let logs = (0..TRANSACTIONS).map(|at| support::terms(height, at)).collect();
    let parts = (0..4).map(|at| Part::uncompressed(vec![b'a' + at; 9000])).collect();
    Record { transactions, logs, parts, ..block(height, 0) }
}

fn options() -> Options {
    Options { segment_blocks: SPAN, segment_bytes: 4 << 20, disk_reserve_bytes: 0, expected: None }
}

fn store(dir: &Path) -> Opened {
    let mut opened = open(dir, options());
    (0..HEIGHTS).for_each(|height| opened.writer.append(&record(height)).unwrap());
    opened.writer.seal().unwrap();
    opened
}

fn segment(dir: &Path, base: u64) -> PathBuf {
    dir.join(format!("{base:020}.seg"))
}

/// Place where the record of slot `at` begins and ends.
fn place(path: &Path, at: usize) -> (u64, u64) {
    let slot = &fs::read(path).unwrap()[PAGE as usize + at * SLOT_LEN..][..SLOT_LEN];
    let offset = u64::from_le_bytes(slot[..8].try_into().unwrap());
    (offset, offset + u64::from(u32::from_le_bytes(slot[8..12].try_into().unwrap())))
}

/// Leaves the page that holds the byte before `at`, and none behind it.
fn cut(path: &Path, at: u64) {
    File::options().write(true).open(path).unwrap().set_len(at.next_multiple_of(PAGE)).unwrap();
}

/// On a thread that knows of no page in memory.
fn fresh<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Reads all of a record on a thread that may wait. `None` if it is a miss.
fn read(reader: &Reader, height: u64) -> Result<Option<bool>, ReadFailed> {
    let whole = |found: neve_store::RecordRef| {
        (0..4).all(|at| {
            let slice = found.part(at).slice;
            slice.probe().is_ok() && slice.as_ref().iter().all(|byte| *byte == b'a' + at as u8)
        })
    };
    fresh(|| with_blocking_reads(|| reader.record(height).map(whole)))
}

fn repair(opened: &mut Opened, base: u64) {
    let mut repair = opened.writer.repair(base).unwrap().unwrap();
    let damaged = repair.damaged();
    for height in repair.heights() {
        if damaged.contains(&height) {
            repair.append(&record(height)).unwrap();
        } else {
            assert!(repair.keep(height).unwrap(), "{height}");
        }
    }
    assert!(opened.writer.replace(repair.finish().unwrap()).unwrap());
    assert_eq!(opened.reader.damaged(), []);
}

#[test]
fn record_that_was_read_before_is_a_miss_when_the_disk_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = store(dir.path());
    let reader = opened.reader.clone();
    assert_eq!(read(&reader, 7), Ok(Some(true)));
    cut(&segment(dir.path(), 0), place(&segment(dir.path(), 0), 7).0 + 3 * PAGE);
    let found = neve_store::damages_found();
    assert_eq!(read(&reader, 7), Err(ReadFailed));
    assert!(neve_store::damages_found() > found);
    assert_eq!(reader.damaged()[0].heights, [7]);
    assert_eq!(read(&reader, 7), Ok(None), "it is not read again");
    let resident = || residency::if_resident(|| reader.resident().record(7));
    assert!(fresh(|| resident().unwrap().is_none()), "that is known without a read");
    assert_eq!(read(&reader, 6), Ok(Some(true)));
    repair(&mut opened, 0);
    assert_eq!(read(&reader, 7), Ok(Some(true)));
}

#[test]
fn copy_of_a_segment_finds_records_that_the_disk_lost_since() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = store(dir.path());
    cut(&segment(dir.path(), 0), place(&segment(dir.path(), 0), 6).0 + PAGE);
    let mut repairing = opened.writer.repair(0).unwrap().unwrap();
    let kept: Vec<_> = (0..8).map(|height| repairing.keep(height).unwrap()).collect();
    assert_eq!(kept, [true, true, true, true, true, true, false, false]);
    drop(repairing);
    assert_eq!(opened.reader.damaged()[0].heights, [6, 7]);
    repair(&mut opened, 0);
    assert_eq!(read(&opened.reader, 6), Ok(Some(true)));
}

#[test]
fn indexes_that_the_disk_does_not_deliver_fail_and_are_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = store(dir.path());
    let reader = opened.reader.clone();
    // The table is in order of these bytes: it stands at the end of it.
    let prefix = |hash: &Hash| u64::from_le_bytes(hash.0[..8].try_into().unwrap());
    let transaction = record(7).transactions.into_iter().max_by_key(prefix).unwrap();
    let by_hash =
        || fresh(|| with_blocking_reads(|| Some(reader.transaction(&transaction)?.0.height())));
    let logs = || {
        let key = record(3).logs[0][0].max(1);
        let criteria = Criteria::new(vec![vec![key]]);
        let search = || reader.logs(0..=7, &criteria).collect::<Result<Vec<_>, _>>();
        fresh(|| with_blocking_reads(search))
    };
    let (height, found) = (by_hash(), logs());
    assert!(height == Ok(Some(7)) && !found.clone().unwrap().unwrap().is_empty());
    cut(&segment(dir.path(), 0), place(&segment(dir.path(), 0), 7).1);
    assert_eq!((by_hash(), logs()), (Err(ReadFailed), Err(ReadFailed)));
    assert_eq!((reader.damaged()[0].base, reader.damaged()[0].heights.len()), (0, 0));
    assert_eq!(read(&reader, 7), Ok(Some(true)), "records are not of the index");
    repair(&mut opened, 0);
    assert_eq!((by_hash(), logs()), (height, found));
}

#[test]
fn merged_table_that_the_disk_does_not_deliver_is_removed_and_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = store(dir.path());
    assert_eq!(opened.writer.merge_tables().unwrap(), 1);
    let table = dir.path().join(format!("{:020}-{:020}.idx", 0, HEIGHTS - 1));
    let reader = opened.reader.clone();
    let by_hash = || fresh(|| with_blocking_reads(|| reader.block(&hash(60_000, 0)).is_some()));
    assert_eq!(by_hash(), Ok(true));
    cut(&table, PAGE);
    assert_eq!(by_hash(), Err(ReadFailed));
    assert_eq!(opened.writer.restore_lost().unwrap(), None);
    assert!(!table.exists() && by_hash() == Ok(true));
    assert_eq!(opened.writer.merge_tables().unwrap(), 1);
    assert_eq!((table.exists(), by_hash()), (true, Ok(true)));
}

#[test]
fn merge_with_an_unreadable_source_publishes_nothing_and_writing_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = store(dir.path());
    cut(&segment(dir.path(), 16), place(&segment(dir.path(), 16), 7).1);
    assert_eq!(fresh(|| opened.writer.merge_tables().unwrap()), 0);
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().ends_with(".idx")));
    opened.writer.append(&record(HEIGHTS)).unwrap();
    assert_eq!(opened.reader.damaged()[0].base, 16);
    repair(&mut opened, 16);
    assert_eq!(opened.writer.merge_tables().unwrap(), 1);
}

/// The copy of a removed file, of which the disk lost records, has the time of its newest block still.
#[test]
fn copy_without_its_newest_record_is_not_evicted_for_its_age() {
    for lost in [0, 7] {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = store(dir.path());
        let path = segment(dir.path(), 0);
        cut(&path, place(&path, lost).0);
        fs::remove_file(&path).unwrap();
        assert_eq!(opened.writer.restore_lost().unwrap(), Some(0));
        let age = record(HEIGHTS - 1).timestamp - record(7).timestamp;
        let age = Some(std::time::Duration::from_secs(age));
        let retention = Retention { age, ..Retention::default() };
        let evicted = |opened: &mut Opened| opened.writer.evict(&retention, u64::MAX).unwrap();
        assert_eq!(evicted(&mut opened).heights, 0, "without record {lost} and those behind it");
        drop(opened);
        let mut opened = open(dir.path(), options());
        assert_eq!(evicted(&mut opened).heights, 0, "the seal says the same");
    }
}

/// In its place a file whose bytes at 0 are an EIO, for any user.
fn fail(path: &Path) {
    fs::remove_file(path).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", path).unwrap();
    let failed = fs::read(path).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
}

#[test]
fn opening_and_verifying_pass_by_files_that_the_disk_does_not_deliver() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = store(dir.path());
    assert_eq!(opened.writer.merge_tables().unwrap(), 1);
    drop(opened);
    let table = dir.path().join(format!("{:020}-{:020}.idx", 0, HEIGHTS - 1));
    fail(&table);
    fail(&segment(dir.path(), 16));
    let mut heard = support::Heard::default();
    neve_store::verify::directory(dir.path(), &mut heard).unwrap();
    let of = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    for path in [&table, &segment(dir.path(), 16)] {
        let is_named = heard.findings.iter().any(|finding| finding.file == of(path));
        assert!(is_named, "{path:?}: {:?}", heard.findings);
    }
    let opened = open(dir.path(), options());
    assert_eq!(opened.reader.range(), Some(24..=HEIGHTS - 1), "the run that ends at the head");
    // The segment keeps its bytes under another name. The table is not used, and stays.
    let aside = dir.path().join(format!("{:020}.seg.quarantined-0", 16));
    assert!(aside.is_symlink() && !segment(dir.path(), 16).exists() && table.is_symlink());
    assert_eq!(read(&opened.reader, 63), Ok(Some(true)));
    let found = fresh(|| with_blocking_reads(|| opened.reader.block(&hash(60_000, 0)).is_some()));
    assert_eq!(found, Ok(true));
}
