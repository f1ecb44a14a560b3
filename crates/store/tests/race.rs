//! Readers against a writer that appends, rolls, merges, evicts and withdraws as fast as it can.

#![cfg(test)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use neve_store::{Reader, Retention};
use support::{assert_clean, block, open, small};

/// The time of a race, and the longest until a busy machine has done enough.
const LEAST: Duration = Duration::from_secs(3);
const MOST: Duration = Duration::from_mins(2);

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
        for _ in 0..4 {
            let (reader, stop, hits) = (opened.reader.clone(), &stop, &hits);
            scope.spawn(move || read_all(&reader, stop, hits));
        }
        let (mut height, mut appended) = (0, 0);
        let enough = |height| height > 200 && hits.load(Ordering::Relaxed) > 10_000;
        while start.elapsed() < LEAST || !enough(height) && start.elapsed() < MOST {
            opened.writer.append(&block(height, 0)).unwrap();
            (height, appended) = (height + 1, appended + 1);
            if appended % 40 == 0 {
                let retention = Retention { blocks: Some(120), ..Retention::default() };
                opened.writer.evict(&retention, 0).unwrap();
                opened.writer.merge_tables().unwrap();
            }
            if appended % 97 == 0 {
                height -= 6; // and again, with the same blocks
                opened.writer.withdraw(height).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(height > 200, "the writer came to {height} only");
    });
    assert!(hits.into_inner() > 10_000);
    assert_clean(dir.path());
}

#[test]
fn what_a_reader_holds_outlives_eviction_and_the_writer() {
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
