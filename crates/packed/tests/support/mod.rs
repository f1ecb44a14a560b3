//! Recorded blocks, and the comparison of a packed file with them.

#![allow(dead_code, reason = "the tests of `crates/record` use a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

pub(crate) mod forge;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::{fs, io::Read};

use neve_chain::{Block, Receipts};
use neve_packed::{
    B256, HeightTexts, Identity, LogOut, PackedFile, Packing, TotalDifficulty, pack, term,
};
use serde_json::{Value, value::RawValue};

/// A node's texts of a height.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    pub(crate) block: String,
    pub(crate) hashes: Option<String>,
    pub(crate) receipts: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn recorded(corpus: &str) -> Vec<Texts> {
    let bytes = fs::read(root().join("tests/corpus").join(corpus).join("blocks.jsonl.gz")).unwrap();
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    let mut heights: BTreeMap<u64, Texts> = BTreeMap::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let mut name = row["name"].as_str().unwrap().split('/').skip(1);
        let height = heights.entry(name.next().unwrap().parse().unwrap()).or_default();
        let response: BTreeMap<&str, &RawValue> =
            serde_json::from_str(row["response_body"].as_str().unwrap()).unwrap();
        let result = response["result"].get().to_owned();
        match name.next().unwrap() {
            "full" => height.block = result,
            "hashes" => height.hashes = Some(result),
            "receipts" => height.receipts = result,
            _ => {}
        }
    }
    heights.into_values().collect()
}

pub(crate) const IDENTITY: Identity = Identity { chain_id: 43112, genesis: B256::repeat_byte(7) };

pub(crate) fn packed(texts: &[Texts], range: u32) -> Packing {
    let heights: Vec<_> = texts.iter().map(Texts::as_heights).collect();
    pack(IDENTITY, range, &heights, &mut || ControlFlow::Continue(())).unwrap()
}

impl Texts {
    pub(crate) fn as_heights(&self) -> HeightTexts<'_> {
        HeightTexts { block: self.block.as_bytes(), receipts: self.receipts.as_bytes() }
    }

    pub(crate) fn total(&self) -> TotalDifficulty {
        let zero = self.block.contains("\"totalDifficulty\":\"0x0\"");
        if zero { TotalDifficulty::Zero } else { TotalDifficulty::Number }
    }
}

/// Reads everything that is there; `None` if any of it is refused.
pub(crate) fn read_all(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let file = PackedFile::open(bytes).ok()?;
    let mut texts = Vec::new();
    for number in file.heights() {
        let height = file.height(number).ok()?;
        let mut out = Vec::new();
        height.block(TotalDifficulty::Zero, &mut out).ok()?;
        height.block_with_hashes(TotalDifficulty::Zero, &mut out).ok()?;
        height.header(TotalDifficulty::Zero, &mut out).ok()?;
        height.receipts(&mut out).ok()?;
        for at in 0..height.counts().ok()?.0 {
            height.receipt(at, &mut out).ok()?;
            height.transaction(at, &mut out).ok()?;
            file.find(&height.transaction_hash(at).ok()??).ok()??;
        }
        let mut logs = LogOut::default();
        height.logs(|_, _| true, &mut logs).ok()?;
        out.extend(logs.text);
        texts.push(out);
    }
    Some(texts)
}

fn same(found: &[u8], expected: &[u8], what: &str) {
    let [found, expected] = [found, expected].map(String::from_utf8_lossy);
    assert!(found == expected, "{what}\n found {found}\nexpected {expected}");
}

/// Reads all texts of all heights and compares them.
pub(crate) fn check(file: &[u8], texts: &[Texts]) {
    check_every(file, texts, 1);
}

/// Reads all texts of each `every`th height and compares them.
pub(crate) fn check_every(file: &[u8], texts: &[Texts], every: usize) {
    let file = PackedFile::open(file).unwrap();
    file.check().unwrap();
    assert_eq!(file.heights().count(), texts.len());
    for (height, texts) in file.heights().zip(texts).step_by(every) {
        check_height(&file, height, texts);
    }
}

