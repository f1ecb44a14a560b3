//! Bounds of the relay: paths, bytes, and the failures that a client sees.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use neve_devnet::{DevnetThread, Fault, RetryAfter};
use serde_json::json;
use tempfile::TempDir;

use super::wire::Wire;
use crate::support::client::{Client, Response};
use crate::support::neve::{Neve, run};
use crate::support::served::{devnet, follow};
use crate::support::ws::Ws;

const BALANCE: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
const SEND: &str = r#"["0x0200000000000000000000000000000000000000000000000000000000000000"]"#;

fn start(arguments: &[&str]) -> (DevnetThread, TempDir, Neve) {
    let node = devnet(5);
    let (dir, neve) = follow(&node, &[&["--on-miss", "relay"], arguments].concat());
    (node, dir, neve)
}

fn assert_fails(response: &Response, status: u16, code: i64, message: &str) {
    assert_eq!(response.status, status, "{}", response.text());
    assert_eq!(response.header("x-neve"), Some("miss"));
    let error = response.json();
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(code)), "{error}");
    assert_eq!(error["error"]["message"], message);
}

/// A request without an answer, on a connection of its own.
fn open(neve: &Neve, method: &str) -> TcpStream {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{BALANCE}}}"#);
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(neve.address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

fn wait_for_in_flight(neve: &Neve, count: f64) {
    neve.wait("relayed requests in flight", |_| {
        let now = neve.metric("neve_relay_in_flight_requests").unwrap_or_default();
        (now.to_bits() == count.to_bits()).then_some(())
    });
}

#[test]
fn methods_that_use_the_keys_of_a_node_are_not_relayed() {
    let (node, _dir, neve) = start(&[]);
    let mut client = neve.client();
    for (method, params) in [
        ("eth_sendTransaction", "[{}]"),
        ("eth_signTransaction", "[{}]"),
        ("eth_fillTransaction", "[{}]"),
        ("eth_resend", "[{}]"),
        ("personal_listAccounts", "[]"),
        ("admin_exportChain", "[\"x\"]"),
        ("debug_traceTransaction", "[\"0x\"]"),
        ("txpool_content", "[]"),
    ] {
        let refused = client.call(method, params);
        assert_eq!((refused.status, refused.header("x-neve")), (421, Some("miss")), "{method}");
        assert_eq!(node.counters().calls(method), 0, "{method}");
    }
    for name in
        ["personal_sign", "admin_x", "Admin_x", "keystore.exportUser", "eth getBalance", "eth"]
    {
        let output = run(&["serve", "--dev", "--relay-methods", &format!("default,{name}")]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(&format!("--relay-methods {name} (flag): ")), "{said}");
    }
}

#[test]
fn method_is_relayed_when_it_is_named() {
    let (node, _dir, neve) = start(&["--relay-methods", "default,debug_traceTransaction"]);
    let traced = neve.client().call("debug_traceTransaction", "[\"0x\"]");
    let expected = Client::new(node.address()).call("debug_traceTransaction", "[\"0x\"]");
    assert_eq!((traced.status, traced.text()), (200, expected.text()));
    assert_eq!(traced.header("x-neve"), Some("relay"));
}

#[test]
fn headers_of_a_client_and_of_an_upstream_stay_on_their_sides() {
    let node = devnet(5);
    let wire = Wire::start(node.address());
    let dir = crate::support::neve::fresh_dir();
    let keys = dir.path().join("keys");
    std::fs::write(&keys, "X-Key: upstream-secret\n").expect("a file");
    let (url, keys) = (wire.url(), keys.display().to_string());
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let with_keys = [&arguments[..], &["--upstream-header-file", &keys]].concat();
    let neve = Neve::start(dir.path(), &with_keys);
    neve.wait_for_head(5);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":{BALANCE},"x":"smuggled"}}"#
    );
    let headers = [
        ("Content-Type", "application/json"),
        ("Authorization", "Bearer client-secret"),
        ("Cookie", "session=client-secret"),
        ("Connection", "keep-alive, x-hop"),
        ("X-Hop", "client-secret"),
        ("X-Forwarded-For", "203.0.113.9"),
        ("Accept-Encoding", "gzip"),
        ("User-Agent", "client-agent"),
    ];
    let answer = neve.client().request("POST", "/ext/bc/C/rpc", &headers, body.as_bytes());
    assert_eq!((answer.status, answer.header("x-neve")), (200, Some("relay")));
    let sent = wire.sent();
    let at = sent.rfind("eth_getBalance").expect("it was relayed");
    let request = &sent[sent[..at].rfind("POST ").expect("a request")..];
    for word in ["client-secret", "203.0.113.9", "gzip", "client-agent", "smuggled", "x-hop"] {
        assert!(!request.to_lowercase().contains(word), "{word}: {request}");
    }
    assert!(request.contains("upstream-secret"), "{request}");
    let got = format!("{:?}{}", answer.headers, answer.text());
    assert!(!got.contains("upstream-secret") && !got.to_lowercase().contains("node-id"), "{got}");
}

