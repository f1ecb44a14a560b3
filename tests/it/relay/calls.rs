//! Single calls that an upstream answers, and the headers that say who did.

use neve_devnet::DevnetThread;
use tempfile::TempDir;

use crate::support::client::{Client, Response};
use crate::support::neve::Neve;
use crate::support::served::{devnet, follow};

const BALANCE: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;

fn start(arguments: &[&str]) -> (DevnetThread, TempDir, Neve) {
    let node = devnet(5);
    let (dir, neve) = follow(&node, &[&["--on-miss", "relay"], arguments].concat());
    (node, dir, neve)
}

/// The node's own response to a call.
fn of_node(node: &DevnetThread, method: &str, params: &str) -> Response {
    Client::new(node.address()).call(method, params)
}

#[test]
fn missed_call_gets_the_bytes_of_the_node() {
    let (node, _dir, neve) = start(&[]);
    let mut client = neve.client();
    let relayed = client.call("eth_getBalance", BALANCE);
    let expected = of_node(&node, "eth_getBalance", BALANCE);
    assert_eq!((relayed.status, relayed.text()), (200, expected.text()));
    assert_eq!(relayed.header("content-type"), expected.header("content-type"));
    assert_eq!(relayed.header("x-neve"), Some("relay"));
    assert_eq!(relayed.header("x-neve-head"), Some("0x5"));
    assert_eq!(relayed.header("cache-control"), Some("no-store"));
    assert_eq!(neve.count("neve_relay_requests_total{outcome=\"ok\"}"), 1);
    let calls = "neve_rpc_calls_total{method=\"eth_getBalance\",outcome=\"miss\"}";
    assert_eq!((neve.count(calls), neve.count("neve_http_requests_total")), (1, 1));
    // The connection goes on, and so do hits on it.
    let block = client.call("eth_getBlockByNumber", "[\"0x5\",false]");
    assert_eq!((block.status, block.header("x-neve")), (200, Some("hit")));
    assert_eq!(neve.metric("neve_relay_in_flight_requests"), Some(0.0));
}

#[test]
fn response_names_its_source_with_and_without_a_relay() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &[]);
    let mut client = neve.client();
    let hit = client.call("eth_getBlockByNumber", "[\"latest\",false]");
    assert_eq!((hit.header("x-neve"), hit.header("x-neve-head")), (Some("hit"), Some("0x5")));
    let error = client.call("eth_getBlockByNumber", "[7,false]");
    assert_eq!((error.status, error.header("x-neve")), (200, Some("hit")));
    let miss = client.call("eth_getBalance", BALANCE);
    assert_eq!((miss.status, miss.header("x-neve")), (421, Some("miss")));
    assert_eq!(miss.header("x-neve-head"), Some("0x5"));
    let before = node.counters().calls("eth_getBalance");
    assert_eq!(before, 0, "nothing is relayed unless it is asked for");
    node.advance(1);
    neve.wait_for_head(6);
    // The header follows the head that /health tells, by a moment.
    let head = neve.wait("the header", |_| {
        let head = client.call("eth_blockNumber", "[]");
        (head.header("x-neve-head") == Some("0x6")).then_some(head)
    });
    assert!(head.text().contains("0x6"), "{}", head.text());
    let document = client.get("/v1/block/5");
    assert_eq!((document.status, document.header("x-neve-head")), (200, None), "caches keep it");
}
