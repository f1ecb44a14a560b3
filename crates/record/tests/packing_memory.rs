//! Memory that packing a range takes whose parts are at their bounds. Texts lie in mapped files, as in a running neve.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at its first failure")]

#[path = "../../packed/tests/support/mod.rs"]
mod support;

use std::env::{self, current_exe};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use alloy_primitives::{B256, Bloom, BloomInput};
use neve_record::packed::{Codec, PACKING_BYTES_MAX};
use neve_store::{
    Hash, Identity, Opened, Options, PackEnd, PackedBytes, PackedCodec, Record, open_with,
};
use support::{Texts, packed, recorded};

/// Allocator of neve, with its settings of .cargo/config.toml.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Step that a process of the test takes; the test itself has none.
const STEP: &str = "PACKING_MEMORY_STEP";
const STORE: &str = "store";
const PACK: &str = "pack";
/// Directory of the store that these processes share.
const DIR: &str = "PACKING_MEMORY_DIR";
const FIRST: u64 = 1024;
const LOOK_EVERY: Duration = Duration::from_micros(200);

fn store(dir: &Path) -> Opened {
    let options =
        Options { disk_reserve_bytes: 1 << 20, segment_blocks: 1024, ..Options::default() };
    open_with(dir, options, Arc::new(Codec::default())).unwrap()
}

/// Makes heights like a recorded one with a transaction, and with logs of it.
struct Maker {
    sample: Texts,
    random: fastrand::Rng,
}

/// Logs of a height.
enum Logs {
    /// Shortest logs, all alike.
    Short(usize),
    /// Logs whose words are all new, with four topics each.
    New(usize),
}

fn hash_of(height: u64) -> String {
    format!("0x{:064x}", height + (1 << 40))
}

impl Maker {
    fn new() -> Self {
        let sample = recorded("v1.15.0").swap_remove(208);
        Self { sample, random: fastrand::Rng::with_seed(11) }
    }

    fn random_bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }

    /// Replaces the height and the hashes of the block in a text of the sample.
    fn moved(&self, text: &str, height: u64) -> String {
        let block = neve_chain::Block::parse(self.sample.block.as_bytes()).unwrap();
        let number = format!("umber\":\"{:#x}\"", block.header.number);
        text.replace(&number, &format!("umber\":\"{height:#x}\""))
            .replace("ifficulty\":\"0x0\"", &format!("ifficulty\":\"{height:#x}\""))
            .replace(&block.hash.to_string(), &hash_of(height))
            .replace(&block.header.parent_hash.to_string(), &hash_of(height - 1))
    }

    fn height(&mut self, height: u64, input_bytes: usize, logs: &Logs) -> Texts {
        let mut block = self.moved(&self.sample.block, height);
        let mut receipts = self.moved(&self.sample.receipts, height);
        let mut input = vec![0; input_bytes];
        self.random.fill(&mut input);
        block = block
            .replace("\"input\":\"0x\"", &format!("\"input\":\"0x{}\"", const_hex::encode(input)));
        let parsed = neve_chain::Block::parse(block.as_bytes()).unwrap();
        let transaction = &parsed.transactions[0];
        let old = transaction.hash.to_string();
        let span = transaction.span.start as usize..transaction.span.end as usize;
        let raw = neve_chain::raw_transaction(&block.as_bytes()[span]).unwrap();
        let new = alloy_primitives::keccak256(raw).to_string();
        let ends = format!(
            "\"blockNumber\":\"{height:#x}\",\"transactionHash\":\"{new}\",\"transactionIndex\":\"0x0\",\"blockHash\":\"{}\"",
            hash_of(height),
        );
        let (list, bloom) = self.logs(logs, &ends);
        let no_bloom = Bloom::ZERO.to_string();
        block = block.replace(&old, &new);
        receipts = receipts.replace(&old, &new).replace(&no_bloom, &bloom.to_string());
        receipts = receipts.replace("\"logs\":[]", &format!("\"logs\":[{list}]"));
        Texts { block, hashes: None, receipts }
    }

    fn logs(&mut self, logs: &Logs, ends: &str) -> (String, Bloom) {
        let (mut list, mut bloom) = (String::new(), Bloom::ZERO);
        let (count, topic_count) = match logs {
            Logs::Short(count) => (*count, 0),
            Logs::New(count) => (*count, 4),
        };
        let mut address = [7; 20];
        for at in 0..count {
            let topics: Vec<B256> =
                (0..topic_count).map(|_| B256::new(self.random_bytes())).collect();
            if topic_count > 0 {
                address = self.random_bytes();
            }
            if at == 0 || topic_count > 0 {
                bloom.accrue(BloomInput::Raw(&address));
            }
            topics.iter().for_each(|topic| bloom.accrue(BloomInput::Raw(&topic[..])));
            let topics: Vec<_> = topics.iter().map(|topic| format!("\"{topic}\"")).collect();
            let comma = if at > 0 { "," } else { "" };
            let (address, topics) = (const_hex::encode(address), topics.join(","));
            write!(
                list,
                "{comma}{{\"address\":\"0x{address}\",\"topics\":[{topics}],\"data\":\"0x\",{ends},\"logIndex\":\"{at:#x}\",\"removed\":false}}",
            )
            .unwrap();
        }
        (list, bloom)
    }
}

