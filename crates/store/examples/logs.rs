//! What the index of logs costs and what it gives, with terms spread as mainnet's are:
//! `cargo run --release -p neve-store --example logs -- <directory> <segments>`.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use neve_store::{Hash, Identity, Options, Part, Reader, Record, Terms};

/// Means of 668 blocks of January 2026; two thirds of a block's bytes are the block, one receipts.
const LOGS: u64 = 57;
const TRANSACTIONS: u64 = 31;
const PART_BYTES: usize = 104 << 10;
/// So many of a thousand logs have none to four topics.
const TOPICS: [u64; 5] = [2, 60, 165, 698, 75];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) * bound) >> 31
    }

    /// A few are frequent, most are rare: each of `log2(bound)` magnitudes is as likely.
    fn skewed(&mut self, bound: u64) -> u64 {
        let magnitude = self.below(u64::from(bound.ilog2()) + 1);
        self.below(1 << magnitude)
    }
}

fn key(place: u64, value: u64) -> u64 {
    let mixed = ((place << 56) ^ value).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
}

fn terms(random: &mut Random) -> Terms {
    let mut place = random.below(1000);
    let topics = TOPICS.iter().position(|share| {
        let here = place < *share;
        place = place.saturating_sub(*share);
        here
    });
    let mut terms = [key(0, random.skewed(1 << 13)), 0, 0, 0, 0];
    for at in 1..=topics.unwrap_or(3) {
        let values = if at == 1 { 1 << 9 } else { 1 << 20 };
        terms[at] = key(at as u64, random.skewed(values));
    }
    terms
}

fn hash(of: u64) -> Hash {
    let mut hash = Hash::default();
    hash.0.chunks_mut(8).zip(0..).for_each(|(bytes, at)| {
        bytes.copy_from_slice(&key(at + 9, of).to_le_bytes());
    });
    hash
}

fn block(height: u64, random: &mut Random) -> Record {
    let logs = random.below(2 * LOGS + 1);
    Record {
        height,
        hash: hash(height << 8),
        parent: hash((height.max(1) - 1) << 8),
        transactions: (1..=TRANSACTIONS).map(|at| hash(height << 8 | at)).collect(),
        logs: (0..logs).map(|_| terms(random)).collect(),
        parts: vec![Part::plain(vec![b'x'; PART_BYTES])],
        ..Record::default()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, segments] = &arguments[..] else { return println!("which directory, how many?") };
    let segments: usize = segments.parse().unwrap();
    let options = Options { disk_reserve_bytes: 0, ..Options::default() };
    let mut opened = neve_store::open(Path::new(dir), options).unwrap();
    opened.writer.bind(Identity { chain_id: 43114, genesis: Hash([1; 32]) }, 0).unwrap();
    let mut random = Random(7);
    let (mut appends, mut seals) = (Vec::new(), Vec::new());
    let mut height = 0;
    while opened.reader.usage().segments < segments {
        let record = block(height, &mut random);
        let before = opened.reader.usage().segments;
        let start = Instant::now();
        opened.writer.append(&record).unwrap();
        let rolled = opened.reader.usage().segments != before;
        (if rolled { &mut seals } else { &mut appends }).push(start.elapsed());
        if rolled {
            opened.writer.sync().unwrap(); // so that the next seal's sync is not about older bytes
        }
        height += 1;
    }
    let per_segment = height as usize / segments;
    appends.sort();
    let worst = appends.last().unwrap();
    println!(
        "{per_segment} heights a segment; append: median {:?}, worst {worst:?}",
        median(&appends)
    );
    println!("rolling (seal, sync, create): {seals:?}");
    let start = Instant::now();
    opened.writer.seal().unwrap();
    println!("a last seal: {:?}", start.elapsed());
    drop(opened);
    let opened = neve_store::open(Path::new(dir), options).unwrap();
    for (what, criteria) in questions() {
        for round in ["first", "again"] {
            ask(&opened.reader, what, round, &criteria);
        }
    }
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

type Questions = Vec<(&'static str, Vec<Vec<u64>>)>;

fn questions() -> Questions {
    vec![
        ("an address that nobody has", vec![vec![key(0, 1 << 40)]]),
        ("a rare address", vec![vec![key(0, 8000)]]),
        ("a frequent address", vec![vec![key(0, 0)]]),
        ("a frequent address and a rare topic", vec![vec![key(0, 0)], vec![key(2, 900_000)]]),
        ("a frequent address and a frequent topic", vec![vec![key(0, 0)], vec![key(1, 0)]]),
        ("a hundred addresses", vec![(4000..4100).map(|value| key(0, value)).collect()]),
    ]
}

fn ask(reader: &Reader, what: &str, round: &str, criteria: &[Vec<u64>]) {
    let range = reader.range().unwrap();
    let start = Instant::now();
    let found = reader.logs(range, criteria.to_vec()).map(Result::unwrap).count();
    println!("{what}, {round}: {found} logs in {:?}", start.elapsed());
}
