//! A store's directory after arbitrary changes: opening, every read, verifying, receiving a segment and
//! going on neither panic nor end by a signal. If the checksums were left alone, what is served is true.

#![no_main]

#[path = "../src/store.rs"]
mod store;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use neve_store::verify::{self, Finding, Stored, Visitor};
use neve_store::{Criteria, Opened, Options, Reader, Record, Retention, open};
use store::{Changed, FIRST, HEIGHTS, Input, LAST, block, options};

fuzz_target!(|input: Input| {
    let changed = Changed::of(&input);
    let dir = tempfile::tempdir_in("/dev/shm").expect("memory can be written");
    changed.write(dir.path());
    verify_all(dir.path());
    let Ok(opened) = open(dir.path(), Options { expected: None, ..options() }) else { return };
    read_all(&opened.reader, !changed.mended);
    receive(&opened, &changed);
    go_on(opened);
    verify_all(dir.path());
    if let Ok(again) = open(dir.path(), options()) {
        read_all(&again.reader, false);
    }
});

struct Deaf;

impl Visitor for Deaf {
    fn finding(&mut self, finding: Finding) {
        drop(finding);
    }
    fn record(&mut self, record: &Stored<'_>) {
        let _ = record.parts.iter().map(|(bytes, _)| bytes.len()).sum::<usize>();
    }
    fn progress(&mut self, _: u64) {}
}

fn verify_all(dir: &Path) {
    let _ = verify::total_bytes(dir);
    let _ = verify::directory(dir, &mut Deaf);
}

/// Looks everything up; if `truly`, what is found must be what was stored.
fn read_all(reader: &Reader, truly: bool) {
    let _ = (reader.sealed(), reader.usage(), reader.head().map(|head| head.hash()));
    for height in HEIGHTS {
        let expected = block(height);
        read_record(reader, &expected, truly);
        if let Some(found) = reader.block(&expected.hash) {
            assert_eq!(found.hash(), expected.hash);
            assert!(found.height() == height || !truly, "{} instead of {height}", found.height());
        }
        for (at, hash) in expected.transactions.iter().enumerate() {
            if let Some((found, position)) = reader.transaction(hash)
                && truly
            {
                assert_eq!((found.height(), position), (height, at));
            }
        }
    }
    let Some(range) = reader.range() else { return };
    let logs = |keys| reader.logs(range.clone(), &Criteria::new(keys)).take(100).count();
    logs(vec![vec![1, 2, 3]]);
    logs(vec![vec![5], vec![1, u64::MAX]]);
    logs(Vec::new());
}

fn read_record(reader: &Reader, expected: &Record, truly: bool) {
    let Some(found) = reader.record(expected.height) else { return };
    let (count, logs) = (found.transaction_count(), found.log_count());
    let _ = (found.timestamp(), found.parent(), found.flags(), found.stored_len());
    let _ = found.terms().map(Iterator::count);
    for at in [0, 1, count.saturating_sub(1), count, u32::MAX] {
        let _ = found.transaction(at as usize);
    }
    for at in 0..=neve_store::PARTS_MAX {
        let part = found.part(at);
        let _ = (part.slice.as_ref().len(), found.read_part(at).map(|part| part.map(|(bytes, _)| bytes.len())));
        let (from, to) = (part.slice.len() as u32 / 3, part.slice.len() as u32);
        let _ = part.slice.slice(from, to).as_ref().last();
    }
    if truly {
        assert_eq!((found.hash(), found.parent()), (expected.hash, expected.parent));
        assert_eq!((count as usize, logs as usize), lengths(expected));
        assert!(found.terms().unwrap().eq(expected.logs.iter().copied()), "other terms");
        for (at, part) in expected.parts.iter().enumerate() {
            assert_eq!(found.part(at).slice.as_ref(), part.bytes, "part {at}");
        }
    }
}

fn lengths(record: &Record) -> (usize, usize) {
    (record.transactions.len(), record.logs.len())
}

/// Takes the first segment as a mirror does, in pieces.
fn receive(opened: &Opened, changed: &Changed) {
    let Some((name, bytes)) = changed.first_segment() else { return };
    let Ok(base) = name[..20].parse() else { return };
    let Ok(history) = opened.writer.history() else { return };
    let Ok(mut incoming) = history.receive(base) else { return };
    for piece in bytes.chunks(3000) {
        match incoming.write(piece) {
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
    }
    let _ = (incoming.is_whole(), incoming.have(), incoming.piece(100, 100));
    if incoming.is_whole() && incoming.verify(&mut Deaf).is_ok() {
        let _ = incoming.finish();
    }
}

/// Appends, withdraws, merges and evicts, as far as that goes.
fn go_on(mut opened: Opened) {
    let writer = &mut opened.writer;
    if let Some((height, hash)) = writer.head() {
        let next = Record { height: height.saturating_add(1), parent: hash, ..block(LAST + 1) };
        let _ = writer.append(&next);
    }
    let _ = writer.merge_tables();
    let _ = writer.withdraw(FIRST + 5);
    let retention = Retention { blocks: Some(3), ..Retention::default() };
    let _ = writer.evict(&retention, 2_000_000);
    let _ = (writer.seal(), writer.sync());
}
