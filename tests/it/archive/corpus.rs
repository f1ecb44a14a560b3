//! The recorded exchanges, answered over an archive: by a replica whose tail begins near the head, and by one without a
//! node.

use std::collections::HashSet;

use serde_json::Value;
use tempfile::TempDir;

use super::bucket::{reads, trust_in};
use crate::answers::corpus::{Tally, ask, assert_listed, tally};
use crate::store::archive::archive;
use crate::store::packed::wait_for_packed;
use crate::support::corpus::{ALL, Row, Set};
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::recorded::Recorded;

/// Heights behind which a range is settled and packed, and heights of the tail. Some of them are archived too.
const BEHIND: u64 = 14;
const TAIL: u64 = 64;

/// A recorded chain whose whole ranges are in a directory.
struct Archived {
    node: Recorded,
    set: Set,
    bucket: TempDir,
    /// First height that is not archived.
    end: u64,
}

impl Archived {
    fn new(set: Set) -> Self {
        let node = Recorded::start(set);
        let (url, [source_dir, bucket]) = (node.url(), [(); 2].map(|()| fresh_dir()));
        let follow = ["--upstream", &url, "--segment-blocks", "32", "--start", "0"];
        let packed = ["--unpacked-bytes", "0B"];
        let source = Neve::start(source_dir.path(), &[&follow[..], &packed].concat());
        source.wait_for_head(set.head);
        let end = (set.head - BEHIND) / 32 * 32;
        wait_for_packed(&source, end);
        let place = format!("file://{}", bucket.path().display());
        // Ranges are not packed in their order: a push may leave some behind a gap, and says so in its exit code.
        let is_whole = || {
            let (code, lines, errors) = archive("push", Some(source_dir.path()), &[&place]);
            let line = lines.last().unwrap_or_else(|| panic!("no line: {errors}"));
            let is_whole = line["first"] == 0 && line["last"].as_u64() >= Some(end - 1);
            (code == 0 && is_whole).then_some(()).ok_or(Miss::NotYet(line.to_string()))
        };
        wait_until("a push of all", LIMIT, is_whole).expect("all is packed");
        source.stop_in_time();
        Self { node, set, bucket, end }
    }

    fn replica(&self, dir: &TempDir, more: &[&str]) -> Neve {
        let place = format!("file://{}", self.bucket.path().display());
        let trust = trust_in(&self.bucket.path().join("manifest.json"));
        let archive = ["--archive", &place, "--archive-trust", &trust, "--segment-blocks", "32"];
        Neve::start(dir.path(), &[&archive[..], &["--api", "debug-raw"], more].concat())
    }
}

fn wait_for_answers(replica: &Neve, last: u64) {
    replica.wait("archived heights and filters", |health| {
        let answers = &health["archive"]["answers"];
        let is_here = answers["max_height"].as_u64() >= Some(last);
        (is_here && answers["hashes_from_height"] == 0).then_some(())
    });
}

