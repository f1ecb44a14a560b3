//! Raw forms against those that nodes gave: `debug_getRaw…` and `eth_getRawTransaction…`.

use std::collections::BTreeMap;

use alloy_primitives::{hex, keccak256};
use neve_chain::{Block, ProofError, raw_block, raw_header, raw_receipts, raw_transaction};
use serde_json::Value;

use crate::support::{CORPORA, Height, chain, recorded, result, rows};

/// A transaction's object as the node shows it, by whatever a request may name it.
fn transactions(chain: &[Height]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for height in chain {
        let block = Block::parse(height.full.as_bytes()).unwrap();
        for (index, tx) in block.transactions.iter().enumerate() {
            let text = &height.full[tx.span.start as usize..tx.span.end as usize];
            let number = format!("{:#x} {index:#x}", block.header.number);
            for key in [tx.hash.to_string(), number, format!("{} {index:#x}", block.hash)] {
                found.insert(key, text.to_owned());
            }
        }
    }
    found
}

/// The block that a parameter names, unless it is a tag.
fn find<'c>(chain: &'c [Height], reference: &str) -> Option<&'c Height> {
    let by_hash = |height: &&Height| height.full.contains(&format!("\"hash\":\"{reference}\",\"l"));
    if reference.len() == 66 {
        return chain.iter().find(by_hash);
    }
    let number = usize::from_str_radix(reference.strip_prefix("0x")?, 16).ok()?;
    chain.get(number)
}

/// Every block and all receipts of all chains.
#[test]
fn blocks_and_receipts_are_the_nodes() {
    let (mut blocks, mut receipts) = (0, 0);
    for corpus in CORPORA {
        for height in chain(corpus) {
            let block = raw_block(height.full.as_bytes()).unwrap();
            assert_eq!(hex::encode_prefixed(&block), height.raw);
            let encodings = raw_receipts(height.receipts.as_bytes()).unwrap();
            let found: Vec<_> = encodings.iter().map(hex::encode_prefixed).collect();
            assert_eq!(found, height.raw_receipts);
            blocks += 1;
            receipts += found.len();
        }
    }
    assert_eq!((blocks, receipts), (1123, 4887));
}

/// The header is the first item of the block, whichever answer it is read from.
#[test]
fn headers_hash_to_their_block() {
    for corpus in CORPORA {
        for height in chain(corpus) {
            let header = raw_header(height.full.as_bytes()).unwrap();
            let hash = Block::parse(height.full.as_bytes()).unwrap().hash;
            assert_eq!(keccak256(&header), hash);
            assert_eq!(raw_header(height.hashes.as_bytes()).unwrap(), header);
        }
    }
    let mut headers = 0;
    for corpus in CORPORA {
        for row in rows(corpus, "methods.jsonl.gz") {
            let Some(text) = result(&row.response) else { continue };
            if row.rpc.starts_with("eth_getHeaderBy") && !text.contains("null") {
                let hash = serde_json::from_str::<Value>(text).unwrap()["hash"].clone();
                assert_eq!(keccak256(raw_header(text.as_bytes()).unwrap()).to_string(), hash);
                headers += 1;
            }
        }
    }
    assert_eq!(headers, 580);
}

/// Answers to the `debug_` methods for headers and transactions.
#[test]
fn recorded_headers_and_transactions() {
    let chains: BTreeMap<&str, Vec<Height>> =
        CORPORA.into_iter().map(|corpus| (corpus, chain(corpus))).collect();
    let by_key: BTreeMap<&str, BTreeMap<String, String>> =
        chains.iter().map(|(corpus, chain)| (*corpus, transactions(chain))).collect();
    let mut found = BTreeMap::<String, usize>::new();
    for row in recorded("raw.jsonl.zst") {
        let text = |member: &str| row[member].as_str().unwrap().to_owned();
        let (corpus, rpc, expected) = (text("from"), text("rpc"), text("result"));
        let reference = row["params"][0].as_str().unwrap_or_default();
        let raw = if rpc == "debug_getRawHeader" {
            let height = find(&chains[&corpus[..]], reference);
            height.map(|height| raw_header(height.full.as_bytes()).unwrap())
        } else {
            let object = by_key[&corpus[..]].get(reference);
            object.map(|object| raw_transaction(object.as_bytes()).unwrap())
        };
        if let Some(raw) = raw {
            assert_eq!(hex::encode_prefixed(raw), expected, "{row}");
            *found.entry(rpc).or_default() += 1;
        }
    }
    assert_eq!((found["debug_getRawHeader"], found["debug_getRawTransaction"]), (279, 200));
}

/// Every recorded answer to `eth_getRawTransaction…`, and the types among them.
#[test]
fn recorded_raw_transactions() {
    let (mut found, mut types) = (0, [0; 3]);
    for corpus in CORPORA {
        let chain = chain(corpus);
        let transactions = transactions(&chain);
        for row in rows(corpus, "methods.jsonl.gz") {
            let Some(expected) = result(&row.response) else { continue };
            if !row.rpc.starts_with("eth_getRawTransaction") || expected == "\"0x\"" {
                continue;
            }
            let request: Value = serde_json::from_str(&row.request).unwrap();
            let params: Vec<_> =
                request["params"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let Some(object) = transactions.get(&params.join(" ")) else { continue };
            let raw = raw_transaction(object.as_bytes()).unwrap();
            assert_eq!(format!("\"{}\"", hex::encode_prefixed(&raw)), expected);
            let legacy = raw[0] >= 0xc0;
            types[if legacy { 0 } else { usize::from(raw[0]) }] += 1;
            found += 1;
        }
    }
    assert_eq!((found, types), (1181, [555, 380, 246]));
}

/// Pending answers and those of nodes with zero total difficulty are refused or read, never more.
#[test]
fn other_answers_do_no_harm() {
    let height = &chain("v1.14.2/main")[31];
    let hash = Block::parse(height.full.as_bytes()).unwrap().hash;
    let zero = height.full.replace("\"totalDifficulty\":\"0x1f\"", "\"totalDifficulty\":\"0x0\"");
    assert_ne!(zero, height.full);
    assert_eq!(hex::encode_prefixed(raw_block(zero.as_bytes()).unwrap()), height.raw);
    let pending = height.full.replace(&format!("\"hash\":\"{hash}\""), "\"hash\":null");
    for refused in [raw_block(pending.as_bytes()), raw_header(pending.as_bytes())] {
        assert_eq!(refused.unwrap_err().reason(), "json");
    }
    for text in ["null", "{}", "[]", ""] {
        assert!(raw_block(text.as_bytes()).is_err());
        assert!(raw_header(text.as_bytes()).is_err());
        assert!(raw_transaction(text.as_bytes()).is_err());
        assert_eq!(raw_receipts(text.as_bytes()).is_ok(), text == "[]");
    }
}

/// Refuses a block without an encoding.
#[test]
fn receipts_of_no_known_kind_are_refused() {
    let receipts = &chain("v1.14.2/main")[31].receipts;
    let other = |from: &str, to: &str| {
        let changed = receipts.replacen(from, to, 1);
        assert_ne!(&changed, receipts);
        raw_receipts(changed.as_bytes()).unwrap_err()
    };
    let status = other("\"status\":\"0x1\"", "\"status\":\"0x2\"");
    assert_eq!(status, ProofError::Status { index: 0, found: 2 });
    let kind = other("\"type\":\"0x", "\"type\":\"0x10");
    assert_eq!(kind.reason(), "transaction_type");
}
