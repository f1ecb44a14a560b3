//! Segments across a multiple of the range's length: they are split, and then packed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use neve_store::disk::RealDisk;
use neve_store::{NewPartNames, Opened, Options, Retention};

use crate::support::{
    self, Done, Recorder, assert_clean, assert_exactly, assert_listed, every, files, fill_across,
    open_as, rewrite, small, verify,
};

fn options() -> Options {
    Options { segment_blocks: 5, ..small() }
}

fn open(dir: &Path) -> Opened {
    open_as(Arc::new(RealDisk::new(dir)), options(), true)
}

/// Fills the store without a codec.
fn fill(dir: &Path) -> Vec<neve_store::Record> {
    fill_across(&mut open_as(Arc::new(RealDisk::new(dir)), options(), false))
}

fn pack(store: &mut Opened, settled: u64) -> u64 {
    support::pack(store, settled).unwrap()
}

/// Splits the newest segment that is due, up to the names of its parts.
fn show_parts(store: &mut Opened, settled: u64) -> NewPartNames {
    let due = store.writer.begin_split(settled, 0).expect("a segment is due");
    store.writer.show_parts(due.run(&mut || true)).unwrap().expect("it is there")
}

#[test]
fn segments_across_ranges_are_split_and_packed() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let before = verify(dir.path());
    assert_eq!(files(dir.path(), ".seg").len(), 5, "2, 3 to 7, 8 to 12, 13 to 17, 18 to 21");
    let mut store = open(dir.path());
    assert!(store.writer.begin_pack(21, 0).is_none(), "no segments fill a range");
    assert!(store.writer.begin_split(21, 1 << 30).is_none(), "all is hot");
    assert!(store.writer.begin_split(6, 0).is_none(), "height 7 is not settled");
    assert_eq!(pack(&mut store, 21), 16, "4 to 19");
    assert!(store.writer.begin_split(21, 0).is_none());
    assert_eq!(files(dir.path(), ".pack").len(), 4);
    let names = ["02", "03", "20"].map(|base| format!("000000000000000000{base}.seg"));
    assert_eq!(files(dir.path(), ".seg"), names, "they fill no range");
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
    assert_exactly(&store.reader, &records);
    drop(store);
    assert_clean(dir.path());
    let after = verify(dir.path());
    assert_eq!(after.records, before.records);
    assert_exactly(&open(dir.path()).reader, &records);
}

#[test]
fn old_segment_is_replaced_when_the_names_of_its_parts_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let recorder = Recorder::new(dir.path());
    let mut store = recorder.open_as(options(), true);
    let due = store.writer.begin_split(12, 0).expect("8 to 12");
    assert_eq!(due.first(), 8);
    let parts = due.run(&mut || true);
    let before = recorder.len();
    let names = store.writer.show_parts(parts).unwrap().expect("it is there");
    let name = |base: u64, ending: &str| format!("{base:020}.seg{ending}");
    let rename = |base: u64| Done::Rename(name(base, ".split.new"), name(base, ""));
    assert_eq!(recorder.done.lock().unwrap()[before..], [rename(12)]);
    assert_exactly(&store.reader, &records);
    assert_clean(dir.path());
    assert_listed(dir.path(), 20);
    let names = names.run();
    assert_eq!(recorder.done.lock().unwrap()[before + 1..], [Done::SyncDir]);
    store.writer.end_split(names).unwrap();
    assert_eq!(recorder.done.lock().unwrap()[before + 2..], [rename(8)]);
    assert_exactly(&store.reader, &records);
    assert_clean(dir.path());
}

#[test]
fn crash_before_the_first_part_has_its_name_leaves_the_whole_segment() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    drop(show_parts(&mut store, 21));
    drop(store);
    assert_eq!(files(dir.path(), ".split.new").len(), 1);
    let mut store = open(dir.path());
    assert_exactly(&store.reader, &records);
    assert_eq!(files(dir.path(), ".seg").len(), 5, "the parts are removed");
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
    assert_eq!(pack(&mut store, 21), 16);
    assert_exactly(&store.reader, &records);
}

#[test]
fn segment_that_goes_while_it_is_split_leaves_no_part() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    let due = store.writer.begin_split(7, 0).expect("3 to 7");
    let keep = Retention { blocks: Some(13), ..Retention::default() };
    assert_eq!(store.writer.evict(&keep, 0).unwrap().heights, 6, "2 to 7");
    assert!(store.writer.show_parts(due.run(&mut || true)).unwrap().is_none());
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
    // A repair, while the names of the parts become durable.
    let names = show_parts(&mut store, 12);
    rewrite(&mut store, 8);
    store.writer.end_split(names.run()).unwrap();
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
    assert_exactly(&store.reader, &records[6..]);
    // An eviction, and a withdrawal above the segment: settled heights are not withdrawn.
    let names = show_parts(&mut store, 17);
    let keep = Retention { blocks: Some(6), ..Retention::default() };
    assert_eq!(store.writer.evict(&keep, 0).unwrap().heights, 8, "8 to 15");
    store.writer.withdraw(18).unwrap();
    store.writer.end_split(names.run()).unwrap();
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
    assert_exactly(&store.reader, &records[14..16]);
    drop(store);
    assert_exactly(&open(dir.path()).reader, &records[14..16]);
    assert_clean(dir.path());
}