/// Outcomes of all exchanges of a set.
fn over_an_archive(set: Set) -> Tally {
    let (archived, dir) = (Archived::new(set), fresh_dir());
    let (url, first) = (archived.node.url(), set.head + 1 - TAIL);
    assert!(first < archived.end, "archive and tail overlap");
    let start = first.to_string();
    let follow = ["--upstream", &url, "--start", &start, "--backfill-to", "none"];
    let replica = archived.replica(&dir, &follow);
    replica.wait_for_head(set.head);
    wait_for_answers(&replica, first);
    let tally = tally(&replica, set);
    assert_eq!(replica.health()["blocks"]["min_height"], first);
    assert!(reads(&replica, "segment") > 0 && reads(&replica, "span") > 0);
    replica.stop_in_time();
    tally
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn every_recorded_call_is_answered_over_an_archive_as_the_node_did() {
    assert_listed(ALL.map(over_an_archive));
}

const FILES: [&str; 4] = ["blocks", "methods", "errors", "logs"];

/// Blocks and transactions up to a height.
#[derive(Default)]
struct Known {
    last: u64,
    blocks: HashSet<String>,
    transactions: HashSet<String>,
    /// Hash of the last block.
    newest: String,
}

impl Known {
    fn new(set: Set, last: u64) -> Self {
        let mut known = Self { last, ..Self::default() };
        let rows = set.rows("blocks").into_iter();
        for row in rows.filter(|row| row.rpc.as_deref() == Some("eth_getBlockByNumber")) {
            let answer: Value = serde_json::from_slice(&row.answer).expect("JSON");
            known.note(&answer["result"]);
        }
        known
    }

    fn note(&mut self, block: &Value) {
        let height = block["number"].as_str().and_then(height_of);
        let Some(height) = height.filter(|height| *height <= self.last) else { return };
        let hash = |value: &Value| value["hash"].as_str().or(value.as_str()).map(str::to_owned);
        let transactions = block["transactions"].as_array().into_iter().flatten();
        self.transactions.extend(transactions.filter_map(hash));
        let hash = hash(block).expect("a block has one");
        if height == self.last {
            self.newest.clone_from(&hash);
        }
        self.blocks.insert(hash);
    }

    fn has_block(&self, value: &Value) -> bool {
        let text = value.as_str().unwrap_or_default();
        let is_height = height_of(text).is_some_and(|height| height <= self.last);
        text == "earliest" || is_height || self.blocks.contains(&text.to_lowercase())
    }

    fn has_transaction(&self, value: &Value) -> bool {
        let text = value.as_str().unwrap_or_default();
        self.transactions.contains(&text.to_lowercase())
    }

    /// True if a call is about these blocks, and about nothing else.
    fn has_all_of(&self, row: &Row) -> bool {
        let Ok(call) = serde_json::from_slice::<Value>(&row.request) else { return false };
        let Some(method) = call["method"].as_str() else { return false };
        let params = &call["params"];
        match method {
            "eth_getLogs" => {
                let ends = [&params[0]["fromBlock"], &params[0]["toBlock"]];
                ends.iter().all(|end| self.has_block(end))
                    || self.has_block(&params[0]["blockHash"])
            }
            "eth_feeHistory" => self.has_block(&params[1]),
            "eth_getBalance" | "eth_getTransactionCount" => false,
            "eth_getTransactionByHash"
            | "eth_getTransactionReceipt"
            | "eth_getRawTransactionByHash"
            | "debug_getRawTransaction" => self.has_transaction(&params[0]),
            _ if method.starts_with("eth_get") || method.starts_with("debug_getRaw") => {
                self.has_block(&params[0])
            }
            _ => false,
        }
    }
}

fn height_of(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").filter(|digits| digits.len() < 17)?, 16).ok()
}

/// Rows with the node's answer about archived blocks, rows with it about others, and rows with 421.
fn without_a_node(set: Set) -> [usize; 3] {
    let (archived, dir) = (Archived::new(set), fresh_dir());
    let last = archived.end - 1;
    let newest = Known::new(set, last).newest;
    let (anchor, tail) = (format!("{last}:{newest}"), (archived.end - 32).to_string());
    let words = ["--archive-anchor", &anchor, "--backfill-to", &tail];
    let replica = archived.replica(&dir, &words);
    replica.wait("the tail", |health| {
        (health["blocks"]["min_height"] == archived.end - 32).then_some(())
    });
    wait_for_answers(&replica, last);
    let head = replica.health()["blocks"]["head"].as_u64().expect("a number");
    let known = Known::new(set, head);
    let (mut client, mut counts) = (replica.client(), [0; 3]);
    for row in FILES.iter().flat_map(|file| archived.set.rows(file)) {
        if row.name.starts_with("http/") {
            continue; // about HTTP alone
        }
        let answer = ask(&mut client, &row);
        let is_same = answer.status == row.status && answer.body == row.answer;
        let is_archived = known.has_all_of(&row);
        let what = || format!("{}: {} {}", row.name, answer.status, answer.text());
        assert!(is_same || answer.status == 421, "{}", what());
        assert!(is_same || !is_archived, "archived, {}", what());
        counts[if is_archived { 0 } else { 1 + usize::from(!is_same) }] += 1;
    }
    assert!(reads(&replica, "segment") > 0 && reads(&replica, "span") > 0);
    replica.stop_in_time();
    counts
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn replica_without_a_node_answers_each_recorded_call_about_archived_blocks_and_refuses_the_others()
{
    for set in ALL {
        let [archived, others, refused] = without_a_node(set);
        println!("{}: {archived} archived, {others} others, {refused} refused", set.folder);
        assert!(archived > 1000 && refused > 50, "{}: {archived}, {refused}", set.folder);
    }
}
