//! Keys of an upstream that its own responses repeat.

use std::fmt::Write;
use std::fs;

use rustix::process::Signal;

use super::odd::Odd;
use super::script::Script;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::devnet;
use crate::support::ws::Ws;

const KEY: &str = "Upstream-Secret-1";
const BALANCE: &str = "eth_getBalance";
const LATEST: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
const SECRET: &str = "relay: the upstream's response has a secret in it and is not passed on";

fn error(letters: usize) -> String {
    let long = "x".repeat(letters);
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32000,"message":"no key {KEY} {long}"}}}}"#
    )
}

#[test]
fn short_response_that_repeats_a_key_of_the_upstream_is_an_error() {
    let (node, dir) = (devnet(5), fresh_dir());
    let (odd, script) = (Odd::start(node.address()), Script::start());
    let keys = dir.path().join("keys");
    fs::write(&keys, format!("X-Key: {KEY}\n")).expect("a file");
    let (url, keys, rule) = (odd.url(), keys.display().to_string(), script.keyed_rule(KEY));
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let more = ["--upstream-header-file", &keys, "--relay-paths", "/ext/info", "--relay-to", &rule];
    let neve = Neve::start(dir.path(), &[&arguments[..], &more].concat());
    neve.wait_for_head(5);
    let mut client = neve.client();
    odd.answer_with(BALANCE, &error(0));
    let single = client.call(BALANCE, LATEST);
    assert_eq!((single.status, single.json()["error"]["message"].as_str()), (502, Some(SECRET)));
    let call = |id: u32, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let batch = format!("[{},{}]", call(1, "eth_blockNumber", "[]"), call(2, BALANCE, LATEST));
    let mixed = client.post(&batch);
    assert_eq!(mixed.json()[1]["error"]["message"], SECRET, "{}", mixed.text());
    let mut ws = Ws::open(&neve);
    for message in [call(1, BALANCE, LATEST), batch] {
        ws.send(&message);
        let text = ws.text();
        assert!(text.contains(SECRET) && !text.contains(KEY), "{text}");
    }
    // Another path may have any status.
    let page = format!("no key {KEY}");
    let head = "Content-Type: text/plain\r\nConnection: close\r\nContent-Length";
    let not_found = format!("HTTP/1.1 404 x\r\n{head}: {}\r\n\r\n{page}", page.len());
    odd.answer_as("info.getNodeID", not_found.as_bytes());
    let json = [("Content-Type", "application/json")];
    let info = call(1, "info.getNodeID", "[]");
    let refused = client.request("POST", "/ext/info", &json, info.as_bytes());
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert!(!refused.text().contains(KEY), "{}", refused.text());
    // A subscription that its upstream refuses by its key.
    ws.send(&call(1, "eth_subscribe", r#"["newPendingTransactions"]"#));
    let mut upstream = script.accept();
    upstream.text();
    assert!(upstream.send(&error(0)));
    let text = ws.text();
    assert!(text.contains(SECRET) && !text.contains(KEY), "{text}");
}

/// Response in chunks that end at these places.
fn chunked(body: &str, ends: impl Iterator<Item = usize>) -> String {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    let (mut all, mut from) = (format!("{head}\r\nTransfer-Encoding: chunked\r\n\r\n"), 0);
    for end in ends.chain([body.len()]) {
        let chunk = &body[from..end];
        write!(all, "{:x}\r\n{chunk}\r\n", chunk.len()).expect("a text grows");
        from = end;
    }
    all + "0\r\n\r\n"
}

#[test]
fn long_response_comes_without_the_keys_of_the_upstream() {
    let (node, dir) = (devnet(5), fresh_dir());
    let odd = Odd::start(node.address());
    let keys = dir.path().join("keys");
    fs::write(&keys, format!("X-Key: {KEY}\n")).expect("a file");
    let (url, path) = (odd.url(), keys.display().to_string());
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let more = ["--upstream-header-file", &path];
    let neve = Neve::start(dir.path(), &[&arguments[..], &more].concat());
    neve.wait_for_head(5);
    let (mut client, mut ws) = (neve.client(), Ws::open(&neve));
    let long = "x".repeat(20 << 10);
    let begin = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{KEY} {long}"#);
    let body = format!(r#"{begin}{KEY} {long}{KEY}"}}"#);
    let expected = body.replace(KEY, &"*".repeat(KEY.len()));
    let in_key = (0..=KEY.len()).map(|part| begin.len() + part);
    let ends = in_key.chain([body.len() - 5, body.len() - 2]);
    odd.answer_with(BALANCE, &body);
    assert_eq!(client.call(BALANCE, LATEST).text(), expected);
    odd.answer_as(BALANCE, chunked(&body, ends).as_bytes());
    assert_eq!(client.call(BALANCE, LATEST).text(), expected);
    let params = format!(r#""method":"{BALANCE}","params":{LATEST}"#);
    ws.send(&format!(r#"{{"jsonrpc":"2.0","id":1,{params}}}"#));
    assert_eq!(ws.text().trim_end(), expected);
    neve.wait_for_log("key hidden in a response");
    assert!(!neve.log().contains(KEY));
}

#[test]
fn key_that_a_reload_brings_is_searched_for_and_so_is_the_earlier_one() {
    let (node, dir) = (devnet(5), fresh_dir());
    let odd = Odd::start(node.address());
    let keys = dir.path().join("keys");
    let headers = |key: &str| {
        let harmless = "Accept: application/json\nCache-Control: no-transform\n";
        fs::write(&keys, format!("{harmless}X-Key: {key}\n")).expect("a file");
    };
    headers(KEY);
    let (url, path) = (odd.url(), keys.display().to_string());
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let more = ["--upstream-header-file", &path];
    let neve = Neve::start(dir.path(), &[&arguments[..], &more].concat());
    neve.wait_for_head(5);
    // The media type of each response is that of `Accept`.
    odd.answer_with(BALANCE, r#"{"jsonrpc":"2.0","id":1,"result":"no-transform"}"#);
    assert_eq!(neve.client().result(BALANCE, LATEST), "no-transform");
    let newer = "Upstream-Secret-2";
    headers(newer);
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstream headers read");
    for key in [newer, KEY] {
        odd.answer_with(BALANCE, &error(0).replace(KEY, key));
        let withheld = neve.client().call(BALANCE, LATEST);
        assert_eq!(withheld.json()["error"]["message"], SECRET, "{key}");
    }
    neve.wait_for_log("response withheld");
    assert!(neve.log().contains(&format!("upstream={url:?}")), "{}", neve.log());
}
