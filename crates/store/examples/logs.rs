//! Cost and gain of the index of logs, with terms spread as mainnet's are:
//! `cargo run --release -p neve-store --example logs -- <directory> <segments> <logs a block>`;
//! mainnet's blocks have 57 in the mean.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::path::Path;
use std::time::Instant;

use neve_store::{Criteria, Hash, Identity, Options, Part, Reader, Record, Terms};

/// Means of 668 blocks of January 2026; two thirds of a block's bytes are the block, one receipts.
const TRANSACTIONS: u64 = 31;
const PART_BYTES: usize = 104 << 10;
/// Logs of a thousand with none to four topics.
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
    for (at, term) in terms.iter_mut().enumerate().skip(1).take(topics.unwrap_or(3)) {
        let values = if at == 1 { 1 << 9 } else { 1 << 20 };
        *term = key(at as u64, random.skewed(values));
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

fn block(height: u64, logs: u64, random: &mut Random) -> Record {
    let logs = random.below(2 * logs + 1);
    Record {
        height,
        hash: hash(height << 8),
        parent: hash((height.max(1) - 1) << 8),
        transactions: (1..=TRANSACTIONS).map(|at| hash(height << 8 | at)).collect(),
        logs: (0..logs).map(|_| terms(random)).collect(),
        parts: vec![Part::uncompressed(vec![b'x'; PART_BYTES])],
        ..Record::default()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, segments, logs] = &arguments[..] else {
        return println!("which directory, how many segments, how many logs a block?");
    };
    let dir = Path::new(dir);
    write(dir, segments.parse().unwrap(), logs.parse().unwrap());
    let start = Instant::now();
    let opened = neve_store::open(dir, options()).unwrap();
    println!("opening: {:?}", start.elapsed());
    for (what, criteria) in questions() {
        for round in ["first", "again"] {
            ask(&opened.reader, what, round, &criteria);
        }
    }
}

fn options() -> Options {
    Options { disk_reserve_bytes: 0, ..Options::default() }
}

/// Fills so many segments; the last is sealed on its own, when its records are synced already.
fn write(dir: &Path, segments: usize, logs: u64) {
    let mut opened = neve_store::open(dir, options()).unwrap();
    opened.writer.bind(Identity { chain_id: 43114, genesis: Hash([1; 32]) }, 0).unwrap();
    let (mut random, mut appends, mut bases) = (Random(7), Vec::new(), Vec::new());
    let mut height = 0;
    while bases.len() < segments
        || height < bases[segments - 1] * segments as u64 / (segments as u64 - 1) - 9
    {
        let record = block(height, logs, &mut random);
        let before = opened.reader.usage().segments;
        let start = Instant::now();
        opened.writer.append(&record).unwrap();
        if opened.reader.usage().segments == before {
            appends.push(start.elapsed());
        } else {
            bases.push(height);
        }
        height += 1;
    }
    appends.sort();
    let (median, worst) = (appends[appends.len() / 2], appends[appends.len() - 1]);
    println!("heights a segment: {}; append: median {median:?}, worst {worst:?}", bases[1]);
    opened.writer.sync().unwrap();
    let start = Instant::now();
    opened.writer.seal().unwrap();
    println!("seal of {} heights: {:?}", height - bases[segments - 1], start.elapsed());
    let segment = std::fs::read(dir.join(format!("{:020}.seg", bases[0]))).unwrap();
    let length = |at: usize| u64::from_le_bytes(segment[at..at + 8].try_into().unwrap());
    println!("hash table: {} bytes, index of logs: {} bytes", length(600), length(632));
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
    let found = reader.logs(range, &Criteria::new(criteria.to_vec())).map(Result::unwrap).count();
    println!("{what}, {round}: {found} logs in {:?}", start.elapsed());
}
