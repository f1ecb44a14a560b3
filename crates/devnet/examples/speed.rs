//! How fast blocks are made, and how large they are.
//! `cargo run --release -p neve-devnet --example speed`

use std::{hint::black_box, time::Instant};

use neve_devnet::{Chain, ChainConfig, Helicon, Part, Profile, Signatures};
use neve_jsonrpc::Rules;

const BLOCKS: usize = 3_000;

fn main() {
    let c_chain = ChainConfig::c_chain(1);
    let filler = ChainConfig { signatures: Signatures::Filler, ..c_chain.clone() };
    let helicon = ChainConfig { helicon: Helicon::FromGenesis, ..filler.clone() };
    let many_logs = ChainConfig { profile: Profile::many_logs(), ..filler.clone() };
    let start = Instant::now();
    black_box(Chain::new(c_chain.clone()));
    println!("a chain with real keys is ready after {:?}", start.elapsed());
    for (name, config) in [
        ("c_chain, filler", filler),
        ("c_chain, filler, Helicon", helicon),
        ("c_chain, real", c_chain),
        ("many_logs, filler", many_logs),
        ("small, real", ChainConfig::small(1)),
    ] {
        run(name, config);
    }
}

fn run(name: &str, config: ChainConfig) {
    let start = Instant::now();
    let (mut block, mut hashes, mut receipts, mut transactions) = (0, 0, 0, 0);
    for made in Chain::new(config).take(BLOCKS) {
        block += made.answer(Part::Full, Rules::Helicon).len();
        hashes += made.answer(Part::Hashes, Rules::Helicon).len();
        receipts += made.receipts().len();
        transactions += made.transactions().len();
    }
    let rate = BLOCKS as f64 / start.elapsed().as_secs_f64();
    let mean = |sum: usize| sum as f64 / BLOCKS as f64;
    println!(
        "{name}: {rate:.0} blocks/s; {:.1} transactions, {:.0} bytes with transactions, {:.0} with \
         hashes, {:.0} of receipts",
        mean(transactions),
        mean(block),
        mean(hashes),
        mean(receipts),
    );
}
