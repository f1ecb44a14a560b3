//! Time to read and check a block, over the recorded Granite blocks: 31 transactions, 56 logs and
//! 102 KB of text on average. `cargo run --release -p neve-chain --example timing`

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic here is the finding")]

#[allow(dead_code, reason = "it uses a part of them")]
#[path = "../tests/support/rewrite.rs"]
mod rewrite;
#[allow(dead_code, reason = "it uses a part of them")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::{hint::black_box, time::Instant};

use neve_chain::{
    AdmittedKeys, Block, BlockFees, Checks, HeaderForm, Receipts, new_head, raw_block, raw_header,
    raw_receipts,
};
use rewrite::{Answers, granite};

fn main() {
    let lines = support::zstd_lines("c_chain/granite_75.0M-75.1M_nosig.jsonl.zst");
    let rows = lines.iter().map(|line| serde_json::from_str(line).expect("a row"));
    let blocks: Vec<Answers> = rows.map(|row| granite(&row).0).collect();
    let bytes: usize = blocks.iter().map(|b| b.block.len() + b.receipts.len()).sum();
    println!("{} blocks, {} bytes each", blocks.len(), bytes / blocks.len());
    let checks = Checks { chain_id: 43_114, senders: false, admitted: AdmittedKeys::NONE };
    time("parse block", &blocks, |b| {
        black_box(Block::parse(b.block.as_bytes()).expect("a block"));
    });
    time("parse receipts", &blocks, |b| {
        black_box(Receipts::parse(b.receipts.as_bytes()).expect("receipts"));
    });
    time("parse and check block", &blocks, |b| {
        black_box(
            Block::parse(b.block.as_bytes()).expect("a block").check(&checks).expect("whole"),
        );
    });
    time("parse and check both", &blocks, |b| {
        let block =
            Block::parse(b.block.as_bytes()).expect("a block").check(&checks).expect("whole");
        let receipts = Receipts::parse(b.receipts.as_bytes()).expect("receipts");
        black_box(receipts.check(&block).expect("whole"));
    });
    time("raw header", &blocks, |b| {
        black_box(raw_header(b.block.as_bytes()).expect("a block"));
    });
    time("raw block", &blocks, |b| {
        black_box(raw_block(b.block.as_bytes()).expect("a block"));
    });
    time("raw receipts", &blocks, |b| {
        black_box(raw_receipts(b.receipts.as_bytes()).expect("receipts"));
    });
    time("new head", &blocks, |b| {
        black_box(new_head(b.block.as_bytes(), HeaderForm::V1_15).expect("a block"));
    });
    time("fees, by limits", &blocks, |b| {
        black_box(BlockFees::from_block(b.block.as_bytes()).expect("a block"));
    });
    time("fees, by gas used", &blocks, |b| {
        let (block, receipts) = (b.block.as_bytes(), b.receipts.as_bytes());
        black_box(BlockFees::from_receipts(block, receipts).expect("both"));
    });
    time("recover senders", &blocks[..40], |b| {
        for transaction in &Block::parse(b.block.as_bytes()).expect("a block").transactions {
            black_box(transaction.recover());
        }
    });
}

/// The best of several rounds: what the machine can do, not what else it did.
fn time(name: &str, blocks: &[Answers], work: impl Fn(&Answers)) {
    let round = || {
        let start = Instant::now();
        blocks.iter().for_each(&work);
        start.elapsed()
    };
    let best = (0..7).map(|_| round()).min().expect("seven rounds");
    let each = best / u32::try_from(blocks.len()).expect("some hundreds");
    println!("{name:24} {:4} us a block", each.as_micros());
}
