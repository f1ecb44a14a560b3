//! Upstreams and clients that mean harm, or fail in a way of their own.

#![expect(clippy::needless_collect, reason = "faults are injected before the first call")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use neve_devnet::{DevnetThread, Fault};
use tempfile::TempDir;

use super::odd::Odd;
use super::wire::Wire;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::{devnet, follow};

const BALANCE: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]}"#;

/// A neve with several upstreams, once it follows all of them.
pub(super) fn start(urls: &[String], arguments: &[&str]) -> (TempDir, Neve) {
    let dir = fresh_dir();
    let urls: Vec<_> = urls.iter().flat_map(|url| ["--upstream", url]).collect();
    let fixed = ["--start", "0", "--on-miss", "relay"];
    let neve = Neve::start(dir.path(), &[&urls[..], &fixed, arguments].concat());
    neve.wait_for_head(5);
    neve.wait("all upstreams", |health| {
        let all = health["upstreams"].as_array()?;
        let up = all.iter().filter(|one| one["state"] == "up" && one["head"] == 5);
        (up.count() == urls.len() / 2).then_some(())
    });
    (dir, neve)
}

fn start_odd(arguments: &[&str]) -> (DevnetThread, Odd, TempDir, Neve) {
    let node = devnet(5);
    let odd = Odd::start(node.address());
    let (dir, neve) = start(&[odd.url()], arguments);
    (node, odd, dir, neve)
}

