//! The pieces of the hot path and of ingest, each beside its floor: what the machine needs to do
//! the same without knowing what it does. `cargo bench -p neve-benches --bench paths`

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use alloy_primitives::keccak256;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use neve_archive::{FilterTable, HashFilter, Key, MERGED_FILTERS, Merging, Span, Spot};
use neve_benches::{blocks, filled, filter, records, store};
use neve_jsonrpc::{Request, Rules, envelope, parse};
use neve_keccak::keccak256_all;
use neve_record::coding::Coding;
use neve_record::log_matcher::{LogMatcher, logs};
use neve_record::parts::{FULL, RECEIPTS, uncompressed_part};
use neve_record::precompressed::precompress;
use neve_store::{Opened, Record};

const BLOCKS: usize = 200;

fn requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request");
    let body =
        br#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x41cdb40",true]}"#;
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("parse", |bencher| {
        bencher.iter(|| match parse(black_box(body)) {
            Request::Single(message) => message.query(Rules::Helicon).is_ok(),
            _ => false,
        });
    });
    group.bench_function("floor: a copy", |bencher| bencher.iter(|| black_box(body).to_vec()));
}

fn reads(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let records = records(&blocks(BLOCKS));
    let Opened { writer: _writer, reader, .. } = filled(&dir, &records);
    let heights = reader.range().expect("it is filled");
    let mut random = fastrand::Rng::with_seed(1);
    let mut group = criterion.benchmark_group("read");
    group.bench_function("by height, to the part", |bencher| {
        bencher.iter(|| {
            let record = reader.record(random.u64(heights.clone())).expect("it is held");
            uncompressed_part(&record, RECEIPTS).map(|part| part.len())
        });
    });
    group.bench_function("by hash, to the part", |bencher| {
        bencher.iter(|| {
            let hash = records[random.usize(1..records.len())].hash;
            reader
                .block(&hash)
                .and_then(|record| uncompressed_part(&record, FULL))
                .map(|part| part.len())
        });
    });
    let texts: Vec<&[u8]> =
        records.iter().map(|record| &record.parts[RECEIPTS].bytes[..]).collect();
    group.bench_function("floor: a copy of the part", |bencher| {
        bencher.iter(|| texts[random.usize(0..texts.len())].to_vec());
    });
}

fn replies(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let Opened { writer: _writer, reader, .. } = filled(&dir, &records(&blocks(BLOCKS)));
    let record = reader.head().expect("it is filled");
    let mut group = criterion.benchmark_group("reply");
    group.bench_function("envelope and slice", |bencher| {
        bencher.iter(|| {
            let mut text = Vec::with_capacity(64);
            envelope::write_prefix(&mut text, black_box(b"1"));
            let part = uncompressed_part(&record, FULL);
            (text, part)
        });
    });
    let part = uncompressed_part(&record, FULL).expect("it is held");
    group.bench_function("floor: a copy of both", |bencher| {
        bencher.iter(|| [&br#"{"jsonrpc":"2.0","id":1,"result":"#[..], part.as_ref()].concat());
    });
}

/// Cost of a count that two threads write: the price of one for all threads, and of none.
fn holds(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let Opened { writer: _writer, reader, .. } = filled(&dir, &records(&blocks(BLOCKS)));
    let head = *reader.range().expect("it is filled").end();
    let record = || drop(black_box(reader.record(head)));
    let one = Arc::new(());
    let shared = || drop(black_box(Arc::clone(&one)));
    let mut group = criterion.benchmark_group("hold");
    group.bench_function("a record", |bencher| bencher.iter(record));
    group.bench_function("a record, which another thread holds too", |bencher| {
        beside(&record, || bencher.iter(record));
    });
    group.bench_function("floor: one count", |bencher| bencher.iter(shared));
    group.bench_function("one count, which another thread counts in too", |bencher| {
        beside(&shared, || bencher.iter(shared));
    });
}

/// Does `work` while another thread does `other` again and again.
fn beside(other: &(impl Fn() + Sync), work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                other();
            }
        });
        work();
        done.store(true, Ordering::Relaxed);
    });
}

/// A hash that no span of a year has: 36 million blocks at 1.15 a second are 550 spans. Their filters are
/// smaller than mainnet's, but larger than all caches together.
fn unknown_hashes(criterion: &mut Criterion) {
    let mut random = fastrand::Rng::with_seed(1);
    let (each, filters) = filters(&mut random);
    let mut group = criterion.benchmark_group("unknown hash, 550 filters");
    let tables = merged(&each);
    group.bench_function("in tables of 16", |bencher| {
        bencher.iter(|| FilterTable::any_may_have(&tables, &hash(&mut random)));
    });
    group.bench_function("together", |bencher| {
        bencher.iter(|| FilterTable::any_may_have(&filters, &hash(&mut random)));
    });
    group.bench_function("one after the other", |bencher| {
        bencher.iter(|| {
            let hash = hash(&mut random);
            filters.iter().any(|filter| filter.members_with(&hash) != 0)
        });
    });
    let bytes = each[0].as_bytes().len();
    let tables: Vec<_> = (0..FILTERS).map(|_| vec![1_u8; bytes]).collect();
    group.bench_function("floor: a byte of each", |bencher| {
        bencher.iter(|| {
            let at = random.usize(0..bytes);
            tables.iter().fold(0, |all, table| all ^ table[at])
        });
    });
    group.sample_size(10).bench_function("merge 16 filters", |bencher| {
        bencher.iter(|| merge(&each));
    });
}

