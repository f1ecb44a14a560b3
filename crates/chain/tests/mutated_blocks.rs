//! Good blocks with one thing changed: each change is refused, for the reason that names it.
//!
//! Where a change is *accepted*, the test says so and why: those are the parts of an answer that
//! nothing binds, or that only something outside of the block binds.
//! This file changes the block and its form.

use neve_chain::{AdmittedKeys, Checks};
use serde_json::json;

use crate::rewrite::{Answers, seal};
use crate::sample::{ACCEPTED, CHECKS, Sample, altered, keys, reason, reason_by, zero_hash};

#[test]
fn unchanged_samples_are_accepted() {
    for sample in Sample::all() {
        assert_eq!(sample.reason(), ACCEPTED, "{}", sample.block["number"]);
    }
}

/// Every member of the block but its transactions.
#[test]
fn members_of_the_block() {
    for sample in Sample::all() {
        for key in keys(&sample.block) {
            let mut changed = sample.clone();
            changed.block[&key] = match &key[..] {
                "transactions" => continue,
                key => altered(&sample.block[key]),
            };
            let expected = match &key[..] {
                "size" => "size",
                "totalDifficulty" => "total_difficulty",
                "uncles" => "uncles",
                // Before Apricot Phase 1 no hash binds it. It must still be a transaction.
                "blockExtraData" if sample.block["extDataHash"] == json!(zero_hash()) => "ext_data",
                "blockExtraData" => "ext_data_hash",
                _ => "header_hash",
            };
            assert_eq!(changed.reason(), expected, "{key}");
        }
    }
}

/// A member left out is missing, or makes another header. The hash alone does not tell: with a
/// present field behind it, an absent one is encoded as zero is.
#[test]
fn members_left_out() {
    for sample in Sample::all() {
        for key in keys(&sample.block) {
            let mut changed = sample.clone();
            changed.block.as_object_mut().unwrap().remove(&key);
            let optional = OPTIONAL.contains(&&key[..]);
            let found = changed.reason();
            assert!(found == "missing_key" || optional && found == "header_hash", "{key}: {found}");
            // An upstream that leaves it out may also make a hash that fits.
            if let Some(place) = OPTIONAL.iter().position(|optional| *optional == key) {
                let found = reason(&seal(&changed.block, &changed.receipts));
                let last = OPTIONAL.iter().skip(place + 1).all(|k| sample.block.get(*k).is_none());
                assert_eq!(found == "missing_key", !last, "{key}: {found}");
            }
        }
        for key in OPTIONAL.iter().filter(|key| sample.block.get(*key).is_none()) {
            let mut changed = sample.clone();
            let value = if key.ends_with("Root") { zero_hash() } else { "0x0".to_owned() };
            changed.block[*key] = json!(value);
            assert_eq!(changed.reason(), "header_hash", "{key} added");
        }
    }
}

/// Members that came with forks, in the order of the encoding.
const OPTIONAL: [&str; 14] = [
    "baseFeePerGas",
    "extDataGasUsed",
    "blockGasCost",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "timestampMilliseconds",
    "minDelayExcess",
    "targetExponent",
    "minPriceExponent",
    "settledHeight",
    "settledGasUnix",
    "settledGasNumerator",
    "settledExcess",
];

