//! Bodies that are no response, though their heads say so.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::odd::Odd;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::{devnet, follow};
use crate::support::ws::Ws;

const METHOD: &str = "eth_getBalance";
const BALANCE: &str = r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","0x3"]}"#;
const NUMBER: &str = r#"{"jsonrpc":"2.0","id":8,"method":"eth_blockNumber"}"#;
const SEND: &str = "eth_sendRawTransaction";
const NOT_JSON: &str = "relay: the upstream's response is not JSON";
const BODIES: [&str; 6] =
    ["", "<html>busy</html>", "\"busy\"", r#"{"jsonrpc":"2.0","id":7,"result":"0x"#, " \n", "null"];
/// Ways of a call: alone, in a split batch, in one for an upstream alone; over HTTP, and over WebSocket.
const WAYS: usize = 6;

/// A neve with this upstream alone.
fn start(odd: &Odd, arguments: &[&str]) -> (TempDir, Neve) {
    let (dir, url) = (fresh_dir(), odd.url());
    let fixed = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let neve = Neve::start(dir.path(), &[&fixed, arguments].concat());
    neve.wait_for_head(5);
    (dir, neve)
}

/// Response to the call.
fn ask(neve: &Neve, way: usize) -> Value {
    let message = match way % 3 {
        0 => BALANCE.to_owned(),
        1 => format!("[{NUMBER},{BALANCE}]"),
        _ => format!("[{BALANCE}]"),
    };
    let text = if way < 3 {
        neve.client().post(&message).text()
    } else {
        let mut ws = Ws::open(neve);
        ws.send(&message);
        ws.text()
    };
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{way}: {text}"));
    let answer = all.as_array().map_or(&all, |all| &all[all.len() - 1]);
    assert_eq!(answer["id"], 7, "{way}: {text}");
    answer.clone()
}

#[test]
fn second_upstream_is_asked_if_the_body_of_the_first_is_no_response() {
    let node = devnet(5);
    for (way, body) in (0..WAYS).zip(BODIES) {
        let odd = Odd::start(node.address());
        odd.answer_with(METHOD, body);
        let rule = format!("{METHOD}={}", odd.url());
        // Anew for each: an upstream that failed is asked last for a while.
        let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--relay-to", &rule]);
        let answer = ask(&neve, way);
        assert!(answer["result"].is_string(), "{way}, {body:?}: {answer}");
        assert_eq!(odd.asked(METHOD), 1, "{way}, {body:?}");
    }
}

#[test]
fn body_that_is_no_response_is_an_error_if_no_other_upstream_is_there() {
    let node = devnet(5);
    let odd = Odd::start(node.address());
    let (_dir, neve) = start(&odd, &[]);
    for (way, body) in (0..WAYS).zip(BODIES) {
        odd.answer_with(METHOD, body);
        let expected = json!({ "code": -32603, "message": NOT_JSON });
        assert_eq!(ask(&neve, way)["error"], expected, "{way}, {body:?}");
        // Before five failures in a row: neve would leave it alone.
        odd.answer_with(METHOD, r#"[{"jsonrpc":"2.0","id":0,"result":"0x1"}]"#);
        assert_eq!(ask(&neve, 1)["result"], "0x1");
    }
}

/// Else an upstream could answer in place of neve.
#[test]
fn answer_with_another_id_takes_the_place_of_no_other() {
    let node = devnet(5);
    let odd = Odd::start(node.address());
    let (_dir, neve) = start(&odd, &[]);
    let batch = format!("[{BALANCE},{NUMBER}]");
    for item in [
        r#"{"jsonrpc":"2.0","id":0,"result":"0xfake","id":8}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":"0xfake","error":{"code":1},"ID":8}"#,
    ] {
        odd.answer_with(METHOD, &format!("[{item}]"));
        let text = neve.client().post(&batch).text();
        assert!(!text.contains("0xfake"), "{text}");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&all[1]["id"], &all[1]["result"]), (&json!(8), &json!("0x5")), "{text}");
    }
}

/// Over WebSocket a client finds the call of a message by its id alone.
#[test]
fn response_with_another_id_goes_to_no_client_of_a_websocket() {
    let node = devnet(5);
    let odd = Odd::start(node.address());
    let (_dir, neve) = start(&odd, &[]);
    let long = "0".repeat(100_000);
    let notification = r#"[{"method":"eth_subscription","params":{"subscription":"0x1"}}]"#;
    for body in [
        r#"{"jsonrpc":"2.0","id":8,"result":"0xfake"}"#.to_owned(),
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":"0x{long}","id":8}}"#),
        r#"[{"jsonrpc":"2.0","id":8,"result":"0xfake"}]"#.to_owned(),
        notification.to_owned(),
    ] {
        odd.answer_with(METHOD, &body);
        for way in [3, 5] {
            assert_eq!(ask(&neve, way)["error"]["message"], NOT_JSON, "{way}: {body:.80}");
        }
        // Nor does a notification get a response.
        let ok = || neve.count("neve_relay_requests_total{outcome=\"ok\"}");
        let (mut ws, before) = (Ws::open(&neve), ok());
        ws.send(&BALANCE.replace("\"id\":7,", ""));
        neve.wait("its response", |_| (ok() > before).then_some(()));
        ws.send(NUMBER);
        assert!(ws.text().contains("\"id\":8,\"result\":\"0x5\""));
    }
    let whole = format!(r#"{{"jsonrpc":"2.0","id":7,"result":"0x{long}"}}"#);
    odd.answer_with(METHOD, &whole);
    assert_eq!(ask(&neve, 3)["result"], format!("0x{long}"));
}

#[test]
fn notifications_want_no_response() {
    let node = devnet(5);
    let odd = Odd::start(node.address());
    odd.answer_with(METHOD, "");
    let rule = format!("{METHOD}={}", odd.url());
    let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--relay-to", &rule]);
    let silent = BALANCE.replace("\"id\":7,", "");
    let batch = format!("[{silent},{silent}]");
    let mixed = format!("[{NUMBER},{silent}]");
    for (asked, message) in [silent.as_str(), &batch, &mixed].into_iter().enumerate() {
        assert_eq!(neve.client().post(message).status, 200, "{message}");
        assert_eq!(odd.asked(METHOD), asked as u64 + 1, "{message}");
    }
    assert_eq!(node.counters().calls(METHOD), 0);
}

#[test]
fn body_that_is_no_response_takes_no_transaction_of_a_broadcast() {
    let node = devnet(5);
    let odd = Odd::start(node.address());
    odd.answer_with(SEND, "");
    let (_dir, neve) = start(&odd, &["--relay-broadcast"]);
    let raw = format!("0x02{:062x}", 1);
    let send = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{SEND}","params":["{raw}"]}}"#);
    let answer = neve.client().post(&format!("[{send}]")).json();
    assert_eq!(answer[0]["error"]["message"], NOT_JSON, "{answer}");
}