/// Filters of a year.
const FILTERS: usize = 550;

/// Filters of 100,000 other hashes each, and those of a year, of which every sixteenth one is equal.
fn filters(random: &mut fastrand::Rng) -> (Vec<HashFilter>, Vec<FilterTable>) {
    let at = Spot { height: 0, transaction: Some(0) };
    let filter = |_| {
        let keys: Vec<_> = (0..100_000).map(|_| Key::new(&hash(random), at)).collect();
        let span = Span::empty(0, 1024, 64).and_then(|span| span.with(None, &keys));
        HashFilter::of(&span.expect("they fit"))
    };
    let each: Vec<_> = (0..MERGED_FILTERS).map(filter).collect();
    let all = each.iter().cycle().take(FILTERS).map(|filter| filter.clone().into_table());
    let all = all.collect();
    (each, all)
}

/// Tables of sixteen filters, and the filters that are left.
fn merged(each: &[HashFilter]) -> Vec<FilterTable> {
    let mut tables = vec![merge(each); FILTERS / MERGED_FILTERS];
    let left = each.iter().take(FILTERS % MERGED_FILTERS);
    tables.extend(left.map(|filter| filter.clone().into_table()));
    tables
}

fn merge(filters: &[HashFilter]) -> FilterTable {
    let tables = filters.iter().map(|filter| Arc::new(filter.clone().into_table())).collect();
    Merging::new(tables).expect("they are alike").finish()
}

fn hash(random: &mut fastrand::Rng) -> [u8; 32] {
    std::array::from_fn(|_| random.u8(..))
}

fn log_queries(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let records = records(&blocks(BLOCKS));
    let Opened { writer: _writer, reader, .. } = filled(&dir, &records);
    let filter = filter(&records);
    let wanted = LogMatcher::new(&filter.addresses, &filter.topics);
    let heights = reader.range().expect("it is filled");
    let found = || {
        let found = logs(&reader, wanted.clone(), heights.clone());
        found.map(|log| log.expect("it is held"))
    };
    let texts: Vec<Vec<u8>> = found().map(|log| log.as_ref().to_vec()).collect();
    let mut group = criterion.benchmark_group(format!("{} logs of an address", texts.len()));
    group.bench_function("find", |bencher| {
        bencher.iter(|| found().map(|log| log.len()).sum::<usize>());
    });
    group.bench_function("floor: a copy of them", |bencher| bencher.iter(|| texts.concat()));
}

/// Leaves of tries and transactions have some hundred bytes, addresses and topics 20 and 32.
fn hashes(criterion: &mut Criterion) {
    for length in [32, 400] {
        let messages = vec![vec![7; length]; 64];
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let mut group =
            criterion.benchmark_group(format!("hashes of 64 messages of {length} bytes"));
        group.throughput(Throughput::Bytes(64 * length as u64));
        group.bench_function("together", |bencher| {
            bencher.iter(|| keccak256_all(black_box(&messages)));
        });
        group.bench_function("one after the other", |bencher| {
            bencher.iter(|| black_box(&messages).iter().map(keccak256).collect::<Vec<_>>());
        });
        group.bench_function("floor: a copy", |bencher| {
            bencher.iter(|| black_box(&messages).concat());
        });
    }
}

fn ingest(criterion: &mut Criterion) {
    let blocks = blocks(BLOCKS);
    let records = records(&blocks);
    let bytes: u64 =
        blocks.iter().map(|block| (block.text.len() + block.receipts.len()) as u64).sum();
    let mut group = criterion.benchmark_group("ingest of 200 blocks");
    group.sample_size(10).throughput(Throughput::Bytes(bytes));
    group.bench_function("prove and cut", |bencher| {
        bencher.iter(|| neve_benches::records(&blocks).len());
    });
    group.bench_function("compress as gzip", |bencher| {
        let packed =
            |record: &Record| precompress(&record.parts, &[Coding::Gzip]).map_or(0, |p| p.len());
        bencher.iter(|| records.iter().map(packed).sum::<usize>());
    });
    group.bench_function("append", |bencher| {
        bencher.iter(|| {
            let dir = tempfile::tempdir().expect("a directory can be made");
            let mut opened = store(&dir);
            records.iter().for_each(|record| opened.writer.append(record).expect("the next one"));
        });
    });
    group.bench_function("floor: pwrite of as much", |bencher| {
        bencher.iter(|| {
            let file: File = tempfile::tempfile().expect("a file can be made");
            let mut at = 0;
            for bytes in blocks.iter().flat_map(|block| [&block.text, &block.receipts]) {
                file.write_all_at(bytes, at).expect("there is room");
                at += bytes.len() as u64;
            }
        });
    });
}

criterion_group!(
    benches,
    requests,
    reads,
    replies,
    holds,
    unknown_hashes,
    log_queries,
    hashes,
    ingest
);
criterion_main!(benches);