/// Makes a height by its place in the range: some as long as texts may be, and others with as many new terms and words as
/// the indexes and the file have space for.
fn hostile(maker: &mut Maker, height: u64) -> Texts {
    match height - FIRST {
        1 => maker.height(height, 0, &Logs::Short(75_000)),
        2 => maker.height(height, 4_150_000, &Logs::New(1)),
        3 => maker.height(height, 1_000_000, &Logs::New(1)),
        _ => maker.height(height, 0, &Logs::New(90)),
    }
}

/// Makes a record of texts without a proof.
fn record(texts: &Texts, height: u64) -> Record {
    let file = PackedBytes::in_memory(packed(std::slice::from_ref(texts), 1).bytes);
    Codec::default().open(file).unwrap().record(height).unwrap()
}

/// Stores a range at its bounds.
fn store_range(dir: &Path) {
    let (mut opened, mut maker) = (store(dir), Maker::new());
    opened.writer.bind(Identity { chain_id: 43112, genesis: Hash([7; 32]) }, 1).unwrap();
    for height in FIRST..=2 * FIRST {
        let texts = hostile(&mut maker, height);
        opened.writer.append(&record(&texts, height)).unwrap();
    }
    opened.writer.sync().unwrap();
}

/// Bytes of memory without files.
fn anonymous() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
}

/// Packs the range, and measures its memory.
fn pack_range(dir: &Path) {
    let mut opened = store(dir);
    let due = opened.writer.begin_pack(2 * FIRST, 0).unwrap();
    let (before, over) = (anonymous(), AtomicBool::new(false));
    let (outcome, peak) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !over.load(Ordering::Relaxed) {
                peak = peak.max(anonymous());
                thread::park_timeout(LOOK_EVERY);
            }
            peak
        });
        let outcome = due.run(&mut || true);
        over.store(true, Ordering::Relaxed);
        (outcome, watch.join().unwrap())
    });
    let PackEnd::Packed(packed, _) = opened.writer.end_pack(outcome).unwrap() else {
        panic!("the range is packed")
    };
    println!("{packed:?}: {} MiB", (peak - before) >> 20);
    assert_eq!(packed.as_it_came, [("too_large", 2)]);
    assert!(packed.bytes > 21 << 20, "{} bytes", packed.bytes);
    assert!(peak - before < PACKING_BYTES_MAX, "{} bytes", peak - before);
}

/// Calls the test below in a process of its own, which takes one step.
fn alone(step: &str, dir: &Path) -> String {
    let done = Command::new(current_exe().unwrap())
        .args(["--exact", "packing_takes_no_more_memory_than_documented", "--nocapture"])
        .env(STEP, step)
        .env(DIR, dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && said.contains("1 passed"), "{done:?}");
    said
}

#[test]
fn packing_takes_no_more_memory_than_documented() {
    let Ok(step) = env::var(STEP) else {
        let dir = tempfile::tempdir().unwrap();
        alone(STORE, dir.path());
        println!("{}", alone(PACK, dir.path()));
        return;
    };
    let dir = PathBuf::from(env::var_os(DIR).unwrap());
    match step.as_str() {
        STORE => store_range(&dir),
        PACK => pack_range(&dir),
        _ => panic!("{STEP}={step}"),
    }
}
