//! Damaged, missing and lost segment files: nothing healthy is removed, and the newest head stays.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;

use neve_store::disk::RealDisk;
use neve_store::{Hold, Opened, Options, Retention};

use crate::support::{Done, Recorder, assert_clean, assert_exactly, block, open, open_as, small};

fn blocks(heights: std::ops::Range<u64>) -> Vec<neve_store::Record> {
    heights.map(|height| block(height, 0)).collect()
}

fn name(base: u64) -> String {
    format!("{base:020}.seg")
}

/// Heights 0 to 39 in segments of four; the last is active.
fn store(dir: &Path) {
    let mut opened = open(dir, small());
    blocks(0..40).iter().for_each(|record| opened.writer.append(record).unwrap());
    opened.writer.merge_tables().unwrap();
}

fn flip(dir: &Path, file: &str, at: u64) {
    let file = fs::File::options().read(true).write(true).open(dir.join(file)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn quarantined(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.contains(".quarantined-"));
    names.sort();
    names
}

fn fill(opened: &mut Opened, heights: std::ops::Range<u64>) {
    let mut history = opened.writer.history().unwrap();
    blocks(heights).iter().for_each(|record| history.append(record).unwrap());
    let built = history.finish().unwrap();
    opened.writer.prepend(built).unwrap();
}

#[test]
fn segments_below_a_damaged_one_are_set_aside_and_rejoin_once_the_gap_is_filled() {
    // A header, a seal, and a file that is cut short.
    for (at, len) in [(20, None), (600, None), (0, Some(100)), (0, Some(5000))] {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path());
        match len {
            None => flip(dir.path(), &name(16), at),
            Some(len) => {
                let file = fs::File::options().write(true).open(dir.path().join(name(16)));
                file.unwrap().set_len(len).unwrap();
            }
        }
        let mut opened = open(dir.path(), small());
        assert_exactly(&opened.reader, &blocks(20..40));
        assert_eq!(opened.reader.gap(), Some(16..20));
        assert_eq!(opened.reader.usage().quarantined, 5);
        let names: Vec<_> =
            [0, 4, 8, 12, 16].map(|base| format!("{}.quarantined-0", name(base))).into();
        assert_eq!(quarantined(dir.path()), names);
        assert_eq!(opened.notes.len(), 5, "{:?}", opened.notes);
        // Below a gap they stay set aside, however often the store is opened.
        drop(opened);
        opened = open(dir.path(), small());
        assert_eq!((opened.reader.gap(), opened.notes.len()), (Some(16..20), 0));
        fill(&mut opened, 16..20);
        assert_exactly(&opened.reader, &blocks(0..40));
        assert_eq!(opened.reader.gap(), None);
        assert_eq!(quarantined(dir.path()), [format!("{}.quarantined-0", name(16))]);
        drop(opened);
        assert_clean(dir.path());
    }
}

/// The archive gets served heights only, so the files below the gap are the only copy of theirs.
#[test]
fn files_below_a_gap_wait_for_a_copy_as_served_ones_do() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    flip(dir.path(), &name(16), 20);
    let mut opened = open_as(Arc::new(RealDisk::new(dir.path())), small(), true);
    let hold = Hold { copied: None, from: 0, bytes_max: u64::MAX };
    let evict = |opened: &mut Opened, hold: Hold| {
        let retention = Retention { blocks: Some(8), ..Retention::default() };
        let evicted = opened.writer.evict_unless_held(&retention, Some(&hold), None, 0).unwrap();
        let gone = (evicted.quarantined, evicted.segments, evicted.uncopied);
        (gone, evicted.held)
    };
    let (gone, held) = evict(&mut opened, hold);
    assert_eq!(gone, (1, 0, 0), "the damaged one");
    assert_eq!((opened.reader.gap(), quarantined(dir.path()).len()), (Some(16..20), 4));
    let (gone, _) = evict(&mut opened, Hold { bytes_max: held - 1, ..hold });
    assert_eq!(gone, (1, 0, 4), "beyond the bytes");
    fill(&mut opened, 16..20);
    assert_exactly(&opened.reader, &blocks(4..40));
    assert_eq!(evict(&mut opened, hold).0, (0, 0, 0));
    assert_eq!(evict(&mut opened, Hold { copied: Some((4, 15)), ..hold }).0, (0, 3, 0));
}

