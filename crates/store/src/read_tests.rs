//! A read error of the disk (EIO) at every call that reads, one after the other: of that call, of three in a row, and of
//! all from there on.
//!
//! Nothing panics, nothing wrong is served, an error names its file, and no file is removed or changed. Once the
//! fault is over, everything is served again.

#![cfg(test)]

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use tempfile::TempDir;

mod beside;
mod checks;
mod copies;
mod leftovers;
mod repairs;
mod searches;
mod splits;
#[path = "../tests/support/mod.rs"]
mod support;
mod times;

use self::checks::{
    assert_all, assert_named, assert_right, contents, copy, failing, quarantined, repair_all, walk,
    whole,
};
use self::support::toy::Toy;
use self::support::{
    Heard, IDENTITY, Recorder, assert_clean, block, every, fork, fresh_dir, pack, small,
};
use crate::residency::with_blocking_reads;
use crate::verify::{self, inventory};
use crate::{
    Error, Opened, Options, PackedCodec as _, PartialSegment, Record, SealedFile, open_on_with,
    open_with,
};

/// A store of these heights: packed ones, sealed ones, and three in the active segment.
const HEIGHTS: u64 = 39;
const PACKED: u64 = 8;
/// First height of the active segment.
const ACTIVE: u64 = 36;
const LASTING: usize = usize::MAX;
/// Calls that fail in a row. One that is made again at once does well, one that fails three times is given up; the
/// loading of a mapped page takes two.
const TIMES: [usize; 4] = [1, 3, 6, LASTING];
const KEYS: [u64; 4] = [1, 2, 3, (1 << 32) + 1];

fn options() -> Options {
    Options { expected: Some(IDENTITY), ..small() }
}

/// Blocks of the heights, and the next one.
static BLOCKS: LazyLock<Vec<Record>> =
    LazyLock::new(|| (0..=HEIGHTS).map(|height| block(height, 0)).collect());

fn records() -> &'static [Record] {
    &BLOCKS[..HEIGHTS as usize]
}

fn open(dir: &Path) -> Result<Opened, Error> {
    open_with(dir, options(), Arc::new(Toy))
}

/// A whole store. `merged` gives it a merged table.
fn store(merged: bool) -> TempDir {
    let dir = fresh_dir();
    let mut opened = open(dir.path()).unwrap();
    opened.writer.bind(IDENTITY, 1).unwrap();
    records().iter().for_each(|record| opened.writer.append(record).unwrap());
    assert_eq!(pack(&mut opened, PACKED - 1).unwrap(), PACKED);
    assert_eq!(opened.writer.merge_tables().unwrap(), 1);
    opened.writer.sync().unwrap();
    if !merged {
        let tables = support::files(dir.path(), ".idx");
        tables.iter().for_each(|name| fs::remove_file(dir.path().join(name)).unwrap());
    }
    dir
}

#[test]
fn opening_survives_a_read_error_at_every_call() {
    let store = store(true);
    let before = contents(store.path());
    let tables = support::files(store.path(), ".idx");
    assert_eq!(tables.len(), 1);
    let copied = Cell::new(false);
    let opening = |opened: &mut Option<Opened>, dir: &Path| {
        *opened = open(dir).inspect_err(|error| assert_named(error, dir, "opening")).ok();
    };
    let calls = walk(
        &store,
        |_| None,
        opening,
        |opened, dir, times, what| {
            let notes = opened.as_ref().map(|opened| opened.notes.concat()).unwrap_or_default();
            opened.into_iter().for_each(|opened| assert_right(&opened.reader, records(), what));
            assert_eq!(contents(dir), before, "{what}");
            let aside = quarantined(dir);
            // A table is made again if its segments were set aside, be it for a moment.
            let stays = support::files(dir, ".idx") == tables;
            assert!(stays || times > 1 && notes.contains("set aside"), "{what}: {notes}");
            // What fails once is read again. What fails for good is set aside, with its bytes.
            assert!(times > 1 || aside.is_empty(), "{what}: {aside:?}");
            let opened = open(dir).unwrap_or_else(|error| panic!("{what}: {error}"));
            let lost_active = aside.iter().any(|name| name.contains(&format!("{ACTIVE:020}")));
            let end = opened.reader.range().map_or(0, |range| range.end() + 1);
            assert!(end == HEIGHTS || lost_active && end >= ACTIVE, "{what}: {end}, {aside:?}");
            copied.set(copied.get() || (ACTIVE + 1..HEIGHTS).contains(&end));
            assert_all(&opened, &records()[..end as usize]);
        },
    );
    assert!(calls > 100, "{calls}");
    assert!(copied.get() || every() > 1, "records before one that fails are served");
}

