//! Good blocks with one thing changed: each change is refused, for the reason that names it.
//!
//! Where a change is *accepted*, the test says so and why: those are the parts of an answer that
//! nothing binds, or that only something outside of the block binds.
//! This file changes transactions.

use neve_chain::{Block, Checks, Receipts};
use serde_json::{Value, json};

use crate::rewrite::{rehash, seal};
use crate::sample::{CHECKS, Sample, altered, keys, reason};

/// Every member of every transaction.
#[test]
fn members_of_transactions() {
    let mut types = [0; 3];
    for sample in Sample::all() {
        for index in 0..sample.block["transactions"].as_array().unwrap().len().min(6) {
            let transaction = &sample.block["transactions"][index];
            types[usize::from(transaction["type"].as_str().unwrap().as_bytes()[2] - b'0')] += 1;
            for key in keys(transaction) {
                let mut changed = sample.clone();
                let value = &mut changed.transactions()[index][&key];
                *value = match &key[..] {
                    "accessList" => json!([]),
                    "type" => json!("0x3"),
                    _ => altered(value),
                };
                if key == "accessList" && changed.block == sample.block {
                    changed.transactions()[index]["accessList"] =
                        json!([{"address": transaction["from"], "storageKeys": []}]);
                }
                let found = changed.reason();
                let expected = transaction_reasons(&key, transaction);
                assert!(expected.contains(&found), "{key} of {transaction}: {found}");
            }
        }
    }
    assert!(types.iter().all(|count| *count > 10), "{types:?}");
}

fn transaction_reasons(key: &str, transaction: &Value) -> &'static [&'static str] {
    let legacy = transaction["type"] == "0x0";
    match key {
        "blockHash" | "blockNumber" | "transactionIndex" => &["transaction_link"],
        "from" => &["sender"],
        "type" => &["transaction_type"],
        "gasPrice" if transaction["type"] == "0x2" => &["gas_price"],
        // Perhaps the shown price follows from it.
        "maxFeePerGas" | "maxPriorityFeePerGas" => &["transaction_hash", "gas_price"],
        "chainId" if legacy => &["transaction_form"],
        "chainId" => &["chain_id"],
        // The last bit of a legacy one is the parity, unless it was the last of a chain id.
        "v" if legacy => &["transaction_hash", "transaction_form"],
        "v" | "yParity" => &["transaction_form"],
        "hash" | "gas" | "gasPrice" | "input" | "nonce" | "to" | "value" | "accessList" | "r"
        | "s" => &["transaction_hash"],
        key => panic!("{key}"),
    }
}

/// A transaction that hashes to another hash, all links being right, is not the header's.
#[test]
fn exchanged_transactions() {
    for sample in Sample::all() {
        if sample.block["transactions"] == json!([]) {
            continue;
        }
        let mut changed = sample.clone();
        let value = &mut changed.transactions()[0]["value"];
        *value = altered(value);
        let root = sample.block["transactionsRoot"].clone();
        let (answers, _) = rehash(&changed.block, &changed.receipts);
        let mut block: Value = serde_json::from_str(&answers.block).unwrap();
        block["transactionsRoot"] = root;
        let receipts = serde_json::from_str(&answers.receipts).unwrap();
        assert_eq!(reason(&seal(&block, &receipts)), "transactions_root");
        // With another header around it the signature is still another's.
        assert_eq!(reason(&answers), "sender");
    }
}

/// Members that belong to another type would be served unproven.
#[test]
fn members_of_other_types() {
    let mut changes = 0;
    for sample in Sample::all() {
        for index in 0..sample.block["transactions"].as_array().unwrap().len().min(6) {
            for (key, value) in [
                ("maxFeePerGas", json!("0x1")),
                ("maxPriorityFeePerGas", json!("0x1")),
                ("accessList", json!([])),
                ("chainId", json!("0xa868")),
                ("yParity", json!("0x0")),
            ] {
                let mut changed = sample.clone();
                let transaction = &mut changed.transactions()[index];
                if transaction.get(key).is_some() {
                    transaction.as_object_mut().unwrap().remove(key);
                } else {
                    transaction[key] = value;
                }
                assert_eq!(changed.reason(), "transaction_form", "{key} of {}", changed.block);
                changes += 1;
            }
        }
    }
    assert!(changes > 500);
}

