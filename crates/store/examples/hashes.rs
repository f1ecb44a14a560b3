//! Cost of merged hash tables: bytes, merges, and look-ups over many segments:
//! `cargo run --release -p neve-store --example hashes -- <directory> <segments>`. Each segment has 75 heights
//! with 31 transactions each, the mean of mainnet.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(clippy::cast_precision_loss, reason = "numbers are shown to two digits")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use neve_store::residency::if_resident;
use neve_store::{Hash, Identity, Options, Part, Reader, Record};

const SEGMENT_HEIGHTS: u64 = 75;
const TRANSACTIONS: u64 = 31;
const LOOK_UPS: usize = 50_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The hash of a number. Ordinal 0 of a height is its block.
fn hash(height: u64, ordinal: u64) -> Hash {
    let mut random = Random((height << 16 | ordinal).wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut hash = Hash::default();
    hash.0.chunks_mut(8).for_each(|bytes| bytes.copy_from_slice(&random.next().to_le_bytes()));
    hash
}

fn block(height: u64) -> Record {
    Record {
        height,
        hash: hash(height, 0),
        parent: hash(height.saturating_sub(1), 0),
        transactions: (1..=TRANSACTIONS).map(|at| hash(height, at)).collect(),
        parts: vec![Part::uncompressed(b"{}".to_vec())],
        ..Record::default()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: hashes DIRECTORY SEGMENTS";
    let dir = arguments.next().expect(usage);
    let heights = SEGMENT_HEIGHTS * arguments.next().expect(usage).parse::<u64>().unwrap();
    let options = Options {
        segment_blocks: SEGMENT_HEIGHTS as u32,
        segment_bytes: 256 << 10,
        disk_reserve_bytes: 0,
        expected: None,
    };
    let dir = Path::new(&dir);
    let mut opened = neve_store::open(dir, options).unwrap();
    opened.writer.bind(Identity { chain_id: 1, genesis: Hash::default() }, 1).unwrap();
    (0..heights).for_each(|height| opened.writer.append(&block(height)).unwrap());
    let (start, mut merges) = (Instant::now(), 0);
    merges += opened.writer.merge_tables().unwrap();
    let (usage, bytes) = (opened.reader.usage(), table_bytes(dir));
    println!("{merges} merges: {:?}, {} tables", start.elapsed(), usage.tables);
    println!("{} segments, {bytes} bytes of tables", usage.segments);
    let hashes = heights * (1 + TRANSACTIONS);
    println!("{:.2} bytes a hash of the store", bytes as f64 / hashes as f64);
    for round in 1..=3 {
        look_up(&opened.reader, heights, round);
    }
}

fn table_bytes(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap());
    let tables = files.filter(|file| file.path().extension().is_some_and(|end| end == "idx"));
    tables.map(|table| table.metadata().unwrap().len()).sum()
}

fn look_up(reader: &Reader, heights: u64, round: u64) {
    let mut random = Random(round);
    let mut known = || hash(random.next() % heights, 1 + random.next() % TRANSACTIONS);
    let known: Vec<_> = (0..LOOK_UPS).map(|_| known()).collect();
    let mut unknown = Random(round << 32);
    let unknown: Vec<_> = (0..LOOK_UPS).map(|_| hash(unknown.next(), 0xffff)).collect();
    let found = |hash: &Hash| reader.transaction(hash).is_some();
    println!("known: median {:?}", median(&known, |hash| assert!(found(hash))));
    println!("unknown: median {:?}", median(&unknown, |hash| assert!(!found(hash))));
    let serving = |hash: &Hash| {
        let found = if_resident(|| Ok(reader.resident().transaction(hash)?.is_some()));
        assert!(found.is_ok());
    };
    println!("known, by a serving thread: median {:?}", median(&known, serving));
    println!("unknown, by a serving thread: median {:?}", median(&unknown, serving));
}

fn median(hashes: &[Hash], look: impl Fn(&Hash)) -> Duration {
    let time = |hash| {
        let start = Instant::now();
        look(hash);
        start.elapsed()
    };
    let mut times: Vec<_> = hashes.iter().map(time).collect();
    times.sort();
    times[times.len() / 2]
}