/// Records that were synced are not lost to a file that could be copied later.
#[test]
fn opening_on_a_full_disk_leaves_a_file_that_it_cannot_copy() {
    let store = store(true);
    let (mut first, mut full) = (0, 0);
    loop {
        let dir = copy(store.path());
        let disk = Recorder::new(dir.path());
        *disk.free.lock().unwrap() = Some(0);
        let options = Options { disk_reserve_bytes: 1, ..options() };
        let opening = || open_on_with(disk, options, Arc::new(Toy)).err();
        let (failed, calls) = failing(first, 3, opening);
        if matches!(failed, Some(Error::DiskFull { .. })) {
            full += 1;
            assert_eq!(quarantined(dir.path()), Vec::<String>::new(), "call {first}");
            assert_all(&open(dir.path()).unwrap(), records());
        }
        if first >= calls {
            break;
        }
        first += every();
    }
    assert!(full > 0 || every() > 1, "records are copied");
}

#[test]
fn reading_survives_a_read_error_at_every_call() {
    let store = store(true);
    let before = contents(store.path());
    let read = |opened: &mut Opened, _: &Path| assert_right(&opened.reader, records(), "reading");
    let calls = walk(
        &store,
        |dir| open(dir).unwrap(),
        read,
        |mut opened, dir, _, what| {
            assert_eq!(contents(dir), before, "{what}");
            repair_all(&mut opened, records(), what);
            assert_all(&opened, records());
        },
    );
    assert!(calls > 300, "{calls}");
}

#[test]
fn scrubbing_survives_a_read_error_at_every_call() {
    let store = store(true);
    let before = contents(store.path());
    let scrub = |opened: &mut Opened, dir: &Path| {
        for (base, _) in opened.reader.sealed() {
            if let Err(error) = opened.reader.scrub(dir, base, &mut |_| ()) {
                assert_named(&error, dir, "scrubbing");
            }
        }
    };
    let calls = walk(
        &store,
        |dir| open(dir).unwrap(),
        scrub,
        |mut opened, dir, _, what| {
            assert_eq!(contents(dir), before, "{what}");
            assert_right(&opened.reader, records(), what);
            repair_all(&mut opened, records(), what);
            assert_all(&opened, records());
        },
    );
    assert!(calls > 50, "{calls}");
}

#[test]
fn packing_and_merging_survive_a_read_error_at_every_call() {
    let store = store(false);
    let work = |opened: &mut Opened, dir: &Path| {
        let packed = pack(opened, 15).map(drop);
        for done in [packed, opened.writer.merge_tables().map(drop)] {
            done.unwrap_or_else(|error| assert_named(&error, dir, "packing"));
        }
    };
    let calls = walk(
        &store,
        |dir| open(dir).unwrap(),
        work,
        |mut opened, dir, _, what| {
            assert_right(&opened.reader, records(), what);
            repair_all(&mut opened, records(), what);
            opened
                .writer
                .append(&BLOCKS[HEIGHTS as usize])
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(
                pack(&mut opened, 15).is_ok() && opened.writer.merge_tables().is_ok(),
                "{what}"
            );
            assert_all(&opened, &BLOCKS);
            drop(opened);
            assert_all(&open(dir).unwrap(), &BLOCKS);
            assert_clean(dir);
        },
    );
    assert!(calls > 100, "{calls}");
}

