//! A node goes over to Helicon under us: v1.14's answers become v1.15's, for old blocks too; blocks
//! are accepted before they are executed and proven long after. Nothing wrong is ever said.

use std::time::Duration;

use neve_devnet::{Config, DevnetThread, Version};
use serde_json::Value;

use crate::support::client::Client;
use crate::support::corpus::HELICON;
use crate::support::neve::{LIMIT, Neve, fresh_dir, run};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::recorded::{Recorded, by_rules};
use crate::support::served::devnet_of;
use crate::support::ws::Ws;

/// The last synchronous block of the recorded chain.
const TRANSITION: u64 = 201;

fn hex(height: u64) -> String {
    format!("{height:#x}")
}

/// The body of an answer about a block.
fn block_answer(client: &mut Client, at: &str) -> String {
    client.call("eth_getBlockByNumber", &format!("[\"{at}\",true]")).text()
}

fn envelope(result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{result}}}\n")
}

fn settled_by(node: &Recorded, height: u64) -> u64 {
    let block: Value = serde_json::from_str(&node.height(height).block).unwrap();
    let settled = block["settledHeight"].as_str().unwrap();
    u64::from_str_radix(settled.trim_start_matches("0x"), 16).unwrap()
}

/// Waits until a block answer is `expected`; until then it must be `before`.
fn becomes(neve: &Neve, height: u64, before: &str, expected: &str) {
    let mut client = neve.client();
    let look = || {
        let found = block_answer(&mut client, &hex(height));
        if found == expected {
            return Ok(());
        }
        assert_eq!(found, before, "neither the old answer nor the new one");
        Err(Miss::NotYet("the old answer".to_owned()))
    };
    wait_until("the new answer", LIMIT, look).unwrap_or_else(|why| panic!("{why}\n{}", neve.log()));
}

#[test]
fn the_switch_is_lived_through_without_a_wrong_answer() {
    let node = Recorded::start_at(HELICON, 195, false);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(195);
    before_the_switch(&node, &neve);
    node.grow(TRANSITION);
    neve.wait_for_head(TRANSITION);
    switch(&node, &neve);
    accepted_is_not_executed(&node, &neve);
    settlement_follows(&node, &neve);
    restarted_without_upstream(&node, neve, dir.path());
}

fn before_the_switch(node: &Recorded, neve: &Neve) {
    let mut client = neve.client();
    for height in [0, 1, 100, 195] {
        let expected = by_rules(&node.height(height).block, height, false);
        assert_eq!(block_answer(&mut client, &hex(height)), envelope(&expected));
    }
    for tag in ["latest", "accepted", "safe", "finalized", "pending"] {
        let expected = by_rules(&node.height(195).block, 195, false);
        assert_eq!(block_answer(&mut client, tag), envelope(&expected), "{tag}");
    }
    assert_eq!(neve.health()["upstream"]["rules"], "before_helicon");
    wait_for_settled(neve, 195, 0);
}

