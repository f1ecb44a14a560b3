//! Blocks of mainnet without signatures, completed to a node's texts.
//!
//! Each line of the set is `{"block":…,"receipts":…}`. Filled in: `r` and `s` (random, `s` below
//! 2^255), parity, empty access lists and extra data, constants of Granite, random milliseconds and
//! roots. Hashes and sizes are made anew. Heights count from 0; each block is the child of the
//! block before.

use std::fmt::Write;
use std::{fs, io};

use neve_chain::{Block, raw_block, raw_transaction};
use serde_json::Value;

/// A node's texts of a height.
pub(crate) struct Filled {
    /// The `result` of `eth_getBlockByNumber(n, true)`.
    pub(crate) block: String,
    /// The `result` of `eth_getBlockReceipts(n)`.
    pub(crate) receipts: String,
}

/// Reads the lines of a set that is compressed with zstd.
pub(crate) fn read(path: &str) -> io::Result<Vec<Value>> {
    let text = zstd::decode_all(&fs::read(path)?[..])?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}

/// Completes lines one after the other.
pub(crate) struct Filler {
    random: fastrand::Rng,
    parent: String,
    height: usize,
}

impl Filler {
    pub(crate) fn new() -> Self {
        let mut random = fastrand::Rng::with_seed(28);
        let parent = random_word(&mut random);
        Self { random, parent, height: 0 }
    }

    /// Makes the next height from a line.
    pub(crate) fn next(&mut self, line: &Value) -> Filled {
        let (filled, hash) = fill_one(line, self.height, &self.parent, &mut self.random);
        self.parent = hash;
        self.height += 1;
        filled
    }
}

/// Completes all lines.
pub(crate) fn fill(lines: &[Value]) -> Vec<Filled> {
    let mut filler = Filler::new();
    lines.iter().map(|line| filler.next(line)).collect()
}

fn random_word(random: &mut fastrand::Rng) -> String {
    format!("0x{:032x}{:032x}", random.u128(..), random.u128(..))
}

const ZERO: &str = "0x0000000000000000000000000000000000000000000000000000000000000000";
const UNCLES: &str = "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347";
const EXT_DATA: &str = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421";

fn fill_one(
    line: &Value,
    height: usize,
    parent: &str,
    random: &mut fastrand::Rng,
) -> (Filled, String) {
    let block = &line["block"];
    let none = Vec::new();
    let transactions = block["transactions"].as_array().unwrap_or(&none);
    let texts: Vec<String> = transactions
        .iter()
        .enumerate()
        .map(|(at, tx)| transaction(tx, height, at, random))
        .collect();
    let hash_of = |text: &String| match raw_transaction(text.as_bytes()) {
        Ok(bytes) => alloy_primitives::keccak256(bytes).to_string(),
        Err(error) => format!("no transaction: {error}"),
    };
    let hashes: Vec<String> = texts.iter().map(hash_of).collect();
    let texts: Vec<String> =
        texts.iter().zip(&hashes).map(|(text, hash)| text.replacen(HASH, hash, 1)).collect();
    let header = header(block, height, parent, random);
    let whole = |hash: &str, size: &str| {
        let list = texts.join(",").replace(BLOCK_HASH, hash);
        header.replace(BLOCK_HASH, hash).replace(SIZE, size).replace(LIST, &list)
    };
    let draft = whole(ZERO, "0x0");
    let size = raw_block(draft.as_bytes()).map_or(0, |bytes| bytes.len());
    let hash = Block::parse(draft.as_bytes())
        .map_or_else(|error| error.to_string(), |block| block.header.hash().to_string());
    let receipts = receipts(&line["receipts"], height, &hash, &hashes);
    (Filled { block: whole(&hash, &format!("{size:#x}")), receipts }, hash)
}

const HASH: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";
const BLOCK_HASH: &str = "0x2222222222222222222222222222222222222222222222222222222222222222";
const SIZE: &str = "SIZE";
const LIST: &str = "LIST";

/// Appends members of `value` by their keys, quoted as they are; absent ones are left out.
fn copy(out: &mut String, value: &Value, keys: &[&str]) {
    for key in keys {
        if let Some(member) = value.get(key) {
            let _ = write!(out, "\"{key}\":{member},");
        }
    }
}

