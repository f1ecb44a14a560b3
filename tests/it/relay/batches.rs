//! Batches of which neve answers a part.

use std::fs;

use neve_devnet::{DevnetThread, Fault, RetryAfter};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Client, Response};
use crate::support::neve::Neve;
use crate::support::served::{devnet, follow};

fn start(arguments: &[&str]) -> (DevnetThread, TempDir, Neve) {
    let node = devnet(5);
    let (dir, neve) = follow(&node, arguments);
    (node, dir, neve)
}

/// A batch with calls that neve answers, calls that it misses, and all else that a batch may have.
const MIXED: &str = concat!(
    r#"[{"jsonrpc":"2.0","id":"a<","method":"eth_blockNumber"},"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]},"#,
    r#"{"jsonrpc":"2.0","method":"eth_chainId"},"#,
    r#"{"id":4,"method":"eth_chainId"},"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBlockByNumber","params":["0x5",false]},"#,
    r#"{"jsonrpc":"2.0","id":1.50,"method":"eth_estimateGas","params":[{}]},"#,
    r#"{"jsonrpc":"2.0","method":"eth_sendRawTransaction","params":["0x0200000000000000000000000000000000000000000000000000000000000000"]},"#,
    r#"{"jsonrpc":"2.0","id":9,"method":"eth_getBlockByNumber","params":["0xffff",true]},"#,
    r#"{"jsonrpc":"2.0","id":null,"method":"eth_getTransactionCount","params":["0x0000000000000000000000000000000000000001","latest"]}]"#,
);

const MISSES: &str = concat!(
    r#"[{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]},"#,
    r#"{"jsonrpc":"2.0","id":"b","method":"eth_estimateGas","params":[{}]}]"#,
);

fn of_node(node: &DevnetThread, body: &str) -> Response {
    Client::new(node.address()).post(body)
}

fn told(response: &Response) -> (u16, Option<&str>, Option<&str>) {
    (response.status, response.header("x-neve"), response.header("x-neve-misses"))
}

#[test]
fn split_batch_has_the_bytes_of_the_node_in_the_order_of_the_request() {
    let (node, _dir, neve) = start(&["--on-miss", "relay"]);
    let mut client = neve.client();
    let before = node.counters().http_requests();
    let mixed = client.post(MIXED);
    assert_eq!(node.counters().calls("eth_sendRawTransaction"), 1);
    assert!(node.counters().http_requests() > before);
    assert_eq!(told(&mixed), (200, Some("mixed"), None), "{}", mixed.text());
    assert_eq!(mixed.text(), of_node(&node, MIXED).text());
    // If neve answers none of it, the node's response is streamed.
    let relayed = client.post(MISSES);
    assert_eq!(told(&relayed), (200, Some("relay"), None));
    assert_eq!(relayed.text(), of_node(&node, MISSES).text());
    let asked = neve.count("neve_relay_requests_total{outcome=\"ok\"}");
    assert_eq!(asked, 2, "one request for all missing calls of a batch");
}

#[test]
fn split_batch_without_a_relay_has_an_error_for_each_missing_call() {
    let (_node, _dir, neve) = start(&["--batch-miss", "split"]);
    let mut client = neve.client();
    let mixed = client.post(MIXED);
    assert_eq!(told(&mixed), (200, Some("mixed"), Some("5")));
    let answers = mixed.json();
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, [json!("a<"), json!(7), json!(4), json!(7), json!(1.5), json!(9), Value::Null]);
    let is_error = |at: usize| answers[at].get("error").is_some();
    let errors = [false, true, true, false, true, true, true];
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(is_error), errors);
    assert_eq!(answers[1]["error"]["data"], json!({ "firstHeight": "0x0", "head": "0x5" }));
    let misses = client.post(MISSES);
    assert_eq!(told(&misses), (200, Some("miss"), Some("2")));
    assert_eq!(misses.header("cache-control"), Some("no-store"));
}

#[test]
fn whole_batch_is_relayed_if_each_of_its_calls_may_be() {
    let (node, _dir, neve) = start(&["--on-miss", "relay", "--batch-miss", "whole"]);
    let mut client = neve.client();
    let whole = client.post(MIXED);
    assert_eq!(told(&whole), (200, Some("relay"), None));
    assert_eq!(whole.text(), of_node(&node, MIXED).text());
    let forbidden = MIXED.replace("eth_estimateGas", "eth_sendTransaction");
    let refused = client.post(&forbidden);
    assert_eq!((refused.status, refused.header("x-neve")), (421, Some("miss")));
    assert_eq!(node.counters().calls("eth_sendTransaction"), 0);
}

#[test]
fn call_of_a_batch_that_may_not_be_relayed_is_refused_alone() {
    let (node, _dir, neve) = start(&["--on-miss", "relay"]);
    let forbidden = MIXED.replace("eth_estimateGas", "eth_sendTransaction");
    let mixed = neve.client().post(&forbidden);
    assert_eq!(told(&mixed), (200, Some("mixed"), Some("1")), "{}", mixed.text());
    let answers = mixed.json();
    assert_eq!(answers[1]["result"], "0xde0b6b3a7640000");
    assert!(answers[4]["error"]["message"].is_string(), "{answers}");
    assert_eq!(node.counters().calls("eth_sendTransaction"), 0);
}

#[test]
fn batch_is_answered_in_part_when_the_upstream_fails() {
    let (node, _dir, neve) = start(&["--on-miss", "relay"]);
    let mut client = neve.client();
    let status = Fault::Status(500, RetryAfter::Absent).on("eth_getBalance");
    for (fault, message) in [
        (status, "relay: the upstream answered with HTTP 500"),
        (Fault::Garbage.on("eth_getBalance"), "relay: the upstream did not answer"),
        (Fault::Truncate.on("eth_getBalance"), "relay: the upstream cannot be reached"),
    ] {
        let injected = node.faults().inject(fault);
        let mixed = client.post(MIXED);
        assert_eq!(told(&mixed), (200, Some("mixed"), Some("4")), "{}", mixed.text());
        let answers = mixed.json();
        assert_eq!(answers[0]["result"], "0x5");
        for (at, id) in [(1, json!(7)), (4, json!(1.5)), (5, json!(9)), (6, Value::Null)] {
            assert_eq!(
                (&answers[at]["error"]["message"], &answers[at]["id"]),
                (&json!(message), &id)
            );
        }
        injected.clear();
    }
}

/// Names of the threads of a neve.
fn threads(neve: &Neve) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", neve.pid())).expect("it runs");
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| Some(name(task.ok()?)?.trim().to_owned())).collect()
}

#[test]
fn long_answers_are_put_into_a_batch_on_a_thread_that_serves_nobody() {
    let (node, _dir, neve) = start(&["--on-miss", "relay"]);
    let searches = || threads(&neve).iter().any(|name| name == "search");
    let mut client = neve.client();
    for (len, elsewhere) in [(1 << 10, false), (8 << 20, true)] {
        assert!(!searches());
        let long = format!("\"{}\"", "x".repeat(len));
        let fault = node.faults().inject(Fault::Result(long.clone()).on("eth_getBalance"));
        let mixed = client.post(MIXED);
        assert_eq!(told(&mixed), (200, Some("mixed"), None));
        assert!(mixed.text().contains(&long));
        assert_eq!(searches(), elsewhere, "{len}: {:?}", threads(&neve));
        fault.clear();
    }
}
