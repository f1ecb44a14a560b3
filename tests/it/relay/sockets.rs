//! Calls over WebSocket that an upstream answers.

use neve_devnet::{DevnetThread, Fault};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::neve::Neve;
use crate::support::served::{devnet, follow};
use crate::support::ws::Ws;

const BALANCE: &str = r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]}"#;
const NUMBER: &str = r#"{"jsonrpc":"2.0","id":8,"method":"eth_blockNumber"}"#;

fn start() -> (DevnetThread, TempDir, Neve) {
    let node = devnet(5);
    let (dir, neve) = follow(&node, &["--on-miss", "relay"]);
    (node, dir, neve)
}

#[test]
fn missed_call_over_websocket_gets_the_text_of_the_node() {
    let (node, _dir, neve) = start();
    let mut ws = Ws::open(&neve);
    let batch = format!("[{NUMBER},{BALANCE}]");
    for message in [BALANCE, &batch] {
        ws.send(message);
        assert_eq!(ws.text(), Client::new(node.address()).post(message).text());
    }
    // A method that is not relayed is a miss.
    ws.send(r#"{"jsonrpc":"2.0","id":1,"method":"eth_sendTransaction","params":[{}]}"#);
    let miss: Value = serde_json::from_str(&ws.text()).unwrap();
    assert_eq!((&miss["id"], miss["error"].is_object()), (&json!(1), true), "{miss}");
    assert_eq!(node.counters().calls("eth_sendTransaction"), 0);
}

#[test]
fn calls_and_heads_go_on_while_an_upstream_is_waited_for() {
    let (node, _dir, neve) = start();
    let mut ws = Ws::open(&neve);
    let heads = ws.subscribe(r#"["newHeads"]"#);
    let stall = node.faults().inject(Fault::Stall.on("eth_getBalance"));
    ws.send(BALANCE);
    ws.send(NUMBER);
    assert!(ws.text().contains("\"id\":8"), "the second message is answered first");
    ws.ping();
    node.advance(1);
    assert_eq!(ws.heads(&heads, 1), [6]);
    stall.clear();
    assert!(ws.text().contains("\"id\":7,\"result\":"), "and the first one at last");
    // One that leaves takes its request along.
    let stall = node.faults().inject(Fault::Stall.on("eth_getBalance"));
    ws.send(BALANCE);
    neve.wait("a relayed request", |_| {
        (neve.metric("neve_relay_in_flight_requests") > Some(0.0)).then_some(())
    });
    drop(ws);
    neve.wait("its end", |_| {
        (neve.metric("neve_relay_in_flight_requests") == Some(0.0)).then_some(())
    });
    stall.clear();
}

#[test]
fn subscription_of_a_split_batch_is_told_nothing_before_the_response_with_its_id() {
    let (node, _dir, neve) = start();
    let mut ws = Ws::open(&neve);
    let stall = node.faults().inject(Fault::Stall.on("eth_getBalance"));
    let replay = r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads",{"fromBlock":"0x3"}]}"#;
    ws.send(&format!("[{replay},{BALANCE}]"));
    // Other messages are answered, and their subscriptions are told, meanwhile.
    let heads = ws.subscribe(r#"["newHeads"]"#);
    node.advance(1);
    assert_eq!(ws.heads(&heads, 1), [6]);
    stall.clear();
    let response: Value = serde_json::from_str(&ws.text()).unwrap();
    let id = response[0]["result"].as_str().unwrap_or_else(|| panic!("no id: {response}"));
    assert!(response[1]["result"].is_string(), "{response}");
    assert_eq!(ws.heads(id, 4), [3, 4, 5, 6]);
    node.advance(1);
    let told =
        [ws.notification(), ws.notification()].map(|told| (told.id.clone(), told.height("number")));
    assert!(told.contains(&(id.to_owned(), 7)) && told.contains(&(heads, 7)), "{told:?}");
}

#[test]
fn notification_that_no_upstream_takes_has_no_response() {
    let (node, _dir, neve) = start();
    let send = r#"{"jsonrpc":"2.0","method":"eth_sendRawTransaction","params":["0x0201"]}"#;
    let pending =
        r#"{"jsonrpc":"2.0","method":"eth_subscribe","params":["newPendingTransactions"]}"#;
    let failed = Fault::Reset.on("eth_sendRawTransaction");
    let failed = node.faults().inject(failed);
    let status = || neve.count("neve_relay_requests_total{outcome=\"unreachable\"}");
    // One that this neve relayed before, too.
    let own = "1.1 neve-0000000000000001,".repeat(5);
    for mut ws in [Ws::open(&neve), Ws::open_through(&neve, own.trim_end_matches(','))] {
        for message in [send.to_owned(), format!("[{send},{send}]"), pending.to_owned()] {
            ws.send(&message);
        }
        neve.wait("the failures", |_| (status() >= 2).then_some(()));
        ws.send(NUMBER);
        assert!(ws.text().contains("\"id\":8"), "nothing came before");
    }
    failed.clear();
}

#[test]
fn split_batch_over_websocket_without_a_relay_has_an_error_for_each_missing_call() {
    let node = devnet(5);
    for (treatment, served) in [("split", true), ("whole", false)] {
        let (_dir, neve) = follow(&node, &["--batch-miss", treatment]);
        let mut ws = Ws::open(&neve);
        ws.send(&format!("[{NUMBER},{BALANCE}]"));
        let all: Value = serde_json::from_str(&ws.text()).unwrap();
        assert_eq!(all.as_array().map(Vec::len), Some(2), "{all}");
        assert_eq!((&all[0]["id"], &all[1]["id"]), (&json!(8), &json!(7)));
        assert_eq!(all[0]["result"] == "0x5", served, "{treatment}: {all}");
        let error = &all[1]["error"];
        assert_eq!((&error["code"], error["message"].is_string()), (&json!(-32000), true), "{all}");
        assert_eq!(error["data"], json!({ "firstHeight": "0x0", "head": "0x5" }));
    }
}
