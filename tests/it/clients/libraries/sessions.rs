//! The libraries that people use, against neve and against the node: the scripts of
//! `tests/clients` must print the same lines, directly and through nginx, over HTTP and WebSocket.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::install::{self, Program};
use super::session::{Line, Session};
use crate::support::feed::Feed;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::nginx::Nginx;
use crate::support::node::{Node, Options, rpc};
use crate::support::proxy::Proxy;

/// For everything past the building of the node and the installing of the libraries.
const LIMIT: Duration = Duration::from_mins(10);
/// Paths of the C-chain's JSON-RPC and its WebSocket, at a node and at neve.
const RPC: &str = "/ext/bc/C/rpc";
const WS: &str = "/ext/bc/C/ws";

/// Calls that neve answers beyond blocks, transactions and receipts. The node and nginx get all calls.
const NEVE_SERVES: Served = Served { logs: true, raw: true, websocket: true };

struct Served {
    /// True if `eth_getLogs` is served.
    logs: bool,
    /// True if `eth_getRawTransactionBy…` is served.
    raw: bool,
    /// The WebSocket with `newHeads` and `logs`.
    websocket: bool,
}

impl Served {
    fn flags(&self) -> Vec<&'static str> {
        let all = [(self.logs, "--logs"), (self.raw, "--raw")];
        all.into_iter().filter_map(|(on, flag)| on.then_some(flag)).collect()
    }
}

