//! The pieces of the hot path and of ingest, each beside its floor: what the machine needs to do
//! the same without knowing what it does. `cargo bench --bench paths`

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use neve::fetch::assemble;
use neve::packed::{Coding, pack};
use neve::parts::{FULL, RECEIPTS, plain};
use neve_chain::Checks;
use neve_devnet::{Chain, ChainConfig, Helicon, Part, Signatures};
use neve_jsonrpc::{Request, Rules, parse};
use neve_store::{Hash, Identity, Opened, Options, Record};

/// Blocks of mainnet's size.
const BLOCKS: u64 = 200;

struct Block {
    text: Vec<u8>,
    receipts: Vec<u8>,
}

fn blocks() -> Vec<Block> {
    let config = ChainConfig::c_chain(1);
    let config =
        ChainConfig { signatures: Signatures::Filler, helicon: Helicon::FromGenesis, ..config };
    let mut chain = Chain::new(config);
    (0..BLOCKS)
        .map(|_| {
            let block = chain.next_block();
            let text = block.answer(Part::Full, Rules::Helicon);
            Block { text, receipts: block.receipts().to_vec() }
        })
        .collect()
}

const CHECKS: Checks = Checks { chain_id: 43_112, senders: false };

fn records(blocks: &[Block]) -> Vec<Record> {
    let record = |block: &Block| assemble(&block.text, &block.receipts, &CHECKS);
    blocks.iter().map(|block| record(block).expect("devnet's blocks check out").record).collect()
}

fn store(dir: &tempfile::TempDir) -> Opened {
    let options = Options { disk_reserve_bytes: 0, ..Options::default() };
    let mut opened = neve_store::open(dir.path(), options).expect("a fresh directory");
    let identity = Identity { chain_id: 43_112, genesis: Hash([1; 32]) };
    opened.writer.bind(identity, 1).expect("nothing is bound yet");
    opened
}

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
    let Opened { mut writer, reader, .. } = store(&dir);
    let records = records(&blocks());
    records.iter().for_each(|record| writer.append(record).expect("it is the next one"));
    let mut random = fastrand::Rng::with_seed(1);
    let mut group = criterion.benchmark_group("read");
    group.bench_function("by height, to the part", |bencher| {
        bencher.iter(|| {
            let record = reader.record(random.u64(1..BLOCKS)).expect("it is held");
            plain(&record, RECEIPTS).map(|part| part.len())
        });
    });
    group.bench_function("by hash, to the part", |bencher| {
        bencher.iter(|| {
            let hash = records[random.usize(1..records.len())].hash;
            reader.block(&hash).and_then(|record| plain(&record, FULL)).map(|part| part.len())
        });
    });
    let texts: Vec<&[u8]> =
        records.iter().map(|record| &record.parts[RECEIPTS].bytes[..]).collect();
    group.bench_function("floor: a copy of the part", |bencher| {
        bencher.iter(|| texts[random.usize(0..texts.len())].to_vec());
    });
}

fn ingest(criterion: &mut Criterion) {
    let blocks = blocks();
    let records = records(&blocks);
    let bytes: u64 =
        blocks.iter().map(|block| (block.text.len() + block.receipts.len()) as u64).sum();
    let mut group = criterion.benchmark_group("ingest of 200 blocks");
    group.sample_size(10).throughput(Throughput::Bytes(bytes));
    group.bench_function("prove and cut", |bencher| {
        bencher.iter(|| self::records(&blocks).len());
    });
    group.bench_function("compress as gzip", |bencher| {
        let packed = |record: &Record| pack(&record.parts, &[Coding::Gzip]).map_or(0, |p| p.len());
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

criterion_group!(benches, requests, reads, ingest);
criterion_main!(benches);