/// Headers that hash to what they claim, but contradict their block.
///
/// Whatever is accepted here is bound by the hash alone: such a block is consistent, and only its
/// place in the chain of parent hashes says that it is not the chain's. State roots and the
/// results of consensus rules cannot be recomputed without executing the chain.
#[test]
fn forged_headers() {
    for sample in Sample::all() {
        let dynamic = sample.block["transactions"].as_array().unwrap().iter().any(|tx| {
            // The price of others does not depend on the base fee.
            tx["type"] == "0x2" && tx["gasPrice"] != tx["maxFeePerGas"]
        });
        for key in keys(&sample.block) {
            if let "hash" | "size" | "totalDifficulty" | "transactions" | "uncles"
            | "blockExtraData" = &key[..]
            {
                continue;
            }
            let mut changed = sample.clone();
            changed.block[&key] = altered(&sample.block[&key]);
            let found = reason(&seal(&changed.block, &changed.receipts));
            match &key[..] {
                "transactionsRoot" => assert_eq!(found, "transactions_root"),
                "sha3Uncles" => assert_eq!(found, "uncles"),
                "extDataHash" => assert_eq!(found, "ext_data_hash"),
                "gasUsed" => assert_eq!(found, "gas_used"),
                // Of a settling header they speak of other blocks: see `settlement.rs`.
                "receiptsRoot" => assert_eq!(found, sample.by_fork("receipts_root", ACCEPTED)),
                "logsBloom" => assert_eq!(found, sample.by_fork("logs_bloom", ACCEPTED)),
                "baseFeePerGas" if dynamic => assert_eq!(found, "gas_price"),
                "baseFeePerGas" => assert_eq!(found, ACCEPTED),
                "timestamp" if sample.block.get("timestampMilliseconds").is_some() => {
                    assert_eq!(found, "timestamp");
                }
                // A transaction names its block's number.
                "number" => assert!(
                    ["transaction_link", "total_difficulty", "size", "settled"].contains(&found)
                        || sample.block["transactions"] == json!([]),
                    "{found}"
                ),
                "parentHash"
                | "stateRoot"
                | "miner"
                | "difficulty"
                | "gasLimit"
                | "mixHash"
                | "nonce"
                | "extraData"
                | "extDataGasUsed"
                | "blockGasCost"
                | "blobGasUsed"
                | "excessBlobGas"
                | "parentBeaconBlockRoot"
                | "timestamp"
                | "timestampMilliseconds"
                | "minDelayExcess"
                | "targetExponent"
                | "minPriceExponent"
                | "settledGasUnix"
                | "settledGasNumerator"
                | "settledExcess" => {
                    // A value whose encoding is longer or shorter shows in the size.
                    assert!([ACCEPTED, "size"].contains(&found), "{key}: {found}");
                }
                "settledHeight" => assert!([ACCEPTED, "size", "settled"].contains(&found)),
                key => panic!("{key}"),
            }
        }
    }
}

/// Receipts of an asynchronous block are not known when it is accepted.
#[test]
fn block_that_settles_itself() {
    let mut asynchronous = 0;
    for sample in Sample::all().iter().filter(|sample| sample.is_asynchronous()) {
        let mut changed = sample.clone();
        let number = sample.block["number"].clone();
        for settled in [number, json!("0xffffffffffffffff")] {
            changed.block["settledHeight"] = settled;
            assert_eq!(reason(&seal(&changed.block, &changed.receipts)), "settled");
            asynchronous += 1;
        }
    }
    assert!(asynchronous > 20);
}

/// Milliseconds of another second; the sample above only changes the last digit.
#[test]
fn timestamps_that_disagree() {
    let samples = Sample::all();
    let granite = samples.iter().filter(|s| s.block.get("timestampMilliseconds").is_some());
    for sample in granite {
        let mut changed = sample.clone();
        let milliseconds = sample.block["timestampMilliseconds"].as_str().unwrap();
        let milliseconds = u64::from_str_radix(&milliseconds[2..], 16).unwrap();
        changed.block["timestampMilliseconds"] = json!(format!("{:#x}", milliseconds + 1000));
        let found = reason(&seal(&changed.block, &changed.receipts));
        assert_eq!(found, "timestamp");
    }
}

/// Text that says the same but is not what a node writes.
#[test]
fn shapes() {
    for sample in Sample::all() {
        let good = sample.answers();
        let changed = |from: &str, to: &str| {
            let block = good.block.replacen(from, to, 1);
            assert_ne!(block, good.block, "{from}");
            reason(&Answers { block, ..good.clone() })
        };
        assert_eq!(changed("{\"", "{ \""), "shape");
        assert_eq!(changed("\",\"gas", "\",\n\"gas"), "shape");
        assert_eq!(
            changed("\"difficulty\":\"0x1\",", "\"difficulty\":\"0x1\",\"difficulty\":\"0x1\","),
            "shape"
        );
        assert_eq!(changed("\"difficulty\":\"0x1\"", "\"difficulty\":\"0x01\""), "hex");
        assert_eq!(changed("\"difficulty\":\"0x1\"", "\"difficulty\":\"0X1\""), "hex");
        assert_eq!(changed("\"difficulty\":\"0x1\"", "\"difficulty\":1"), "json");
        assert_eq!(changed("\"difficulty\":\"0x1\"", "\"difficulty\":null"), "json");
        let hash = sample.block["hash"].as_str().unwrap();
        assert_eq!(changed(hash, &hash.to_uppercase().replace("0X", "0x")), "hex");
        let member = format!("\"hash\":\"{hash}\",");
        let moved = good.block.replacen(&member, "", 1).replacen('{', &format!("{{{member}"), 1);
        assert_eq!(reason(&Answers { block: moved, ..good.clone() }), "shape", "not sorted");
        let block = format!("{} ", good.block);
        assert_eq!(reason(&Answers { block, ..good.clone() }), "shape");
        let block = format!("{}x", good.block);
        assert_eq!(reason(&Answers { block, ..good.clone() }), "json");
        let receipts = good.receipts.replacen(['[', '{'], "[ ", 1);
        assert_eq!(reason(&Answers { receipts, ..good.clone() }), "shape");
    }
}