fn head_of(node: &Node) -> u64 {
    let head = rpc::call(&node.http_url(), "eth_blockNumber", &json!([]));
    u64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// Runs every library's session at two addresses; `check` gets its name and what both printed.
fn at_both(flags: &[&str], node: &str, other: &str, check: impl Fn(&str, &[Line], &[Line]) + Sync) {
    let programs = install::all();
    thread::scope(|scope| {
        for program in &programs {
            let check = &check;
            scope.spawn(move || {
                let theirs = Session::start(program, flags, &[node]).read_to_end();
                let ours = Session::start(program, flags, &[other]).read_to_end();
                check_sane(program, &theirs);
                check(program.name, &theirs, &ours);
                println!("{}: {} lines are equal", program.name, ours.len());
            });
        }
    });
}

/// Checks that the node's responses are results: otherwise two equal failures would pass.
fn check_sane(program: &Program, lines: &[Line]) {
    assert!(lines.len() > 100, "{}: only {} lines", program.name, lines.len());
    for line in lines {
        let may_fail = ["error: ", "miss: ", "socket: error"];
        let may_fail = may_fail.iter().any(|start| line.step.starts_with(start));
        let may_fail = may_fail || line.step.ends_with(" beyond");
        assert!(may_fail || line.value().is_some(), "{}: {line}", program.name);
        let must_fail = line.step.contains("error: ");
        assert!(!must_fail || line.value().is_none(), "{}: {line}", program.name);
        // Two sessions that looked too early would agree on nothing.
        let may_be_null = !line.step.starts_with("head ");
        assert!(may_be_null || line.value() != Some(&Value::Null), "{}: {line}", program.name);
    }
}

fn assert_equal(name: &str, theirs: &[Line], ours: &[Line]) {
    for (theirs, ours) in theirs.iter().zip(ours) {
        assert_eq!(ours.text, theirs.text, "{name}: {}", theirs.step);
    }
    assert_eq!(ours.len(), theirs.len(), "{name}: {:?}", theirs.get(ours.len()));
}

#[test]
#[ignore = "needs Go, Node, Python, nginx and a network: ./check"]
fn sessions_read_from_neve_what_the_node_says() {
    install::all();
    let node = Node::start(Options::default());
    node.within(LIMIT, || {
        Feed::new(&node).round();
        let dir = fresh_dir();
        let neve = Neve::start(dir.path(), &["--upstream", &node.base_url(), "--start", "0"]);
        neve.wait_for_head(head_of(&node));
        let url = format!("http://{}{RPC}", neve.address);
        at_both(&NEVE_SERVES.flags(), &node.http_url(), &url, |name, theirs, ours| {
            // Alone, neve refuses what it does not hold: the library must not take that for "there
            // is none".
            let held = |lines: &[Line]| -> Vec<Line> {
                lines.iter().filter(|line| !line.is_miss()).cloned().collect()
            };
            assert_equal(name, &held(theirs), &held(ours));
            let refused: Vec<_> = ours.iter().filter(|line| line.is_miss()).collect();
            assert_eq!(refused.len(), 6, "{name}");
            refused.iter().for_each(|line| assert!(line.value().is_none(), "{name}: {line}"));
        });
    });
}

/// Calls that neve alone refuses (`miss: …`) reach the node behind it: no router is needed.
#[test]
#[ignore = "needs Go, Node, Python, nginx and a network: ./check"]
fn misses_go_to_the_node_through_a_relay() {
    install::all();
    let node = Node::start(Options::default());
    node.within(LIMIT, || {
        Feed::new(&node).round();
        let (dir, upstream) = (fresh_dir(), node.base_url());
        let arguments = ["--upstream", &upstream, "--start", "0", "--on-miss", "relay"];
        let neve = Neve::start(dir.path(), &arguments);
        neve.wait_for_head(head_of(&node));
        let url = format!("http://{}{RPC}", neve.address);
        at_both(&NEVE_SERVES.flags(), &node.http_url(), &url, |name, theirs, ours| {
            assert_equal(name, theirs, ours);
            let misses: Vec<_> = ours.iter().filter(|line| line.is_miss()).collect();
            let answered = misses.iter().filter(|line| line.value().is_some()).count();
            println!("{name}: {answered} of {} missed steps have a value", misses.len());
            assert_eq!(misses.len(), 6, "{name}");
        });
        assert!(neve.count("neve_relay_requests_total{outcome=\"ok\"}") > 0);
    });
}

#[test]
#[ignore = "needs Go, Node, Python, nginx and a network: ./check"]
fn misses_go_to_the_node_through_nginx() {
    install::all();
    let node = Node::start(Options::default());
    node.within(LIMIT, || {
        let mut feed = Feed::new(&node);
        feed.round();
        while head_of(&node) < 13 {
            feed.transfers(1);
        }
        let dir = fresh_dir();
        let neve = Neve::start(dir.path(), &["--upstream", &node.base_url(), "--start", "-10"]);
        neve.wait_for_head(head_of(&node));
        let first = neve.wait("a first height", |health| health["blocks"]["min_height"].as_u64());
        assert!(first > 1, "everything is held: {}", neve.health());
        let nginx = Nginx::start(neve.address, &node.base_url());
        let flags = ["--logs", "--raw"];
        at_both(&flags, &node.http_url(), &nginx.url(RPC), assert_equal);
        // Both had their part in it.
        let count = |outcome: &str| {
            let series = ["eth_getBlockByNumber", "eth_getTransactionReceipt"].map(|method| {
                format!("neve_rpc_calls_total{{method=\"{method}\",outcome=\"{outcome}\"}}")
            });
            series.map(|series| neve.count(&series))
        };
        let (hits, misses) = (count("hit"), count("miss"));
        println!("blocks and receipts from neve: {hits:?}, from the node: {misses:?}");
        assert!(hits.into_iter().chain(misses).all(|count| count > 0), "{hits:?}, {misses:?}");
        // And without neve the node has all of it.
        neve.kill();
        at_both(&flags, &node.http_url(), &nginx.url(RPC), assert_equal);
    });
}

/// The sessions of one server, behind a connection that can be cut.
struct Side {
    name: &'static str,
    proxy: Proxy,
    sessions: Vec<Session>,
    printed: Vec<Vec<Line>>,
}

impl Side {
    fn start(programs: &[Program], name: &'static str, http: &str, websocket: &str) -> Self {
        let proxy = Proxy::start(websocket);
        let ws = format!("ws://{}{WS}", proxy.address);
        let start = |program| Session::start(program, &["--reconnect"], &[http, &ws]);
        let sessions: Vec<_> = programs.iter().map(start).collect();
        let printed = sessions.iter().map(|_| Vec::new()).collect();
        Self { name, proxy, sessions, printed }
    }

    /// Reads what all of them print up to this step.
    fn read_to(&mut self, step: &str) {
        for (session, printed) in self.sessions.iter_mut().zip(&mut self.printed) {
            printed.extend(session.read_to_step(step));
        }
    }

    fn tell(&mut self, line: &str) {
        self.sessions.iter_mut().for_each(|session| session.tell(line));
    }
}

/// Feeds the node, and returns the range of new heights and the number of logs in them.
fn feed(node: &Node, feed: &mut Feed<'_>) -> (std::ops::RangeInclusive<u64>, usize) {
    let before = head_of(node);
    feed.round();
    let heights = before + 1..=head_of(node);
    let logs = heights.clone().map(|height| {
        let receipts = json!([format!("{height:#x}")]);
        let receipts = rpc::call(&node.http_url(), "eth_getBlockReceipts", &receipts);
        let receipts = receipts.as_array().unwrap().clone();
        receipts.iter().map(|receipt| receipt["logs"].as_array().unwrap().len()).sum::<usize>()
    });
    let logs = logs.sum();
    (heights, logs)
}

#[test]
#[ignore = "needs Go, Node, Python, nginx and a network: ./check"]
fn subscriptions_are_the_nodes_and_outlive_a_cut() {
    let programs = install::all();
    let node = Node::start(Options::default());
    node.within(LIMIT, || {
        let mut feeder = Feed::new(&node);
        feeder.round();
        let dir = fresh_dir();
        let neve = Neve::start(dir.path(), &["--upstream", &node.base_url(), "--start", "0"]);
        neve.wait_for_head(head_of(&node));
        let nginx = Nginx::start(neve.address, &node.base_url());
        let node_address = node.base_url().replace("http://", "");
        let (http, neve_address) = (node.http_url(), neve.address.to_string());
        let start = |name, address: &str| Side::start(&programs, name, &http, address);
        let mut sides =
            vec![start("node", &node_address), start("nginx", &nginx.address.to_string())];
        if NEVE_SERVES.websocket {
            sides.push(start("neve", &neve_address));
        }
        sides.iter_mut().for_each(|side| side.read_to("subscribed"));
        let first = feed(&node, &mut feeder);
        let until = |fed: &(std::ops::RangeInclusive<u64>, usize)| {
            format!("until {} {}", fed.0.end(), fed.1)
        };
        sides.iter_mut().for_each(|side| side.tell(&until(&first)));
        for side in &mut sides {
            side.read_to("waiting for the cut");
            side.proxy.cut();
            side.tell("cut");
        }
        sides.iter_mut().for_each(|side| side.read_to("reconnected"));
        let second = feed(&node, &mut feeder);
        sides.iter_mut().for_each(|side| side.tell(&until(&second)));
        let mut printed = sides.into_iter().map(|side| {
            let rest = side.sessions.into_iter().map(Session::read_to_end);
            let all =
                side.printed.into_iter().zip(rest).map(|(lines, rest)| [lines, rest].concat());
            (side.name, all.collect::<Vec<_>>())
        });
        let (_, theirs) = printed.next().unwrap();
        for (program, lines) in programs.iter().zip(&theirs) {
            check_sane(program, lines);
            check_whole(program.name, lines, &[&first, &second]);
        }
        for (side, all) in printed {
            for ((program, theirs), ours) in programs.iter().zip(&theirs).zip(&all) {
                assert_equal(&format!("{} at {side}", program.name), theirs, ours);
            }
        }
    });
}

/// Every head and every log once, in order, whatever the libraries make of them.
fn check_whole(name: &str, lines: &[Line], fed: &[&(std::ops::RangeInclusive<u64>, usize)]) {
    let numbers = |start: &str| -> Vec<u64> {
        let number = |line: &Line| line.step.strip_prefix(start)?.parse().ok();
        lines.iter().filter_map(number).collect()
    };
    let heads: Vec<u64> = fed.iter().flat_map(|(heights, _)| heights.clone()).collect();
    assert_eq!(numbers("head "), heads, "{name}");
    let logs = numbers("log of ");
    assert_eq!(logs.len(), fed.iter().map(|(_, logs)| logs).sum::<usize>(), "{name}");
    assert!(!logs.is_empty() && logs.is_sorted(), "{name}: {logs:?}");
}
