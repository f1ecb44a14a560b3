//! A kill while an unsealed segment, of which the disk does not deliver a record, is copied and set aside.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::checks::{assert_all, at_each_call, copy, failing, quarantined};
use super::support::toy::Toy;
use super::support::{Done, Recorder, assert_clean, block, every, files};
use super::{ACTIVE, HEIGHTS, open, options, records, store};
use crate::disk::{Disk, RealDisk};
use crate::{Error, open_on_with};

/// Opens a store after a kill, and goes on. It has the heights below `end` at least.
fn assert_goes_on(dir: &Path, end: u64, what: &str) {
    let mut opened = open(dir).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = opened.reader.range().map_or(0, |range| range.end() + 1);
    assert!(found >= end, "{what}: {found} heights, {end} were served");
    assert_all(&opened, &records()[..found as usize]);
    (found..HEIGHTS + 2).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
    drop(opened);
    let records: Vec<_> = (0..HEIGHTS + 2).map(|height| block(height, 0)).collect();
    assert_all(&open(dir).unwrap(), &records);
    assert_clean(dir);
}

/// Kills an opening that did `done` behind each of these operations.
fn kill_each(store: &TempDir, done: &[Done], end: u64, what: &str) {
    for ops in 0..=done.len() {
        let dir = copy(store.path());
        let disk = RealDisk::new(dir.path());
        done[..ops].iter().for_each(|done| disk.apply(done.op()).unwrap());
        assert_goes_on(dir.path(), end, &format!("{what}, {ops} of {} operations", done.len()));
        let unfinished = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(!unfinished.into_iter().any(|name| name.to_string_lossy().ends_with(".new")));
    }
}

#[test]
fn kill_while_a_segment_is_copied_and_set_aside_loses_no_record() {
    let store = store(true);
    let mut copied = 0;
    at_each_call(|first| {
        let dir = copy(store.path());
        let disk = Recorder::new(dir.path());
        let opening = || {
            let opened = open_on_with(Arc::clone(&disk) as _, options(), Arc::new(Toy)).ok()?;
            Some(opened.reader.range()?.end() + 1)
        };
        let (end, calls) = failing(first, 3, opening);
        let done = disk.done.lock().unwrap().clone();
        let name = format!("{ACTIVE:020}.seg");
        let is_copied = done.iter().any(|op| matches!(op, Done::Rename(_, to) if *to == name));
        if let Some(end) = end.filter(|_| is_copied) {
            kill_each(&store, &done, end, &format!("call {first}"));
            copied += 1;
        }
        calls
    });
    assert!(copied > 0 || every() > 1, "records before one that fails are copied");
}

/// Opens the store on a full disk that refuses these changes of names and removals. If a copy got no name, the heights below
/// it are served, and storing goes on when there is space. Returns true then, and the number of calls that read.
fn waits_for_room(dir: &Path, refuses: fn(&Done) -> bool, first: usize) -> (bool, usize) {
    let disk = Recorder::new(dir);
    *disk.fail.lock().unwrap() =
        Some(Box::new(move |op| refuses(op).then(|| io::ErrorKind::StorageFull.into())));
    let opening = || open_on_with(Arc::clone(&disk) as _, options(), Arc::new(Toy));
    let (opened, calls) = failing(first, 3, opening);
    let is_full = opened.as_ref().is_err_and(Error::is_disk_full);
    assert!(!is_full, "call {first}: {:?}", opened.err());
    let Ok(mut opened) = opened else { return (false, calls) };
    if !opened.notes.concat().contains("the copy of its readable records") {
        return (false, calls);
    }
    assert_all(&opened, &records()[..ACTIVE as usize]);
    assert!(opened.writer.append(&block(ACTIVE, 0)).unwrap_err().is_disk_full(), "call {first}");
    *disk.fail.lock().unwrap() = None;
    (ACTIVE..HEIGHTS).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
    assert_all(&opened, records());
    drop(opened);
    assert_all(&open(dir).unwrap(), records());
    assert_eq!(quarantined(dir), [format!("{ACTIVE:020}.seg.quarantined-0")], "call {first}");
    assert_eq!(files(dir, ".new"), Vec::<String>::new(), "call {first}");
    (true, calls)
}

/// True if a file is set aside.
fn of_the_file(op: &Done) -> bool {
    matches!(op, Done::Rename(_, to) if to.contains(".quarantined-"))
}

/// True if a copy gets its name, or is removed.
fn of_the_copy(op: &Done) -> bool {
    match op {
        Done::Rename(from, _) | Done::Remove(from) => from.ends_with(".copy.new"),
        _ => false,
    }
}

#[test]
fn full_disk_at_the_names_of_a_copy_ends_no_start() {
    let store = store(true);
    for refuses in [of_the_file, of_the_copy] {
        let mut copied = 0;
        at_each_call(|first| {
            let dir = copy(store.path());
            let (has_waited, calls) = waits_for_room(dir.path(), refuses, first);
            copied += usize::from(has_waited);
            calls
        });
        assert!(copied > 0 || every() > 1, "records before one that fails are copied");
    }
    // A kill came before the copy got the name of its segment.
    let dir = copy(store.path());
    let name = |ending: &str| dir.path().join(format!("{ACTIVE:020}.seg{ending}"));
    fs::rename(name(""), name(".quarantined-0")).unwrap();
    fs::copy(dir.path().join(format!("{:020}.seg", ACTIVE - 4)), name(".copy.new")).unwrap();
    assert!(waits_for_room(dir.path(), of_the_copy, usize::MAX).0);
}