#[test]
fn damaged_segment_is_not_split() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let path = dir.path().join("00000000000000000008.seg");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 + 5 * 64 + 100] ^= 1; // in the first record
    std::fs::write(&path, bytes).unwrap();
    let mut store = open(dir.path());
    let due = store.writer.begin_split(12, 0).expect("8 to 12");
    assert!(store.writer.show_parts(due.run(&mut || true)).unwrap().is_none());
    let due = store.writer.begin_split(12, 0);
    assert_eq!(due.map(|due| due.first()), Some(3), "8 to 12 is repaired first");
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
}

#[test]
fn split_without_room_for_the_parts_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let recorder = Recorder::new(dir.path());
    let store = recorder.open_as(Options { disk_reserve_bytes: 1, ..options() }, true);
    let before = recorder.len();
    drop(store.writer.begin_split(12, 0).expect("8 to 12").run(&mut || true));
    let allocated = recorder.done.lock().unwrap()[before..].iter().find_map(|op| match op {
        Done::Allocate(_, bytes) => Some(*bytes),
        _ => None,
    });
    // One part has space, and the part behind it would take what the first one has not given back.
    *recorder.free.lock().unwrap() = Some(allocated.unwrap() + 1);
    let before = recorder.len();
    let parts = store.writer.begin_split(12, 0).expect("8 to 12").run(&mut || true);
    assert!(parts.is_err_and(|error| error.is_disk_full()));
    assert_eq!(recorder.done.lock().unwrap()[before..], []);
    assert_exactly(&store.reader, &records);
}

#[test]
fn full_disk_at_the_name_of_a_part_leaves_the_whole_segment() {
    let dir = tempfile::tempdir().unwrap();
    let longer = Options { segment_blocks: 9, ..small() };
    let records = support::fill(&mut open_as(Arc::new(RealDisk::new(dir.path())), longer, false));
    let recorder = Recorder::new(dir.path());
    let mut store = recorder.open_as(options(), true);
    let (part, names) = ("00000000000000000008.seg", files(dir.path(), ".seg"));
    *recorder.fail.lock().unwrap() = Some(Box::new(move |op| {
        let is_full = matches!(op, Done::Rename(_, to) if to == part);
        is_full.then(|| io::ErrorKind::StorageFull.into())
    }));
    let due = store.writer.begin_split(10, 0).expect("2 to 10");
    assert!(store.writer.show_parts(due.run(&mut || true)).unwrap().is_none());
    assert_eq!(files(dir.path(), ".seg"), names, "4 to 7 is removed");
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
    assert_exactly(&store.reader, &records);
    *recorder.fail.lock().unwrap() = None;
    let names = show_parts(&mut store, 10);
    store.writer.end_split(names.run()).unwrap();
    assert_exactly(&store.reader, &records);
    drop(store);
    assert_clean(dir.path());
}

#[test]
fn full_disk_at_the_name_of_the_first_part_is_waited_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = fill(dir.path());
    let recorder = Recorder::new(dir.path());
    let mut store = recorder.open_as(options(), true);
    let names = show_parts(&mut store, 12).run();
    *recorder.fail.lock().unwrap() = Some(Box::new(|op| {
        matches!(op, Done::Rename(..)).then(|| io::ErrorKind::StorageFull.into())
    }));
    store.writer.end_split(names).unwrap();
    assert_exactly(&store.reader, &records);
    assert!(store.writer.begin_pack(21, 0).is_none() && store.writer.begin_split(21, 0).is_none());
    // A start in place of space finds the whole segment.
    let killed = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), killed.path().join(entry.file_name())).unwrap();
    }
    assert_exactly(&open(killed.path()).reader, &records);
    assert_eq!(store.writer.restore_lost().unwrap(), None);
    assert_eq!(files(dir.path(), ".split.new").len(), 1);
    *recorder.fail.lock().unwrap() = None;
    assert_eq!(store.writer.restore_lost().unwrap(), None);
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
    records.push(support::block(22, 0));
    store.writer.append(&records[20]).unwrap();
    assert_eq!(pack(&mut store, 21), 16);
    assert_exactly(&store.reader, &records);
    drop(store);
    assert_exactly(&open(dir.path()).reader, &records);
    assert_clean(dir.path());
}

#[test]
fn fault_at_any_change_leaves_all_heights() {
    let failing = |dir: &Path, at: usize| {
        let recorder = Recorder::new(dir);
        let store = recorder.open_as(options(), true);
        let mut left = at;
        *recorder.fail.lock().unwrap() = Some(Box::new(move |_| {
            left = left.checked_sub(1)?;
            (left == 0).then(|| io::Error::from_raw_os_error(5))
        }));
        (store, recorder)
    };
    let counted = tempfile::tempdir().unwrap();
    fill(counted.path());
    let (mut store, recorder) = failing(counted.path(), usize::MAX);
    let before = recorder.len();
    assert_eq!(pack(&mut store, 21), 16);
    let changes = recorder.len() - before;
    for at in (1..=changes).step_by(every()) {
        let dir = tempfile::tempdir().unwrap();
        let records = fill(dir.path());
        let (mut store, _) = failing(dir.path(), at);
        let _ = support::pack(&mut store, 21);
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
