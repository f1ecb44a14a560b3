//! Writes that fail: a full disk is waited out, anything else stops the writer, and readers never
//! notice.

use std::io;

use neve_store::{Error, Opened, Options, Part, Record, Retention};

use crate::support::{
    self, Done, Recorder, assert_clean, assert_exactly, block, every, files, fork, injected, small,
};

fn blocks(count: u64) -> Vec<Record> {
    (0..count).map(|height| block(height, 0)).collect()
}

#[test]
fn a_nearly_full_disk_stops_rolling_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(Options { disk_reserve_bytes: 1000, ..small() });
    let capacity = 4096 + 4 * 64 + (64 << 10);
    let capacity = u64::next_multiple_of(capacity, 4096);
    // The edge: exactly enough for one segment and the reserve.
    *recorder.free.lock().unwrap() = Some(capacity + 1000);
    blocks(4).iter().for_each(|record| opened.writer.append(record).unwrap());
    *recorder.free.lock().unwrap() = Some(capacity + 999);
    let error = opened.writer.append(&block(4, 0)).unwrap_err();
    assert!(error.is_disk_full());
    let text = format!(
        "disk nearly full at {}: {} bytes free, {capacity} needed and 1000 kept in reserve; \
         free some space or lower --retain-bytes or --retain-age",
        dir.path().display(),
        capacity + 999
    );
    assert_eq!(error.to_string(), text);
    assert_exactly(&opened.reader, &blocks(4));
    *recorder.free.lock().unwrap() = None;
    opened.writer.append(&block(4, 0)).unwrap();
    assert_exactly(&opened.reader, &blocks(5));
    drop(opened);
    assert_clean(dir.path());
}

#[test]
fn a_write_refused_for_space_is_repeated_from_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(small());
    opened.writer.append(&block(0, 0)).unwrap();
    let full = |done: &Done| {
        let record = matches!(done, Done::Write(_, offset, _) if *offset > 4096 + 4 * 64);
        record.then(|| io::ErrorKind::StorageFull.into())
    };
    *recorder.fail.lock().unwrap() = Some(Box::new(full));
    assert!(opened.writer.append(&block(1, 0)).unwrap_err().is_disk_full());
    assert_exactly(&opened.reader, &blocks(1));
    *recorder.fail.lock().unwrap() = None;
    opened.writer.append(&block(1, 0)).unwrap();
    assert_exactly(&opened.reader, &blocks(2));
}

/// The segment that begins with a range is made before its first record fails.
#[test]
fn full_disk_at_the_start_of_a_range_is_waited_out() {
    for refused in [0, 4] {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(dir.path());
        let mut opened = recorder.open_as(small(), true);
        blocks(refused).iter().for_each(|record| opened.writer.append(record).unwrap());
        let full = |done: &Done| {
            let record = matches!(done, Done::Write(_, offset, _) if *offset >= 4096 + 4 * 64);
            record.then(|| io::ErrorKind::StorageFull.into())
        };
        let sealed = opened.writer.seal();
        *recorder.fail.lock().unwrap() = Some(Box::new(full));
        let error = opened.writer.append(&block(refused, 0)).unwrap_err();
        assert!(error.is_disk_full() && sealed.is_ok(), "{error}");
        *recorder.fail.lock().unwrap() = None;
        opened.writer.append(&block(refused, 0)).unwrap();
        assert_exactly(&opened.reader, &blocks(refused + 1));
        drop(opened);
        assert_clean(dir.path());
    }
}

/// A record that is fetched again may be longer, so that the new file becomes several.
#[test]
#[cfg_attr(miri, ignore = "long records take too much time there")]
fn full_disk_at_a_name_of_a_repaired_segment_leaves_the_old_one() {
    let longer = |height| Record {
        parts: (0..5).map(|_| Part::uncompressed(vec![7; 20_000])).collect(),
        ..block(height, 0)
    };
    let mut repaired = blocks(12);
    (4..8).for_each(|height| repaired[height as usize] = longer(height));
    for refused in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(dir.path());
        let mut opened = recorder.open(small());
        blocks(12).iter().for_each(|record| opened.writer.append(record).unwrap());
        let write_anew = |opened: &mut Opened| {
            let mut repair = opened.writer.repair(4)?.expect("it is there");
            (4..8).try_for_each(|height| repair.append(&longer(height)))?;
            opened.writer.replace(repair.finish()?)
        };
        let mut left = refused;
        *recorder.fail.lock().unwrap() = Some(Box::new(move |done| {
            left -= i32::from(matches!(done, Done::Rename(..)));
            (left < 0 && matches!(done, Done::Rename(..)))
                .then(|| io::ErrorKind::StorageFull.into())
        }));
        assert!(write_anew(&mut opened).unwrap_err().is_disk_full());
        assert_exactly(&opened.reader, &blocks(12));
        assert_eq!(files(dir.path(), ".seg").len(), 3, "name {refused}");
        assert_eq!(files(dir.path(), ".new"), Vec::<String>::new(), "name {refused}");
        drop(opened);
        *recorder.fail.lock().unwrap() = None;
        let mut opened = recorder.open(small());
        assert_exactly(&opened.reader, &blocks(12));
        assert!(write_anew(&mut opened).unwrap());
        assert_exactly(&opened.reader, &repaired);
        assert_eq!(files(dir.path(), ".seg").len(), 6);
        drop(opened);
        assert_exactly(&recorder.open(small()).reader, &repaired);
        assert_clean(dir.path());
    }
}