#[test]
fn upstream_that_works_is_asked_though_two_others_fail() {
    let nodes = [devnet(5), devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let (_dir, neve) = start(&urls, &[]);
    let mut client = neve.client();
    for working in 0..nodes.len() {
        let reset = |(at, node): (usize, &DevnetThread)| {
            (at != working).then(|| node.faults().inject(Fault::Reset.on("eth_getBalance")))
        };
        let faults: Vec<_> = nodes.iter().enumerate().filter_map(reset).collect();
        // The first calls may meet both of the others.
        let statuses = [(); 12].map(|()| client.call("eth_getBalance", BALANCE).status);
        assert_eq!(statuses[2..], [200; 10], "{working}: {statuses:?}");
        faults.into_iter().for_each(|fault| fault.clear());
    }
}

#[test]
fn read_goes_to_another_upstream_if_one_stalls() {
    let nodes = [devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let (_dir, neve) = start(&urls, &["--relay-timeout", "10s"]);
    for node in &nodes {
        let stall = node.faults().inject(Fault::Stall.on("eth_getBalance"));
        let answer = neve.client().call("eth_getBalance", BALANCE);
        assert_eq!(answer.status, 200, "{}", answer.text());
        stall.clear();
    }
}

#[test]
fn transaction_goes_to_all_upstreams_once_and_the_first_result_is_the_response() {
    let nodes = [devnet(5), devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let (_dir, neve) = start(&urls, &["--relay-broadcast", "--relay-timeout", "10s"]);
    let send = "eth_sendRawTransaction";
    let raw = r#"["0x0200000000000000000000000000000000000000000000000000000000000000"]"#;
    let calls = || nodes.each_ref().map(|node| node.counters().calls(send));
    let outcome =
        |name: &str| neve.count(&format!("neve_relay_broadcasts_total{{outcome=\"{name}\"}}"));
    let sent = neve.client().call(send, raw);
    assert_eq!((sent.status, sent.json()["result"].is_string()), (200, true), "{}", sent.text());
    neve.wait("all upstreams", |_| (outcome("ok") == 3).then_some(()));
    assert_eq!(calls(), [1, 1, 1]);
    // One refuses it, one stalls: the third one's result is the response.
    let refusal = nodes[0].faults().inject(Fault::Error("nonce too low".to_owned()).on(send));
    let stall = nodes[1].faults().inject(Fault::Stall.on(send));
    let sent = neve.client().call(send, raw);
    assert_eq!((sent.status, sent.json()["result"].is_string()), (200, true), "{}", sent.text());
    neve.wait("the refusal", |_| (outcome("rejected") == 1).then_some(()));
    stall.clear();
    neve.wait("the late one", |_| (outcome("ok") == 5).then_some(()));
    // Without a result, the response is an error of a node.
    let others: Vec<_> = nodes[1..]
        .iter()
        .map(|node| node.faults().inject(Fault::Error("nonce too low".to_owned()).on(send)))
        .collect();
    let refused = neve.client().call(send, raw);
    assert_eq!(refused.json()["error"]["message"], "nonce too low", "{}", refused.text());
    others.into_iter().for_each(|fault| fault.clear());
    refusal.clear();
    // Reads are asked of one.
    let before = nodes.iter().map(|node| node.counters().calls("eth_getBalance")).sum::<u64>();
    assert_eq!(neve.client().call("eth_getBalance", BALANCE).status, 200);
    let after = nodes.iter().map(|node| node.counters().calls("eth_getBalance")).sum::<u64>();
    assert_eq!(after, before + 1);
}

#[test]
fn odd_response_is_an_error_and_brings_nothing_along() {
    let (_node, odd, _dir, neve) = start_odd(&[]);
    let close = "Connection: close\r\n";
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close, x-hop\r\n";
    let body = r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#;
    let length = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let long = |bytes| "x".repeat(bytes);
    let [no_length, moved, long_head, longer_head, coded, two_lengths, html, old] = [
        format!("{json}\r\n{}", &body[..20]),
        format!("HTTP/1.1 302 Found\r\n{close}Location: http://x/?key=secret\r\n{length}"),
        format!("{json}X-Long: {}\r\n{length}", long(32 << 10)),
        format!("{json}X-Long: {}\r\n{length}", long(100_000)),
        format!("{json}Content-Encoding: gzip\r\n{length}"),
        format!("{json}Content-Length: 3\r\n{length}"),
        format!("HTTP/1.1 200 OK\r\n{close}Content-Type: text/html\r\n{length}"),
        format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}"),
    ];
    let unreachable = "relay: the upstream cannot be reached";
    for (answer, message) in [
        (no_length, "relay: the upstream's response has no length"),
        (old, "relay: the upstream's response has no length"),
        (moved, "relay: the upstream answered with HTTP 302"),
        (long_head, unreachable),
        (longer_head, unreachable),
        (two_lengths, unreachable),
        (coded, "relay: the upstream's response is not JSON"),
        (html, "relay: the upstream's response is not JSON"),
    ] {
        odd.answer(answer.as_bytes(), true);
        // The breaker may be open after the failures before.
        let failed = neve.wait("a response", |_| {
            let failed = neve.client().post(CALL);
            (failed.status != 503).then_some(failed)
        });
        assert_eq!(failed.status, 502, "{message}: {}", failed.text());
        assert_eq!(failed.json()["error"]["message"], message);
        let all = format!("{:?}", failed.headers);
        assert!(!all.contains("secret") && !all.contains("x-long"), "{all}");
    }
    // What comes behind a response is none, and two codings of a length are chunks.
    let chunked = format!(
        "{json}Transfer-Encoding: chunked\r\nContent-Length: 3\r\nX-Hop: 1\r\nSet-Cookie: a=b\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        body.len()
    );
    odd.answer(chunked.as_bytes(), true);
    let answer = neve.wait("a response", |_| {
        let answer = neve.client().post(CALL);
        (answer.status != 503).then_some(answer)
    });
    assert_eq!((answer.status, answer.text().as_str()), (200, body));
    for name in ["x-hop", "set-cookie"] {
        assert_eq!(answer.header(name), None);
    }
}

/// Such a response ends with its connection, whatever its length says, or is coded.
#[test]
fn response_with_another_coding_than_chunks_is_an_error() {
    let (_node, odd, _dir, neve) = start_odd(&[]);
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let body = r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#;
    let length = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let chunk = format!("\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let coding = |name: &str| format!("{json}Transfer-Encoding: {name}\r\n");
    for response in [
        format!("{}\r\n{}", coding("identity"), &body[..20]),
        format!("{}{length}", coding("identity")),
        format!("{}\r\n{}", coding("gzip"), &body[..20]),
        format!("{}{chunk}", coding("gzip, chunked")),
        format!("{}Transfer-Encoding: chunked\r\n{chunk}", coding("gzip")),
    ] {
        odd.answer(response.as_bytes(), true);
        // The breaker may be open after the failures before.
        let failed = neve.wait("a response", |_| {
            let failed = neve.client().post(CALL);
            (failed.status != 503).then_some(failed)
        });
        assert_eq!(failed.status, 502, "{response}: {}", failed.text());
        let message = "relay: the upstream's response has no length";
        assert_eq!(failed.json()["error"]["message"], message, "{response}");
    }
}

#[test]
fn response_without_an_end_ends_with_its_client() {
    let (_node, odd, _dir, neve) = start_odd(&["--relay-timeout", "1h"]);
    odd.answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n{",
        false,
    );
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{CALL}", CALL.len());
    let mut client = TcpStream::connect(neve.address).expect("it listens");
    client.write_all(request.as_bytes()).expect("it reads");
    let mut begin = [0; 15];
    client.read_exact(&mut begin).expect("the head comes");
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    let in_flight = || neve.metric("neve_relay_in_flight_requests");
    assert_eq!(in_flight(), Some(1.0));
    drop(client);
    neve.wait("the end of the request", |_| (in_flight() == Some(0.0)).then_some(()));
}

/// nginx speaks HTTP/1.0 to its upstreams by default, and takes the end of a connection for that of a
/// response without a length.
#[test]
fn response_that_breaks_off_is_no_whole_one_for_a_client_of_http_1_0() {
    let (_node, odd, _dir, neve) = start_odd(&[]);
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked";
    let part = "x".repeat(40 << 10);
    let chunk = format!("{:x}\r\n{part}\r\n", part.len());
    let get = |end: &str| {
        odd.answer(format!("{json}\r\n\r\n{chunk}{end}").as_bytes(), true);
        let head = "POST / HTTP/1.0\r\nHost: x\r\nContent-Type: application/json";
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{CALL}", CALL.len());
        let mut client = TcpStream::connect(neve.address).expect("it listens");
        client.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        let ended = client.read_to_end(&mut answer).map_err(|why| why.kind());
        (ended, String::from_utf8_lossy(&answer).into_owned())
    };
    let (ended, whole) = get("0\r\n\r\n");
    assert!(ended.is_ok() && whole.ends_with(&part), "{ended:?}");
    assert!(!whole.contains("content-length") && !whole.contains("chunked"), "{}", &whole[..300]);
    let (ended, _) = get("");
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
}

#[test]
fn request_that_was_relayed_by_this_neve_is_a_miss() {
    let node = devnet(5);
    let wire = Wire::start(node.address());
    let (_dir, neve) = start(&[wire.url()], &["--relay-paths", "/ext/info"]);
    let mut client = neve.client();
    assert_eq!(client.post(CALL).status, 200);
    let sent = wire.sent();
    let via = sent.lines().find_map(|line| line.strip_prefix("via: ")).expect("it names itself");
    assert!(via.starts_with("1.1 neve-") && !via.contains(','), "{via}");
    let json = ("Content-Type", "application/json");
    let own = [json, ("Via", via)];
    let looped = client.request("POST", "/ext/bc/C/rpc", &own, CALL.as_bytes());
    assert_eq!((looped.status, looped.header("x-neve")), (421, Some("miss")), "{}", looped.text());
    assert!(looped.text().contains("relayed in a loop"), "{}", looped.text());
    let batch = format!("[{CALL},{}]", r#"{"jsonrpc":"2.0","id":8,"method":"eth_blockNumber"}"#);
    let mixed = client.request("POST", "/ext/bc/C/rpc", &own, batch.as_bytes());
    assert_eq!((mixed.status, mixed.header("x-neve-misses")), (200, Some("1")), "{}", mixed.text());
    let info = r#"{"jsonrpc":"2.0","id":1,"method":"info.getNodeID"}"#;
    let path = client.request("POST", "/ext/info", &own, info.as_bytes());
    assert_eq!(path.status, 502, "{}", path.text());
    // Another neve's request goes on, and names both.
    let other = [json, ("Via", "1.1 neve-00000000000000aa, 1.1 client.example")];
    assert_eq!(client.request("POST", "/", &other, CALL.as_bytes()).status, 200);
    let sent = wire.sent();
    assert!(sent.contains(&format!("via: 1.1 neve-00000000000000aa, {via}\r\n")), "{sent}");
    assert!(!sent.contains("client.example"));
}

#[test]
fn path_of_the_node_takes_no_call_that_reaches_its_keys_or_settings() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--relay-paths", "/ext/info"]);
    let json = [("Content-Type", "application/json")];
    let before = neve.count("neve_relay_requests_total{outcome=\"ok\"}");
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"admin.lockProfile"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"info.peers","Method":"Keystore.exportUser"}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"personal_sign"}]"#,
        "x",
    ] {
        let refused = neve.client().request("POST", "/ext/info", &json, body.as_bytes());
        assert_eq!(refused.status, 403, "{body}: {}", refused.text());
    }
    assert_eq!(neve.count("neve_relay_requests_total{outcome=\"ok\"}"), before);
    for path in ["/ext/bc/C/rpc", "/ext/bc/c/RPC", "/ext/bc/C/ws"] {
        let output = run(&["serve", "--dev", "--on-miss", "relay", "--relay-paths", path]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains("neve's own API"), "{said}");
    }
}
