//! Every recorded exchange again, before a neve that relays to the recorded node: each answer is the node's to
//! the byte. Rows that only differ on purpose are those of `http_rows`.

use super::corpus::{ask, is_same};
use super::http_rows;
use crate::support::corpus::{ALL, HELICON, MAIN, Set};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;
use crate::support::replayed::Replayed;

/// Methods of rows that `default` does not have.
const METHODS: &str = "default,eth_accounts,eth_coinbase,eth_etherbase,eth_getBadBlocks,\
                       eth_pendingTransactions,txpool_content,txpool_inspect,txpool_status";

const RELAY: [&str; 4] = ["--on-miss", "relay", "--relay-methods", METHODS];

/// Never relayed, even when it is named: `--relay-methods` refuses it.
const NEVER: &str = "personal_listAccounts";

/// Rows whose answers differ, and how many were relayed.
fn differences(set: Set) -> (Vec<String>, u64) {
    let node = Recorded::start(set);
    let (replayed, dir) = (Replayed::start(&node, set), fresh_dir());
    let url = replayed.url();
    let arguments = ["--upstream", &url, "--start", "0", "--api", "debug-raw"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &RELAY].concat());
    neve.wait_for_head(set.head);
    let (mut client, mut wrong) = (neve.client(), Vec::new());
    let rows = ["blocks", "methods", "errors", "logs"].iter().flat_map(|file| set.rows(file));
    for row in rows.filter(|row| !row.name.starts_with("http/")) {
        let answer = ask(&mut client, &row);
        let is_never = String::from_utf8_lossy(&row.request).contains(NEVER);
        let is_right = is_same(&answer, &row) || is_never && answer.status == 421;
        if !is_right {
            let [theirs, ours] = [&row.answer, &answer.body]
                .map(|body| String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned());
            let asked = String::from_utf8_lossy(&row.request[..row.request.len().min(200)]);
            let status = (row.status, answer.status);
            wrong.push(format!("{} {status:?} {asked}\n  node {theirs}\n  neve {ours}", row.name));
        }
    }
    (wrong, neve.count("neve_relay_requests_total{outcome=\"ok\"}"))
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn every_recorded_call_has_the_nodes_answer_with_a_relay() {
    for set in ALL {
        let (wrong, relayed) = differences(set);
        println!("{}: {relayed} relayed", set.folder);
        assert!(wrong.is_empty(), "{}: {}\n{}", set.folder, wrong.len(), wrong.join("\n"));
        assert!(relayed > 50, "{}: {relayed} relayed", set.folder);
    }
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn http_is_spoken_as_the_node_speaks_it_with_a_relay() {
    for set in [MAIN, HELICON] {
        let node = Recorded::start(set);
        let replayed = Replayed::start(&node, set);
        let paths = ["--relay-paths", "/ext/info,/ext/health,/ext/bc/C/avax,/ext/bc/P,/ext/bc/X"];
        let wrong = http_rows::replay(set, &replayed.url(), &[&RELAY[..], &paths].concat());
        assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}
