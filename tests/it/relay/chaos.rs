//! Calls while upstreams die, come back, stall, and answer wrongly: each client gets the node's
//! bytes, an error with the id of its call, or the end of its connection.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use neve_devnet::{DevnetThread, Fault};
use serde_json::Value;

use super::attacks::start;
use super::faulty::{Faulty, LONG, Mode};
use crate::support::client::Client;
use crate::support::neve::Neve;
use crate::support::served::devnet;

const CLIENTS: u64 = 8;
/// Timeouts of the relay for few calls and for many. Half of one is more than an upstream that works takes on a busy machine.
const TIMEOUTS: [&str; 2] = ["4s", "10s"];
/// Time that no call takes, on a busy machine: the longer timeout, many times.
const HANG: Duration = Duration::from_mins(1);

/// Outcome of a call that worked.
const WHOLE: &str = "node's bytes";

/// Outcomes by name.
type Counts = BTreeMap<String, u64>;

fn balance(id: u64) -> String {
    let account = id % 50;
    let tag = if id.is_multiple_of(3) { "latest" } else { "0x3" };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBalance","params":["0x{account:040x}","{tag}"]}}"#
    )
}

fn block(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBlockByNumber","params":["0x2",false]}}"#
    )
}

/// Name of an outcome of one call. Anything but the node's bytes and an error of neve's own fails.
fn outcome(got: &Value, id: u64, honest: &Value) -> String {
    assert_eq!(got["id"], id, "the answer to another call: {got}");
    if got == honest {
        return WHOLE.to_owned();
    }
    if let Some(letters) = got["result"].as_str().filter(|letters| letters.len() == LONG) {
        assert!(letters.bytes().all(|letter| letter == b'a'));
        return "50 MiB, whole".to_owned();
    }
    let message = got["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("relay: ") || message == "request timed out", "wrong: {got}");
    format!("error: {message}")
}

/// Sends a call, alone or in a batch between two hits; returns its outcome.
fn call(client: &mut Client, node: &mut Client, id: u64) -> String {
    let honest = node.post(&balance(id));
    let began = Instant::now();
    let is_batch = id.is_multiple_of(5);
    let alone = balance(id);
    let body = if is_batch { format!("[{},{alone},{}]", block(1), block(2)) } else { alone };
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let got = client.raw(request.as_bytes());
    assert!(began.elapsed() < HANG, "a hang: {body}");
    let got = match got {
        Ok(got) => got,
        Err(cut) if matches!(cut.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            return "connection cut".to_owned();
        }
        Err(hang) => panic!("{hang}: {body}"),
    };
    if got.status == 503 && got.header("content-type") != Some("application/json") {
        return "no memory".to_owned(); // 50 MiB for each of several clients of one address
    }
    if !is_batch {
        if got.status == 200 && got.body.len() < LONG {
            assert_eq!(got.text(), honest.text(), "other bytes with 200");
        }
        return outcome(&got.json(), id, &honest.json());
    }
    let (got, hit) = (got.json(), node.post(&block(1)).json());
    assert_eq!((got[0]["result"] == hit["result"], &got[0]["id"]), (true, &Value::from(1)));
    assert_eq!((got[2]["result"] == hit["result"], &got[2]["id"]), (true, &Value::from(2)));
    assert_eq!(got.as_array().map(Vec::len), Some(3));
    outcome(&got[1], id, &honest.json())
}

/// Calls of all clients at once, `count` of each.
fn calls(neve: &Neve, node: &DevnetThread, clients: u64, count: u64) -> Counts {
    let counts = Mutex::new(Counts::new());
    std::thread::scope(|scope| {
        for number in 0..clients {
            let counts = &counts;
            scope.spawn(move || {
                let (mut client, mut direct) = (neve.client(), Client::new(node.address()));
                for id in (0..count).map(|id| 10 + id * clients + number) {
                    let outcome = call(&mut client, &mut direct, id);
                    if outcome == "connection cut" {
                        client = neve.client();
                    }
                    *counts.lock().expect("no panic").entry(outcome).or_default() += 1;
                }
            });
        }
    });
    counts.into_inner().expect("no panic")
}

/// Calls one after the other until one has the node's bytes: an upstream that comes back is not
/// asked at once.
fn until_answered(neve: &Neve, node: &DevnetThread) -> Counts {
    let (mut counts, mut node) = (Counts::new(), Client::new(node.address()));
    neve.wait("an upstream that works", |_| {
        let outcome = call(&mut neve.client(), &mut node, 7);
        let ends = outcome == WHOLE;
        *counts.entry(outcome).or_default() += 1;
        ends.then_some(())
    });
    counts
}

/// Runs all phases, with so many calls of each client in most of them; returns all outcomes.
fn run(count: u64, timeout: &str) -> Counts {
    let nodes = [devnet(5), devnet(5)];
    let faulty = nodes.each_ref().map(|node| Faulty::start(node.address()));
    let arguments = ["--relay-timeout", timeout, "--upstream-ws", "none", "--upstream-ws", "none"];
    let (_dir, neve) = start(&faulty.each_ref().map(Faulty::url), &arguments);
    let mut all = Counts::new();
    let few = (count / 20).max(1);
    let mut phase = |name: &str, modes: [Mode; 2], clients: u64, count: u64| {
        faulty.iter().zip(modes).for_each(|(faulty, mode)| faulty.fail(mode));
        let works = modes.contains(&Mode::Pass);
        let before = if works { until_answered(&neve, &nodes[0]) } else { Counts::new() };
        let counts = calls(&neve, &nodes[0], clients, count);
        println!("{name}: {before:?}, then {counts:?}");
        for (outcome, more) in before.iter().chain(&counts) {
            *all.entry(outcome.clone()).or_default() += more;
        }
        faulty.iter().for_each(|faulty| faulty.fail(Mode::Pass));
        counts
    };
    let faults = [Mode::Dead, Mode::Stalls, Mode::Half, Mode::BrokenChunk, Mode::Page];
    for mode in faults {
        for modes in [[mode, Mode::Pass], [Mode::Pass, mode]] {
            let counts = phase(&format!("{modes:?}"), modes, CLIENTS, count);
            let others: Vec<_> = counts.keys().filter(|name| *name != WHOLE).collect();
            assert!(others.is_empty(), "one upstream works: {others:?}");
        }
        phase(&format!("both {mode:?}"), [mode; 2], CLIENTS, few);
    }
    // A busy machine may not send all of it in time: then the connection is cut.
    phase("both Long", [Mode::Long; 2], 2, few.min(4));
    let lie = nodes[0].faults().inject(Fault::FalseHead(1000));
    phase("a false head", [Mode::Pass; 2], CLIENTS, count);
    lie.clear();
    let last = phase("none", [Mode::Pass; 2], CLIENTS, count);
    assert_eq!(last.keys().collect::<Vec<_>>(), [WHOLE]);
    all
}

#[test]
fn client_gets_the_nodes_bytes_or_an_error_while_upstreams_fail() {
    run(3, TIMEOUTS[0]);
}

#[test]
#[ignore = "10,000 calls take a minute: ./check"]
fn each_of_ten_thousand_calls_ends_rightly_while_upstreams_fail() {
    let all = run(104, TIMEOUTS[1]);
    println!("all: {all:?}");
    assert!(all.values().sum::<u64>() >= 10_000);
}