#[test]
fn segments_rejoin_when_a_missing_file_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let elsewhere = dir.path().join("elsewhere");
    for base in [12, 16, 20] {
        fs::rename(dir.path().join(name(base)), elsewhere.with_extension(base.to_string()))
            .unwrap();
    }
    let opened = open(dir.path(), small());
    assert_exactly(&opened.reader, &blocks(24..40));
    assert_eq!(opened.reader.gap(), Some(12..24));
    drop(opened);
    for base in [12, 16, 20] {
        fs::rename(elsewhere.with_extension(base.to_string()), dir.path().join(name(base)))
            .unwrap();
    }
    let opened = open(dir.path(), small());
    assert_exactly(&opened.reader, &blocks(0..40));
    assert_eq!((opened.reader.gap(), opened.reader.usage().quarantined), (None, 0));
}

#[test]
fn full_disk_at_the_name_of_a_segment_that_rejoins_is_waited_out() {
    for at_opening in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path());
        let missing = dir.path().join("missing");
        fs::rename(dir.path().join(name(16)), &missing).unwrap();
        drop(open(dir.path(), small()));
        assert_eq!(quarantined(dir.path()).len(), 4);
        let recorder = Recorder::new(dir.path());
        *recorder.fail.lock().unwrap() = Some(Box::new(|op| {
            let is_full = matches!(op, Done::Rename(from, _) if from.contains(".quarantined-"));
            is_full.then(|| std::io::ErrorKind::StorageFull.into())
        }));
        if at_opening {
            fs::rename(&missing, dir.path().join(name(16))).unwrap();
        }
        let mut opened = recorder.open(small());
        if !at_opening {
            fill(&mut opened, 16..20);
        }
        assert_exactly(&opened.reader, &blocks(16..40));
        assert_eq!(opened.writer.restore_lost().unwrap(), None);
        assert_eq!((quarantined(dir.path()).len(), opened.reader.usage().quarantined), (4, 4));
        *recorder.fail.lock().unwrap() = None;
        assert_eq!(opened.writer.restore_lost().unwrap(), None);
        assert_exactly(&opened.reader, &blocks(0..40));
        assert_eq!((quarantined(dir.path()).len(), opened.reader.usage().quarantined), (0, 0));
        opened.writer.append(&block(40, 0)).unwrap();
        drop(opened);
        assert_exactly(&open(dir.path(), small()).reader, &blocks(0..41));
    }
}

/// Neither a damaged file nor one below it is replaced before it has another name.
#[test]
fn full_disk_at_the_names_of_files_that_a_start_sets_aside_is_waited_out() {
    for damaged in [16, 36] {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path());
        flip(dir.path(), &name(damaged), 20);
        let before = fs::read(dir.path().join(name(damaged))).unwrap();
        let recorder = Recorder::new(dir.path());
        *recorder.fail.lock().unwrap() = Some(Box::new(|op| {
            let is_full = matches!(op, Done::Rename(_, to) if to.contains(".quarantined-"));
            is_full.then(|| std::io::ErrorKind::StorageFull.into())
        }));
        let mut opened = recorder.open(small());
        assert!(opened.notes.iter().all(|note| note.contains("not set aside yet")));
        let served = if damaged == 16 { 20..40 } else { 0..36 };
        assert_exactly(&opened.reader, &blocks(served.clone()));
        if damaged == 16 {
            let mut history = opened.writer.history().unwrap();
            blocks(16..20).iter().for_each(|record| history.append(record).unwrap());
            let built = history.finish().unwrap();
            assert!(opened.writer.prepend(built).unwrap_err().is_disk_full());
        }
        assert!(opened.writer.append(&block(served.end, 0)).unwrap_err().is_disk_full());
        assert_eq!(opened.writer.restore_lost().unwrap(), None);
        assert_exactly(&opened.reader, &blocks(served.clone()));
        assert!(fs::read(dir.path().join(name(damaged))).unwrap() == before);
        *recorder.fail.lock().unwrap() = None;
        opened.writer.append(&block(served.end, 0)).unwrap();
        let aside = format!("{}.quarantined-0", name(damaged));
        assert!(fs::read(dir.path().join(&aside)).unwrap() == before);
        if damaged == 16 {
            fill(&mut opened, 16..20);
        }
        assert_exactly(&opened.reader, &blocks(0..served.end + 1));
        assert_eq!(quarantined(dir.path()), [aside]);
        assert_eq!(opened.reader.usage().quarantined, 1);
    }
}