fn transaction(tx: &Value, height: usize, at: usize, random: &mut fastrand::Rng) -> String {
    let mut out = format!("{{\"blockHash\":\"{BLOCK_HASH}\",\"blockNumber\":\"{height:#x}\",");
    let prices = ["from", "gas", "gasPrice", "maxFeePerGas", "maxPriorityFeePerGas"];
    copy(&mut out, tx, &prices);
    let _ = write!(out, "\"hash\":\"{HASH}\",");
    copy(&mut out, tx, &["input", "nonce", "to"]);
    let _ = write!(out, "\"transactionIndex\":\"{at:#x}\",");
    copy(&mut out, tx, &["value", "type"]);
    let typed = tx["type"] != "0x0";
    if typed {
        out.push_str("\"accessList\":[],");
    }
    let parity = u64::from(random.bool());
    let v = if typed { parity } else { 35 + 2 * 43114 + parity };
    let (r, s) = (random.u128(1 << 127..), random.u128(1 << 126..1 << 127));
    let (r_low, s_low) = (random.u128(..), random.u128(..));
    let _ = write!(
        out,
        "\"chainId\":\"0xa86a\",\"v\":\"{v:#x}\",\"r\":\"{r:#x}{r_low:032x}\",\"s\":\"{s:#x}{s_low:032x}\""
    );
    if typed {
        let _ = write!(out, ",\"yParity\":\"{parity:#x}\"");
    }
    out.push('}');
    out
}

fn header(block: &Value, height: usize, parent: &str, random: &mut fastrand::Rng) -> String {
    let mut out = String::from("{");
    copy(&mut out, block, &["baseFeePerGas"]);
    out.push_str("\"blobGasUsed\":\"0x0\",\"blockExtraData\":\"0x\",");
    copy(&mut out, block, &["blockGasCost"]);
    out.push_str("\"difficulty\":\"0x1\",\"excessBlobGas\":\"0x0\",");
    copy(&mut out, block, &["extDataGasUsed"]);
    let _ = write!(out, "\"extDataHash\":\"{EXT_DATA}\",");
    copy(&mut out, block, &["extraData", "gasLimit", "gasUsed"]);
    let _ = write!(out, "\"hash\":\"{BLOCK_HASH}\",");
    copy(&mut out, block, &["logsBloom"]);
    let _ = write!(
        out,
        "\"minDelayExcess\":\"0x7a1200\",\"miner\":\"0x0100000000000000000000000000000000000000\",\
         \"mixHash\":\"{ZERO}\",\"nonce\":\"0x0000000000000000\",\"number\":\"{height:#x}\",\
         \"parentBeaconBlockRoot\":\"{ZERO}\",\"parentHash\":\"{parent}\","
    );
    copy(&mut out, block, &["receiptsRoot"]);
    let _ = write!(out, "\"sha3Uncles\":\"{UNCLES}\",\"size\":\"{SIZE}\",");
    copy(&mut out, block, &["stateRoot", "timestamp"]);
    let seconds =
        block["timestamp"].as_str().and_then(|text| u64::from_str_radix(&text[2..], 16).ok());
    let milliseconds = seconds.unwrap_or(0) * 1000 + random.u64(0..1000);
    let root = random_word(random);
    let _ = write!(
        out,
        "\"timestampMilliseconds\":\"{milliseconds:#x}\",\"totalDifficulty\":\"{height:#x}\",\
         \"transactions\":[{LIST}],\"transactionsRoot\":\"{root}\",\"uncles\":[]}}"
    );
    out
}

fn receipts(receipts: &Value, height: usize, hash: &str, hashes: &[String]) -> String {
    let none = Vec::new();
    let list = receipts.as_array().unwrap_or(&none).iter().zip(hashes).enumerate();
    let texts: Vec<String> = list
        .map(|(at, (receipt, of))| {
            let mut out = format!("{{\"blockHash\":\"{hash}\",\"blockNumber\":\"{height:#x}\",");
            let sums =
                ["contractAddress", "cumulativeGasUsed", "effectiveGasPrice", "from", "gasUsed"];
            copy(&mut out, receipt, &sums);
            let logs = receipt["logs"].as_array().unwrap_or(&none).iter();
            let logs: Vec<String> = logs.map(|one| log(one, height, hash, at, of)).collect();
            let _ = write!(out, "\"logs\":[{}],", logs.join(","));
            copy(&mut out, receipt, &["logsBloom", "status", "to"]);
            let _ = write!(out, "\"transactionHash\":\"{of}\",\"transactionIndex\":\"{at:#x}\",");
            copy(&mut out, receipt, &["type"]);
            out.pop();
            out.push('}');
            out
        })
        .collect();
    format!("[{}]", texts.join(","))
}

fn log(log: &Value, height: usize, hash: &str, at: usize, of: &str) -> String {
    let mut out = String::from("{");
    copy(&mut out, log, &["address", "topics", "data"]);
    let _ = write!(
        out,
        "\"blockNumber\":\"{height:#x}\",\"transactionHash\":\"{of}\",\"transactionIndex\":\"{at:#x}\",\
         \"blockHash\":\"{hash}\","
    );
    copy(&mut out, log, &["logIndex"]);
    out.push_str("\"removed\":false}");
    out
}