fn check_height(file: &PackedFile<&[u8]>, number: u64, texts: &Texts) {
    let height = file.height(number).unwrap();
    let block = Block::parse(texts.block.as_bytes()).unwrap();
    let receipts = Receipts::parse(texts.receipts.as_bytes()).unwrap();
    assert_eq!((height.hash(), height.parent()), (block.hash, block.header.parent_hash));
    let counts = (block.transactions.len(), receipts.logs.len());
    assert_eq!(height.counts().unwrap(), counts, "{number}");
    let total = texts.total();
    let mut out = Vec::new();
    height.block(total, &mut out).unwrap();
    same(&out, texts.block.as_bytes(), "block");
    if let Some(hashes) = &texts.hashes {
        out.clear();
        height.block_with_hashes(total, &mut out).unwrap();
        same(&out, hashes.as_bytes(), "hashes");
    }
    out.clear();
    height.receipts(&mut out).unwrap();
    same(&out, texts.receipts.as_bytes(), "receipts");
    out.clear();
    height.header(total, &mut out).unwrap();
    let header: Value = serde_json::from_slice(&out).unwrap();
    let mut expected: Value = serde_json::from_str(&texts.block).unwrap();
    for key in ["blockExtraData", "size", "transactions", "uncles"] {
        expected.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(header, expected);
    for (at, transaction) in block.transactions.iter().enumerate() {
        let span = transaction.span.start as usize..transaction.span.end as usize;
        out.clear();
        assert!(height.transaction(at, &mut out).unwrap());
        same(&out, &texts.block.as_bytes()[span], "transaction");
        assert_eq!(height.transaction_hash(at).unwrap(), Some(transaction.hash));
        let span = &receipts.receipts[at].span;
        out.clear();
        assert!(height.receipt(at, &mut out).unwrap());
        same(&out, &texts.receipts.as_bytes()[span.start as usize..span.end as usize], "receipt");
    }
    assert!(!height.transaction(block.transactions.len(), &mut out).unwrap());
    assert!(!height.receipt(block.transactions.len(), &mut out).unwrap());
    assert_eq!(height.transaction_hash(block.transactions.len()).unwrap(), None);
    check_logs(file, number, texts, &receipts);
}

fn check_logs(file: &PackedFile<&[u8]>, number: u64, texts: &Texts, receipts: &Receipts<'_>) {
    let height = file.height(number).unwrap();
    let mut all = LogOut::default();
    height.logs(|_, _| true, &mut all).unwrap();
    assert_eq!(all.found.len(), receipts.logs.len());
    for ((range, index), log) in all.found.iter().zip(&receipts.logs) {
        let span = log.span.start as usize..log.span.end as usize;
        same(&all.text[range.clone()], &texts.receipts.as_bytes()[span], "log");
        let terms = log.topics.iter().zip(1..).map(|(topic, at)| term(at, &topic[..]));
        for term in terms.chain([term(0, &log.address[..])]) {
            assert!(file.heights_of_term(term).unwrap().contains(&number));
        }
        let mut some = LogOut::default();
        let (address, topics) = (log.address.0.0, log.topics.iter().map(|topic| topic.0));
        let topics: Vec<[u8; 32]> = topics.collect();
        height.logs(|of, with| *of == address && *with == topics[..], &mut some).unwrap();
        assert!(some.found.iter().any(|(_, found)| found == index));
        assert!(some.found.len() <= all.found.len());
    }
}

/// Puts `value` in the place of the first member `key` of a text.
pub(crate) fn set(text: &mut String, key: &str, value: &str) {
    let start = text.find(&format!("\"{key}\":\"")).unwrap() + key.len() + 4;
    let end = start + text[start..].find('"').unwrap();
    text.replace_range(start..end, value);
}

/// Makes a block with `count` transactions of random input, each like the first one of `one`, which
/// has no logs.
pub(crate) fn with_long_inputs(one: &Texts, count: usize, input_bytes: usize) -> Texts {
    let mut random = fastrand::Rng::with_seed(7);
    let block = Block::parse(one.block.as_bytes()).unwrap();
    let receipts = Receipts::parse(one.receipts.as_bytes()).unwrap();
    let part = |text: &str, span: &std::ops::Range<u32>| {
        text[span.start as usize..span.end as usize].to_owned()
    };
    let (of_block, of_receipts) = (&block.transactions[0], &receipts.receipts[0]);
    let (mut transactions, mut list) = (Vec::new(), Vec::new());
    for at in 0..count {
        let mut transaction = part(&one.block, &of_block.span);
        let mut input = vec![0; input_bytes];
        random.fill(&mut input);
        set(&mut transaction, "input", &const_hex::encode_prefixed(input));
        set(&mut transaction, "nonce", &format!("{at:#x}"));
        set(&mut transaction, "transactionIndex", &format!("{at:#x}"));
        let raw = neve_chain::raw_transaction(transaction.as_bytes()).unwrap();
        let hash = alloy_primitives::keccak256(raw).to_string();
        set(&mut transaction, "hash", &hash);
        let mut receipt = part(&one.receipts, &of_receipts.span);
        let gas = of_receipts.gas_used * (at as u64 + 1);
        set(&mut receipt, "cumulativeGasUsed", &format!("{gas:#x}"));
        set(&mut receipt, "transactionHash", &hash);
        set(&mut receipt, "transactionIndex", &format!("{at:#x}"));
        transactions.push(transaction);
        list.push(receipt);
    }
    let inside = &block.layout.transactions_inside;
    let mut made = Texts::default();
    made.block.push_str(&one.block[..inside.start as usize]);
    made.block.push_str(&transactions.join(","));
    made.block.push_str(&one.block[inside.end as usize..]);
    made.receipts = format!("[{}]", list.join(","));
    made
}