/// The operator makes space by that.
#[test]
fn removal_of_files_that_a_full_disk_kept_stops_nothing() {
    for (damaged, at_once) in [(16, false), (16, true), (36, false), (36, true)] {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path());
        flip(dir.path(), &name(damaged), 20);
        let recorder = Recorder::new(dir.path());
        *recorder.fail.lock().unwrap() = Some(Box::new(|op| {
            let is_full = matches!(op, Done::Rename(_, to) if to.contains(".quarantined-"));
            is_full.then(|| std::io::ErrorKind::StorageFull.into())
        }));
        let mut opened = recorder.open(small());
        let served = opened.reader.range().unwrap();
        for base in (0..=damaged).step_by(4).filter(|base| !served.contains(base)) {
            fs::remove_file(dir.path().join(name(base))).unwrap();
        }
        *recorder.fail.lock().unwrap() = None;
        if !at_once {
            assert_eq!(opened.writer.restore_lost().unwrap(), None);
        }
        opened.writer.append(&block(served.end() + 1, 0)).unwrap();
        let stored = blocks(*served.start()..served.end() + 2);
        assert_exactly(&opened.reader, &stored);
        assert_eq!(quarantined(dir.path()), [""; 0]);
        drop(opened);
        assert_exactly(&open(dir.path(), small()).reader, &stored);
    }
}

#[test]
fn damaged_newest_segment_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    flip(dir.path(), &name(36), 20);
    let mut opened = open(dir.path(), small());
    assert_exactly(&opened.reader, &blocks(0..36));
    assert_eq!(quarantined(dir.path()), [format!("{}.quarantined-0", name(36))]);
    assert_eq!(opened.reader.gap(), None);
    blocks(36..40).iter().for_each(|record| opened.writer.append(record).unwrap());
    assert_exactly(&opened.reader, &blocks(0..40));
}

#[test]
fn retention_removes_quarantined_files_first() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    fs::remove_file(dir.path().join(name(16))).unwrap();
    let mut opened = open(dir.path(), small());
    let used = opened.reader.usage();
    assert_eq!(used.quarantined, 4);
    let retention = Retention { bytes: Some(used.disk_bytes - 1), ..Retention::default() };
    let evicted = opened.writer.evict(&retention, 0).unwrap();
    assert_eq!((evicted.quarantined, evicted.segments, evicted.heights), (1, 0, 0));
    assert_eq!(quarantined(dir.path())[0], format!("{}.quarantined-0", name(4)));
    assert_exactly(&opened.reader, &blocks(20..40));
    assert!(opened.reader.usage().disk_bytes < used.disk_bytes);
    let retention = Retention { blocks: Some(30), ..Retention::default() };
    let evicted = opened.writer.evict(&retention, 0).unwrap();
    assert_eq!((evicted.quarantined, evicted.segments), (1, 0), "4 to 7");
    let retention = Retention { bytes: Some(1), ..Retention::default() };
    let evicted = opened.writer.evict(&retention, 0).unwrap();
    assert_eq!((evicted.quarantined, evicted.segments), (2, 4));
    assert_eq!((opened.reader.gap(), opened.reader.usage().quarantined_bytes), (None, 0));
}

#[test]
fn quarantined_file_that_an_operator_removed_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    fs::remove_file(dir.path().join(name(16))).unwrap();
    let mut opened = open(dir.path(), small());
    quarantined(dir.path()).iter().for_each(|name| fs::remove_file(dir.path().join(name)).unwrap());
    fill(&mut opened, 16..20);
    assert_exactly(&opened.reader, &blocks(16..40));
    opened.writer.append(&block(40, 0)).unwrap();
}

