//! The walk over all calls that read, and the looks at what is served.

#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use tempfile::TempDir;

use super::support::toy::READS_AGAIN;
use super::support::{Files, assert_exactly, every, files, fresh_dir, logs, naive_logs};
use super::{ACTIVE, KEYS, LASTING, TIMES};
use crate::reads::fault;
use crate::residency::with_blocking_reads;
use crate::{Criteria, Error, Found, Hash, Opened, Reader, Record, RecordRef, Wanted};

pub(super) fn copy(from: &Path) -> TempDir {
    copy_of(&Files::of(from))
}

fn copy_of(files: &Files) -> TempDir {
    let to = fresh_dir();
    files.write(to.path());
    to
}

/// Checksum of each file with heights, also of those that are set aside, by its name while it is served.
pub(super) fn contents(dir: &Path) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for name in files(dir, "") {
        let served = name.split(".quarantined-").next().unwrap_or_default().to_owned();
        if matches!(served.rsplit_once('.'), Some((_, "seg" | "pack"))) {
            let crc = crc32fast::hash(&fs::read(dir.join(&name)).unwrap());
            // One that is set aside stands for its own name: the other is a copy of a part of it.
            if name != served || !found.contains_key(&served) {
                found.insert(served, crc);
            }
        }
    }
    found
}

pub(super) fn quarantined(dir: &Path) -> Vec<String> {
    let names = files(dir, "").into_iter();
    names.filter(|name| name.contains(".quarantined-")).collect()
}

