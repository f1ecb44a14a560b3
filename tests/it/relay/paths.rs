//! Other paths of the node.

use super::batches::threads;
use super::odd::Odd;
use super::wire::Wire;
use crate::support::client::{Client, Response};
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::{devnet, follow};

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

fn told(response: &Response) -> (u16, String, Option<&str>) {
    (response.status, response.text(), response.header("content-type"))
}

#[test]
fn named_path_gets_the_response_of_the_node_and_no_other_path_does() {
    let node = devnet(5);
    let paths = ["--on-miss", "relay", "--relay-paths", "/ext/health,/ext/info,/ext/none"];
    let (_dir, neve) = follow(&node, &paths);
    let mut client = neve.client();
    for (method, path, body) in [
        ("GET", "/ext/health", &b""[..]),
        ("POST", "/ext/info", br#"{"jsonrpc":"2.0","id":1,"method":"info.getNodeID"}"#),
        ("GET", "/ext/none", b""),
    ] {
        let relayed = client.request(method, path, &JSON, body);
        let expected = Client::new(node.address()).request(method, path, &JSON, body);
        assert_eq!(told(&relayed), told(&expected), "{path}");
        assert_eq!(relayed.header("x-neve"), Some("relay"));
    }
    let relayed = || neve.count("neve_relay_requests_total{outcome=\"ok\"}");
    let before = relayed();
    assert_eq!(before, 3);
    for path in [
        "/ext/health/",
        "/ext/health?x=1",
        "/ext//health",
        "/ext/./health",
        "/ext/x/../health",
        "/ext%2fhealth",
        "/ext%5chealth",
        "/ext/%2568ealth",
        "/ext/bc/P",
        "/ext/admin",
    ] {
        let other = client.get(path);
        assert!(matches!(other.status, 301 | 404), "{path}: {}", other.status);
        assert_eq!(other.header("x-neve"), None, "{path}");
    }
    let route = [("Avalanche-Api-Route", "P")];
    assert_eq!(client.request("GET", "/ext/health", &route, b"").status, 404);
    assert_eq!(client.request("PUT", "/ext/health", &[], b"x").status, 405);
    assert_eq!(relayed(), before);
    assert_eq!(client.get("/ext/%68ealth").header("x-neve"), Some("relay"), "one decoding");
}

#[test]
fn long_body_for_a_path_is_read_on_a_thread_that_serves_nobody() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--relay-paths", "/ext/info"]);
    for (spaces, elsewhere) in [(1 << 10, false), (64 << 10, true)] {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"info.getNodeID"}"#;
        let body = " ".repeat(spaces) + call;
        let relayed = neve.client().request("POST", "/ext/info", &JSON, body.as_bytes());
        assert_eq!((relayed.status, relayed.header("x-neve")), (200, Some("relay")));
        let searches = threads(&neve).iter().any(|name| name == "search");
        assert_eq!(searches, elsewhere, "{:?}", threads(&neve));
    }
}

#[test]
fn limit_at_another_path_holds_up_no_call() {
    let (node, dir) = (devnet(5), fresh_dir());
    let odd = Odd::start(node.address());
    let url = odd.url();
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &["--relay-paths", "/ext/info"]].concat());
    neve.wait_for_head(5);
    let limit = "HTTP/1.1 429 x\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n";
    odd.answer_as("info.peers", limit.as_bytes());
    odd.answer_with("eth_getBalance", r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#);
    let peers = br#"{"jsonrpc":"2.0","id":1,"method":"info.peers"}"#;
    let mut client = neve.client();
    assert_eq!(client.request("POST", "/ext/info", &JSON, peers).status, 429);
    let other =
        client.call("eth_getBalance", r#"["0x0000000000000000000000000000000000000001","latest"]"#);
    assert_eq!(other.status, 200, "{}", other.text());
}

/// Else a page of the node would act in a browser as one of neve's.
#[test]
fn response_at_another_path_is_no_page_of_neve() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--relay-paths", "/ext/health"]);
    let health = neve.client().get("/ext/health");
    let told =
        ["x-content-type-options", "content-security-policy"].map(|name| health.header(name));
    assert_eq!(told, [Some("nosniff"), Some("sandbox")], "{}", health.status);
}

