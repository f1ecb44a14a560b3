//! Batches of which neve answers a part.

use std::fs;

use neve_devnet::{DevnetThread, Fault, RetryAfter};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Client, Response};
use crate::support::neve::Neve;
use crate::support::served::{devnet, follow};
use crate::support::ws::Ws;

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

const BALANCE: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;

fn call(id: u32, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

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
fn whole_batch_that_ends_a_filter_of_neve_is_a_miss() {
    let (node, _dir, neve) = start(&["--on-miss", "relay", "--batch-miss", "whole"]);
    let mut client = neve.client();
    let id = client.result("eth_newBlockFilter", "[]").to_string();
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    let call = |id: u32, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let ends = call(1, "eth_uninstallFilter", &format!("[{id}]"));
    let refused = client.post(&format!("[{ends},{}]", call(2, "eth_getBalance", balance)));
    assert_eq!(
        (refused.status, refused.header("x-neve")),
        (421, Some("miss")),
        "{}",
        refused.text()
    );
    assert_eq!(node.counters().calls("eth_uninstallFilter"), 0);
    assert_eq!(client.result("eth_uninstallFilter", &format!("[{id}]")), true, "it was there");
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
        (Fault::Garbage.on("eth_getBalance"), "relay: the upstream's response is not JSON"),
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
pub(super) fn threads(neve: &Neve) -> Vec<String> {
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

#[test]
fn batch_without_memory_for_its_copy_of_a_long_answer_is_not_put_together() {
    let memory = ["--client-bytes-total-max", "16MiB", "--client-bytes-address-max", "16MiB"];
    let (node, _dir, neve) = start(&[&["--on-miss", "relay"], &memory[..]].concat());
    // Its buffer has 8 to 16 MiB by then, as the reads fell, so there is room for it and none for a copy.
    let long = format!("\"{}\"", "x".repeat(8 << 20));
    let _fault = node.faults().inject(Fault::Result(long).on("eth_getBalance"));
    let refused = neve.client().post(MIXED);
    assert_eq!(refused.status, 503, "{:.200}", refused.text());
    assert!(!threads(&neve).iter().any(|name| name == "search"), "{:?}", threads(&neve));
}

/// Nothing has checked that they may, and a name must not end its own text.
#[test]
fn notifications_that_neve_ignores_reach_no_upstream() {
    let (node, _dir, neve) = start(&["--on-miss", "relay"]);
    let (mut client, mut ws) = (neve.client(), Ws::open(&neve));
    let injected = r#"x\"},{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"eth_accounts\",\"z\":\""#;
    for name in ["admin_addPeer", "eth_sendTransaction", injected] {
        let silent = format!(r#"{{"jsonrpc":"2.0","method":"{name}","params":[]}}"#);
        let batch = format!("[{silent},{}]", call(1, "eth_getBalance", BALANCE));
        ws.send(&batch);
        for text in [client.post(&batch).text(), ws.text()] {
            let answers: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(answers.as_array().map(Vec::len), Some(1), "{name}: {text}");
            assert!(answers[0]["id"] == 1 && answers[0]["result"].is_string(), "{text}");
        }
    }
    for method in ["admin_addPeer", "eth_sendTransaction", "eth_accounts"] {
        assert_eq!(node.counters().calls(method), 0, "{method}");
    }
}

#[test]
fn subscription_that_a_notification_ends_stays_ended_beside_a_relayed_call() {
    let (node, _dir, neve) = start(&["--on-miss", "relay"]);
    let mut ws = Ws::open(&neve);
    let id = ws.subscribe(r#"["newHeads"]"#);
    let end = format!(r#"{{"jsonrpc":"2.0","method":"eth_unsubscribe","params":["{id}"]}}"#);
    ws.send(&format!("[{end},{}]", call(1, "eth_getBalance", BALANCE)));
    assert!(ws.text().contains(r#""id":1,"result""#));
    let text = ws.call("eth_unsubscribe", &format!("[\"{id}\"]"));
    assert!(text.contains("subscription not found"), "{text}");
    assert_eq!(node.counters().calls("eth_unsubscribe"), 0);
}

/// The thread that finds the miss has executed the calls beside it, and another one executes all of them again.
#[test]
fn filter_beside_a_relayed_call_is_asked_once() {
    let (node, _dir, neve) = start(&["--on-miss", "relay", "--filters-address-max", "2"]);
    let filter = neve.client().result("eth_newBlockFilter", "[]").to_string();
    node.advance(1);
    neve.wait_for_head(6);
    // A new client each time: a connection with a relayed call goes on where calls are executed once.
    let beside = |method: &str, params: &str| {
        let batch = format!("[{},{}]", call(1, method, params), call(2, "eth_getBalance", BALANCE));
        neve.client().post(&batch).json()[0]["result"].clone()
    };
    let params = format!("[{filter}]");
    assert_eq!(beside("eth_getFilterChanges", &params).as_array().map(Vec::len), Some(1));
    assert!(beside("eth_newBlockFilter", "[]").is_string(), "one of two is open");
    assert_eq!(beside("eth_uninstallFilter", &params), true);
}