/// Steps of a writer besides appending.
fn write(opened: &mut Opened, dir: &Path) -> Vec<Error> {
    let mut failed = Vec::new();
    let mut step = |done: Result<(), Error>| failed.extend(done.err());
    step(opened.writer.withdraw(34));
    let too_high = opened.writer.append(&block(50, 1));
    assert!(too_high.is_err(), "no height may follow one that is not known");
    step((|| {
        opened.writer.append(&fork(34, 1, 0))?;
        (35..43).try_for_each(|height| opened.writer.append(&block(height, 1)))
    })());
    step(
        fs::remove_file(dir.join(format!("{:020}.seg", 12)))
            .map_err(|error| Error::read(dir, error)),
    );
    step(opened.writer.restore_lost().map(drop));
    step(opened.writer.seal());
    step(opened.writer.sync());
    failed
}

#[test]
fn writing_survives_a_read_error_at_every_call() {
    let store = store(true);
    let written = || {
        let forked = std::iter::once(fork(34, 1, 0)).chain((35..43).map(|height| block(height, 1)));
        (0..34).map(|height| block(height, 0)).chain(forked).collect::<Vec<_>>()
    };
    let work = |opened: &mut Opened, dir: &Path| {
        let failed = write(opened, dir);
        failed.iter().for_each(|error| {
            let is_next = matches!(error, Error::WrongHeight { .. });
            if !is_next {
                assert_named(error, dir, "writing");
            }
        });
    };
    let calls = walk(
        &store,
        |dir| open(dir).unwrap(),
        work,
        |mut opened, dir, times, what| {
            // The steps go on where they stopped.
            opened.writer.withdraw(34).unwrap();
            opened.writer.append(&fork(34, 1, 0)).unwrap_or_else(|error| panic!("{what}: {error}"));
            (35..43).for_each(|height| opened.writer.append(&block(height, 1)).unwrap());
            let fetched = repair_all(&mut opened, &written(), what);
            assert!(times > 1 || fetched == 0, "{what}: {fetched}");
            assert_all(&opened, &written());
            drop(opened);
            assert_all(&open(dir).unwrap(), &written());
        },
    );
    assert!(calls > 20, "{calls}");
}

#[test]
fn segment_that_was_written_anew_is_damaged_when_the_disk_loses_a_record() {
    let store = store(true);
    let mut opened = open(store.path()).unwrap();
    fs::remove_file(store.path().join(format!("{:020}.seg", 12))).unwrap();
    assert_eq!(opened.writer.restore_lost().unwrap(), Some(12));
    let reader = opened.reader.clone();
    let read = || with_blocking_reads(|| Some(whole(&reader.record(13)?)));
    assert!(failing(0, LASTING, read).0.is_err());
    assert_eq!(reader.damaged().first().map(|damaged| damaged.base), Some(12));
    repair_all(&mut opened, records(), "written anew");
    assert_all(&opened, records());
}

#[test]
fn withdrawal_with_failed_reads_is_followed_by_a_deeper_one() {
    let store = store(true);
    let mut opened = open(store.path()).unwrap();
    let withdrawn = failing(0, LASTING, || opened.writer.withdraw(34)).0;
    assert!(withdrawn.is_err_and(|error| error.is_disk_failure()));
    assert_eq!(opened.writer.head(), Some((33, block(33, 0).hash)));
    opened.writer.withdraw(30).unwrap();
    assert_eq!(opened.writer.head(), Some((29, block(29, 0).hash)));
    opened.writer.append(&fork(30, 1, 0)).unwrap();
    let written: Vec<_> = (0..30).map(|height| block(height, 0)).chain([fork(30, 1, 0)]).collect();
    assert_all(&opened, &written);
    drop(opened);
    assert_all(&open(store.path()).unwrap(), &written);
}