/// Some file systems need space to remove a name.
#[test]
fn full_disk_at_a_removal_is_waited_out() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(small());
    blocks(40).iter().for_each(|record| opened.writer.append(record).unwrap());
    // The first one is refused twice: the one behind it waits too, as it lies above it.
    let refuses = |times: usize| {
        let mut left = times;
        *recorder.fail.lock().unwrap() = Some(Box::new(move |done| {
            let is_refused = left > 0 && matches!(done, Done::Remove(_));
            left -= usize::from(is_refused);
            is_refused.then(|| io::ErrorKind::StorageFull.into())
        }));
    };
    let newest = |blocks| Retention { blocks: Some(blocks), ..Retention::default() };
    refuses(2);
    let evicted = opened.writer.evict(&newest(30), 0).unwrap();
    assert_eq!((evicted.segments, opened.reader.range()), (2, Some(8..=39)));
    assert!(evicted.waiting);
    refuses(usize::MAX);
    assert_eq!(files(dir.path(), ".seg").len(), 10);
    assert!(opened.writer.withdraw(34).unwrap_err().is_disk_full());
    assert_exactly(&opened.reader, &blocks(34)[8..]);
    let error = opened.writer.append(&fork(34, 1, 0)).unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    assert_eq!(opened.writer.restore_lost().unwrap(), None);
    // A crash brings the withdrawn heights back, and no gap.
    let killed = tempfile::tempdir().unwrap();
    for name in files(dir.path(), "") {
        let bytes = std::fs::read(dir.path().join(&name)).unwrap();
        std::fs::write(killed.path().join(&name), bytes).unwrap(); // miri copies no files
    }
    let at_once = Recorder::new(killed.path()).open(small());
    let first = *at_once.reader.range().unwrap().start();
    assert!(first <= 8, "{first}");
    assert_exactly(&at_once.reader, &blocks(40)[first as usize..]);
    refuses(0);
    opened.writer.append(&fork(34, 1, 0)).unwrap();
    assert!(!opened.writer.evict(&newest(40), 0).unwrap().waiting);
    opened.writer.append(&block(35, 1)).unwrap();
    let mut records = blocks(34);
    records.extend([fork(34, 1, 0), block(35, 1)]);
    assert_exactly(&opened.reader, &records[8..]);
    drop(opened);
    assert_exactly(&recorder.open(small()).reader, &records[8..]);
    assert_clean(dir.path());
}

#[test]
fn full_disk_at_the_removals_of_a_start_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(small());
    blocks(10).iter().for_each(|record| opened.writer.append(record).unwrap());
    drop(opened);
    let unfinished = format!("{:020}.seg.new", 12);
    std::fs::write(dir.path().join(&unfinished), "unfinished").unwrap();
    *recorder.fail.lock().unwrap() = Some(Box::new(|done| {
        matches!(done, Done::Remove(_)).then(|| io::ErrorKind::StorageFull.into())
    }));
    let mut opened = recorder.open(small());
    assert_exactly(&opened.reader, &blocks(10));
    blocks(12)[10..].iter().for_each(|record| opened.writer.append(record).unwrap());
    assert!(opened.writer.append(&block(12, 0)).unwrap_err().is_disk_full());
    *recorder.fail.lock().unwrap() = None;
    opened.writer.append(&block(12, 0)).unwrap();
    assert_exactly(&opened.reader, &blocks(13));
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
}