#[test]
fn transaction_is_sent_once_and_a_read_is_repeated() {
    let (node, _dir, neve) = start(&[]);
    let mut client = neve.client();
    let read = node.faults().inject(Fault::Reset.on("eth_getBalance").times(1));
    assert_eq!(client.call("eth_getBalance", BALANCE).status, 200);
    assert_eq!(read.hits(), 1);
    for fault in [Fault::Reset, Fault::Status(500, RetryAfter::Absent)] {
        let injected = node.faults().inject(fault.on("eth_sendRawTransaction"));
        let failed = client.call("eth_sendRawTransaction", SEND);
        assert_eq!((failed.status, injected.hits()), (502, 1), "{}", failed.text());
        injected.clear();
    }
    let sent = client.call("eth_sendRawTransaction", SEND);
    assert_eq!((sent.status, node.counters().calls("eth_sendRawTransaction")), (200, 1));
}

#[test]
fn failure_of_an_upstream_is_an_error_with_the_id_of_the_call() {
    let (node, _dir, neve) = start(&["--relay-response-bytes-max", "1KiB"]);
    let (_dir, hasty) = follow(&node, &["--on-miss", "relay", "--relay-timeout", "400ms"]);
    let fails = |neve: &Neve, fault: Fault, status: u16, code: i64, message: &str| {
        let injected = node.faults().inject(fault.on("eth_getBalance"));
        assert_fails(&neve.client().call("eth_getBalance", BALANCE), status, code, message);
        injected.clear();
    };
    fails(&hasty, Fault::Stall, 504, -32002, "request timed out");
    let html = Fault::Status(418, RetryAfter::Absent);
    fails(&neve, html, 502, -32603, "relay: the upstream answered with HTTP 418");
    let long = format!("\"{}\"", "x".repeat(1500));
    let too_long = "relay: the response is longer than 1024 bytes";
    fails(&neve, Fault::Result(long), 502, -32003, too_long);
    let throttled = "relay: too many requests; try again later";
    fails(&neve, Fault::Status(429, RetryAfter::Seconds(1)), 429, -32005, throttled);
    drop(node);
    // A later call may try the upstream again, which is another error.
    let down = neve.wait("a call without an upstream", |_| {
        let response = neve.client().call("eth_getBalance", BALANCE);
        (response.status == 503).then_some(response)
    });
    assert_fails(&down, 503, -32603, "relay: no upstream answers now; try again later");
    assert_eq!(down.header("retry-after"), Some("1"));
    let block = neve.client().call("eth_getBlockByNumber", "[\"0x5\",false]");
    assert_eq!((block.status, block.header("x-neve")), (200, Some("hit")));
}

#[test]
fn response_that_is_too_long_or_cut_ends_the_connection() {
    let (node, _dir, neve) = start(&["--relay-response-bytes-max", "4KiB"]);
    let long = format!("\"{}\"", "x".repeat(100_000));
    for fault in [Fault::Result(long), Fault::Truncate] {
        let injected = node.faults().inject(fault.on("eth_getBalance"));
        let mut client = Client::new(neve.address);
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":{BALANCE}}}"#);
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let whole = client.raw(request.as_bytes());
        // If nothing of a body has come yet when it breaks, it is an error with a status.
        let refused = whole.as_ref().is_ok_and(|response| response.status == 502);
        assert!(whole.is_err() || refused, "a part passes for the whole: {whole:?}");
        injected.clear();
    }
}

#[test]
fn requests_in_flight_are_bounded_and_end_with_their_client() {
    let limits = ["--relayed-requests-total-max", "2", "--relayed-requests-address-max", "1"];
    let (node, _dir, neve) = start(&limits);
    let stall = node.faults().inject(Fault::Stall.on("eth_getBalance"));
    let began = Instant::now();
    let waiting = open(&neve, "eth_getBalance");
    wait_for_in_flight(&neve, 1.0);
    let second = neve.client().call("eth_getBalance", BALANCE);
    assert_fails(&second, 429, -32005, "relay: too many requests; try again later");
    assert_eq!(second.header("retry-after"), Some("1"));
    drop(waiting);
    wait_for_in_flight(&neve, 0.0);
    assert!(began.elapsed().as_secs() < 34, "it ended with its time and not with its client");
    assert_eq!(neve.count("neve_relay_requests_total{outcome=\"abandoned\"}"), 1);
    stall.clear();
    assert_eq!(neve.client().call("eth_getBalance", BALANCE).status, 200);
}

