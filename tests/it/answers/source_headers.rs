//! `x-neve` and `x-neve-head`, on each response to JSON-RPC over HTTP and on no other one.

use std::fs;

use crate::clients::keys::entry;
use crate::support::client::{Client, Response};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::{devnet, follow};

const KEY: &str = "some-key-SECRET-0123456789";
const SLOW: &str = "slow-key-SECRET-0123456789";
const JSON: (&str, &str) = ("Content-Type", "application/json");
const CHAIN: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
const BALANCE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]}"#;

fn named(response: &Response) -> (u16, Option<&str>, Option<&str>) {
    (response.status, response.header("x-neve"), response.header("x-neve-head"))
}

fn post(neve: &Neve, headers: &[(&str, &str)], body: &str) -> Response {
    neve.client().request("POST", "/ext/bc/C/rpc", headers, body.as_bytes())
}

/// Sends a head alone.
fn head(neve: &Neve, method: &str, lines: &str) -> Response {
    let request = format!("{method} /ext/bc/C/rpc HTTP/1.1\r\n{lines}\r\n");
    Client::new(neve.address).raw(request.as_bytes()).expect("a response")
}

#[test]
fn response_to_json_rpc_names_its_source_and_the_head_whatever_its_status() {
    let node = devnet(5);
    let arguments = ["--body-bytes-max", "1KiB", "--allowed-hosts", "localhost"];
    let (_dir, neve) = follow(&node, &arguments);
    let missed = |status| (status, Some("miss"), Some("0x5"));
    assert_eq!(named(&post(&neve, &[JSON], CHAIN)), (200, Some("hit"), Some("0x5")));
    assert_eq!(named(&post(&neve, &[JSON], BALANCE)), missed(421));
    let origin = [JSON, ("Origin", "https://x.example")]; // off the fast path
    assert_eq!(named(&post(&neve, &origin, CHAIN)), (200, Some("hit"), Some("0x5")));
    let long = format!("[{}]", [CHAIN; 30].join(","));
    for headers in [&[JSON][..], &origin] {
        assert_eq!(named(&post(&neve, headers, &long)), missed(413));
    }
    assert_eq!(named(&post(&neve, &[("Content-Type", "text/plain")], CHAIN)), missed(415));
    let expects = [JSON, ("Expect", "x")];
    assert_eq!(named(&post(&neve, &expects, CHAIN)), missed(417));
    let length = "Content-Type: application/json\r\nContent-Length: 0\r\n";
    assert_eq!(
        named(&head(&neve, "POST", &format!("Host: evil.example\r\n{length}"))),
        missed(403)
    );
    let two = format!("Host: localhost\r\nHost: localhost\r\n{length}");
    assert_eq!(named(&head(&neve, "POST", &two)), missed(400));
    assert_eq!(named(&head(&neve, "POST", length)), missed(400));
    let coded = "Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n";
    assert_eq!(named(&head(&neve, "POST", coded)), missed(501));
    let route = [JSON, ("Avalanche-Api-Route", "P")];
    assert_eq!(named(&post(&neve, &route, CHAIN)), missed(404));
    // The head is the served one.
    node.advance(1);
    neve.wait_for_head(6);
    assert_eq!(named(&post(&neve, &[JSON], BALANCE)), (421, Some("miss"), Some("0x6")));
    // No other response names any.
    for path in ["/v1/blocks/5", "/v1/nothing", "/nothing"] {
        let other = neve.client().get(path);
        assert_eq!((other.header("x-neve"), other.header("x-neve-head")), (None, None), "{path}");
    }
}

#[test]
fn refusal_for_want_of_memory_names_its_source() {
    let node = devnet(5);
    // Not enough for a relayed request. A connection without memory for its request gets less.
    let arguments = ["--on-miss", "relay", "--client-bytes-total-max", "100KiB"];
    let (_dir, neve) = follow(&node, &arguments);
    let plain = post(&neve, &[JSON], BALANCE);
    let full = post(&neve, &[JSON, ("Origin", "https://x.example")], BALANCE);
    for refused in [plain, full] {
        assert_eq!(named(&refused), (503, Some("miss"), Some("0x5")), "{}", refused.text());
    }
}

#[test]
fn refusal_of_a_key_names_its_source() {
    let (node, dir) = (devnet(5), fresh_dir());
    let slow = entry("slow", SLOW) + "requests-per-second = 0.01\nmethods = [\"eth_chainId\"]\n";
    let file = dir.path().join("keys.toml");
    fs::write(&file, entry("some", KEY) + &slow).expect("a file");
    let (_dir, neve) = follow(&node, &["--keys", &file.display().to_string()]);
    let missed = |status| (status, Some("miss"), Some("0x5"));
    let with = |key: &str, body: &str| post(&neve, &[JSON, ("X-Api-Key", key)], body);
    assert_eq!(named(&with(KEY, CHAIN)), (200, Some("hit"), Some("0x5")));
    assert_eq!(named(&with("unknown-key", CHAIN)), missed(401));
    assert_eq!(named(&with(SLOW, BALANCE)), missed(403));
    assert_eq!(named(&with(SLOW, CHAIN)).0, 200);
    assert_eq!(named(&with(SLOW, CHAIN)), missed(429));
    let document = neve.client().get("/v1/blocks/5");
    assert_eq!((document.status, document.header("x-neve")), (401, None));
}