#[test]
fn path_of_keys_or_settings_is_refused_at_the_start() {
    let dir = fresh_dir();
    let store = dir.path().display().to_string();
    for path in [
        "/ext/admin",
        "/ext/keystore",
        "/ext/bc/C/Admin",
        "ext",
        "/",
        "/a//b",
        "/a/../b",
        "/a?b",
        "/%61",
    ] {
        let arguments = ["serve", "--data-dir", &store, "--upstream", "http://127.0.0.1:1"];
        let more = ["--on-miss", "relay", "--relay-paths", path];
        let output = run(&[&arguments[..], &more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(&format!("--relay-paths {path} (flag): ")), "{said}");
    }
}

/// The relay would answer it in neve's place.
#[test]
fn path_that_neve_answers_itself_is_refused_at_the_start() {
    for path in [
        "/health",
        "/ready",
        "/metrics",
        "/ws",
        "/v1",
        "/v1/block/latest",
        "/mirror/v1/stream",
        "/key/rpc",
        "/",
    ] {
        // No directory: neve would end there.
        let arguments = ["serve", "--data-dir", "/dev/null/x", "--upstream", "http://127.0.0.1:1"];
        let more = ["--on-miss", "relay", "--rpc-paths", "/key/rpc", "--relay-paths", path];
        let output = run(&[&arguments[..], &more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = "neve answers it itself; allowed: paths of the node such as /ext/info";
        assert!(said.contains(&format!("--relay-paths {path} (flag): {why}")), "{said}");
        assert_eq!(output.status.code(), Some(64), "{said}");
    }
}

#[test]
fn other_path_stands_beside_that_of_the_chain_in_the_address_of_the_upstream() {
    let (node, dir) = (devnet(5), fresh_dir());
    let wire = Wire::start(node.address());
    let url = format!("{}/ext/bc/C/rpc?token=upstream-key", wire.url());
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let more = ["--relay-paths", "/ext/info", "--upstream-ws", "none"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &more].concat());
    neve.wait_for_head(5);
    let info = br#"{"jsonrpc":"2.0","id":1,"method":"info.getNodeID"}"#;
    neve.client().request("POST", "/ext/info", &JSON, info);
    let sent = wire.sent();
    assert!(sent.contains("POST /ext/info?token=upstream-key HTTP/1.1\r\n"), "{sent}");
}

#[test]
fn address_that_tells_no_place_of_other_paths_is_refused_at_the_start() {
    let dir = fresh_dir();
    let store = dir.path().display().to_string();
    let arguments = ["serve", "--data-dir", &store, "--upstream", "http://127.0.0.1:1/v1/SECRET"];
    let more = ["--on-miss", "relay", "--relay-paths", "/ext/info"];
    let output = run(&[&arguments[..], &more].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{said}");
    let why = "the upstream http://127.0.0.1:1 does not end with /ext/bc/C/rpc";
    assert!(said.contains("--relay-paths") && said.contains(why), "{said}");
    assert!(!said.contains("SECRET"), "{said}");
}

#[test]
fn paths_of_atomic_transactions_and_of_other_chains_are_relayed_when_they_are_named() {
    let (node, dir) = (devnet(5), fresh_dir());
    let odd = Odd::start(node.address());
    let wire = Wire::start(odd.address());
    let url = wire.url();
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let paths = ["--relay-paths", "/ext/bc/C/avax,/ext/bc/P,/ext/bc/X"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &paths].concat());
    neve.wait_for_head(5);
    let mut client = neve.client();
    for (path, method, result) in [
        ("/ext/bc/C/avax", "avax.getAtomicTx", r#"{"tx":"0x00","blockHeight":"5"}"#),
        ("/ext/bc/P", "platform.getHeight", r#"{"height":"12"}"#),
        ("/ext/bc/X", "avm.getTx", r#"{"tx":"0x01"}"#),
    ] {
        let response = format!(r#"{{"jsonrpc":"2.0","result":{result},"id":1}}"#);
        odd.answer_with(method, &response);
        let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
        let relayed = client.request("POST", path, &JSON, call.as_bytes());
        let json = Some("application/json");
        assert_eq!(told(&relayed), (200, response, json), "{path}");
        assert_eq!(relayed.header("x-neve"), Some("relay"));
        assert!(wire.sent().contains(&format!("POST {path} HTTP/1.1\r\n")), "{path}");
        // Neither a path beside it nor a method of keys gets there.
        for other in [format!("{path}/x"), format!("{path}?x=1")] {
            let refused = client.request("POST", &other, &JSON, call.as_bytes());
            assert_eq!((refused.status, refused.header("x-neve")), (404, None), "{other}");
        }
        let keys = call.replace(method, "keystore.exportUser");
        assert_eq!(client.request("POST", path, &JSON, keys.as_bytes()).status, 403);
    }
    assert!(!wire.sent().contains("keystore"));
}