/// Lists with an item too few, twice, or in another place.
#[test]
fn lists_of_transactions_and_receipts() {
    let mut reordered = 0;
    for sample in Sample::all() {
        let count = sample.block["transactions"].as_array().unwrap().len();
        if count == 0 {
            continue;
        }
        let mut fewer = sample.clone();
        fewer.transactions().pop();
        assert_eq!(fewer.reason(), "transactions_root");
        let mut twice = sample.clone();
        let last = twice.transactions()[count - 1].clone();
        twice.transactions().push(last);
        assert_eq!(twice.reason(), "transaction_link", "its index is wrong");
        let index = json!(format!("{count:#x}"));
        twice.transactions()[count]["transactionIndex"] = index;
        assert_eq!(twice.reason(), "transactions_root");

        let mut fewer = sample.clone();
        fewer.receipts().pop();
        assert_eq!(fewer.reason(), "receipt_count");
        let mut twice = sample.clone();
        let last = twice.receipts()[count - 1].clone();
        twice.receipts().push(last);
        assert_eq!(twice.reason(), "receipt_count");

        if count > 1 {
            let mut swapped = sample.clone();
            swapped.receipts().swap(0, 1);
            assert_eq!(swapped.reason(), "receipt_link");
            let mut swapped = sample.clone();
            swapped.transactions().swap(0, 1);
            assert_eq!(swapped.reason(), "transaction_link");
            swapped.transactions()[0]["transactionIndex"] = json!("0x0");
            swapped.transactions()[1]["transactionIndex"] = json!("0x1");
            assert_eq!(swapped.reason(), "transactions_root");
            reordered += 1;
        }
    }
    assert!(reordered > 20);
}

/// Without recovery nothing binds the sender, if the receipt and a created contract lie alike.
#[test]
fn senders_are_bound_by_signatures_alone() {
    let sample = Sample::all().into_iter().find(|sample| {
        let receipts = sample.receipts.as_array().unwrap();
        !receipts.is_empty() && receipts[0]["contractAddress"].is_null()
    });
    let mut changed = sample.unwrap();
    let stranger = json!("0x1111111111111111111111111111111111111111");
    changed.transactions()[0]["from"] = stranger.clone();
    changed.receipts()[0]["from"] = stranger;
    let answers = changed.answers();
    assert_eq!(reason(&answers), "sender");
    let checks = Checks { senders: false, ..CHECKS };
    let block = Block::parse(answers.block.as_bytes()).unwrap().check(&checks).unwrap();
    assert!(Receipts::parse(answers.receipts.as_bytes()).unwrap().check(&block).is_ok());
}

/// A signature's other form recovers to the same sender, and makes another hash (EIP-2).
#[test]
fn other_forms_of_signatures() {
    let order = alloy_primitives::U256::from_str_radix(
        "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
        16,
    );
    let order = order.unwrap();
    let mut found = 0;
    for sample in Sample::all() {
        let transactions = sample.block["transactions"].as_array().unwrap();
        let Some(index) = transactions.iter().position(|tx| tx["type"] == "0x2") else { continue };
        let mut changed = sample.clone();
        let transaction = &mut changed.transactions()[index];
        let s: alloy_primitives::U256 = transaction["s"].as_str().unwrap().parse().unwrap();
        transaction["s"] = json!(format!("{:#x}", order - s));
        transaction["v"] = altered(&transaction["v"]);
        transaction["yParity"] = transaction["v"].clone();
        assert_eq!(changed.reason(), "transaction_hash");
        let (answers, _) = rehash(&changed.block, &changed.receipts);
        assert_eq!(reason(&answers), "sender");
        found += 1;
    }
    assert!(found > 20);
}
