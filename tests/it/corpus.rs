//! A neve that followed a recorded node answers everything that the node was asked as it did, to
//! the byte, or refuses with 421 what it cannot know.

use std::collections::BTreeMap;

use neve_jsonrpc::Method;

use crate::support::client::Client;
use crate::support::corpus::{ALL, HELICON, MAIN, Row, Set};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;

/// How many rows ended how.
type Tally = BTreeMap<&'static str, usize>;

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
fn replay(client: &mut Client, row: &Row) -> &'static str {
    // Codings, which the node does not have, are tests/it/encoding.rs.
    let own = ["host", "content-length", "connection", "transfer-encoding", "accept-encoding"];
    let kept = row.headers.iter().filter(|(name, _)| !own.contains(&name.to_lowercase().as_str()));
    let headers: Vec<_> = kept.map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let answer = client.request(&row.method, &row.path, &headers, &row.request);
    let same = answer.status == row.status
        && answer.body == row.answer
        && answer.header("content-type") == row.content_type.as_deref();
    if same {
        return "same";
    }
    // Hashes and heights that no node has: here they are not held.
    let theirs = String::from_utf8_lossy(&row.answer);
    let none = if row.rpc.as_deref() == Some("debug_getRawReceipts") { "[]" } else { "null" };
    let absent = [&format!("\"result\":{none}"), "\"result\":\"0x\"", "not found"];
    let absent = absent.iter().any(|text| theirs.contains(text));
    let beyond = theirs.contains("cannot query unfinalized data");
    if answer.status == 421 && (absent || beyond) {
        assert_miss(&answer);
        return "refused";
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

fn assert_miss(answer: &crate::support::client::Response) {
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(answer.header("x-neve-served").is_some());
    let text = answer.text();
    assert!(
        text.contains("header not found") && text.contains("requested data is not available"),
        "{text}"
    );
}

/// Whether stored blocks answer it; what the upstream says of itself and prices are relayed, and
/// the recorded node says none of it.
fn served(row: &Row) -> bool {
    let method = row.rpc.as_deref().and_then(Method::from_name);
    method.is_some_and(|method| !RELAYED.contains(&method))
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
    let mut client = neve.client();
    let mut tally = Tally::new();
    for row in ["blocks", "methods", "errors", "logs"].iter().flat_map(|file| set.rows(file)) {
        if served(&row) {
            *tally.entry(replay(&mut client, &row)).or_default() += 1;
        }
    }
    tally
}

#[test]
fn every_recorded_call_is_answered_as_the_node_did() {
    for set in ALL {
        let tally = replay_all(set, true);
        println!("{}: {tally:?}", set.folder);
        let (same, refused) = (tally["same"], tally["refused"]);
        assert!(same > 1200 && refused * 20 < same, "{}: {tally:?}", set.folder);
    }
}

#[test]
fn receipts_one_by_one_give_the_same() {
    let tally = replay_all(MAIN, false);
    assert!(tally["same"] > 2500 && tally["refused"] < 250, "{tally:?}");
}

/// Rows about whole bodies: broken JSON, ids of every kind, batches. Those about methods that are
/// not served yet end in 421.
#[test]
fn bodies_of_every_kind_are_answered_as_the_node_did() {
    for set in [MAIN, HELICON] {
        let (_node, neve, _dir) = follow(set, true);
        let mut client = neve.client();
        let (mut same, mut refused) = (0, 0);
        for row in set.rows("errors").iter().filter(|row| row.name.starts_with("raw/")) {
            let headers = [("Content-Type", "application/json")];
            let answer = client.request("POST", "/ext/bc/C/rpc", &headers, &row.request);
            if answer.status == 421 {
                assert!(answer.text().contains("not available"), "{}: {}", row.name, answer.text());
                refused += 1;
                continue;
            }
            let theirs = String::from_utf8_lossy(&row.answer).into_owned();
            assert_eq!((answer.status, answer.text()), (row.status, theirs), "{}", row.name);
            same += 1;
        }
        println!("{}: {same} same, {refused} refused", set.folder);
        assert!(same > 600 && refused < 50, "{}: {same} same, {refused} refused", set.folder);
    }
}
