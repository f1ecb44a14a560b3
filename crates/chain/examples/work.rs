//! Work whose instructions `bench-scripts/arm-instructions` counts: `work NAME TIMES`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic here is the finding")]

#[allow(dead_code, reason = "it uses a part of them")]
#[path = "../tests/support/rewrite.rs"]
mod rewrite;
#[allow(dead_code, reason = "it uses a part of them")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::{env, hint::black_box};

use alloy_primitives::keccak256;
use neve_chain::{AdmittedKeys, Block, Checks, Receipts};
use neve_keccak::keccak256_all;
use rewrite::{Answers, granite};

/// Messages of one call: as many as a block of mainnet has leaves, addresses and topics.
const MESSAGES: u8 = 128;
/// Blocks that are proven once each time.
const BLOCKS: usize = 64;

fn main() {
    let mut arguments = env::args().skip(1);
    let (name, times) = (arguments.next().expect("a name"), arguments.next().expect("a number"));
    let times: usize = times.parse().expect("a number");
    match name.as_str() {
        "keccak-one-32" => one_at_a_time(32, times),
        "keccak-all-32" => all_at_once(32, times),
        "keccak-one-600" => one_at_a_time(600, times),
        "keccak-all-600" => all_at_once(600, times),
        "prove" => prove(times),
        name => panic!("no work {name}"),
    }
}

fn messages(length: usize) -> Vec<Vec<u8>> {
    (0..MESSAGES).map(|at| vec![at; length]).collect()
}

fn one_at_a_time(length: usize, times: usize) {
    let messages = messages(length);
    for _ in 0..times {
        for message in &messages {
            black_box(keccak256(black_box(message)));
        }
    }
}

fn all_at_once(length: usize, times: usize) {
    let messages = messages(length);
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    for _ in 0..times {
        black_box(keccak256_all(black_box(&messages)));
    }
}

/// Parses recorded blocks and their receipts, and checks all hashes and roots.
fn prove(times: usize) {
    let lines = support::zstd_lines("c_chain/granite_75.0M-75.1M_nosig.jsonl.zst");
    let rows = lines.iter().take(BLOCKS).map(|line| serde_json::from_str(line).expect("a row"));
    let blocks: Vec<Answers> = rows.map(|row| granite(&row).0).collect();
    assert_eq!(blocks.len(), BLOCKS, "recorded blocks");
    let checks = Checks { chain_id: 43_114, senders: false, admitted: AdmittedKeys::NONE };
    for _ in 0..times {
        for answers in &blocks {
            let block = Block::parse(answers.block.as_bytes()).expect("a block");
            let block = block.check(&checks).expect("whole");
            let receipts = Receipts::parse(answers.receipts.as_bytes()).expect("receipts");
            black_box(receipts.check(&block).expect("whole"));
        }
    }
}
