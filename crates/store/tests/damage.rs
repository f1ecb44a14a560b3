//! Flipped bits in sealed segments: what is served is what was stored, or nothing; and a repaired
//! segment serves everything again.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use neve_store::disk::RealDisk;
use neve_store::{Criteria, Opened, Reader, Record, residency};

use crate::support::{
    self, assert_clean, assert_exactly, assert_holds, block, every, files, injected, open, open_as,
    small,
};

const HEIGHTS: u64 = 20;

fn store(dir: &Path) {
    let mut opened = open(dir, small());
    (0..HEIGHTS).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
    opened.writer.seal().unwrap();
}

fn segment(dir: &Path) -> std::path::PathBuf {
    dir.join(format!("{:020}.seg", 8))
}

/// Asserts that each record is whole or a miss; returns how many are misses.
fn assert_true_or_missing(reader: &Reader) -> u64 {
    let mut missing = 0;
    for height in 0..HEIGHTS {
        let block = block(height, 0);
        match reader.record(height) {
            Some(found) => {
                assert_eq!(found.hash(), block.hash);
                for (at, part) in block.parts.iter().enumerate() {
                    assert_eq!(found.part(at).slice.as_ref(), part.bytes, "part {at} of {height}");
                }
                assert_eq!(found.terms().unwrap().collect::<Vec<_>>(), block.logs);
            }
            None => missing += 1,
        }
        if let Some(found) = reader.block(&block.hash) {
            assert_eq!((found.height(), found.hash()), (height, block.hash));
        }
    }
    missing
}

/// Logs of all heights, or the height that cannot be read.
fn assert_logs_are_whole_or_an_error(reader: &Reader, stored: &[Record]) {
    let key = stored[9].logs[0][0];
    let found: Result<Vec<_>, _> =
        reader.logs(0..=HEIGHTS - 1, &Criteria::new(vec![vec![key]])).collect();
    let Ok(found) = found else { return };
    let found: Vec<_> = found.iter().map(|log| (log.height, log.index)).collect();
    assert_eq!(found, support::naive_logs(stored, &[vec![key]]));
}

/// Repairs all that is known to be damaged, as the follower does it.
fn repair(opened: &mut Opened, stored: &[Record]) {
    for damaged in opened.reader.damaged() {
        let mut repair = opened.writer.repair(damaged.base).unwrap().unwrap();
        let heights = repair.damaged();
        for height in repair.heights() {
            if heights.contains(&height) {
                repair.append(&stored[height as usize]).unwrap();
            } else {
                assert!(repair.keep(height).unwrap(), "{height}");
            }
        }
        assert!(opened.writer.replace(repair.finish().unwrap()).unwrap());
    }
    assert_eq!((opened.reader.damaged(), opened.reader.damaged_records()), (vec![], 0));
}

#[test]
fn any_flipped_byte_of_a_sealed_segment_is_a_miss_and_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    store(&live);
    let good = fs::read(segment(&live)).unwrap();
    let stored: Vec<_> = (0..HEIGHTS).map(|height| block(height, 0)).collect();
    let end = u64::from_le_bytes(good[544..552].try_into().unwrap()) as usize;
    let (mut missing, mut count) = (0, 0);
    // The index byte by byte, the rest in steps; headers set the segment aside.
    let steps = (4096..end).filter(|at| at % 13 == 0 || *at < 4096 + 2 * 64);
    for at in steps.step_by(every()) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(segment(&live), &bad).unwrap();
        let mut opened = open(&live, small());
        let misses = assert_true_or_missing(&opened.reader);
        assert!(misses <= 1, "byte {at}");
        (missing, count) = (missing + misses, count + 1);
        assert_logs_are_whole_or_an_error(&opened.reader, &stored);
        assert!(opened.reader.scrub(&live, 8, &mut |_| {}).unwrap());
        assert!(!opened.reader.damaged().is_empty(), "byte {at} is not found");
        if at % 5 == 0 {
            repair(&mut opened, &stored);
            assert_exactly(&opened.reader, &stored);
            drop(opened);
            assert_clean(&live);
        }
        fs::write(segment(&live), &good).unwrap();
    }
    injected(count, "flipped bytes of a sealed segment");
    assert!(missing * every() as u64 > 100, "{missing}");
}