#[test]
fn files_of_others_are_left_alone_and_no_fifo_socket_or_link_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let foreign = ["notes.new", "x.seg.new", "00000000000000000040.seg.new.new"];
    foreign.iter().for_each(|name| fs::write(dir.path().join(name), "mine").unwrap());
    let ours = format!("{}.new", name(40));
    fs::write(dir.path().join(&ours), "unfinished").unwrap();
    let make = |name: String, kind: rustix::fs::FileType| {
        let path = dir.path().join(name);
        let _ = fs::remove_file(&path);
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    };
    make(name(900), rustix::fs::FileType::Fifo);
    make(name(4), rustix::fs::FileType::Fifo);
    make(name(904), rustix::fs::FileType::Socket);
    make(format!("{:020}-{:020}.idx", 900, 903), rustix::fs::FileType::Socket);
    let (loops, nowhere) = (name(908), name(912));
    symlink(&loops, dir.path().join(&loops)).unwrap();
    symlink("nowhere", dir.path().join(&nowhere)).unwrap();
    let opened = open(dir.path(), small());
    assert_exactly(&opened.reader, &blocks(8..40));
    assert!(foreign.iter().all(|name| dir.path().join(name).exists()));
    assert!(!dir.path().join(&ours).exists());
    let aside = [0, 4, 900, 904, 908, 912].map(|base| format!("{}.quarantined-0", name(base)));
    assert_eq!(quarantined(dir.path()), aside);
}

#[test]
fn removed_files_of_a_running_store_stop_nothing_and_are_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), Options { segment_blocks: 4, ..small() });
    for height in 0..90 {
        if height % 10 == 3 {
            // Sealed ones, tables and the active one.
            for entry in fs::read_dir(dir.path()).unwrap() {
                let path = entry.unwrap().path();
                let is_ours = path.extension().is_some_and(|ext| ext == "seg" || ext == "idx");
                if is_ours && height % 20 == 3 {
                    fs::remove_file(path).unwrap();
                }
            }
        }
        opened.writer.append(&block(height, 0)).unwrap();
        opened.writer.merge_tables().unwrap();
        opened.writer.sync().unwrap();
        if height == 60 {
            let retention = Retention { blocks: Some(30), ..Retention::default() };
            assert!(opened.writer.evict(&retention, 0).unwrap().segments > 0);
        }
    }
    let first = *opened.reader.range().unwrap().start();
    assert_exactly(&opened.reader, &blocks(first..90));
    let mut restored = 0;
    while opened.writer.restore_lost().unwrap().is_some() {
        restored += 1;
    }
    assert!(restored > 3, "{restored}");
    assert_exactly(&opened.reader, &blocks(first..90));
    opened.writer.append(&block(90, 0)).unwrap();
    drop(opened);
    let opened = open(dir.path(), small());
    assert_exactly(&opened.reader, &blocks(first..91));
}

#[test]
fn active_segment_that_was_removed_before_its_first_write_after_opening_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(small());
    blocks(0..6).iter().for_each(|record| opened.writer.append(record).unwrap());
    drop(opened);
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(small());
    fs::remove_file(dir.path().join(name(4))).unwrap();
    blocks(6..12).iter().for_each(|record| opened.writer.append(record).unwrap());
    assert_exactly(&opened.reader, &blocks(0..12));
    drop(opened);
    assert_exactly(&open(dir.path(), small()).reader, &blocks(0..12));
}

#[test]
fn clock_that_jumps_ahead_does_not_empty_the_store() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path());
    let mut opened = open(dir.path(), small());
    let newest = opened.writer.newest_timestamp().unwrap();
    assert_eq!(newest, block(39, 0).timestamp);
    let age = Some(std::time::Duration::from_secs(20));
    let retention = Retention { age, ..Retention::default() };
    opened.writer.evict(&retention, newest + 3 * 86_400).unwrap();
    assert_eq!(opened.reader.range().map(|range| *range.start()), Some(16));
}
