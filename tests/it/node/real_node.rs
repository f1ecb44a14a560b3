//! Beside a real avalanchego: a neve that followed it while it was fed answers every served method
//! about every block as the node does, to the byte.
//!
//! With `NEVE_TEST_AVALANCHEGO` naming a binary of v1.15 or later, Helicon activates in mid chain.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::feed::Feed;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::node::{Node, Options, knows_helicon};
use crate::support::ws::Ws;

/// For everything past the building of the node.
const LIMIT: Duration = Duration::from_mins(8);
/// Time from the start to the activation of Helicon, if the node knows it.
const HELICON_AFTER: Duration = Duration::from_secs(40);

/// The two that must say the same.
struct Both<'a> {
    node: Client,
    neve: Client,
    served: &'a Neve,
    compared: usize,
}

impl<'a> Both<'a> {
    fn new(node: &Node, served: &'a Neve) -> Self {
        let address: SocketAddr = node.base_url().trim_start_matches("http://").parse().unwrap();
        Self { node: Client::new(address), neve: served.client(), served, compared: 0 }
    }

    /// Asks both, by number, string and odd ids in turn; returns the result.
    fn same(&mut self, method: &str, params: &Value) -> Value {
        let ids = ["1", "\"a<b\"", "-1.50", "null", "12345678901234567890123"];
        let id = ids[self.compared % ids.len()];
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.same_body(&body)
    }

    fn same_body(&mut self, body: &str) -> Value {
        let headers = [("Content-Type", "application/json")];
        let ask = |client: &mut Client| {
            client.request("POST", "/ext/bc/C/rpc", &headers, body.as_bytes())
        };
        let (theirs, ours) = (ask(&mut self.node), ask(&mut self.neve));
        let log = || self.served.log();
        assert_eq!(ours.status, theirs.status, "{body}: {}\n{}", ours.text(), log());
        assert_eq!(ours.text(), theirs.text(), "{body}");
        assert_eq!(ours.header("content-type"), theirs.header("content-type"), "{body}");
        self.compared += 1;
        theirs.json().get_mut("result").map(Value::take).unwrap_or_default()
    }
}

/// Everything that can be asked about one block.
fn compare_block(both: &mut Both<'_>, height: u64) -> usize {
    let number = json!(format!("{height:#x}"));
    let block = both.same("eth_getBlockByNumber", &json!([number, true]));
    let hash = &block["hash"];
    both.same("eth_getBlockByNumber", &json!([number, false]));
    both.same("eth_getBlockByHash", &json!([hash, true]));
    both.same("eth_getBlockByHash", &json!([hash, false]));
    both.same("eth_getHeaderByNumber", &json!([number]));
    both.same("eth_getHeaderByHash", &json!([hash]));
    both.same("eth_getBlockTransactionCountByNumber", &json!([number]));
    both.same("eth_getBlockTransactionCountByHash", &json!([hash]));
    both.same("eth_getBlockReceipts", &json!([number]));
    both.same("eth_getBlockReceipts", &json!([hash]));
    both.same("eth_getBlockReceipts", &json!([{ "blockHash": hash, "requireCanonical": true }]));
    let transactions = block["transactions"].as_array().unwrap();
    for (index, transaction) in transactions.iter().enumerate() {
        let index = json!(format!("{index:#x}"));
        both.same("eth_getTransactionByHash", &json!([transaction["hash"]]));
        both.same("eth_getTransactionReceipt", &json!([transaction["hash"]]));
        both.same("eth_getTransactionByBlockNumberAndIndex", &json!([number, index]));
        both.same("eth_getTransactionByBlockHashAndIndex", &json!([hash, index]));
    }
    let beyond = json!(format!("{:#x}", transactions.len()));
    both.same("eth_getTransactionByBlockNumberAndIndex", &json!([number, beyond]));
    both.same("eth_getTransactionByBlockHashAndIndex", &json!([hash, beyond]));
    both.same_body(&batch(&number, hash));
    transactions.len()
}

fn batch(number: &Value, hash: &Value) -> String {
    let call = |id: u32, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let calls = [
        call(1, "eth_getBlockByNumber", json!([number, true])),
        json!({ "jsonrpc": "2.0", "method": "eth_chainId" }),
        call(2, "eth_getBlockReceipts", json!([hash])),
        call(3, "eth_getBlockByNumber", json!(["nonsense", true])),
        json!(5),
        call(4, "eth_blockNumber", json!([])),
    ];
    json!(calls).to_string()
}

fn compare_tags_and_constants(both: &mut Both<'_>) {
    for tag in ["latest", "pending", "accepted", "safe", "finalized", "earliest"] {
        both.same("eth_getBlockByNumber", &json!([tag, true]));
        both.same("eth_getBlockByNumber", &json!([tag, false]));
        both.same("eth_getHeaderByNumber", &json!([tag]));
        both.same("eth_getBlockReceipts", &json!([tag]));
        both.same("eth_getBlockTransactionCountByNumber", &json!([tag]));
        both.same("eth_getTransactionByBlockNumberAndIndex", &json!([tag, "0x0"]));
    }
    for method in ["eth_blockNumber", "eth_chainId", "net_version"] {
        both.same(method, &json!([]));
        both.same(method, &json!([1]));
    }
}

