//! Blocks of mainnet's size, and stores of them, for the benchmarks.

#![forbid(unsafe_code)]
#![expect(clippy::missing_panics_doc, reason = "a benchmark without its data ends")]

use neve_chain::{AdmittedKeys, Checks};
use neve_devnet::{Chain, ChainConfig, Helicon, Part, Signatures};
use neve_jsonrpc::{LogFilter, Rules};
use neve_record::assemble::assemble;
use neve_record::parts::RECEIPTS;
use neve_store::{Hash, Identity, Opened, Options, Record};

/// Texts of an upstream about a height.
pub struct Block {
    /// The answer of `eth_getBlockByNumber`, with whole transactions.
    pub text: Vec<u8>,
    /// The answer of `eth_getBlockReceipts`.
    pub receipts: Vec<u8>,
}

/// The first blocks of a chain that is the same each time.
pub fn blocks(count: usize) -> Vec<Block> {
    let config = ChainConfig::c_chain(1);
    let config =
        ChainConfig { signatures: Signatures::Filler, helicon: Helicon::FromGenesis, ..config };
    let mut chain = Chain::new(config);
    (0..count)
        .map(|_| {
            let block = chain.next_block();
            let text = block.answer(Part::Full, Rules::Helicon);
            Block { text, receipts: block.receipts().to_vec() }
        })
        .collect()
}

const CHECKS: Checks = Checks { chain_id: 43_112, senders: false, admitted: AdmittedKeys::NONE };

/// Makes the stored records of blocks.
pub fn records(blocks: &[Block]) -> Vec<Record> {
    let record = |block: &Block| assemble(&block.text, &block.receipts, &CHECKS);
    blocks.iter().map(|block| record(block).expect("devnet's blocks check out").record).collect()
}

/// An empty store.
pub fn store(dir: &tempfile::TempDir) -> Opened {
    let options = Options { disk_reserve_bytes: 0, ..Options::default() };
    let mut opened = neve_store::open(dir.path(), options).expect("a fresh directory");
    let identity = Identity { chain_id: 43_112, genesis: Hash([1; 32]) };
    opened.writer.bind(identity, 1).expect("nothing is bound yet");
    opened
}

/// A store with these records.
pub fn filled(dir: &tempfile::TempDir, records: &[Record]) -> Opened {
    let mut opened = store(dir);
    records.iter().for_each(|record| opened.writer.append(record).expect("it is the next one"));
    opened
}

/// A filter for an address that has logs in the middle of the chain.
pub fn filter(records: &[Record]) -> LogFilter {
    let logs = |record: &Record| {
        let receipts: serde_json::Value =
            serde_json::from_slice(&record.parts[RECEIPTS].bytes).expect("receipts are JSON");
        let receipts = receipts.as_array()?;
        let mut logs = receipts.iter().filter_map(|receipt| receipt["logs"].as_array());
        logs.find_map(|logs| logs.first().cloned())
    };
    let log =
        records[records.len() / 2..].iter().find_map(logs).expect("mainnet's blocks have logs");
    let address = log["address"].as_str().expect("an address is text");
    let address: alloy_primitives::Address = address.parse().expect("it is one");
    LogFilter { addresses: vec![address.into()], topics: Vec::new() }
}
