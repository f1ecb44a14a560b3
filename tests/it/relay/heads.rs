//! The head that a client has seen, and upstreams that lack it.

use std::time::Duration;

use neve_devnet::{DevnetThread, Fault};
use serde_json::Value;
use tempfile::TempDir;

use super::attacks::start;
use crate::support::client::Response;
use crate::support::neve::Neve;
use crate::support::served::devnet;
use crate::support::ws::Ws;

const BALANCE: &str = "eth_getBalance";
const LATEST: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
/// neve answers the first call, an upstream the second one.
const BATCH: &str = concat!(
    r#"[{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"},"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]}]"#,
);

/// Two nodes of which the second one is a block behind, and a neve that follows both.
fn one_behind() -> ([DevnetThread; 2], TempDir, Neve) {
    let nodes = [devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let (dir, neve) = start(&urls, &["--relay-hedge-percent", "0"]);
    nodes[0].advance(1);
    neve.wait_for_head(6);
    neve.wait("the head of the first upstream", |health| {
        (health["upstreams"][0]["head"] == 6).then_some(())
    });
    (nodes, dir, neve)
}

fn behind(response: &Response) -> (u16, Option<&str>, Option<&str>) {
    (response.status, response.header("x-neve"), response.header("x-neve-upstream"))
}

#[test]
fn relayed_latest_goes_to_the_upstream_that_has_the_head_though_another_one_is_quicker() {
    let (nodes, _dir, neve) = one_behind();
    let _slow = nodes[0].faults().inject(Fault::Latency(Duration::from_millis(100)).on(BALANCE));
    let mut client = neve.client();
    for _ in 0..6 {
        assert_eq!(behind(&client.call(BALANCE, LATEST)), (200, Some("relay"), None));
        assert_eq!(behind(&client.post(BATCH)), (200, Some("mixed"), None));
    }
    assert_eq!(nodes[1].counters().calls(BALANCE), 0);
}

#[test]
fn response_says_that_the_upstream_that_gave_it_lacks_the_head() {
    let (nodes, _dir, neve) = one_behind();
    let mut client = neve.client();
    // The one that has the head fails.
    let fault = nodes[0].faults().inject(Fault::Reset.on(BALANCE));
    assert_eq!(behind(&client.call(BALANCE, LATEST)), (200, Some("relay"), Some("behind")));
    assert_eq!(behind(&client.post(BATCH)), (200, Some("mixed"), Some("behind")));
    assert_eq!(client.call(BALANCE, LATEST).header("x-neve-head"), Some("0x6"));
    fault.clear();
}

#[test]
fn message_says_that_its_upstream_lacks_the_head() {
    let (nodes, _dir, neve) = one_behind();
    let mut ws = Ws::open(&neve);
    let alone = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{BALANCE}","params":{LATEST}}}"#);
    let whole = format!("[{alone},{}]", alone.replace(":1,", ":2,"));
    let mut said = |message: &str| -> Vec<bool> {
        ws.send(message);
        let got: Value = serde_json::from_str(&ws.text()).expect("JSON");
        let all = got.as_array().cloned().unwrap_or_else(|| vec![got]);
        assert!(all.iter().all(|one| one["result"].is_string()), "{all:?}");
        all.iter().map(|one| one["x-neve-upstream"] == "behind").collect()
    };
    for message in [&alone, BATCH, &whole] {
        // The one that has the head is asked, though the other one answers, too.
        assert!(said(message).iter().all(|said| !said));
    }
    let fault = nodes[0].faults().inject(Fault::Reset.on(BALANCE));
    assert_eq!(said(&alone), [true]);
    assert_eq!(said(BATCH), [false, true], "neve's own answer is not behind");
    assert_eq!(said(&whole), [false, true], "the last of a batch says it for all");
    fault.clear();
}

#[test]
fn response_says_that_all_upstreams_lack_the_head() {
    let ([first, second], _dir, neve) = one_behind();
    drop(first);
    let mut client = neve.client();
    neve.wait("the end of the first upstream", |health| {
        (health["upstreams"][0]["state"] != "up").then_some(())
    });
    assert_eq!(behind(&client.call(BALANCE, LATEST)), (200, Some("relay"), Some("behind")));
    assert_eq!(behind(&client.post(BATCH)), (200, Some("mixed"), Some("behind")));
    second.advance(2);
    neve.wait("its head", |health| (health["upstreams"][1]["head"] == 7).then_some(()));
    assert_eq!(behind(&client.call(BALANCE, LATEST)), (200, Some("relay"), None));
    assert_eq!(behind(&client.post(BATCH)), (200, Some("mixed"), None));
}
