//! Good blocks with one thing changed: each change is refused, for the reason that names it.
//!
//! Where a change is *accepted*, the test says so and why: those are the parts of an answer that
//! nothing binds, or that only something outside of the block binds.
//! This file changes receipts and logs.

use serde_json::{Value, json};

use crate::sample::{ACCEPTED, Sample, altered, keys, zero_hash};

/// Every member of every receipt.
#[test]
fn members_of_receipts() {
    for sample in Sample::all() {
        for index in 0..sample.receipts.as_array().unwrap().len().min(6) {
            for key in keys(&sample.receipts[index]) {
                let mut changed = sample.clone();
                let value = &mut changed.receipts()[index][&key];
                if key == "logs" {
                    continue;
                }
                *value = altered(value);
                let expected = match &key[..] {
                    "blockHash" | "blockNumber" | "from" | "to" | "transactionHash"
                    | "transactionIndex" | "type" => "receipt_link",
                    "contractAddress" => "contract_address",
                    "cumulativeGasUsed" => "cumulative_gas",
                    "effectiveGasPrice" => "effective_gas_price",
                    "logsBloom" => "receipt_bloom",
                    // Only a settling header tells: see `a_lie_about_a_receipt_is_found`.
                    "status" => sample.by_fork("receipts_root", ACCEPTED),
                    "gasUsed" => {
                        let found = changed.reason();
                        assert!(["cumulative_gas", "receipt_gas"].contains(&found), "{found}");
                        continue;
                    }
                    key => panic!("{key}"),
                };
                let found = changed.reason();
                if key == "effectiveGasPrice" && sample.is_asynchronous() {
                    // The base fee charged is in no answer, and the price in no encoding. Prices of
                    // a block must agree on one base fee, but a lone transaction can pretend any
                    // up to the header's bound.
                    assert!([expected, ACCEPTED].contains(&found), "{found}");
                } else {
                    assert_eq!(found, expected, "{key}");
                }
            }
            let mut changed = sample.clone();
            changed.receipts()[index]["status"] = json!("0x2");
            assert_eq!(changed.reason(), "status");
        }
    }
}

/// Gas that runs rightly, but to another sum.
#[test]
fn gas_of_receipts() {
    for sample in Sample::all() {
        let Some(last) = sample.receipts.as_array().unwrap().len().checked_sub(1) else { continue };
        let transaction = &sample.block["transactions"][last];
        let mut changed = sample.clone();
        let more = |value: &Value, by: i64| {
            let gas = i64::from_str_radix(&value.as_str().unwrap()[2..], 16).unwrap();
            json!(format!("{:#x}", gas + by))
        };
        let receipt = &mut changed.receipts()[last];
        let by = if receipt["gasUsed"] == transaction["gas"] { -1 } else { 1 };
        receipt["gasUsed"] = more(&receipt["gasUsed"], by);
        receipt["cumulativeGasUsed"] = more(&receipt["cumulativeGasUsed"], by);
        // Only a settling header tells.
        assert_eq!(changed.reason(), sample.by_fork("gas_used", ACCEPTED));

        // But it charges at least half of the limit, and never more than it.
        let receipt = &mut changed.receipts()[last];
        receipt["gasUsed"] = more(&transaction["gas"], 1);
        assert_eq!(changed.reason(), "receipt_gas");
        changed.receipts()[last]["gasUsed"] = json!("0x2");
        assert_eq!(changed.reason(), sample.by_fork("cumulative_gas", "receipt_gas"));
    }
}