fn head_of(node: &Node) -> u64 {
    let head = crate::support::node::rpc::call(&node.http_url(), "eth_blockNumber", &json!([]));
    u64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// Compares all that is held; returns how many blocks and transactions that was.
fn compare_all(node: &Node, neve: &Neve) -> (u64, usize, usize) {
    let head = head_of(node);
    neve.wait_for_head(head);
    let mut both = Both::new(node, neve);
    let transactions = (0..=head).map(|height| compare_block(&mut both, height)).sum();
    compare_tags_and_constants(&mut both);
    (head + 1, transactions, both.compared)
}

#[test]
#[ignore = "needs avalanchego, which Go builds: ./check"]
fn every_answer_about_every_block_is_the_nodes() {
    let helicon_after = knows_helicon().then_some(HELICON_AFTER);
    let node = Node::start(Options { helicon_after, ..Options::default() });
    node.within(LIMIT, || {
        let dir = fresh_dir();
        let neve = Neve::start(dir.path(), &["--upstream", &node.base_url(), "--start", "0"]);
        neve.wait("the WebSocket", |health| {
            health["upstream"]["websocket"].as_bool()?.then_some(())
        });
        let start = Instant::now();
        let mut feed = Feed::new(&node);
        feed.round();
        while helicon_after.is_some_and(|after| start.elapsed() < after + Duration::from_secs(30)) {
            feed.round();
        }
        let (blocks, transactions, compared) = compare_all(&node, &neve);
        println!(
            "{compared} answers about {blocks} blocks with {transactions} transactions are equal"
        );
        assert!(blocks >= 4 && transactions >= 50 && compared > 300);
        follows_through_a_restart(&node, &neve, &mut feed);
        let store = dir.path().join("store").display().to_string();
        let (status, _) = neve.stop();
        assert!(status.success());
        let verified = run(&["verify", "--data-dir", &store, "--recover-senders"]);
        let text = String::from_utf8_lossy(&verified.stdout).into_owned();
        println!("{text}");
        assert_eq!(verified.status.code(), Some(0), "{text}");
    });
}

/// Subscribes at both; returns the ids.
fn subscribe_both(both: [&mut Ws; 2], name: &str) -> [String; 2] {
    both.map(|ws| ws.subscribe(&format!("[\"{name}\"]")))
}

#[test]
#[ignore = "needs avalanchego, which Go builds: ./check"]
fn relayed_subscriptions_tell_what_those_of_the_node_tell() {
    let node = Node::start(Options::default());
    node.within(LIMIT, || {
        let dir = fresh_dir();
        let upstream = ["--upstream", &node.base_url(), "--start", "0", "--on-miss", "relay"];
        let neve = Neve::start(dir.path(), &upstream);
        neve.wait_for_head(head_of(&node));
        let address: SocketAddr = node.base_url().trim_start_matches("http://").parse().unwrap();
        let (mut theirs, mut ours) = (Ws::open_at(address, "/ext/bc/C/ws").0, Ws::open(&neve));
        let mut feed = Feed::new(&node);
        for name in ["newPendingTransactions", "newAcceptedTransactions"] {
            let ids = subscribe_both([&mut theirs, &mut ours], name);
            let hashes: BTreeSet<String> =
                feed.transfers(3).iter().map(|made| format!("\"{:#x}\"", made.hash)).collect();
            for (ws, id) in [&mut theirs, &mut ours].into_iter().zip(&ids) {
                let told = std::iter::repeat_with(|| ws.notification()).take(3);
                let told: BTreeSet<_> = told
                    .map(|told| {
                        assert_eq!(told.id, *id);
                        told.result
                    })
                    .collect();
                assert_eq!(told, hashes, "{name}");
            }
            for (ws, id) in [&mut theirs, &mut ours].into_iter().zip(&ids) {
                assert!(ws.call("eth_unsubscribe", &format!("[\"{id}\"]")).contains("true"));
            }
        }
    });
}

/// The node goes away and comes back: neve serves on, and catches up with what came meanwhile.
fn follows_through_a_restart(node: &Node, neve: &Neve, feed: &mut Feed<'_>) {
    let before = head_of(node);
    node.stop();
    neve.wait("the upstream is missed", |health| {
        (health["upstream"]["state"] != "following").then_some(())
    });
    let head = neve.client().result("eth_blockNumber", "[]");
    assert_eq!(head, format!("{before:#x}"));
    assert_eq!(neve.client().call("eth_getBlockByNumber", "[\"latest\",true]").status, 200);
    node.restart();
    feed.transfers(3);
    let (blocks, _, compared) = compare_all(node, neve);
    assert!(blocks > before + 1);
    println!("{compared} answers are equal after a restart of the node");
}
