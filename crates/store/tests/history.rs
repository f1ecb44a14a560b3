//! Heights below the served range: no reader sees them before they are whole and fit, and what is
//! given up leaves nothing behind.

use std::io;
use std::path::Path;

use neve_store::{BuiltSegments, Error, Opened, Options, Record};

use crate::support::{Done, Recorder, assert_clean, assert_exactly, block, fork, open, small};

fn blocks(heights: std::ops::Range<u64>) -> Vec<Record> {
    heights.map(|height| block(height, 0)).collect()
}

/// A store that begins at 50.
fn begun(dir: &Path) -> Opened {
    let mut opened = open(dir, small());
    blocks(50..56).iter().for_each(|record| opened.writer.append(record).unwrap());
    opened
}

fn build(opened: &Opened, records: &[Record]) -> BuiltSegments {
    let mut history = opened.writer.history().unwrap();
    records.iter().for_each(|record| history.append(record).unwrap());
    history.finish().unwrap()
}

/// Files of the directory that end so.
fn files(dir: &Path, suffix: &str) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(suffix)).count()
}

#[test]
fn history_is_seen_at_once_when_it_is_published() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = begun(dir.path());
    let built = build(&opened, &blocks(37..50));
    assert_eq!((built.first(), built.last()), (Some(37), Some((49, block(49, 0).hash))));
    assert!(built.disk_bytes() > 0);
    assert_exactly(&opened.reader, &blocks(50..56));
    assert_eq!(opened.reader.block(&block(49, 0).hash).map(|found| found.height()), None);
    assert_eq!(opened.writer.prepend(built).unwrap(), 13);
    assert_exactly(&opened.reader, &blocks(37..56));
    assert_eq!(files(dir.path(), ".new"), 0);
    opened.writer.append(&block(56, 0)).unwrap();
    drop(opened);
    assert_clean(dir.path());
    assert_exactly(&open(dir.path(), small()).reader, &blocks(37..57));
}

#[test]
fn history_that_does_not_join_is_refused_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = begun(dir.path());
    let other: Vec<_> = (40..50).map(|height| block(height, 7)).collect();
    for wrong in [blocks(40..49), blocks(40..51), other, Vec::new()] {
        let built = build(&opened, &wrong);
        let error = opened.writer.prepend(built).unwrap_err();
        assert!(matches!(error, Error::DoesNotJoin { .. }), "{error}");
        assert_eq!(files(dir.path(), ".new"), 0);
        assert_exactly(&opened.reader, &blocks(50..56));
    }
    let error = opened.writer.prepend(build(&opened, &blocks(48..49))).unwrap_err().to_string();
    let (ends, begins) = (block(48, 0).hash, block(49, 0).hash);
    let text = format!(
        "history ends at 48 with block {ends}, and the served range begins at 50 with parent {begins}"
    );
    assert_eq!(error, text);
    // Nothing joins an empty store either: `append` decides where one begins.
    let empty = tempfile::tempdir().unwrap();
    let mut opened = open(empty.path(), small());
    let error = opened.writer.prepend(build(&opened, &blocks(1..3))).unwrap_err().to_string();
    assert!(error.ends_with("the served range begins nowhere"), "{error}");
}

#[test]
fn history_takes_linked_heights_only() {
    let dir = tempfile::tempdir().unwrap();
    let opened = begun(dir.path());
    let mut history = opened.writer.history().unwrap();
    history.append(&block(40, 0)).unwrap();
    let gap = history.append(&block(42, 0)).unwrap_err().to_string();
    assert_eq!(gap, "height 42 was appended, 41 is next");
    let error = history.append(&fork(41, 0, 3)).unwrap_err();
    assert!(matches!(error, Error::WrongParent { height: 41, .. }), "{error}");
    assert_eq!(history.head(), Some((40, block(40, 0).hash)));
    assert_eq!(files(dir.path(), ".new"), 1);
    drop(history);
    assert_eq!(files(dir.path(), ".new"), 0);
}

/// History that cannot be written stops nothing else.
#[test]
fn a_failed_write_of_history_leaves_the_writer_alone() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(small());
    opened.writer.append(&block(50, 0)).unwrap();
    let broken = |done: &Done| match done {
        Done::Sync(name) if name.contains(".new") => Some(io::Error::other("lost")),
        _ => None,
    };
    *recorder.fail.lock().unwrap() = Some(Box::new(broken));
    let mut history = opened.writer.history().unwrap();
    history.append(&block(49, 0)).unwrap();
    assert_eq!(
        history.finish().err().unwrap().to_string(),
        format!("syncing {:020}.seg.new: lost", 49)
    );
    opened.writer.append(&block(51, 0)).unwrap();
    opened.writer.sync().unwrap();
    assert_exactly(&opened.reader, &blocks(50..52));
    *recorder.fail.lock().unwrap() = None;
    opened.writer.prepend(build(&opened, &blocks(45..50))).unwrap();
    assert_exactly(&opened.reader, &blocks(45..52));
}

#[test]
fn a_full_disk_refuses_history_before_it_refuses_the_head() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(dir.path());
    let mut opened = recorder.open(Options { disk_reserve_bytes: 1000, ..small() });
    opened.writer.append(&block(50, 0)).unwrap();
    *recorder.free.lock().unwrap() = Some(2000);
    let mut history = opened.writer.history().unwrap();
    assert!(history.append(&block(49, 0)).unwrap_err().is_disk_full());
    opened.writer.append(&block(51, 0)).unwrap();
    *recorder.free.lock().unwrap() = None;
    history.append(&block(49, 0)).unwrap();
    opened.writer.prepend(history.finish().unwrap()).unwrap();
    assert_exactly(&opened.reader, &blocks(49..52));
}

/// Tables are merged on both sides of what was there first.
#[test]
fn look_ups_stay_cheap_however_the_range_grew() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_blocks: 1, ..small() };
    let mut opened = open(dir.path(), options);
    (200..272).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
    opened.writer.merge_tables().unwrap();
    for end in (4..=200).rev().step_by(7) {
        let built = build(&opened, &blocks(end.max(7) - 7..end));
        opened.writer.prepend(built).unwrap();
        opened.writer.merge_tables().unwrap();
        let usage = opened.reader.usage();
        assert!(usage.tables <= 28, "{usage:?}"); // two levels, seven each, on either side
    }
    let first = *opened.reader.range().unwrap().start();
    assert_exactly(&opened.reader, &blocks(first..272));
    drop(opened);
    assert_clean(dir.path());
    let opened = open(dir.path(), options);
    assert_eq!(opened.notes, Vec::<String>::new());
    assert_exactly(&opened.reader, &blocks(first..272));
}