/// Every member of every log.
#[test]
fn members_of_logs() {
    let mut logs = 0;
    for sample in Sample::all() {
        for receipt in 0..sample.receipts.as_array().unwrap().len().min(6) {
            for log in 0..sample.receipts[receipt]["logs"].as_array().unwrap().len().min(6) {
                for key in keys(&sample.receipts[receipt]["logs"][log]) {
                    let mut changed = sample.clone();
                    let value = &mut changed.receipts()[receipt]["logs"][log][&key];
                    let expected = match &key[..] {
                        "blockHash" | "blockNumber" | "transactionHash" | "transactionIndex"
                        | "logIndex" | "removed" => "log_link",
                        "address" => "receipt_bloom",
                        // Only a settling header tells: data is in no bloom.
                        "data" => sample.by_fork("receipts_root", ACCEPTED),
                        "topics" => {
                            alter_topics(value);
                            assert_eq!(changed.reason(), "receipt_bloom");
                            continue;
                        }
                        key => panic!("{key}"),
                    };
                    *value = altered(value);
                    assert_eq!(changed.reason(), expected, "{key}");
                }
                logs += 1;
            }
        }
    }
    assert!(logs > 200);
}

/// Data that the gas limit just buys, and a byte more. The block's hash binds the limit.
#[test]
fn data_of_logs_costs_gas() {
    let (mut logs, no_data) = (0, json!("0x"));
    for sample in Sample::all() {
        let receipts = sample.receipts.as_array().unwrap();
        let with_logs = receipts.iter().position(|receipt| receipt["logs"] != json!([]));
        let Some(receipt) = with_logs else { continue };
        let limit = sample.block["transactions"][receipt]["gas"].as_str().unwrap();
        let limit = u64::from_str_radix(&limit[2..], 16).unwrap();
        let mut changed = sample.clone();
        let list = changed.receipts()[receipt]["logs"].as_array_mut().unwrap();
        let mut spent = 0;
        for log in list.iter_mut() {
            log["data"] = no_data.clone();
            spent += 375 * (1 + log["topics"].as_array().unwrap().len() as u64);
        }
        for (more, asynchronous) in [(0, ACCEPTED), (1, "log_gas")] {
            let bytes = (limit - spent) / 8 + more;
            let data = format!("0x{}", "00".repeat(bytes as usize));
            changed.receipts()[receipt]["logs"][0]["data"] = json!(data);
            assert_eq!(changed.reason(), sample.by_fork("receipts_root", asynchronous));
        }
        logs += usize::from(sample.is_asynchronous());
    }
    assert!(logs > 10, "{logs}");
}

fn alter_topics(topics: &mut Value) {
    let topics = topics.as_array_mut().unwrap();
    match topics.first_mut() {
        Some(topic) => *topic = altered(topic),
        None => topics.push(json!(alloy_primitives::B256::repeat_byte(7).to_string())),
    }
}

/// Logs left out, twice, exchanged; a fifth topic.
#[test]
fn lists_of_logs() {
    let (mut moved, mut dropped) = (0, 0);
    for sample in Sample::all() {
        let receipts = sample.receipts.as_array().unwrap();
        let with_logs = receipts.iter().rposition(|receipt| receipt["logs"] != json!([]));
        let Some(receipt) = with_logs else { continue };
        let count = receipts[receipt]["logs"].as_array().unwrap().len();

        let mut fewer = sample.clone();
        fewer.receipts()[receipt]["logs"].as_array_mut().unwrap().pop();
        // The bloom may not show it if another log sets the same bits.
        let found = fewer.reason();
        let unseen = sample.by_fork("receipts_root", ACCEPTED);
        assert!(["receipt_bloom", unseen].contains(&found), "{found}");
        dropped += usize::from(found == "receipt_bloom");

        let mut twice = sample.clone();
        let list = twice.receipts()[receipt]["logs"].as_array_mut().unwrap();
        let last = list[count - 1].clone();
        list.push(last);
        assert_eq!(twice.reason(), "log_link", "its index is wrong");

        let mut topics = sample.clone();
        topics.receipts()[receipt]["logs"][0]["topics"] = json!(vec![zero_hash(); 5]);
        assert_eq!(topics.reason(), "topic_count");

        if count > 1 {
            let mut swapped = sample.clone();
            swapped.receipts()[receipt]["logs"].as_array_mut().unwrap().swap(0, 1);
            assert_eq!(swapped.reason(), "log_link");
            moved += 1;
        }
    }
    assert!(moved > 20 && dropped > 20, "{moved} {dropped}");
}
