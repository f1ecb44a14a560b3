//! Heads against the frames that subscribers received.

use std::collections::BTreeMap;

use neve_chain::{ClaimedHeader, HeaderForm, new_head};
use serde_json::{Value, value::RawValue};

use crate::support::{CORPORA, Height, chain, recorded};

/// The text of `params.result`, and the number in it.
fn head(frame: &str) -> (&str, usize) {
    let start = frame.find("\"result\":").unwrap() + "\"result\":".len();
    let text = frame[start..].strip_suffix("}}\n").unwrap();
    let members: BTreeMap<&str, &RawValue> = serde_json::from_str(text).unwrap();
    let number = members["number"].get().trim_matches('"');
    (text, usize::from_str_radix(&number[2..], 16).unwrap())
}

fn form(corpus: &str) -> HeaderForm {
    if corpus == "v1.15.0" { HeaderForm::V1_15 } else { HeaderForm::V1_14 }
}

/// To the byte, on both sides of every upgrade; from the block's answer and from the header's.
#[test]
fn heads_are_the_nodes() {
    let chains: BTreeMap<&str, Vec<Height>> =
        CORPORA.into_iter().map(|corpus| (corpus, chain(corpus))).collect();
    let (mut heads, mut absent) = (0, BTreeMap::<usize, usize>::new());
    for row in recorded("new_heads.jsonl.zst") {
        let corpus = row["from"].as_str().unwrap();
        let (expected, number) = head(row["frame"].as_str().unwrap());
        let height = &chains[corpus][number];
        for answer in [&height.full, &height.hashes] {
            let found = new_head(answer.as_bytes(), form(corpus)).unwrap();
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{corpus} {number}");
        }
        heads += 1;
        *absent.entry(expected.matches("null").count()).or_default() += 1;
    }
    assert_eq!(heads, 57);
    // By how many fields are absent: none in Helicon, all eight before Apricot Phase 3.
    assert!(absent.keys().copied().eq([0, 2, 5, 6, 7, 8]), "{absent:?}");
}

/// Compares members and values with those of the header's answer, except those that heads lack.
#[test]
fn heads_are_headers() {
    for corpus in CORPORA {
        for height in chain(corpus) {
            let head = new_head(height.full.as_bytes(), form(corpus)).unwrap();
            let mut head: Value = serde_json::from_slice(&head).unwrap();
            let head = head.as_object_mut().unwrap();
            assert_eq!(head.len(), if corpus == "v1.15.0" { 31 } else { 25 });
            head.retain(|_, value| !value.is_null());
            let mut answer: Value = serde_json::from_str(&height.full).unwrap();
            let lacking = ["blockExtraData", "size", "totalDifficulty", "transactions", "uncles"];
            answer.as_object_mut().unwrap().retain(|key, _| !lacking.contains(&&key[..]));
            assert_eq!(Some(&*head), answer.as_object());
        }
    }
}

/// The form is the release's: six keys more, before the hash, for old blocks too.
#[test]
fn the_forms_differ_in_the_keys_of_helicon() {
    let text = &chain("v1.14.2/forks")[100].full;
    let head = |form| String::from_utf8(new_head(text.as_bytes(), form).unwrap()).unwrap();
    let (old, new) = (head(HeaderForm::V1_14), head(HeaderForm::V1_15));
    let keys = "\"targetExponent\":null,\"minPriceExponent\":null,\"settledHeight\":null,\
        \"settledGasUnix\":null,\"settledGasNumerator\":null,\"settledExcess\":null,\"hash\"";
    assert_eq!(old.replace("\"hash\"", keys), new);
    let hash = ClaimedHeader::parse(text.as_bytes()).unwrap().hash;
    assert!(old.ends_with(&format!("\"hash\":\"{hash}\"}}")));
    assert!(new_head(b"null", HeaderForm::V1_14).is_err());
}
