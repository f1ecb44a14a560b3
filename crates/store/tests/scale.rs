//! 75,000 heights in 1,000 segments: opening is quick, and looking up costs what it costs at 10.

#![cfg(test)]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use neve_store::{Options, Part, Reader, Record, open};
use support::{IDENTITY, hash};

const SPAN: u32 = 75;
/// The mean of mainnet, January 2026.
const TRANSACTIONS: u64 = 31;
const LOOKUPS: u64 = 20_000;

fn block(height: u64) -> Record {
    Record {
        height,
        hash: hash(height * 1000, 0),
        parent: hash((height.max(1) - 1) * 1000, 0),
        transactions: (0..TRANSACTIONS).map(|at| hash(height * 1000 + at + 1, 0)).collect(),
        parts: vec![Part::plain(b"{}".to_vec())],
        ..Record::default()
    }
}

fn build(dir: &Path, heights: u64) {
    let options =
        Options { span: SPAN, segment_bytes: 256 << 10, disk_reserve_bytes: 0, expected: None };
    let mut opened = open(dir, options).unwrap();
    opened.writer.bind(IDENTITY, 1).unwrap();
    for height in 0..heights {
        opened.writer.append(&block(height)).unwrap();
        if height % u64::from(SPAN) == 0 {
            opened.writer.merge_tables().unwrap();
        }
    }
}

/// The median time of many look-ups of a transaction that is there.
fn lookup(reader: &Reader, heights: u64) -> Duration {
    let mut times: Vec<Duration> = (0..LOOKUPS)
        .map(|at| {
            let height = at * 7919 % heights;
            let wanted = hash(height * 1000 + 1 + at % TRANSACTIONS, 0);
            let start = Instant::now();
            let found = reader.transaction(&wanted);
            let time = start.elapsed();
            assert_eq!(found.unwrap().0.height(), height);
            time
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

#[test]
fn a_thousand_segments_open_and_look_up_like_ten() {
    let dir = tempfile::tempdir().unwrap();
    let (few, many) = (dir.path().join("few"), dir.path().join("many"));
    build(&few, 10 * u64::from(SPAN));
    build(&many, 1000 * u64::from(SPAN));
    let start = Instant::now();
    let large = open(&many, Options::default()).unwrap();
    let opening = start.elapsed();
    let small = open(&few, Options::default()).unwrap();
    assert_eq!((small.reader.usage().segments, large.reader.usage().segments), (10, 1000));
    assert_eq!(large.reader.range(), Some(0..=74_999));
    let (ten, thousand) = (lookup(&small.reader, 750), lookup(&large.reader, 75_000));
    println!("open {opening:?}, look-up at 10 segments {ten:?}, at 1,000 {thousand:?}");
    println!("merged tables at 1,000 segments: {}", large.reader.usage().tables);
    // Unmerged it would be a hundred times as many tables.
    assert!(thousand < 8 * ten, "look-up at 10 segments {ten:?}, at 1,000 {thousand:?}");
    assert!(opening < Duration::from_millis(200), "opening took {opening:?}");
}