/// The removal of a leftover is refused, and the file is made anew before there is space for what waits.
#[test]
fn unfinished_file_that_is_made_anew_outlives_a_refused_removal() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let records: Vec<_> = (16..30).map(|height| block(height, 0)).collect();
    let mut opened = recorder.open(small());
    records[4..].iter().for_each(|record| opened.writer.append(record).unwrap());
    drop(opened);
    std::fs::write(dir.path().join(format!("{:020}.seg.new", 16)), "unfinished").unwrap();
    *recorder.fail.lock().unwrap() = Some(Box::new(|done| {
        matches!(done, Done::Remove(_)).then(|| io::ErrorKind::StorageFull.into())
    }));
    let mut opened = recorder.open(small());
    assert_eq!(files(dir.path(), ".new").len(), 1);
    *recorder.fail.lock().unwrap() = None;
    let mut history = opened.writer.history().unwrap();
    records[..4].iter().for_each(|record| history.append(record).unwrap());
    let built = history.finish().unwrap();
    assert_eq!(opened.writer.restore_lost().unwrap(), None);
    assert_eq!(opened.writer.prepend(built).unwrap(), 4);
    assert_exactly(&opened.reader, &records);
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
}

/// An empty store may begin at any height, also after the disk was full.
#[test]
fn record_of_another_height_after_a_full_disk_gets_a_segment_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(small());
    let full = |done: &Done| {
        let record = matches!(done, Done::Write(_, offset, _) if *offset >= 4096);
        record.then(|| io::ErrorKind::StorageFull.into())
    };
    *recorder.fail.lock().unwrap() = Some(Box::new(full));
    assert!(opened.writer.append(&block(5, 0)).unwrap_err().is_disk_full());
    *recorder.fail.lock().unwrap() = None;
    opened.writer.append(&block(9, 0)).unwrap();
    assert_exactly(&opened.reader, &[block(9, 0)]);
    drop(opened);
    assert_clean(dir.path());
}

#[test]
fn any_other_failure_stops_the_writer_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(small());
    opened.writer.append(&block(0, 0)).unwrap();
    let broken = |done: &Done| matches!(done, Done::Sync(_)).then(|| io::Error::other("lost"));
    *recorder.fail.lock().unwrap() = Some(Box::new(broken));
    let error = opened.writer.sync().unwrap_err();
    assert_eq!(error.to_string(), "syncing 00000000000000000000.seg: lost");
    *recorder.fail.lock().unwrap() = None;
    let error = opened.writer.append(&block(1, 0)).unwrap_err();
    assert!(matches!(error, Error::Latched { .. }));
    let text = "writing stopped after an earlier error: syncing 00000000000000000000.seg: lost";
    assert_eq!(error.to_string(), text);
    assert_exactly(&opened.reader, &blocks(1));
    drop(opened);
    let mut opened = recorder.open(small()); // opening again looks at what is really there
    opened.writer.append(&block(1, 0)).unwrap();
    assert_exactly(&opened.reader, &blocks(2));
}

#[test]
fn a_failing_operation_anywhere_leaves_the_readers_what_they_had() {
    let dir = tempfile::tempdir().unwrap();
    let count = {
        let recorder = Recorder::new(&dir.path().join("whole"));
        let mut opened = recorder.open(small());
        blocks(10).iter().for_each(|record| opened.writer.append(record).unwrap());
        recorder.len()
    };
    injected(count - 6, "operations, of which each fails");
    for fails in (6..count).step_by(every()) {
        let at = dir.path().join(format!("fails-{fails}"));
        let recorder = Recorder::new(&at);
        let mut opened = recorder.open(small());
        let mut left = fails - recorder.len();
        let countdown = move |_: &Done| {
            left = left.checked_sub(1)?;
            (left == 0).then(|| io::Error::other("broken"))
        };
        *recorder.fail.lock().unwrap() = Some(Box::new(countdown));
        let stored = blocks(10).iter().take_while(|r| opened.writer.append(r).is_ok()).count();
        assert!(stored < 10);
        assert_exactly(&opened.reader, &blocks(stored as u64));
        drop(opened);
        *recorder.fail.lock().unwrap() = None;
        let opened = recorder.open(small());
        let head = opened.reader.range().map_or(0, |range| range.end() + 1);
        assert!(head >= stored as u64);
        assert_exactly(&opened.reader, &blocks(head));
    }
}

#[test]
#[cfg_attr(miri, ignore = "it knows no blocks of a disk")]
fn disk_use_stays_within_the_bound_plus_one_segment() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = support::open(dir.path(), small());
    let bound = 500_000;
    let retention = Retention { bytes: Some(bound), ..Retention::default() };
    let mut evicted = 0;
    for height in 0..300 {
        opened.writer.append(&block(height, 0)).unwrap();
        let used = used_bytes(dir.path());
        assert!(used <= bound + SEGMENT, "{used} bytes used at height {height}");
        evicted += opened.writer.evict(&retention, 0).unwrap().segments;
        opened.writer.merge_tables().unwrap();
    }
    assert!(evicted > 10);
    assert_clean(dir.path());
}

/// Bytes of a segment of `small`, and of the stamp.
const SEGMENT: u64 = 4096 + 4096 + (64 << 10) + 4096;

fn used_bytes(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}
