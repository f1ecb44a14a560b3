//! 75,000 heights in 1,000 segments: opening is quick, and looking up asks a few merged tables.

#![cfg(not(miri))] // it takes a billion steps

use std::path::Path;
use std::time::{Duration, Instant};

use neve_store::{Options, Part, Reader, Record, open};

use crate::support::{IDENTITY, files, hash};

const SPAN: u32 = 75;
/// The mean of mainnet, January 2026.
const TRANSACTIONS: u64 = 31;
const HEIGHTS: u64 = 1000 * SPAN as u64;
const LOOKUPS: u64 = 5_000;

fn block(height: u64) -> Record {
    Record {
        height,
        hash: hash(height * 1000, 0),
        parent: hash((height.max(1) - 1) * 1000, 0),
        transactions: (0..TRANSACTIONS).map(|at| hash(height * 1000 + at + 1, 0)).collect(),
        parts: vec![Part::uncompressed(b"{}".to_vec())],
        ..Record::default()
    }
}

fn build(dir: &Path) {
    let options = Options {
        segment_blocks: SPAN,
        segment_bytes: 256 << 10,
        disk_reserve_bytes: 0,
        expected: None,
    };
    let mut opened = open(dir, options).unwrap();
    opened.writer.bind(IDENTITY, 1).unwrap();
    for height in 0..HEIGHTS {
        opened.writer.append(&block(height)).unwrap();
    }
}

/// The median time of many look-ups of a transaction that is there.
fn lookup(reader: &Reader) -> Duration {
    let mut times: Vec<Duration> = (0..LOOKUPS)
        .map(|at| {
            let height = at * 7919 % HEIGHTS;
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

/// Time that this thread has had a processor, which other programs do not change (proc(5),
/// `schedstat`).
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn a_thousand_segments_open_at_once_and_look_up_by_few_tables() {
    let dir = tempfile::tempdir().unwrap();
    let before = processor_time();
    build(dir.path());
    let building = processor_time().saturating_sub(before);
    let before = processor_time();
    let mut opened = open(dir.path(), Options::default()).unwrap();
    let opening = processor_time().saturating_sub(before);
    assert_eq!(opened.reader.range(), Some(0..=HEIGHTS - 1));
    let usage = opened.reader.usage();
    assert_eq!((usage.segments, usage.tables), (1000, 0));
    // Both over the same files in the same run: the memory is the machine's, the tables are ours.
    let each = lookup(&opened.reader);
    opened.writer.merge_tables().unwrap();
    // 999 sealed segments are 1747 in the base 8 that tables merge by.
    assert_eq!(opened.reader.usage().tables, 1 + 7 + 4);
    let names = files(dir.path(), ".idx");
    let bytes: u64 = names.iter().map(|name| dir.path().join(name).metadata().unwrap().len()).sum();
    let hashes = 999 * u64::from(SPAN) * (1 + TRANSACTIONS);
    assert!(bytes <= 8 * hashes, "{bytes} bytes of tables for {hashes} hashes");
    let merged = lookup(&opened.reader);
    println!(
        "build {building:?}, open {opening:?}, look-up in each segment {each:?}, in merged tables {merged:?}"
    );
    assert!(merged * 4 < each, "look-up in each segment {each:?}, in merged tables {merged:?}");
    assert!(opening * 10 < building, "opening took {opening:?}, building {building:?}");
}