/// Sends a file to another store, in chunks, with a restart between them. False if it could not be sent or taken.
fn transfer(from: &Path, to: &mut Opened, packed: bool) -> Result<bool, Error> {
    let base = 8;
    let sent = if packed {
        SealedFile::open_packed(from, base - 4, &Toy)?
    } else {
        SealedFile::open(from, base)?
    };
    let Some(sent) = sent else { return Ok(false) };
    let receive = || -> Result<PartialSegment, Error> {
        let history = to.writer.history()?;
        if packed { Ok(history.receive_packed(base - 4)?.unwrap()) } else { history.receive(base) }
    };
    let whole = sent.page.bytes;
    let take = |end: u64| -> Result<PartialSegment, Error> {
        let mut incoming = receive()?;
        while incoming.have() < end {
            let len = (end - incoming.have()).min(1000) as usize;
            let Ok(bytes) = sent.read(incoming.have(), len) else {
                return Err(Error::not_delivered(from));
            };
            assert!(incoming.write(&bytes)?);
        }
        Ok(incoming)
    };
    // A restart comes behind each part.
    for end in [0, whole / 2] {
        drop(take(end)?);
    }
    let incoming = take(whole)?;
    let mut heard = Heard::default();
    incoming.verify(&mut heard)?;
    if !heard.findings.is_empty() {
        return Ok(false);
    }
    let built = incoming.finish()?;
    to.writer.prepend(built).map(|heights| heights == 4)
}

#[test]
fn transfer_to_a_mirror_survives_a_read_error_at_every_call() {
    let store = store(true);
    let mirror = fresh_dir();
    let mut opened = open(mirror.path()).unwrap();
    opened.writer.bind(IDENTITY, 1).unwrap();
    opened.writer.append(&block(12, 0)).unwrap();
    drop(opened);
    let before = contents(store.path());
    let work = |opened: &mut Opened, dir: &Path| {
        for packed in [false, true] {
            match transfer(store.path(), opened, packed) {
                Err(error @ Error::DoesNotJoin { .. }) => assert!(packed, "{error}"),
                Err(error) => assert!(
                    error.to_string().contains(&dir.display().to_string())
                        || error.to_string().contains(&store.path().display().to_string())
                        || matches!(error, Error::NotDelivered(_)),
                    "{error}"
                ),
                Ok(_) => {}
            }
        }
    };
    let calls = walk(
        &mirror,
        |dir| open(dir).unwrap(),
        work,
        |mut opened, dir, _, what| {
            assert_eq!(contents(store.path()), before);
            assert_right(&opened.reader, records(), what);
            for packed in [false, true] {
                let first = *opened.reader.range().unwrap().start();
                if first > if packed { 4 } else { 8 } {
                    assert!(transfer(store.path(), &mut opened, packed).unwrap(), "{what}");
                }
            }
            repair_all(&mut opened, records(), what);
            assert_all(&opened, &records()[4..=12]);
            drop(opened);
            assert_all(&open(dir).unwrap(), &records()[4..=12]);
        },
    );
    assert!(calls > 50, "{calls}");
}

#[test]
fn verifying_calls_nothing_clean_that_was_not_read() {
    let store = store(true);
    let before = contents(store.path());
    let work = |heard: &mut Vec<String>, dir: &Path| {
        let mut found = Heard::default();
        match verify::directory(dir, &mut found) {
            Err(error) => assert_named(&error, dir, "verifying"),
            Ok(summary) if found.findings.is_empty() => {
                assert_eq!((found.records.len() as u64, summary.tables), (HEIGHTS, 1));
            }
            Ok(_) => {}
        }
        match inventory(dir, &Toy) {
            Err(error) => assert_named(&error, dir, "listing"),
            Ok(files) => heard.extend(files.into_iter().map(|file| file.name)),
        }
        let _ = (verify::is_store(dir), verify::total_bytes(dir));
    };
    let calls = walk(
        &store,
        |_| Vec::new(),
        work,
        |_, dir, _, what| {
            assert_eq!(contents(dir), before, "{what}");
            assert_clean(dir);
        },
    );
    assert!(calls > 100 && Toy.start_bytes() > 0, "{calls}");
}
