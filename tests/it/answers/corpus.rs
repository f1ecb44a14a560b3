//! A neve that followed a recorded node answers everything that the node was asked as it did, to
//! the byte, or refuses with 421 what it cannot know: which rows these are, and why, is listed here
//! and in docs/RPC.md.

use std::collections::BTreeMap;

use neve_jsonrpc::Method;
use serde_json::Value;

use crate::store::packed::{packed_files, wait_for_packed};
use crate::support::client::{Client, Response};
use crate::support::corpus::{ALL, MAIN, Row, Set};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;

/// Number of rows by outcome: "same", or refused and their subject.
pub(crate) type Tally = BTreeMap<String, usize>;

/// Refused rows: method or kind, reason, and the number of rows of each of [`ALL`]. A row whose outcome
/// changes makes a number wrong.
const REFUSED: &[(&str, &str, [usize; 4])] = &[
    ("batches with any of these", "a batch is refused whole: a front must not merge", [1, 0, 0, 1]),
    ("eth_accounts", "a key store that only some configurations of v1.14 have", [2, 2, 2, 0]),
    ("eth_call", "execution", [3, 0, 0, 3]),
    (
        "eth_coinbase",
        "a constant of a group of methods that a node can be told to leave out; gone since Helicon",
        [2, 2, 2, 0],
    ),
    ("eth_etherbase", "as `eth_coinbase`", [2, 2, 2, 0]),
    (
        "eth_getBadBlocks",
        "what the node refused is in its memory; gone since Helicon",
        [2, 2, 2, 0],
    ),
    ("eth_getBalance", "state", [13, 0, 0, 13]),
    ("eth_getTransactionCount", "state, and the pool for `pending`", [12, 0, 0, 11]),
    ("eth_pendingTransactions", "the pool", [2, 2, 2, 2]),
    (
        "personal_listAccounts",
        "a key store that only some configurations of v1.14 have",
        [1, 0, 0, 0],
    ),
    ("txpool_content", "the pool", [2, 2, 2, 2]),
    ("txpool_inspect", "the pool", [2, 2, 2, 2]),
    ("txpool_status", "the pool", [2, 2, 2, 2]),
    (
        "what is not held",
        "hashes and heights that no node has, or that are beyond the head: absent must never look like empty",
        [71, 60, 61, 72],
    ),
    (
        "what is relayed",
        "the upstream of this test says nothing of itself and of prices; `tests/it/node/real_node.rs` and `tests/it/program/dev.rs` have one that does",
        [8, 6, 6, 10],
    ),
];

