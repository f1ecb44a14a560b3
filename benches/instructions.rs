//! Instructions of the hot path, counted by valgrind: they do not depend on what else the machine
//! does. `bench-scripts/instructions` runs this and compares with the last release.

#![allow(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_methods,
    reason = "all of it in what gungraun's macros write"
)]

use std::hint::black_box;
use std::ops::RangeInclusive;

use gungraun::{library_benchmark, library_benchmark_group, main};
use neve_benches::{Block, blocks, filled, filter, records, store};
use neve_jsonrpc::{Request, Rules, envelope, parse};
use neve_record::log_matcher::{FoundLogs, LogMatcher, logs};
use neve_record::parts::{FULL, uncompressed_part};
use neve_store::residency::if_resident;
use neve_store::{Hash, Opened, Record, SegmentSlice};
use tempfile::TempDir;

/// Enough for an index; making them under valgrind takes a seventh of a second each.
const BLOCKS: usize = 40;

/// A store with blocks in it, and what to ask for.
struct Held {
    _dir: TempDir,
    opened: Opened,
    height: u64,
    heights: RangeInclusive<u64>,
    hash: Hash,
    transaction: Hash,
    wanted: LogMatcher,
}

fn held() -> Held {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let records = records(&blocks(BLOCKS));
    let opened = filled(&dir, &records);
    let middle = &records[records.len() / 2..];
    let with = middle.iter().find(|record| !record.transactions.is_empty());
    let with = with.expect("mainnet's blocks have transactions");
    let filter = filter(&records);
    let wanted = LogMatcher::new(&filter.addresses, &filter.topics);
    let heights = opened.reader.range().expect("it is filled");
    drop(opened.reader.head()); // the first look-up of a thread makes its count of holders
    let (height, hash, transaction) = (with.height, with.hash, with.transactions[0]);
    Held { _dir: dir, opened, height, heights, hash, transaction, wanted }
}

/// Holds a store of whose pages this thread knows that they are in memory.
fn looked_at() -> Held {
    let held = held();
    let (reader, hash) = (&held.opened.reader, &held.transaction);
    let (reader, height) = (reader.resident(), held.height);
    let look = || Ok(reader.record(height)?.is_some() && reader.transaction(hash)?.is_some());
    assert_eq!(if_resident(look), Ok(true));
    held
}

/// A store with room for the record.
struct Room {
    _dir: TempDir,
    opened: Opened,
    record: Record,
}

fn room() -> Room {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let mut opened = store(&dir);
    let mut records = records(&blocks(2));
    let record = records.pop().expect("there are two");
    opened.writer.append(&records[0]).expect("it is the first one");
    Room { _dir: dir, opened, record }
}

fn block() -> Vec<Block> {
    blocks(4).split_off(3)
}

#[library_benchmark]
fn parse_request() -> bool {
    let body =
        br#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x41cdb40",true]}"#;
    match parse(black_box(body)) {
        Request::Single(message) => message.query(Rules::Helicon).is_ok(),
        _ => false,
    }
}

// What is asked comes out again, so that dropping it is not counted.
#[library_benchmark]
#[bench::middle(setup = held)]
fn by_height(held: Held) -> (Option<SegmentSlice>, Held) {
    let record = held.opened.reader.resident().record(black_box(held.height));
    let record = record.ok().flatten().expect("it is held");
    (uncompressed_part(&record, FULL), held)
}

#[library_benchmark]
#[bench::block(setup = held)]
fn by_hash(held: Held) -> (Option<SegmentSlice>, Held) {
    let record = held.opened.reader.resident().block(black_box(&held.hash));
    let record = record.ok().flatten().expect("it is held");
    (uncompressed_part(&record, FULL), held)
}

#[library_benchmark]
#[bench::first(setup = held)]
fn by_transaction(held: Held) -> (Option<usize>, Held) {
    let found = held.opened.reader.resident().transaction(black_box(&held.transaction));
    (found.ok().flatten().map(|(_, place)| place), held)
}

// What serving threads do: the same, and no waiting for a disk.
#[library_benchmark]
#[bench::middle(setup = looked_at)]
fn by_height_in_memory(held: Held) -> (Option<SegmentSlice>, Held) {
    let reader = held.opened.reader.resident();
    let record = if_resident(|| reader.record(black_box(held.height)));
    (record.ok().flatten().and_then(|record| uncompressed_part(&record, FULL)), held)
}

#[library_benchmark]
#[bench::first(setup = looked_at)]
fn by_transaction_in_memory(held: Held) -> (Option<usize>, Held) {
    let find = || held.opened.reader.resident().transaction(black_box(&held.transaction));
    (if_resident(find).ok().flatten().map(|(_, place)| place), held)
}

#[library_benchmark]
#[bench::address(setup = held)]
fn find_logs(held: Held) -> (usize, Held) {
    let mut found = logs(&held.opened.reader, held.wanted.clone(), held.heights.clone());
    let (mut text, mut bytes) = (Vec::new(), 0);
    // As `eth_getLogs` takes them.
    while let Some(log) = found.next_into(&mut text, bytes == 0, &|_| true) {
        let FoundLogs::Stored(log) = log.expect("it is held") else { break };
        bytes += log.len();
    }
    (bytes, held)
}

#[library_benchmark]
fn write_envelope() -> Vec<u8> {
    let mut text = Vec::with_capacity(64);
    envelope::write_prefix(&mut text, black_box(b"1"));
    text
}

#[library_benchmark]
#[bench::mainnet(setup = room)]
fn append(mut room: Room) -> Room {
    room.opened.writer.append(&room.record).expect("it is the next one");
    room
}

#[library_benchmark]
#[bench::mainnet(setup = block)]
fn prove_and_cut(block: Vec<Block>) -> (Vec<Record>, Vec<Block>) {
    (records(&block), block)
}

library_benchmark_group!(
    name = hot_path,
    benchmarks = [
        parse_request,
        by_height,
        by_hash,
        by_transaction,
        by_height_in_memory,
        by_transaction_in_memory,
        find_logs,
        write_envelope,
        append,
        prove_and_cut
    ]
);
main!(library_benchmark_groups = hot_path);
