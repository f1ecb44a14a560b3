//! Blocks are as large as their profile says: as mainnet's, and as those of a published ingest.

#![expect(clippy::cast_precision_loss, reason = "means and shares")]

use std::{fs, path::Path};

use neve_chain::{Log, ReceiptBody, Receipts};
use neve_devnet::{Chain, ChainConfig, Part, Profile, Signatures};
use neve_jsonrpc::Rules;
use serde_json::Value;

const BLOCKS: usize = 1_200;

/// Sizes of each block, ascending.
#[derive(Default)]
struct Sizes {
    transactions: Vec<usize>,
    logs: Vec<usize>,
    /// JSON of the receipts, and of the block with transactions.
    receipts: Vec<usize>,
    full: Vec<usize>,
    /// Header, body and receipts as the chain encodes them.
    encoded: Vec<usize>,
}

impl Sizes {
    fn of(profile: Profile) -> Self {
        let config =
            ChainConfig { profile, signatures: Signatures::Filler, ..ChainConfig::c_chain(1) };
        let mut sizes = Self::default();
        for block in Chain::new(config).skip(1).take(BLOCKS) {
            let full = block.answer(Part::Full, Rules::BeforeHelicon);
            let receipts = Receipts::parse(block.receipts()).unwrap();
            sizes.transactions.push(block.transactions().len());
            sizes.logs.push(receipts.logs.len());
            sizes.receipts.push(block.receipts().len());
            sizes.encoded.push(block_size(&full) + encoded(&receipts));
            sizes.full.push(full.len());
        }
        sizes.sorted()
    }

    /// Every hundredth block of a hundred thousand, without signatures.
    fn of_mainnet() -> Self {
        let file = "../chain/tests/data/mainnet/c_chain/granite_75.0M-75.1M_nosig.jsonl.zst";
        let packed = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let text = zstd::decode_all(&packed[..]).unwrap();
        let mut sizes = Self::default();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let row: Value = serde_json::from_slice(line).unwrap();
            let receipts = row["receipts"].as_array().unwrap();
            let logs = receipts.iter().map(|one| one["logs"].as_array().unwrap().len()).sum();
            sizes.transactions.push(receipts.len());
            sizes.logs.push(logs);
            sizes.receipts.push(row["receipts"].to_string().len());
        }
        sizes.sorted()
    }

    fn sorted(mut self) -> Self {
        let all = [
            &mut self.transactions,
            &mut self.logs,
            &mut self.receipts,
            &mut self.full,
            &mut self.encoded,
        ];
        all.into_iter().for_each(|values| values.sort_unstable());
        self
    }
}

/// The block's own word for it, which `neve_chain` holds against its encoding.
fn block_size(full: &[u8]) -> usize {
    let block: Value = serde_json::from_slice(full).unwrap();
    let size = block["size"].as_str().unwrap().trim_start_matches("0x");
    usize::from_str_radix(size, 16).unwrap()
}

fn encoded(receipts: &Receipts<'_>) -> usize {
    let mut out = Vec::new();
    for receipt in &receipts.receipts {
        let body = ReceiptBody {
            tx_type: u8::try_from(receipt.tx_type).unwrap(),
            succeeded: receipt.status == 1,
            cumulative_gas_used: receipt.cumulative_gas_used,
            logs_bloom: &receipt.logs_bloom,
        };
        body.encode(receipts.logs_of(receipt).iter().map(Log::body), &mut out);
    }
    out.len()
}

fn mean(values: &[usize]) -> f64 {
    values.iter().sum::<usize>() as f64 / values.len() as f64
}

fn percentile(sorted: &[usize], share: f64) -> f64 {
    #[expect(clippy::cast_sign_loss, reason = "shares are positive")]
    let at = (sorted.len() as f64 * share / 100.0) as usize;
    sorted[at.min(sorted.len() - 1)] as f64
}

#[track_caller]
fn within(what: &str, found: f64, wanted: f64, share: f64) {
    let off = (found / wanted - 1.0).abs();
    assert!(off <= share, "{what}: {found:.0}, wanted {wanted:.0} within {share}");
}

#[test]
fn the_c_chain_profile_is_as_mainnet() {
    let (made, real) = (Sizes::of(Profile::c_chain()), Sizes::of_mainnet());
    within("transactions, mean", mean(&made.transactions), mean(&real.transactions), 0.05);
    within("logs, mean", mean(&made.logs), mean(&real.logs), 0.08);
    within("receipts, mean", mean(&made.receipts), mean(&real.receipts), 0.10);
    for share in [25.0, 50.0, 75.0, 90.0, 95.0] {
        let of = |sizes: &Sizes| percentile(&sizes.logs, share);
        within(&format!("logs, p{share}"), of(&made), of(&real), 0.15);
        let of = |sizes: &Sizes| percentile(&sizes.receipts, share);
        within(&format!("receipts, p{share}"), of(&made), of(&real), 0.20);
    }
    // Of 400 mainnet blocks with random signatures filled in: 29,704 bytes without what the set lacks.
    within("block with transactions, mean", mean(&made.full), 30_700.0, 0.10);
}

/// The figures of the ingest log are those of Ethereum blocks, in the encoding of its peers.
#[test]
fn the_profile_of_many_logs_is_as_published() {
    let made = Sizes::of(Profile::many_logs());
    eprintln!("JSON, mean: {:.0} + {:.0}", mean(&made.full), mean(&made.receipts));
    within("encoded, mean", mean(&made.encoded), 273_352.0, 0.05);
    within("logs, p50", percentile(&made.logs, 50.0), 597.0, 0.05);
    within("logs, p95", percentile(&made.logs, 95.0), 1_810.0, 0.08);
    within("logs, p99", percentile(&made.logs, 99.0), 6_551.0, 0.15);
    within("logs, mean", mean(&made.logs), 797.7, 0.05);
}