/// The writer and the scrubber both look at files from time to time, in either order.
#[test]
fn removed_file_is_no_damage_to_the_scrubber_and_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let mut opened = open(dir.path(), small());
    fs::remove_file(segment(dir.path())).unwrap();
    assert!(!opened.reader.scrub(dir.path(), 8, &mut |_| {}).unwrap());
    assert_eq!(opened.reader.damaged(), vec![]);
    assert_eq!(opened.writer.restore_lost().unwrap(), Some(8));
    assert!(opened.reader.scrub(dir.path(), 8, &mut |_| {}).unwrap());
    drop(opened);
    assert_clean(dir.path());
}

/// Too many open files of the process have the same effect.
#[test]
fn file_that_cannot_be_opened_is_no_damage_to_the_scrubber() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let opened = open(dir.path(), small());
    let file_in_place_of_the_directory = segment(dir.path());
    opened.reader.scrub(&file_in_place_of_the_directory, 8, &mut |_| {}).unwrap_err();
    assert_eq!(opened.reader.damaged(), vec![]);
    assert!(opened.reader.scrub(dir.path(), 8, &mut |_| {}).unwrap());
}

#[test]
fn thread_that_must_not_wait_leaves_the_first_read_to_another() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let opened = open(dir.path(), small());
    let reader = &opened.reader;
    assert!(residency::if_resident(|| reader.resident().record(8)).is_err(), "it was not read yet");
    assert_eq!(residency::with_blocking_reads(|| reader.record(8).is_some()), Ok(true));
    assert!(residency::if_resident(|| reader.resident().record(8)).unwrap().is_some());
    assert!(residency::if_resident(|| reader.resident().record(9)).is_err());
}

#[test]
fn damaged_record_is_a_miss_at_once_after_its_first_read() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let mut bytes = fs::read(segment(dir.path())).unwrap();
    let offset = u64::from_le_bytes(bytes[4096..4104].try_into().unwrap()) as usize;
    bytes[offset + 100] ^= 1;
    fs::write(segment(dir.path()), bytes).unwrap();
    let opened = open(dir.path(), small());
    let before = neve_store::damages_found();
    assert_eq!(residency::with_blocking_reads(|| opened.reader.record(8).is_none()), Ok(true));
    assert!(residency::if_resident(|| opened.reader.resident().record(8)).unwrap().is_none());
    assert!(neve_store::damages_found() > before);
    assert_eq!(opened.reader.damaged()[0].heights, [8]);
    assert_holds(&opened.reader, &block(9, 0));
}

/// The packed file would give them a right checksum, and they would be served for good.
#[test]
fn bytes_that_are_damaged_after_their_first_read_are_not_packed() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open_as(Arc::new(RealDisk::new(dir.path())), small(), true);
    let stored = support::fill(&mut opened);
    assert_exactly(&opened.reader, &stored);
    let bytes = fs::read(segment(dir.path())).unwrap();
    let text = b"part 1 of block 10 on branch 0;";
    let at = bytes.windows(text.len()).position(|found| found == text).unwrap();
    let file = fs::File::options().write(true).open(segment(dir.path())).unwrap();
    file.write_all_at(b"7", at as u64 + 5).unwrap();
    let before = neve_store::damages_found();
    assert_eq!(support::pack(&mut opened, 21).unwrap(), 8, "12 to 19");
    assert!(neve_store::damages_found() > before);
    assert_eq!(opened.reader.damaged()[0].heights, [10]);
    assert!(opened.reader.record(10).is_none());
    assert_eq!(
        support::pack(&mut opened, 21).unwrap(),
        4,
        "4 to 7: the other waits for its repair"
    );
    let mut repair = opened.writer.repair(8).unwrap().unwrap();
    assert_eq!(repair.damaged(), [10]);
    assert!(repair.keep(8).unwrap() && repair.keep(9).unwrap());
    repair.append(&stored[8]).unwrap();
    assert!(repair.keep(11).unwrap());
    assert!(opened.writer.replace(repair.finish().unwrap()).unwrap());
    assert_eq!(support::pack(&mut opened, 21).unwrap(), 4, "8 to 11");
    assert_exactly(&opened.reader, &stored);
}

