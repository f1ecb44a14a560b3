//! Locks of the newest bytes: how much, until when, and the effect of a limit.

#![cfg(test)]
#![cfg(not(miri))] // miri locks no memory

mod support;

use std::fs::{self, File};
use std::path::Path;

use neve_store::residency::Cold;
use neve_store::{LockedTail, Opened, Options, Part, Record, Retention, residency};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use support::{hash, open};

const MIB: u64 = 1 << 20;
/// Options of a segment whose index takes a step of 1 MiB, and six records seven.
const OPTIONS: Options =
    Options { segment_blocks: 6, segment_bytes: 7 * MIB, disk_reserve_bytes: 0, expected: None };

fn append(store: &mut Opened, heights: std::ops::Range<u64>) {
    for height in heights {
        let record = Record {
            height,
            timestamp: height,
            hash: hash(height, 1),
            parent: hash(height.wrapping_sub(1), 1),
            parts: vec![Part::uncompressed(vec![7; MIB as usize])],
            ..Record::default()
        };
        store.writer.append(&record).unwrap();
    }
}

/// Returns for each segment, by its first height, the bytes that are to be locked, and those of them in
/// memory. From proc(5), `smaps`: maps that are locked have the flag `lo`.
fn locked(dir: &Path) -> Vec<(u64, u64, u64)> {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = Vec::<(u64, u64, u64)>::new();
    let (mut base, mut bytes, mut here) = (None, 0, 0);
    for line in smaps.lines() {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let kb = || value.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        match name {
            "Size:" => bytes = kb(),
            "Locked:" => here = kb(),
            "VmFlags:" if value.split(' ').any(|flag| flag == "lo") => {
                let Some(base) = base else { continue }; // of another store
                match found.iter_mut().find(|(other, ..)| *other == base) {
                    Some(of) => (of.1, of.2) = (of.1 + bytes, of.2 + here),
                    None => found.push((base, bytes, here)),
                }
            }
            _ if name.contains('-') => {
                // Of files that were removed too: what is mapped of them may still be locked.
                let path = value.trim_end_matches(" (deleted)").rsplit(' ').next().unwrap();
                let path = Path::new(path);
                let name = path.strip_prefix(dir).ok().and_then(Path::to_str);
                base = name.map(|name| name[..20].parse().unwrap());
            }
            _ => {}
        }
    }
    found.sort_unstable();
    found
}

/// Returns the bytes that are to be locked in each segment.
fn bytes_of(dir: &Path) -> Vec<(u64, u64)> {
    locked(dir).into_iter().map(|(base, bytes, _)| (base, bytes)).collect()
}

/// Touches a whole record.
fn read(store: &Opened, height: u64) {
    let record = store.reader.record(height).unwrap();
    assert!(record.part(0).slice.as_ref().iter().all(|byte| *byte == 7));
}

/// Raises the limit as far as this process may.
fn raise_limit() {
    let limit = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let alone = capabilities(None).unwrap().effective.contains(CapabilitySet::IPC_LOCK);
    let enough = limit.maximum.is_none_or(|bytes| bytes >= 8 * MIB);
    assert!(alone || enough, "this test needs 8 MiB of locked memory: ulimit -l");
}

/// A test: the limit and what is locked are the whole process's.
#[test]
fn the_newest_bytes_are_locked_as_far_as_is_allowed() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut store = open(dir.path(), OPTIONS);
    let reader = store.reader.clone();
    raise_limit();
    let mut newest = LockedTail::new(4 * MIB + MIB / 2);
    newest.keep(&reader).unwrap();
    assert_eq!((newest.bytes(), locked(dir.path())), (0, vec![]), "there is nothing");

    // Whole MiB of the bound: the index, and the three that end where the records do.
    append(&mut store, 1..5);
    newest.keep(&reader).unwrap();
    assert_eq!(newest.bytes(), 4 * MIB);
    let [(1, bytes, here)] = locked(dir.path())[..] else { panic!("{:?}", locked(dir.path())) };
    assert_eq!(bytes, 4 * MIB);
    // Pages that were not read take no memory.
    assert!(here < MIB / 2, "{here} bytes are in memory");
    read(&store, 4);
    let here = locked(dir.path())[0].2;
    assert!((MIB..2 * MIB).contains(&here), "{here} bytes are in memory");

    // The next segment takes it over as it grows.
    append(&mut store, 5..8);
    newest.keep(&reader).unwrap();
    let bytes = bytes_of(dir.path());
    assert_eq!(bytes, [(1, MIB + MIB), (7, MIB + MIB)], "an index, and a step of records of each");
    append(&mut store, 8..13);
    newest.keep(&reader).unwrap();
    let bytes = bytes_of(dir.path());
    assert_eq!(bytes, [(7, 4 * MIB)]);

    // What was withdrawn is let go, what was evicted as well.
    store.writer.withdraw(9).unwrap();
    newest.keep(&reader).unwrap();
    let bytes = bytes_of(dir.path());
    assert!(
        matches!(bytes[..], [(7, bytes)] if bytes > 2 * MIB && bytes < 3 * MIB),
        "all of a short file: {bytes:?}"
    );
    append(&mut store, 9..14);
    let retention = Retention { blocks: Some(1), ..Retention::default() };
    assert_eq!(store.writer.evict(&retention, 0).unwrap().segments, 2);
    newest.keep(&reader).unwrap();
    let bytes = bytes_of(dir.path());
    assert_eq!(bytes, [(9, 4 * MIB)]);

    // Of an index of many steps only the newest slots count.
    let wide = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut other = open(wide.path(), Options { segment_blocks: 1 << 18, ..OPTIONS });
    append(&mut other, 1..3);
    let mut newest_there = LockedTail::new(3 * MIB);
    newest_there.keep(&other.reader).unwrap();
    assert_eq!(bytes_of(wide.path()), [(1, 3 * MIB)], "a step of sixteen, and two of records");
    drop(newest_there);

    // Who may not lock as much locks what he may, and says so once.
    let mut allowed = capabilities(None).unwrap();
    allowed.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, allowed).unwrap();
    let limit = Rlimit { current: Some(2 * MIB), ..getrlimit(Resource::Memlock) };
    setrlimit(Resource::Memlock, limit).unwrap();
    append(&mut store, 14..17);
    newest.keep(&reader).unwrap_err();
    assert_eq!(newest.bytes(), 2 * MIB);
    assert_eq!(bytes_of(dir.path()), [(15, 2 * MIB)]);
    newest.keep(&reader).unwrap();
    append(&mut store, 17..19);
    newest.keep(&reader).unwrap();
    assert_eq!(newest.bytes(), 2 * MIB, "it goes on within what is allowed");

    drop(newest);
    assert_eq!(bytes_of(dir.path()), [], "let go");
}

#[test]
fn the_newest_are_found_by_hash_whatever_is_not_in_memory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut store = open(dir.path(), OPTIONS);
    append(&mut store, 1..9);
    store.writer.sync().unwrap();
    assert_eq!(store.reader.sealed(), [(1, 6)]);
    read(&store, 8);
    let sealed = File::open(dir.path().join(format!("{:020}.seg", 1))).unwrap();
    fadvise(&sealed, 0, None, Advice::DontNeed).unwrap();
    let found = |height| {
        let block = residency::if_resident(|| store.reader.resident().block(&hash(height, 1)));
        block.map(|record| record.unwrap().height())
    };
    assert_eq!(found(8), Ok(8), "no table is asked for it");
    assert_eq!(found(6), Err(Cold), "this one is in a table that is not in memory");
}