#[test]
fn requests_in_flight_of_all_addresses_together_are_bounded() {
    let limits = ["--relayed-requests-total-max", "1", "--relayed-requests-address-max", "1"];
    let (node, _dir, neve) = start(&limits);
    let stall = node.faults().inject(Fault::Stall.on("eth_getBalance"));
    let waiting = open(&neve, "eth_getBalance");
    wait_for_in_flight(&neve, 1.0);
    // Another address has its own place, and finds none of all.
    let mut other = Ws::open_from(&neve, [127, 0, 0, 2]);
    let call =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":{BALANCE}}}"#);
    other.send(&call);
    let refused = other.text();
    assert!(refused.contains("relay: too many requests; try again later"), "{refused}");
    drop(waiting);
    wait_for_in_flight(&neve, 0.0);
    stall.clear();
    other.send(&call);
    let answered = other.text();
    assert!(answered.contains("\"result\":"), "{answered}");
}

#[test]
fn rate_of_relayed_requests_is_bounded() {
    let (node, _dir, neve) = start(&["--relay-requests-per-second", "0.1"]);
    let mut client = neve.client();
    let statuses: Vec<_> = (0..5).map(|_| client.call("eth_getBalance", BALANCE).status).collect();
    assert_eq!(statuses, [200, 429, 429, 429, 429]);
    assert_eq!(node.counters().calls("eth_getBalance"), 1);
    let output = run(&[
        "serve",
        "--dev",
        "--upstream-requests-per-second",
        "10",
        "--relay-requests-per-second",
        "6",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("up to 5, half of --upstream-requests-per-second"), "{said}");
}

#[test]
fn address_that_uses_up_the_rate_leaves_a_share_of_it_to_another() {
    let (_node, _dir, neve) = start(&["--relay-requests-per-second", "8"]);
    let (mut greedy, mut other) = (neve.client(), Ws::open_from(&neve, [127, 0, 0, 2]));
    for _ in 0..2 {
        while greedy.call("eth_getBalance", BALANCE).status != 429 {}
        let answer = other.call("eth_getBalance", BALANCE);
        assert!(answer.contains("\"result\""), "{answer}");
    }
}

/// Memory of relayed requests is that of their clients.
#[test]
fn relayed_request_takes_memory_of_its_client() {
    let (_node, _dir, neve) = start(&["--client-bytes-total-max", "100KiB"]);
    let refused = neve.client().call("eth_getBalance", BALANCE);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let block = neve.client().call("eth_getBlockByNumber", "[\"0x5\",false]");
    assert_eq!(block.status, 200);
}

#[test]
fn trace_is_asked_for_again_when_its_connection_broke() {
    let method = "debug_traceTransaction";
    let (node, _dir, neve) = start(&["--relay-methods", "default,debug_traceTransaction"]);
    let broken = node.faults().inject(Fault::Reset.on(method).times(1));
    assert_eq!(neve.client().call(method, "[\"0x\"]").status, 200);
    assert_eq!(broken.hits(), 1);
}

/// The rate to an upstream is one for all; the relay gets at most half of it.
#[test]
fn heads_come_while_clients_ask_the_relay_for_far_more_than_the_upstream_may_get() {
    let rates = ["--upstream-requests-per-second", "20"];
    let (node, _dir, neve) = start(&rates);
    let (began, asked) = (Instant::now(), node.counters().calls("eth_getBalance"));
    let ends = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        let flood = || {
            let (mut client, mut refused) = (neve.client(), 0_u64);
            while !ends.load(Ordering::Relaxed) {
                let status = client.call("eth_getBalance", BALANCE).status;
                assert!(matches!(status, 200 | 429), "{status}");
                refused += u64::from(status == 429);
            }
            refused
        };
        let floods = [(); 4].map(|()| scope.spawn(flood));
        for head in 6..=15 {
            node.advance(1);
            neve.wait_for_head(head);
        }
        ends.store(true, Ordering::Relaxed);
        floods.map(|flood| flood.join().expect("no panic")).iter().sum::<u64>()
    });
    let relayed = node.counters().calls("eth_getBalance") - asked;
    assert!(refused > 0, "{relayed} calls were relayed and none refused");
    let most = 10 * (began.elapsed().as_secs() + 3);
    assert!(relayed < most, "{relayed} calls were relayed, {most} at most");
}
