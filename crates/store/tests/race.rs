//! Readers against a writer that appends, rolls, merges, evicts and withdraws as fast as it can.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use neve_store::{Reader, Retention};

use crate::support::{self, assert_clean, block, open, small};

/// The time of a race, and the longest until a busy machine has done enough.
const LEAST: Duration = Duration::from_secs(3);
const MOST: Duration = Duration::from_mins(if cfg!(miri) { 40 } else { 5 });
/// Size of a race.
struct Size {
    readers: usize,
    /// Heights and records read that are enough.
    enough: (u64, u64),
    /// Heights until the next eviction, heights that it keeps, and heights until the next withdrawal.
    evict: u64,
    keep: u64,
    withdraw: u64,
}

/// In miri a height takes a second.
const SIZE: Size = if cfg!(miri) {
    Size { readers: 2, enough: (20, 5), evict: 7, keep: 12, withdraw: 17 }
} else {
    Size { readers: 4, enough: (200, 10_000), evict: 40, keep: 120, withdraw: 97 }
};

/// Every record that a reader gets is whole and the right one, whatever happens meanwhile.
fn read_all(reader: &Reader, stop: &AtomicBool, hits: &AtomicU64) {
    let mut seed = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        let Some(range) = reader.range() else { continue };
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let height = range.start() + (seed >> 33) % (range.end() - range.start() + 1);
        let expected = block(height, 0);
        let by_height = reader.record(height);
        let by_hash = reader.block(&expected.hash);
        let by_transaction =
            expected.transactions.first().and_then(|hash| Some(reader.transaction(hash)?.0));
        for found in [by_height, by_hash, by_transaction].into_iter().flatten() {
            assert_eq!(found.hash(), expected.hash);
            let slices: Vec<_> = (0..5).map(|at| found.part(at).slice).collect();
            drop(found);
            for (slice, part) in slices.iter().zip(&expected.parts) {
                assert_eq!(slice.as_ref(), part.bytes);
            }
            hits.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn readers_see_only_whole_records() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), small());
    let (stop, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..SIZE.readers {
            let (reader, stop, hits) = (opened.reader.clone(), &stop, &hits);
            scope.spawn(move || read_all(&reader, stop, hits));
        }
        let (mut height, mut appended) = (0, 0);
        let (heights, read) = SIZE.enough;
        let enough = |height| height > heights && hits.load(Ordering::Relaxed) > read;
        while start.elapsed() < LEAST || !enough(height) && start.elapsed() < MOST {
            opened.writer.append(&block(height, 0)).unwrap();
            (height, appended) = (height + 1, appended + 1);
            if appended % SIZE.evict == 0 {
                let retention = Retention { blocks: Some(SIZE.keep), ..Retention::default() };
                opened.writer.evict(&retention, 0).unwrap();
                opened.writer.merge_tables().unwrap();
            }
            if appended % SIZE.withdraw == 0 {
                height -= 6; // and again, with the same blocks
                opened.writer.withdraw(height).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(height > heights, "the writer came to {height} only");
    });
    assert!(hits.into_inner() > SIZE.enough.1);
    assert_clean(dir.path());
}

#[test]
fn slice_of_a_reader_outlives_eviction_and_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), small());
    (0..40).for_each(|height| opened.writer.append(&block(height, 0)).unwrap());
    let held = opened.reader.record(1).unwrap();
    let slice = held.part(4).slice;
    let retention = Retention { blocks: Some(4), ..Retention::default() };
    assert!(opened.writer.evict(&retention, 0).unwrap().segments > 5);
    assert!(opened.reader.record(1).is_none());
    assert!(opened.reader.block(&block(1, 0).hash).is_none());
    drop(opened);
    assert_eq!(slice.as_ref(), block(1, 0).parts[4].bytes);
    assert_eq!(held.hash(), block(1, 0).hash);
}

/// Verifying beside a running writer finds nothing, because there is nothing to find.
#[test]
#[cfg_attr(miri, ignore = "to read a growing store four times takes an hour")]
fn verify_beside_a_writer_finds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), small());
    opened.writer.append(&block(0, 0)).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut height = 1;
            while !stop.load(Ordering::Relaxed) {
                opened.writer.append(&block(height, 0)).unwrap();
                let retention = Retention { blocks: Some(150), ..Retention::default() };
                opened.writer.evict(&retention, 0).unwrap();
                opened.writer.merge_tables().unwrap();
                height += 1;
            }
        });
        let (start, mut rounds) = (Instant::now(), 0);
        while start.elapsed() < LEAST || rounds < 4 && start.elapsed() < MOST {
            let findings = support::verify(dir.path()).findings;
            if !findings.is_empty() {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(findings.is_empty(), "round {rounds}: {findings:#?}");
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(rounds > 3);
    });
}
