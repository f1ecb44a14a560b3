//! Writes blocks of other tools in a node's form, and makes changed ones whole again.

use std::collections::{BTreeMap, HashMap};

use alloy_primitives::{B256, keccak256};
use neve_chain::{Block, Form, Transaction, encode_block, ordered_root};
use serde_json::{Value, json};

const TRANSACTION_KEYS: [&str; 20] = [
    "blockHash",
    "blockNumber",
    "from",
    "gas",
    "gasPrice",
    "maxFeePerGas",
    "maxPriorityFeePerGas",
    "hash",
    "input",
    "nonce",
    "to",
    "transactionIndex",
    "value",
    "type",
    "accessList",
    "chainId",
    "v",
    "r",
    "s",
    "yParity",
];

const LOG_KEYS: [&str; 9] = [
    "address",
    "topics",
    "data",
    "blockNumber",
    "transactionHash",
    "transactionIndex",
    "blockHash",
    "logIndex",
    "removed",
];

/// A block or receipt as a node writes it: compact, maps sorted, structs in their order.
pub(crate) fn node_text(value: &Value) -> String {
    match value {
        Value::Object(map) if map.contains_key("input") => ordered(value, &TRANSACTION_KEYS),
        Value::Object(map) if map.contains_key("topics") => ordered(value, &LOG_KEYS),
        Value::Object(map) if map.contains_key("storageKeys") => {
            ordered(value, &["address", "storageKeys"])
        }
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            braces(&sorted.into_iter().map(|(key, value)| member(key, value)).collect::<Vec<_>>())
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(node_text).collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string(),
    }
}

fn ordered(value: &Value, keys: &[&str]) -> String {
    let present = keys.iter().filter_map(|key| Some(member(key, value.get(key)?)));
    let extra =
        value.as_object().into_iter().flatten().filter(|(key, _)| !keys.contains(&key.as_str()));
    braces(&present.chain(extra.map(|(key, value)| member(key, value))).collect::<Vec<_>>())
}

fn member(key: &str, value: &Value) -> String {
    format!("\"{key}\":{}", node_text(value))
}

fn braces(members: &[String]) -> String {
    format!("{{{}}}", members.join(","))
}

/// A block and its receipts in a node's form.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    pub(crate) block: String,
    pub(crate) receipts: String,
}

/// Fills what the Granite rows lack (signatures, constants of the chain) and recomputes what hangs
/// on it: transaction hashes, transactions root, block hash. Everything that the receipts root and
/// bloom are taken of stays as recorded. Gives also the size of the block so filled.
pub(crate) fn granite(row: &Value) -> (Answers, u64) {
    let mut block = row["block"].clone();
    let zero = B256::ZERO.to_string();
    let seconds = u64::from_str_radix(&block["timestamp"].as_str().unwrap()[2..], 16).unwrap();
    for (key, value) in [
        ("blobGasUsed", "0x0"),
        ("blockExtraData", "0x"),
        ("difficulty", "0x1"),
        ("excessBlobGas", "0x0"),
        ("extDataHash", "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"),
        ("minDelayExcess", "0x799d4c"),
        ("miner", "0x0100000000000000000000000000000000000000"),
        ("mixHash", &zero),
        ("nonce", "0x0000000000000000"),
        ("parentBeaconBlockRoot", &zero),
        ("sha3Uncles", "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347"),
        ("timestampMilliseconds", &format!("{:#x}", seconds * 1000)),
        ("transactionsRoot", &zero),
    ] {
        block[key] = json!(value);
    }
    block["totalDifficulty"] = block["number"].clone();
    block["uncles"] = json!([]);
    for transaction in block["transactions"].as_array_mut().unwrap() {
        sign(transaction);
    }
    rehash(&block, &row["receipts"])
}

/// A signature that is not one, but as long as most are.
fn sign(transaction: &mut Value) {
    let seed = keccak256(transaction["hash"].as_str().unwrap());
    let part = |salt: u8| {
        let mut word = keccak256([&seed[..], &[salt]].concat());
        word[0] = word[0] % 0x60 + 0x10;
        json!(word.to_string())
    };
    (transaction["r"], transaction["s"]) = (part(0), part(1));
    if transaction["type"] == "0x0" {
        transaction["v"] = json!("0x150f7");
    } else {
        (transaction["v"], transaction["yParity"]) = (json!("0x1"), json!("0x1"));
        transaction["accessList"] = json!([]);
    }
}

/// Recomputes hashes and root of the transactions, size and hash of the block, and all links.
pub(crate) fn rehash(block: &Value, receipts: &Value) -> (Answers, u64) {
    let text = node_text(block);
    let mut parsed = Block::parse_as(text.as_bytes(), Form::Any).expect("a complete block");
    let encodings: Vec<Vec<u8>> = parsed.transactions.iter().map(encode).collect();
    let hashes = parsed.transactions.iter().zip(&encodings);
    let mut new: HashMap<String, String> =
        hashes.map(|(tx, encoding)| (digits(tx.hash), digits(keccak256(encoding)))).collect();
    parsed.header.transactions_root = ordered_root(&encodings);
    new.insert(digits(parsed.hash), digits(parsed.header.hash()));
    let ext_data = parsed.ext_data.map(|data| data.to_vec()).unwrap_or_default();
    let size = encode_block(&parsed.header.encode(), &encodings, &ext_data).len() as u64;

    let mut block = block.clone();
    block["transactionsRoot"] = json!(parsed.header.transactions_root.to_string());
    block["size"] = json!(format!("{size:#x}"));
    (answers(&block, receipts, &new), size)
}

/// Recomputes the hash of a changed header, and all links to it.
pub(crate) fn seal(block: &Value, receipts: &Value) -> Answers {
    let text = node_text(block);
    let parsed = Block::parse_as(text.as_bytes(), Form::Any).expect("a complete block");
    let new = HashMap::from([(digits(parsed.hash), digits(parsed.header.hash()))]);
    answers(block, receipts, &new)
}

fn answers(block: &Value, receipts: &Value, new: &HashMap<String, String>) -> Answers {
    Answers { block: replace(&node_text(block), new), receipts: replace(&node_text(receipts), new) }
}

fn encode(transaction: &Transaction<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    transaction.encode(&mut out);
    out
}

fn digits(hash: B256) -> String {
    hash.to_string().split_off(2)
}

/// Replaces hashes wherever they stand.
fn replace(text: &str, new: &HashMap<String, String>) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("0x");
        match part.get(..64).and_then(|hash| new.get(hash)) {
            Some(hash) => out.extend([hash, &part[64..]]),
            None => out.push_str(part),
        }
    }
    out
}