fn follow(set: Set, block_receipts: bool) -> (Recorded, Neve, tempfile::TempDir) {
    let node = Recorded::start(set);
    node.change(|state| state.block_receipts = block_receipts);
    let dir = fresh_dir();
    let url = node.url();
    let arguments = ["--upstream", &url, "--start", "0", "--api", "debug-raw"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(set.head);
    (node, neve, dir)
}

/// Asks again what the node was asked.
pub(crate) fn ask(client: &mut Client, row: &Row) -> Response {
    // Codings, which the node does not have, are tests/it/answers/encoding.rs.
    let own = ["host", "content-length", "connection", "transfer-encoding", "accept-encoding"];
    let kept = row.headers.iter().filter(|(name, _)| !own.contains(&name.to_lowercase().as_str()));
    let headers: Vec<_> = kept.map(|(name, value)| (name.as_str(), value.as_str())).collect();
    client.request(&row.method, &row.path, &headers, &row.request)
}

/// True if an answer is the node's.
pub(super) fn is_same(answer: &Response, row: &Row) -> bool {
    answer.status == row.status
        && answer.body == row.answer
        && answer.header("content-type") == row.content_type.as_deref()
}

/// Asks again what the node was asked. `None` if the answer is the same, or what is refused.
fn replay(client: &mut Client, row: &Row) -> Option<String> {
    let answer = ask(client, row);
    if is_same(&answer, row) {
        return None;
    }
    let method = method(row);
    let about = match Method::from_name(&method) {
        Some(method) if RELAYED.contains(&method) => Some(RELAY),
        Some(_) => is_absent(row).then_some(ABSENT),
        None => Some(method.as_str()),
    };
    if let Some(about) = about.filter(|_| answer.status == 421) {
        assert_miss(&answer, about);
        return Some(about.to_owned());
    }
    panic!(
        "{}\n  > {}\n  node {} {}\n  neve {} {}",
        row.name,
        String::from_utf8_lossy(&row.request[..row.request.len().min(300)]),
        row.status,
        String::from_utf8_lossy(&row.answer[..row.answer.len().min(400)]),
        answer.status,
        answer.text().chars().take(400).collect::<String>()
    );
}

/// Reason of rows about the recorded node itself and prices: they are relayed, and the player here says
/// none of it.
const RELAY: &str = "what is relayed";
/// Hashes and heights that no node has: here they are not held.
const ABSENT: &str = "what is not held";

fn is_absent(row: &Row) -> bool {
    let theirs = String::from_utf8_lossy(&row.answer);
    let none = if method(row) == "debug_getRawReceipts" { "[]" } else { "null" };
    let absent = [
        &format!("\"result\":{none}"),
        "\"result\":\"0x\"",
        "not found",
        "unknown block",
        "cannot query unfinalized data",
    ];
    absent.iter().any(|text| theirs.contains(text))
}

/// The method that is called, or that it is a batch.
fn method(row: &Row) -> String {
    match serde_json::from_slice(&row.request) {
        Ok(Value::Object(call)) => call["method"].as_str().unwrap_or_default().to_owned(),
        Ok(Value::Array(_)) => "batches with any of these".to_owned(),
        _ => String::new(),
    }
}

fn assert_miss(answer: &Response, about: &str) {
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(answer.header("x-neve-served").is_some());
    let text = answer.text();
    let words = if about == ABSENT || about == RELAY {
        "requested data is not available"
    } else {
        "is not available"
    };
    assert!(text.contains(words), "{text}");
}

const RELAYED: [Method; 8] = [
    Method::PeerCount, // since Helicon
    Method::ClientVersion,
    Method::ChainConfig,
    Method::Modules,
    Method::GasPrice,
    Method::BaseFee,
    Method::MaxPriorityFeePerGas,
    Method::SuggestPriceOptions,
];

fn replay_all(set: Set, block_receipts: bool) -> Tally {
    let (_node, neve, _dir) = follow(set, block_receipts);
    tally(&neve, set)
}

/// Asks a neve everything that the node of a set was asked.
pub(crate) fn tally(neve: &Neve, set: Set) -> Tally {
    let mut client = neve.client();
    let mut tally = Tally::new();
    for row in ["blocks", "methods", "errors", "logs"].iter().flat_map(|file| set.rows(file)) {
        // Rows about HTTP are tests/it/answers/http_rows.rs.
        if !row.name.starts_with("http/") {
            let about = replay(&mut client, &row);
            *tally.entry(about.unwrap_or_else(|| "same".to_owned())).or_default() += 1;
        }
    }
    tally
}

/// Every recorded call is answered as the node did, but for those that are listed.
#[test]
fn every_recorded_call_is_answered_as_the_node_did() {
    assert_listed(ALL.map(|set| replay_all(set, true)));
}

/// Heights behind which a range of a recorded chain is settled and packed.
const BEHIND: u64 = 14;

/// Outcomes of all exchanges of a set, from a store whose whole ranges are packed.
fn replay_packed(set: Set) -> Tally {
    let (node, dir) = (Recorded::start(set), fresh_dir());
    let url = node.url();
    let follow = ["--upstream", &url, "--start", "0", "--api", "debug-raw"];
    let packed = ["--unpacked-bytes", "0B", "--segment-blocks", "32"];
    let neve = Neve::start(dir.path(), &[&follow[..], &packed].concat());
    neve.wait_for_head(set.head);
    let ranges = (set.head - BEHIND) / 32;
    wait_for_packed(&neve, ranges * 32);
    let tally = tally(&neve, set);
    let page = neve.admin().get("/metrics").text();
    let as_they_came =
        page.lines().filter(|line| line.starts_with("neve_store_packed_texts_total{"));
    let as_they_came: Vec<_> = as_they_came.filter(|line| !line.ends_with(" 0")).collect();
    assert!(as_they_came.is_empty(), "{}: {as_they_came:?}", set.folder);
    assert!(packed_files(dir.path()).len() as u64 >= ranges, "{}", set.folder);
    neve.stop_in_time();
    tally
}

/// Packed heights give the outcomes that are listed for unpacked ones.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn every_recorded_call_is_answered_by_a_packed_store_as_the_node_did() {
    assert_listed(ALL.map(replay_packed));
}

/// Compares the outcomes of [`ALL`] with the list.
pub(crate) fn assert_listed(tallies: [Tally; 4]) {
    let mut refused: BTreeMap<String, [usize; 4]> = BTreeMap::new();
    for (at, tally) in tallies.into_iter().enumerate() {
        let folder = ALL[at].folder;
        println!("{folder}: {tally:?}");
        assert!(tally["same"] > 1200, "{folder}: {tally:?}");
        for (about, count) in tally.into_iter().filter(|(about, _)| about != "same") {
            refused.entry(about).or_default()[at] = count;
        }
    }
    let found: Vec<_> = refused.iter().map(|(about, counts)| (about.as_str(), *counts)).collect();
    let mut listed: Vec<_> = REFUSED.iter().map(|(about, _, counts)| (*about, *counts)).collect();
    listed.sort_unstable();
    assert!(found == listed, "found\n{found:#?}\nand listed are\n{listed:#?}");
}

#[test]
fn the_documents_list_what_is_refused() {
    for (about, why, [main, forks, apricot0, helicon]) in REFUSED {
        let about = if about.contains(' ') { (*about).to_owned() } else { format!("`{about}`") };
        let line = format!("| {about} | {} | {helicon} | {why} |\n", main + forks + apricot0);
        assert!(include_str!("../../../docs/RPC.md").contains(&line), "docs/RPC.md lacks: {line}");
    }
}

#[test]
fn receipts_one_by_one_give_the_same() {
    let tally = replay_all(MAIN, false);
    assert_eq!(tally, replay_all(MAIN, true));
}
