//! Packed files beside the segments that they replace: names that a crash, a fault or a repair leaves, and
//! retention.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use neve_store::disk::RealDisk;
use neve_store::{Opened, Options, PackEnd, Packable, Record, Retention};

use crate::support::{
    self, Done, IDENTITY, Recorder, assert_clean, assert_exactly, assert_listed, block, files,
    open_as, rewrite, small, verify,
};

fn options() -> Options {
    Options { segment_blocks: 5, ..small() }
}

fn open(dir: &Path) -> Opened {
    open_as(Arc::new(RealDisk::new(dir)), options(), true)
}

fn fill(dir: &Path) -> Vec<Record> {
    support::fill(&mut open(dir))
}

/// Packs all that is due.
fn pack(store: &mut Opened, settled: u64) -> u64 {
    support::pack(store, settled).unwrap()
}

/// Between the packed file and the removal of the segments that it replaces a repair writes one of these names.
#[test]
fn segment_that_is_written_while_a_name_is_synced_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    let due = store.writer.begin_pack(7, 0).expect("4 to 7");
    let ended = store.writer.end_pack(due.run(&mut || true)).unwrap();
    let PackEnd::Packed(packed, name) = ended else { panic!("it is packed") };
    assert_eq!((packed.first, packed.heights), (4, 4));
    assert_exactly(&store.reader, &records);
    assert_eq!(files(dir.path(), ".seg").len(), 6, "all names are there until the new one is safe");
    assert_listed(dir.path(), 20);
    rewrite(&mut store, 4);
    store.writer.remove_packed(name.run()).unwrap();
    assert_exactly(&store.reader, &records);
    drop(store);
    assert_exactly(&open(dir.path()).reader, &records);
    assert_clean(dir.path());
}

/// Heads wait for the thread that shows the packed heights: it syncs nothing and removes nothing.
#[test]
fn packed_heights_are_shown_without_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let recorder = Recorder::new(dir.path());
    let mut store = recorder.open_as(options(), true);
    let made = store.writer.begin_pack(21, 0).expect("16 to 19").run(&mut || true);
    let before = recorder.len();
    let ended = store.writer.end_pack(made).unwrap();
    let PackEnd::Packed(_, name) = ended else { panic!("it is packed") };
    let rename = |op: &Done| matches!(op, Done::Rename(_, to) if Path::new(to).extension().is_some_and(|end| end == "pack"));
    assert!(recorder.done.lock().unwrap()[before..].iter().map(rename).eq([true]));
    let named = name.run();
    assert_eq!(recorder.done.lock().unwrap()[before + 1..], [Done::SyncDir]);
    store.writer.remove_packed(named).unwrap();
    let removed = |op: &Done| matches!(op, Done::Remove(_));
    assert!(recorder.done.lock().unwrap()[before + 2..].iter().all(removed));
}

/// Power went when a damaged packed file had been written anew as a segment, and was not removed yet.
#[test]
fn repaired_segment_is_served_and_not_the_packed_file_that_is_left_over() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let name = "00000000000000000008";
    let path = |ending: &str| dir.path().join(format!("{name}.{ending}"));
    assert_eq!(pack(&mut open(dir.path()), 21), 16);
    let mut damaged = fs::read(path("pack")).unwrap();
    // The second record, which no opening looks at, behind the length of the first one.
    let first = u32::from_le_bytes(damaged[96..100].try_into().unwrap()) as usize;
    damaged[96 + 8 + first + 8 + 100] ^= 1;
    fs::write(path("pack"), &damaged).unwrap();
    let mut store = open(dir.path());
    assert!(store.reader.record(9).is_none());
    let mut repair = store.writer.repair(8).unwrap().unwrap();
    let lost = repair.damaged();
    assert_eq!(lost, [9]);
    for height in repair.heights() {
        if lost.contains(&height) {
            repair.append(&records[height as usize - 2]).unwrap();
        } else {
            assert!(repair.keep(height).unwrap());
        }
    }
    assert!(store.writer.replace(repair.finish().unwrap()).unwrap());
    drop(store);
    assert!(path("seg").exists() && !path("pack").exists());
    fs::write(path("pack"), &damaged).unwrap();
    let store = open(dir.path());
    assert_exactly(&store.reader, &records);
    assert!(path("seg").exists() && !path("pack").exists());
    drop(store);
    assert_clean(dir.path());
}

/// Power went when a packed file had been written anew as one segment, and before the segments went of which
/// the packed file had been made.
#[test]
fn segments_inside_a_longer_one_are_removed_and_no_history_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (2..22).map(|height| block(height, 0)).collect();
    let mut store = open(dir.path());
    store.writer.bind(IDENTITY, 1).unwrap();
    for record in &records {
        store.writer.append(record).unwrap();
        store.writer.seal().unwrap();
    }
    let path = |base: u64| dir.path().join(format!("{base:020}.seg"));
    let sources = [9, 10, 11].map(|base| (base, fs::read(path(base)).unwrap()));
    assert_eq!(pack(&mut store, 21), 16);
    rewrite(&mut store, 8);
    drop(store);
    sources.iter().for_each(|(base, bytes)| fs::write(path(*base), bytes).unwrap());
    assert_clean(dir.path());
    assert_listed(dir.path(), 20);
    let store = open(dir.path());
    assert_exactly(&store.reader, &records);
    assert!(path(8).exists() && [9, 10, 11].iter().all(|base| !path(*base).exists()));
    drop(store);
    assert_clean(dir.path());
}

