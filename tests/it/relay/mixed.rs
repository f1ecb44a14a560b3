//! Calls of all kinds while upstreams fail: alone, in batches, transactions, filters, over WebSocket. Each
//! ends in one of the ways that docs/RPC.md lists. The chain grows meanwhile, and the head that a client has seen
//! never goes back.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use neve_devnet::{DevnetThread, Fault};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::attacks::start;
use super::faulty::{Faulty, LONG, Mode};
use crate::support::client::Client;
use crate::support::neve::Neve;
use crate::support::served::devnet;
use crate::support::ws::Ws;

const SEND: &str = "eth_sendRawTransaction";
const OPEN: &str = "eth_newPendingTransactionFilter";
const CLIENTS: u64 = 4;

/// Outcomes by kind of call and name.
type Counts = BTreeMap<(&'static str, String), u64>;

/// Head of the nodes at the begin.
const HEAD: u64 = 5;
/// Time between two blocks.
const BLOCK_TIME: Duration = Duration::from_millis(200);

fn call(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn balance(id: u64) -> String {
    call(id, "eth_getBalance", &json!([format!("0x{:040x}", id % 50), "latest"]))
}

/// Name of the outcome of one call. Anything but a node's result and an error of neve's own fails.
fn outcome(got: &Value, id: u64, is_right: impl Fn(&Value) -> bool) -> String {
    assert_eq!(got["id"], id, "the answer to another call: {got}");
    if let Some(result) = got.get("result") {
        let long = result.as_str().is_some_and(|letters| letters.len() == LONG);
        assert!(long || is_right(result), "wrong: {id} {:.200}", result.to_string());
        return if long { "50 MiB, whole" } else { "node's result" }.to_owned();
    }
    let message = got["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("relay: ") || message == "request timed out", "wrong: {got}");
    format!("error: {message}")
}

/// A client of all kinds of calls.
struct Caller<'n> {
    neve: &'n Neve,
    http: Client,
    ws: Option<Ws>,
    node: Client,
    /// Highest heads that it was told: by headers, and by block numbers. They are told one after the other.
    headers: u64,
    numbers: u64,
    /// Highest block of the chain.
    top: &'n AtomicU64,
}

impl<'n> Caller<'n> {
    fn new(neve: &'n Neve, node: &DevnetThread, top: &'n AtomicU64) -> Self {
        let node = Client::new(node.address());
        Self { neve, http: neve.client(), ws: None, node, headers: HEAD, numbers: HEAD, top }
    }

    /// Takes a head. None is below an earlier one of its kind, or above the chain, whatever an upstream says.
    fn sees(&self, head: Option<&str>, seen: u64) -> u64 {
        let digits = head.and_then(|head| head.strip_prefix("0x"));
        let head = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let head = head.expect("a response names its head");
        assert!(head >= seen, "the head went back from {seen} to {head}");
        let top = self.top.load(Ordering::Relaxed);
        assert!(head <= top, "head {head} of a chain up to {top}");
        head
    }

    /// Posts a body; `Err` has the outcome if there is no JSON.
    fn post(&mut self, body: &str) -> Result<Value, String> {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let got = self.http.raw(request.as_bytes()).map_err(|_| "connection cut".to_owned())?;
        self.headers = self.sees(got.header("x-neve-head"), self.headers);
        if got.header("content-type") != Some("application/json") {
            assert_eq!(got.status, 503, "{}", got.text());
            return Err("no memory".to_owned());
        }
        Ok(got.json())
    }

    fn balance_of_node(&mut self, id: u64) -> Value {
        self.node.post(&balance(id)).json()["result"].take()
    }

    fn alone(&mut self, id: u64) -> String {
        let honest = self.balance_of_node(id);
        match self.post(&balance(id)) {
            Ok(got) => outcome(&got, id, |result| *result == honest),
            Err(other) => other,
        }
    }

    fn batch(&mut self, id: u64) -> String {
        let honest = self.balance_of_node(id);
        let number = |id| call(id, "eth_blockNumber", &json!([]));
        match self.post(&format!("[{},{},{}]", number(1), balance(id), number(2))) {
            Ok(got) => {
                for at in [0, 2] {
                    self.numbers = self.sees(got[at]["result"].as_str(), self.numbers);
                }
                outcome(&got[1], id, |result| *result == honest)
            }
            Err(other) => other,
        }
    }

    fn transaction(&mut self, id: u64) -> String {
        let raw = json!([format!("0x02{id:062x}")]);
        match self.post(&call(id, SEND, &raw)) {
            Ok(got) => outcome(&got, id, Value::is_string),
            Err(other) => other,
        }
    }

    /// Opens a filter and asks for its changes: it is never said to be gone.
    fn filter(&mut self, id: u64) -> String {
        let opened = match self.post(&call(id, OPEN, &json!([]))) {
            Ok(opened) => opened,
            Err(other) => return other,
        };
        let opening = outcome(&opened, id, Value::is_string);
        let Some(filter) = opened["result"].as_str().filter(|filter| filter.len() < LONG) else {
            return opening;
        };
        match self.post(&call(id, "eth_getFilterChanges", &json!([filter]))) {
            Ok(got) => outcome(&got, id, Value::is_array),
            Err(other) => other,
        }
    }

    fn websocket(&mut self, id: u64) -> String {
        let honest = self.balance_of_node(id);
        let neve = self.neve;
        let ws = self.ws.get_or_insert_with(|| Ws::open(neve));
        ws.send(&call(id, "eth_blockNumber", &json!([])));
        let number = ws.text_or_end();
        ws.send(&balance(id));
        let (Some(number), Some(text)) = (number, ws.text_or_end()) else {
            self.ws = None;
            return "connection closed".to_owned();
        };
        let json = |text: String| -> Value { serde_json::from_str(&text).expect("JSON") };
        let (number, got) = (json(number), json(text));
        self.numbers = self.sees(number["result"].as_str(), self.numbers);
        outcome(&got, id, |result| *result == honest)
    }

    fn any(&mut self, id: u64) -> (&'static str, String) {
        match id % 5 {
            0 => ("alone", self.alone(id)),
            1 => ("in a batch", self.batch(id)),
            2 => ("transaction", self.transaction(id)),
            3 => ("filter", self.filter(id)),
            _ => ("over WebSocket", self.websocket(id)),
        }
    }
}

/// Calls of all clients at once, `count` of each, while the chain grows.
fn calls(neve: &Neve, nodes: &[DevnetThread; 2], top: &AtomicU64, count: u64) -> Counts {
    let counts = Mutex::new(Counts::new());
    thread::scope(|scope| {
        let callers = (0..CLIENTS).map(|number| {
            let counts = &counts;
            scope.spawn(move || {
                let mut caller = Caller::new(neve, &nodes[0], top);
                for id in (0..count).map(|id| 10 + id * CLIENTS + number) {
                    let outcome = caller.any(id);
                    *counts.lock().expect("no panic").entry(outcome).or_default() += 1;
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        loop {
            top.fetch_add(1, Ordering::Relaxed); // before the block is there
            nodes.iter().for_each(|node| _ = node.advance(1));
            if callers.iter().all(ScopedJoinHandle::is_finished) {
                break;
            }
            thread::park_timeout(BLOCK_TIME);
        }
    });
    counts.into_inner().expect("no panic")
}

/// Outcomes that RPC.md lists, of calls while a failure lasts.
fn assert_listed(mode: Mode, counts: &Counts) {
    let listed: &[&str] = match mode {
        Mode::Pass => &["node's result"],
        Mode::Dead => &["node's result", "relay: the upstream cannot be reached", NO_UPSTREAM],
        Mode::Stalls => &["node's result", LATE, NO_UPSTREAM],
        Mode::Half | Mode::BrokenChunk => {
            &["relay: the upstream cannot be reached", NO_UPSTREAM, "connection cut"]
        }
        Mode::Page => &["relay: the upstream answered with HTTP 500", NO_UPSTREAM],
        Mode::Long => &[
            "50 MiB, whole",
            "no memory",
            "connection cut",
            "connection closed",
            LATE,
            NO_UPSTREAM,
        ],
    };
    for (kind, name) in counts.keys() {
        let name = name.trim_start_matches("error: ");
        assert!(listed.contains(&name), "{mode:?}, {kind}: {name}, listed are {listed:?}");
    }
}

const NO_UPSTREAM: &str = "relay: no upstream answers now; try again later";
const LATE: &str = "request timed out";

/// Methods that only one of the upstreams is asked for, if it works.
const OWN: [&str; 2] = ["eth_getCode", "eth_getTransactionCount"];

/// Two nodes behind proxies that fail, and all outcomes so far.
struct Run {
    nodes: [DevnetThread; 2],
    /// Highest block of the chain.
    top: AtomicU64,
    faulty: [Faulty; 2],
    all: Counts,
}

impl Run {
    fn new() -> Self {
        let nodes = [devnet(HEAD), devnet(HEAD)];
        let faulty = nodes.each_ref().map(|node| Faulty::start(node.address()));
        Self { nodes, top: AtomicU64::new(HEAD), faulty, all: Counts::new() }
    }

    /// A neve whose requests to the upstreams have this time.
    fn neve(&self, timeout: &str) -> (TempDir, Neve) {
        let urls = self.faulty.each_ref().map(Faulty::url);
        let rules = [0, 1].map(|at| format!("{}={}", OWN[at], urls[at]));
        let websockets = ["--upstream-ws", "none", "--upstream-ws", "none"];
        let rules = ["--relay-to", &rules[0], "--relay-to", &rules[1]];
        let arguments = [&["--relay-timeout", timeout], &websockets[..], &rules].concat();
        start(&urls, &arguments)
    }

    /// Calls of all clients while both upstreams fail so.
    fn phase(&mut self, neve: &Neve, mode: Mode, count: u64) {
        self.faulty.iter().for_each(|faulty| faulty.fail(mode));
        let counts = calls(neve, &self.nodes, &self.top, count);
        println!("both {mode:?}: {counts:?}");
        assert_eq!(counts.values().sum::<u64>(), CLIENTS * count, "{mode:?}");
        assert_listed(mode, &counts);
        for (outcome, more) in counts {
            *self.all.entry(outcome).or_default() += more;
        }
        self.faulty.iter().for_each(|faulty| faulty.fail(Mode::Pass));
    }

    /// Waits until both upstreams answer.
    fn wait(&self, neve: &Neve) {
        let params = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
        for (method, node) in OWN.iter().zip(&self.nodes) {
            let before = node.counters().calls(method);
            neve.wait("an answer of each upstream", |_| {
                let status = neve.client().call(method, params).status;
                (status == 200 && node.counters().calls(method) > before).then_some(())
            });
        }
    }
}

/// All phases, with `count` calls of each client, and `few` where each takes its time.
fn run(count: u64, few: u64) -> Counts {
    let mut run = Run::new();
    let ((_dir, neve), (_other_dir, hurried)) = (run.neve("1h"), run.neve("4s"));
    for mode in [Mode::Pass, Mode::Dead, Mode::Half, Mode::BrokenChunk, Mode::Page] {
        run.phase(&neve, mode, count);
        run.wait(&neve);
    }
    let lie = run.nodes[0].faults().inject(Fault::FalseHead(1000));
    run.phase(&neve, Mode::Pass, count);
    lie.clear();
    run.wait(&neve);
    // What stalls ends with its time.
    for mode in [Mode::Stalls, Mode::Long] {
        run.phase(&hurried, mode, few);
        run.wait(&hurried);
    }
    run.phase(&neve, Mode::Pass, count);
    // neve followed to the end, and clients saw more than one head.
    neve.wait_for_head(run.top.load(Ordering::Relaxed));
    // No call was made twice that has an effect.
    let sent: u64 = run.nodes.iter().map(|node| node.counters().calls(SEND)).sum();
    let of_kind = |(kind, _): &&(&str, String)| *kind == "transaction";
    let asked: u64 = run.all.iter().filter(|(key, _)| of_kind(key)).map(|(_, n)| n).sum();
    assert!(sent <= asked, "{sent} transactions came of {asked}");
    run.all
}

#[test]
fn mixed_calls_end_in_the_listed_ways_while_upstreams_fail() {
    let all = run(5, 1);
    assert_eq!(all.values().sum::<u64>(), CLIENTS * (7 * 5 + 2));
}

#[test]
#[ignore = "thousands of calls take minutes: ./check"]
fn thousands_of_mixed_calls_end_in_the_listed_ways_while_upstreams_fail() {
    let all = run(400, 5);
    println!("all: {all:#?}");
    assert!(all.values().sum::<u64>() > 10_000);
}