/// The node holds requests, cuts its WebSockets, and then answers by the new rules: there is no
/// new block, and yet every old one is shown otherwise.
fn switch(node: &Recorded, neve: &Neve) {
    let (before, after) = ([0, 57, TRANSITION].map(|height| {
        let block = node.height(height).block;
        (envelope(&by_rules(&block, height, false)), envelope(&by_rules(&block, height, true)))
    }))
    .into_iter()
    .unzip::<_, _, Vec<_>, Vec<_>>();
    node.change(|state| state.hold = true);
    node.cut();
    let mut client = neve.client();
    assert_eq!(block_answer(&mut client, "0x39"), before[1], "served on while the node is away");
    node.change(|state| (state.hold, state.helicon) = (false, true));
    becomes(neve, 57, &before[1], &after[1]);
    for (height, expected) in [(0, &after[0]), (57, &after[1]), (TRANSITION, &after[2])] {
        assert_eq!(block_answer(&mut client, &hex(height)), *expected);
    }
    let header = client.result("eth_getHeaderByNumber", "[\"0x39\"]");
    assert_eq!(header["totalDifficulty"], "0x0");
    let accepted = client.call("eth_getBlockByNumber", "[\"accepted\",false]").text();
    assert!(accepted.contains("invalid argument 0: hex string without 0x prefix"), "{accepted}");
    let pending = client.result("eth_getBlockByNumber", "[\"pending\",false]");
    assert_eq!(
        (&pending["hash"], &pending["nonce"], &pending["miner"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(pending["number"], "0xc9");
    assert_eq!(neve.health()["upstream"]["rules"], "helicon");
}

fn accepted_is_not_executed(node: &Recorded, neve: &Neve) {
    node.change(|state| state.accepted = TRANSITION + 1);
    pause(Duration::from_millis(1500)); // three polls: enough to be tempted
    let mut client = neve.client();
    assert_eq!(client.result("eth_blockNumber", "[]"), hex(TRANSITION));
    let ahead =
        client.call("eth_getBlockByNumber", &format!("[\"{}\",false]", hex(TRANSITION + 1)));
    assert_eq!(ahead.status, 421);
    node.change(|state| state.executed = TRANSITION + 1);
    neve.wait_for_head(TRANSITION + 1);
    wait_for_settled(neve, TRANSITION, 1);
}

/// Waits until this height is settled, and so many above it are not. The head is served a moment earlier.
fn wait_for_settled(neve: &Neve, height: u64, above: u64) {
    neve.wait(&format!("settled height {height}, and {above} above it"), |health| {
        let blocks = &health["blocks"];
        (blocks["settled_height"] == height && blocks["unsettled"] == above).then_some(())
    });
}

fn settlement_follows(node: &Recorded, neve: &Neve) {
    for head in [210, 240, HELICON.head] {
        node.grow(head);
        neve.wait_for_head(head);
        let settled = settled_by(node, head);
        wait_for_settled(neve, settled, head - settled);
        let mut client = neve.client();
        for tag in ["safe", "finalized"] {
            assert_eq!(
                client.result("eth_getHeaderByNumber", &format!("[\"{tag}\"]"))["number"],
                hex(settled)
            );
        }
        assert_eq!(client.result("eth_getHeaderByNumber", "[\"latest\"]")["number"], hex(head));
    }
    let mut client = neve.client();
    for height in 0..=HELICON.head {
        let recorded = node.height(height);
        assert_eq!(block_answer(&mut client, &hex(height)), envelope(&recorded.block));
        let receipts =
            client.call("eth_getBlockReceipts", &format!("[\"{}\"]", recorded.hash)).text();
        assert_eq!(receipts, envelope(&recorded.receipts));
    }
}

/// Answers right, and goes on proving, from the disk alone.
fn restarted_without_upstream(node: &Recorded, neve: Neve, dir: &std::path::Path) {
    neve.stop();
    let neve = Neve::start(dir, &["--upstream", "http://127.0.0.1:1"]);
    let mut client = neve.client();
    let settled = settled_by(node, HELICON.head);
    for height in [0, 57, 300, HELICON.head] {
        assert_eq!(block_answer(&mut client, &hex(height)), envelope(&node.height(height).block));
    }
    assert_eq!(client.result("eth_getHeaderByNumber", "[\"safe\"]")["number"], hex(settled));
    assert_eq!(client.get("/ready").status, 503);
}

/// Receipts that pass every check that is possible before settlement, and are false.
#[test]
fn receipts_that_their_settling_header_disproves_are_withdrawn() {
    let node = Recorded::start_at(HELICON, 210, true);
    let told =
        (211..=HELICON.head).find(|at| node.height(*at).receipts.contains("\"logs\":[]")).unwrap();
    let honest = node.height(told).receipts;
    let lie = flip_status(&honest);
    node.change(|state| drop(state.lies.insert(told, lie.clone())));
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "205"]);
    let settling =
        (told + 1..=HELICON.head).find(|header| settled_by(&node, *header) >= told).unwrap();
    node.grow(settling - 1);
    neve.wait_for_head(settling - 1);
    let mut client = neve.client();
    let params = format!("[\"{}\"]", hex(told));
    let receipts = |client: &mut Client| client.call("eth_getBlockReceipts", &params);
    assert_eq!(receipts(&mut client).text(), envelope(&lie), "nothing can tell yet");
    node.grow(settling);
    neve.wait_for_log("withdrawing unproven heights");
    neve.wait("a head below it", |health| {
        (health["blocks"]["head"].as_u64()? < told).then_some(())
    });
    assert_eq!(receipts(&mut client).status, 421);
    assert!(neve.metric("neve_blocks_withdrawn_total").unwrap() >= 1.0);
    let reason = "neve_blocks_rejected_total{reason=\"settled_receipts_root\"}";
    assert!(neve.metric(reason).unwrap() >= 1.0);
    // The liar tries again: this time nothing is published before it is proven.
    pause(Duration::from_secs(2));
    assert_eq!(receipts(&mut client).status, 421);
    node.change(|state| state.lies.clear());
    node.grow(settling + 20);
    neve.wait_for_head(settling + 20);
    assert_eq!(receipts(&mut client).text(), envelope(&honest));
    let store = dir.path().join("store").display().to_string();
    neve.stop();
    let verified = run(&["verify", "--data-dir", &store]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// The first receipt without logs fails instead, or succeeds instead: no bloom, sum or link tells.
fn flip_status(receipts: &str) -> String {
    let empty = receipts.find("\"logs\":[]").expect("a receipt without logs");
    let at = empty + receipts[empty..].find("\"status\":\"0x").expect("it has a status") + 12;
    let flipped = if &receipts[at..=at] == "1" { "0" } else { "1" };
    format!("{}{flipped}{}", &receipts[..at], &receipts[at + 1..])
}

/// A time in which something must *not* happen.
#[expect(clippy::disallowed_methods, reason = "a plain test thread")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// A node of this version before Helicon: v1.15 announces heads with its keys already.
fn before_helicon(version: Version) -> DevnetThread {
    devnet_of(Config { version, ..Config::test().with_head(20) })
}

/// Starts neve and a subscriber, and gives a way to announce a head: true if the subscriber sees the keys of v1.15.
fn heads_of(nodes: &[DevnetThread], hear: impl FnOnce(&mut dyn FnMut(usize) -> bool)) {
    let (dir, urls) = (fresh_dir(), nodes.iter().map(|node| node.base_url()).collect::<Vec<_>>());
    let upstreams = urls.iter().flat_map(|url| ["--upstream", url]).collect::<Vec<_>>();
    let neve = Neve::start(dir.path(), &[&upstreams[..], &["--start", "0"]].concat());
    neve.wait_for_head(20);
    neve.wait("all sockets", |health| {
        let up = health["upstreams"].as_array()?.iter().all(|one| one["state"] == "up");
        let hears = nodes.iter().all(|node| node.counters().subscriptions() > 0);
        (up && hears).then_some(())
    });
    let mut ws = Ws::open(&neve);
    ws.subscribe("[\"newHeads\"]");
    hear(&mut |place| {
        // The others come after it, so that it alone announces the head that is told.
        nodes[place].advance(1);
        let has_keys = ws.notification().result.contains("targetExponent");
        nodes.iter().enumerate().filter(|(other, _)| *other != place).for_each(|(_, node)| {
            node.advance(1);
        });
        has_keys
    });
    neve.stop_in_time();
}

#[test]
fn keys_of_announced_heads_stay_if_one_of_two_upstreams_changes_them() {
    let nodes = [Version::V1_15, Version::V1_14].map(before_helicon);
    heads_of(&nodes, |hear| {
        for place in [0, 1, 0, 1, 0, 0] {
            assert!(!hear(place), "the keys are those of upstream {place}");
        }
    });
}

#[test]
fn keys_of_announced_heads_are_those_on_which_upstreams_agree() {
    for count in 1..=2 {
        let nodes: Vec<_> = (0..count).map(|_| before_helicon(Version::V1_15)).collect();
        heads_of(&nodes, |hear| {
            // The second upstream announces each head behind the first one, so a few may come before they agree.
            assert!((0..20).any(|_| hear(0)), "{count} upstreams");
        });
    }
}