/// A member that a later release might add is refused, wherever it is.
#[test]
fn unknown_key_is_refused_in_every_kind_of_object() {
    for sample in Sample::all() {
        let mut block = sample.clone();
        block.block["later"] = json!({"a": [1, "b"], "c": null});
        assert_eq!(block.reason(), "unknown_key");
        let mut transactions = sample.clone();
        let expected =
            if transactions.transactions().is_empty() { ACCEPTED } else { "unknown_key" };
        for transaction in transactions.transactions() {
            transaction["later"] = json!(true);
        }
        assert_eq!(transactions.reason(), expected);
        let mut receipts = sample.clone();
        for receipt in receipts.receipts() {
            receipt["later"] = json!(-1.5);
        }
        assert_eq!(receipts.reason(), expected);
        let mut logs = sample.clone();
        let mut some = false;
        for receipt in logs.receipts() {
            for log in receipt["logs"].as_array_mut().unwrap() {
                log["blockTimestamp"] = json!("0x1");
                some = true;
            }
        }
        assert_eq!(logs.reason(), if some { "unknown_key" } else { ACCEPTED });
    }
}

/// Go's decoder would take each for the known key.
#[test]
fn key_that_differs_in_case_only_is_refused() {
    for sample in Sample::all() {
        let mut block = sample.clone();
        block.block["Hash"] = json!("0xabab");
        assert_eq!(block.reason(), "unknown_key");
        let mut changed = sample.clone();
        for transaction in changed.transactions() {
            transaction["To"] = json!("0xabab");
        }
        let some = !changed.transactions().is_empty();
        assert_eq!(changed.reason(), if some { "unknown_key" } else { ACCEPTED });
        let mut changed = sample.clone();
        for receipt in changed.receipts() {
            receipt["Status"] = json!("0x0");
        }
        assert_eq!(changed.reason(), if some { "unknown_key" } else { ACCEPTED });
    }
}

#[test]
fn admitted_keys_are_accepted_at_the_end_and_in_sorted_place() {
    let names = ["block.later", "transaction.later", "receipt.later", "log.blockTimestamp"];
    let checks = Checks { admitted: AdmittedKeys::parse(&names).unwrap(), ..CHECKS };
    for sample in Sample::all() {
        let mut changed = sample.clone();
        changed.block["later"] = json!({"a": [1, "b"], "c": null});
        for transaction in changed.transactions() {
            transaction["later"] = json!(true);
        }
        for receipt in changed.receipts() {
            receipt["later"] = json!(-1.5);
            for log in receipt["logs"].as_array_mut().unwrap() {
                log["blockTimestamp"] = json!("0x1");
            }
        }
        let sorted = changed.answers();
        assert_eq!(reason_by(&sorted, &checks), ACCEPTED);
        let (member, block) = (",\"later\":{\"a\":[1,\"b\"],\"c\":null}", sorted.block);
        let moved = block.replacen(member, "", 1);
        let at_the_end = format!("{}{member}}}", moved.strip_suffix('}').unwrap());
        let receipts = sorted.receipts;
        let answers = |block| Answers { block, receipts: receipts.clone() };
        assert_eq!(reason_by(&answers(at_the_end.clone()), &checks), ACCEPTED);
        let twice = format!("{}{member}}}", at_the_end.strip_suffix('}').unwrap());
        assert_eq!(
            reason_by(&answers(twice), &checks),
            "unknown_key",
            "twice, the second out of place"
        );
        let between = moved.replacen(",\"number\"", &format!("{member},\"number\""), 1);
        assert_eq!(reason_by(&answers(between), &checks), "unknown_key", "neither place");
    }
}

/// The node shows the number or zero, by its release; no hash has it.
#[test]
fn total_difficulty_may_be_either() {
    for sample in Sample::all() {
        for value in [&sample.block["number"], &json!("0x0")] {
            let mut changed = sample.clone();
            changed.block["totalDifficulty"] = value.clone();
            assert_eq!(changed.reason(), ACCEPTED);
        }
    }
}