#[test]
fn appended_records_need_no_first_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), small());
    for height in 0..9 {
        opened.writer.append(&block(height, 0)).unwrap();
        let reader = &opened.reader;
        assert!(residency::if_resident(|| reader.resident().record(height)).unwrap().is_some());
    }
    // Sealed since, and walked at opening.
    assert!(residency::if_resident(|| opened.reader.resident().record(0)).unwrap().is_some());
    drop(opened);
    let opened = open(dir.path(), small());
    assert!(residency::if_resident(|| opened.reader.resident().record(8)).unwrap().is_some());
}

/// A repair waits for a fetch while the writer cuts the segment, or writes it anew.
#[test]
fn repair_writes_no_byte_into_a_segment_that_is_written_anew_meanwhile() {
    for is_cut in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = open(dir.path(), small());
        (0..12).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
        let mut repair = opened.writer.repair(4).unwrap().unwrap();
        assert!(repair.keep(4).unwrap());
        let end = if is_cut {
            opened.writer.withdraw(6).unwrap();
            6
        } else {
            fs::remove_file(dir.path().join(format!("{:020}.seg", 4))).unwrap();
            assert_eq!(opened.writer.restore_lost().unwrap(), Some(4));
            12
        };
        (5..8).for_each(|height| assert!(repair.keep(height).unwrap()));
        let replaced = opened.writer.replace(repair.finish().unwrap()).unwrap();
        assert_eq!(replaced, !is_cut, "a segment that was cut has other heights");
        let stored: Vec<_> = (0..end).map(|height| block(height, 0)).collect();
        assert_exactly(&opened.reader, &stored);
        drop(opened);
        assert_exactly(&open(dir.path(), small()).reader, &stored);
        assert_eq!(files(dir.path(), ".new"), [""; 0]);
        assert_clean(dir.path());
    }
}

#[test]
fn withdrawal_does_not_make_a_damaged_record_whole() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let mut bytes = fs::read(segment(dir.path())).unwrap();
    let offset = u64::from_le_bytes(bytes[4096..4104].try_into().unwrap()) as usize;
    bytes[offset + 100] ^= 1;
    fs::write(segment(dir.path()), bytes).unwrap();
    let mut opened = open(dir.path(), small());
    opened.writer.withdraw(11).unwrap();
    assert!(opened.reader.record(8).is_none());
    assert_holds(&opened.reader, &block(9, 0));
    let logs: Result<Vec<_>, _> =
        opened.reader.logs(0..=10, &Criteria::new(vec![vec![1]])).collect();
    let _ = logs; // it must not panic
    opened.writer.append(&block(11, 0)).unwrap();
    drop(opened);
    let opened = open(dir.path(), small());
    assert!(opened.reader.record(8).is_none());
    assert_holds(&opened.reader, &block(10, 0));
    assert_holds(&opened.reader, &block(11, 0));
}

/// The larger table would have a right checksum, and lack the hashes for good.
#[test]
fn damaged_hash_table_is_not_merged_into_a_larger_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), small());
    let blocks: Vec<_> = (0..260).map(|height| block(height, 0)).collect();
    let (first, rest) = blocks.split_at(230);
    first.iter().for_each(|record| opened.writer.append(record).unwrap());
    assert_eq!(opened.writer.merge_tables().unwrap(), 7);
    let table = dir.path().join(&files(dir.path(), ".idx")[3]);
    let len = fs::metadata(&table).unwrap().len() as usize;
    let file = fs::File::options().write(true).open(&table).unwrap();
    file.write_all_at(&vec![0; len - 4096], 4096).unwrap();
    rest.iter().for_each(|record| opened.writer.append(record).unwrap());
    assert_eq!(opened.writer.merge_tables().unwrap(), 1, "of segments");
    opened.writer.restore_lost().unwrap();
    assert_eq!(opened.writer.merge_tables().unwrap(), 2);
    assert_eq!(files(dir.path(), ".idx").len(), 1);
    assert_exactly(&opened.reader, &blocks);
    drop(opened);
    assert_clean(dir.path());
}