/// Does work of which so many calls fail, from number `first` on, on a thread of its own: that knows of no page that it
/// is in memory. Returns the number of calls, too.
pub(super) fn failing<T: Send>(
    first: usize,
    times: usize,
    work: impl FnOnce() -> T + Send,
) -> (T, usize) {
    let work = || {
        READS_AGAIN.set(true);
        fault::at(first, times, work)
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Does work with each call failing that it makes, one after the other. The work is given the number of the call that
/// fails, and returns the number of all.
pub(super) fn at_each_call(mut work: impl FnMut(usize) -> usize) {
    let mut first = 0;
    while first < work(first) {
        first += every();
    }
}

/// Does work for each call that it makes, with that call failing, on a copy of a store. `prepare` goes before and is
/// spared; `check` comes after. Returns the number of calls.
pub(super) fn walk<S: Send>(
    store: &TempDir,
    prepare: impl Fn(&Path) -> S,
    work: impl Fn(&mut S, &Path) + Sync,
    check: impl Fn(S, &Path, usize, &str),
) -> usize {
    let (mut first, store) = (0_usize, Files::of(store.path()));
    loop {
        // A fault that lasts needs no start at every call: the calls before it succeed, and none behind it.
        let times = TIMES.into_iter().filter(|times| *times < LASTING || first.is_multiple_of(3));
        for times in times {
            let dir = copy_of(&store);
            let mut state = prepare(dir.path());
            let ((), calls) = failing(first, times, || work(&mut state, dir.path()));
            check(state, dir.path(), times, &format!("call {first} of {calls}, {times} times"));
            if first >= calls {
                println!("{calls} calls");
                return calls;
            }
        }
        first += every();
    }
}

/// The error names a file or the directory, or says that it is one of the disk.
pub(super) fn assert_named(error: &Error, dir: &Path, what: &str) {
    let text = error.to_string();
    let named =
        text.contains(&dir.display().to_string()) || matches!(error, Error::NotDelivered(_));
    assert!(named && !matches!(error, Error::Latched { .. }), "{what}: {text}");
}

/// Everything that a reader gives is right; it may give nothing.
pub(super) fn assert_right(reader: &Reader, records: &[Record], what: &str) {
    // One of four of each kind of file, and all of the active one.
    let some = records.iter().filter(|record| record.height % 4 == 2 || record.height >= ACTIVE);
    for record in some {
        assert_found(reader, record, what);
        assert_part(reader, record, what);
    }
    for key in KEYS {
        let range = records[0].height..=records[records.len() - 1].height;
        let criteria = Criteria::new(vec![vec![key]]);
        let search = || reader.logs(range.clone(), &criteria).collect::<Result<Vec<_>, _>>();
        // Logs that are not all would be a wrong answer.
        if let Ok(Ok(found)) = with_blocking_reads(search) {
            let found: Vec<_> = found.iter().map(|log| (log.height, log.index)).collect();
            assert_eq!(found, naive_logs(records, &[vec![key]]), "{what}: {key}");
        }
    }
}

/// A record that is found by its height or a hash is the right one.
fn assert_found(reader: &Reader, record: &Record, what: &str) {
    let height = record.height;
    let read = || Some(whole(&reader.record(height)?));
    if let Ok(Some(found)) = with_blocking_reads(read) {
        assert_eq!(found, whole_of(record), "{what}: {height}");
    }
    let by_hash = with_blocking_reads(|| reader.block(&record.hash).map(|found| found.height()));
    assert!(
        matches!(by_hash, Err(_) | Ok(None)) || by_hash == Ok(Some(height)),
        "{what}: {height}"
    );
    for (at, hash) in record.transactions.iter().enumerate() {
        let found = || reader.transaction(hash).map(|(found, at)| (found.height(), at));
        let found = with_blocking_reads(found);
        assert!(matches!(found, Err(_) | Ok(None)) || found == Ok(Some((height, at))), "{what}");
    }
}

/// Part that is read.
const PART: usize = 3;

/// Reads one part of a height as batches and single calls do: found by number, by hash and by transaction.
fn assert_part(reader: &Reader, record: &Record, what: &str) {
    for by in 0..3 {
        let mut out = Vec::new();
        match with_blocking_reads(|| read_by(by, reader, record, &mut out)) {
            Ok(Some(Found::Stored(stored))) => {
                assert_eq!(stored.part(PART).slice.as_ref(), record.parts[PART].bytes);
            }
            Ok(Some(Found::Unpacked { .. })) => {
                assert_eq!(&out[..], record.parts[PART].bytes, "{what}");
            }
            Ok(None) | Err(_) => {}
        }
    }
}

/// Reads the part by number, by transaction, or by the hash of the block.
fn read_by(by: u32, reader: &Reader, record: &Record, out: &mut Vec<u8>) -> Option<Found> {
    let (resident, wanted) = (reader.resident(), Wanted::Part { part: PART, flags: record.flags });
    match (by, record.transactions.first()) {
        (0, _) => resident.read(record.height, wanted, out).ok()?,
        (1, Some(hash)) => {
            let found = resident.read_transaction(hash, PART, out).ok()?;
            found.map(|(found, _)| found)
        }
        _ => resident.read_block(&record.hash, wanted, out).ok()?,
    }
}

type Whole = (Hash, Hash, u64, Vec<Vec<u8>>);

pub(super) fn whole(found: &RecordRef) -> Whole {
    let part = |at| {
        let slice = found.part(at).slice;
        slice.probe().map_or(Vec::new(), |()| slice.as_ref().to_vec())
    };
    (found.hash(), found.parent(), found.timestamp(), (0..5).map(part).collect())
}

fn whole_of(record: &Record) -> Whole {
    let parts = record.parts.iter().map(|part| part.bytes.to_vec()).collect();
    (record.hash, record.parent, record.timestamp, parts)
}

/// Writes segments anew that count as damaged, as neve does. Returns the number of heights whose own bytes did not do,
/// which come from `records`.
pub(super) fn repair_all(opened: &mut Opened, records: &[Record], what: &str) -> usize {
    opened.writer.restore_lost().unwrap();
    let mut fetched = 0;
    for base in opened.reader.damaged().iter().map(|damaged| damaged.base) {
        let mut repair = opened.writer.repair(base).unwrap().unwrap();
        let damaged = repair.damaged();
        fetched += damaged.len();
        for height in repair.heights() {
            let record = records.iter().find(|record| record.height == height).unwrap();
            if damaged.contains(&height) {
                repair.append(record).unwrap();
            } else {
                assert!(repair.keep(height).unwrap(), "{what}: {height}");
            }
        }
        let built = repair.finish().unwrap();
        assert!(opened.writer.replace(built).unwrap(), "{what}: {base}");
    }
    let damaged = opened.reader.damaged();
    assert!(damaged.is_empty(), "{what}: {damaged:?}");
    fetched
}

/// Everything is served: the heights of `records`, found in every way.
pub(super) fn assert_all(opened: &Opened, records: &[Record]) {
    assert_exactly(&opened.reader, records);
    let range = opened.reader.range().unwrap();
    for key in KEYS {
        let found = logs(&opened.reader, range.clone(), &[vec![key]]);
        assert_eq!(found, naive_logs(records, &[vec![key]]));
    }
}