/// A segment inside a longer one that has other blocks is kept.
#[test]
fn segment_of_other_blocks_inside_a_longer_one_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let other = tempfile::tempdir().unwrap();
    let mut store = open(other.path());
    store.writer.bind(IDENTITY, 1).unwrap();
    store.writer.append(&block(9, 1)).unwrap();
    store.writer.seal().unwrap();
    drop(store);
    let name = "00000000000000000009.seg";
    fs::copy(other.path().join(name), dir.path().join(name)).unwrap();
    let found = verify(dir.path()).findings;
    assert!(found.iter().any(|finding| finding.file == name), "{found:?}");
    let opened = open(dir.path());
    assert_exactly(&opened.reader, &records);
    assert_clean(dir.path());
    assert_eq!(files(dir.path(), ".quarantined-0"), ["00000000000000000009.seg.quarantined-0"]);
    assert!(
        opened.notes.iter().any(|note| note.contains("another file has its heights")),
        "{:?}",
        opened.notes
    );
}

#[test]
fn full_disk_at_the_name_of_a_packed_file_leaves_its_segments() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let recorder = Recorder::new(dir.path());
    let mut store = recorder.open_as(options(), true);
    let made = store.writer.begin_pack(21, 0).expect("16 to 19").run(&mut || true);
    *recorder.fail.lock().unwrap() = Some(Box::new(|op| {
        matches!(op, Done::Rename(..)).then(|| io::ErrorKind::StorageFull.into())
    }));
    assert!(matches!(store.writer.end_pack(made), Ok(PackEnd::NotPacked)));
    assert_eq!(files(dir.path(), ".new"), Vec::<String>::new());
    assert_exactly(&store.reader, &records);
    *recorder.fail.lock().unwrap() = None;
    assert_eq!(pack(&mut store, 21), 16);
    assert_exactly(&store.reader, &records);
}

#[test]
fn packing_that_fails_leaves_no_unfinished_file() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let recorder = Recorder::new(dir.path());
    let store = recorder.open_as(options(), true);
    for failing in ["write", "sync"] {
        *recorder.fail.lock().unwrap() = Some(Box::new(move |op| {
            let fails = match op {
                Done::Write(name, ..) => failing == "write" && name.contains(".pack"),
                Done::Sync(name) => failing == "sync" && name.contains(".pack"),
                _ => false,
            };
            fails.then(|| io::Error::from_raw_os_error(5))
        }));
        let made = store.writer.begin_pack(21, 0).expect("16 to 19").run(&mut || true);
        assert!(made.is_err());
        assert_eq!(files(dir.path(), ".new"), Vec::<String>::new(), "after a failed {failing}");
        assert_exactly(&store.reader, &records);
    }
}

#[test]
fn packed_files_count_for_the_bounds_of_bytes_and_age() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    assert_eq!(pack(&mut store, 21), 16);
    store.writer.evict(&Retention { blocks: Some(18), ..Retention::default() }, 0).unwrap();
    let usage = store.reader.usage();
    assert_eq!((store.reader.range(), usage.packed_blocks), (Some(4..=21), 16));
    let on_disk = |name: &String| {
        use std::os::unix::fs::MetadataExt;
        dir.path().join(name).metadata().unwrap().blocks() * 512
    };
    assert_eq!(usage.packed_bytes, files(dir.path(), ".pack").iter().map(on_disk).sum::<u64>());
    // One byte less than there is: the oldest packed file goes, and its bytes are enough.
    let bytes = Some(usage.disk_bytes - 1);
    let evicted = store.writer.evict(&Retention { bytes, ..Retention::default() }, 0).unwrap();
    assert_eq!((evicted.segments, evicted.heights), (1, 4));
    assert_eq!(files(dir.path(), ".pack").len(), 3);
    // The newest block is ten seconds younger than height 11, and six than height 15.
    let (age, now) = (Some(Duration::from_secs(8)), records[19].timestamp);
    let evicted = store.writer.evict(&Retention { age, ..Retention::default() }, now).unwrap();
    assert_eq!(evicted.heights, 4, "8 to 11");
    assert_exactly(&store.reader, &records[10..]);
}

/// Heights that are due to be packed are about to give their space back.
#[test]
fn ranges_that_are_due_to_be_packed_count_as_packed_for_the_bound_of_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let records = fill(dir.path());
    let mut store = open(dir.path());
    let bytes = store.reader.usage().disk_bytes;
    let sizes = ["04", "08", "12", "16"].map(|base| {
        use std::os::unix::fs::MetadataExt;
        let name = format!("000000000000000000{base}.seg");
        dir.path().join(name).metadata().unwrap().blocks() * 512
    });
    let gain: u64 = sizes.iter().map(|bytes| bytes - bytes / 16).sum();
    let mut evict = |bytes: u64, settled: Option<u64>| {
        let retention = Retention { bytes: Some(bytes), ..Retention::default() };
        let packable = settled.map(|settled| Packable { settled, unpacked_bytes: 0 });
        let evicted = store.writer.evict_unless_held(&retention, None, packable, 0).unwrap();
        (evicted.heights, evicted.excess)
    };
    assert_eq!(evict(bytes, Some(21)), (0, 0), "within the bound");
    assert_eq!(evict(bytes - gain, Some(21)), (0, gain), "as large as that when they are packed");
    let (heights, excess) = evict(bytes - gain - 1, Some(21));
    assert_eq!(heights, 2, "2 to 3, and no more");
    assert!((1..gain).contains(&excess), "{excess}");
    let (heights, excess) = evict(bytes - gain, Some(6));
    assert!(heights >= 4 && excess == 0, "none is settled: {heights}");
    assert_exactly(&store.reader, &records[2 + heights as usize..]);
}
