//! Filters that upstreams opened: only their issuers know them.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use neve_devnet::DevnetThread;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::attacks::start;
use super::odd::{Odd, each_asked};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::devnet;

const OPEN: &str = "eth_newPendingTransactionFilter";
const CHANGES: &str = "eth_getFilterChanges";
const NOT_NOW: &str = "relay: no upstream answers now; try again later";
/// Filters of the two upstreams.
const IDS: [&str; 2] = ["0xa1", "0xb2"];

fn result(id: usize, value: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{value}}}"#)
}

fn changes(id: &str) -> String {
    format!("[\"{id}\"]")
}

/// Two upstreams, each with a filter that it has opened through neve.
fn opened(arguments: &[&str]) -> ([DevnetThread; 2], [Odd; 2], TempDir, Neve) {
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let (dir, neve) = start(&odd.each_ref().map(Odd::url), arguments);
    for (odd, id) in odd.iter().zip(IDS) {
        odd.answer_with(CHANGES, &result(1, &format!("[\"of {id}\"]")));
    }
    let (answers, mut client) = (IDS.map(|id| result(1, &format!("\"{id}\""))), neve.client());
    each_asked(&neve, &odd, OPEN, &answers, || drop(client.call(OPEN, "[]")));
    (nodes, odd, dir, neve)
}

#[test]
fn filter_of_an_upstream_that_does_not_work_now_is_not_said_to_be_gone() {
    let ([first, _second], _odd, _dir, neve) = opened(&[]);
    drop(first);
    neve.wait("the end of the first upstream", |health| {
        (health["upstreams"][0]["state"] != "up").then_some(())
    });
    let mut client = neve.client();
    let refused = client.call(CHANGES, &changes(IDS[0]));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"]["message"], NOT_NOW);
    assert_eq!(client.result(CHANGES, &changes(IDS[1]))[0], "of 0xb2");
}

#[test]
fn batch_that_polls_filters_of_several_upstreams_asks_each_for_its_own() {
    for treatment in ["split", "whole"] {
        let (_nodes, odd, _dir, neve) = opened(&["--batch-miss", treatment]);
        // neve numbers the calls that it passes on.
        for (number, (odd, id)) in odd.iter().zip(IDS).enumerate() {
            let answers = format!("[{}]", result(number, &format!("[\"of {id}\"]")));
            odd.answer_with(CHANGES, &answers);
        }
        let poll = |call: &str, id: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":"{call}","method":"{CHANGES}","params":["{id}"]}}"#)
        };
        let silent = format!(r#"{{"jsonrpc":"2.0","method":"{CHANGES}","params":["0xa1"]}}"#);
        let batch = format!("[{},{},{silent}]", poll("x", IDS[0]), poll("y", IDS[1]));
        let answer = neve.client().post(&batch);
        assert_eq!((answer.status, answer.header("x-neve")), (200, Some("relay")), "{treatment}");
        let answers: Value = answer.json();
        let found = [0, 1].map(|at| (answers[at]["id"].clone(), answers[at]["result"][0].clone()));
        let expected = [("x", "of 0xa1"), ("y", "of 0xb2")];
        assert_eq!(found, expected.map(|(id, of)| (id.into(), of.into())), "{answers}");
        assert_eq!(odd.each_ref().map(|odd| odd.asked(CHANGES)), [1, 1]);
        // With one that fails, the other one's answer stands.
        odd[1].answer_as(CHANGES, b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n");
        let answer = neve.client().post(&batch);
        assert_eq!(
            (answer.header("x-neve"), answer.header("x-neve-misses")),
            (Some("mixed"), Some("1"))
        );
        let answers: Value = answer.json();
        assert_eq!(answers[0]["result"][0], "of 0xa1", "{answers}");
        assert_eq!(answers[1]["error"]["message"], "relay: the upstream answered with HTTP 500");
    }
}

#[test]
fn notification_of_a_batch_goes_to_the_issuer_of_its_filter_and_chooses_none_for_calls() {
    for treatment in ["split", "whole"] {
        let (nodes, odd, _dir, neve) = opened(&["--batch-miss", treatment]);
        odd[1].answer_with(CHANGES, &format!("[{}]", result(0, "[\"of 0xb2\"]")));
        let silent = r#"{"jsonrpc":"2.0","method":"eth_uninstallFilter","params":["0xa1"]}"#;
        let poll =
            format!(r#"{{"jsonrpc":"2.0","id":"y","method":"{CHANGES}","params":["0xb2"]}}"#);
        for batch in [format!("[{silent},{poll}]"), format!("[{poll},{silent}]")] {
            let answers: Value = neve.client().post(&batch).json();
            assert_eq!(answers, json!([{"jsonrpc": "2.0", "id": "y", "result": ["of 0xb2"]}]));
        }
        assert_eq!(odd.each_ref().map(|odd| odd.asked(CHANGES)), [0, 2], "{treatment}");
        let ended = nodes.each_ref().map(|node| node.counters().calls("eth_uninstallFilter"));
        assert_eq!(ended, [2, 0], "{treatment}");
    }
}

#[test]
fn issuers_of_the_filters_of_a_batch_are_asked_at_the_same_time() {
    let limits = ["--relay-timeout", "1h", "--relayed-requests-address-max", "1"];
    let (_nodes, odd, _dir, neve) = opened(&limits);
    odd.iter().for_each(|odd| odd.hold(CHANGES));
    let poll =
        |id: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{CHANGES}","params":["{id}"]}}"#);
    let batch = format!("[{},{}]", poll(IDS[0]), poll(IDS[1]));
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{batch}", batch.len());
    let mut client = TcpStream::connect(neve.address).expect("it listens");
    client.write_all(request.as_bytes()).expect("it reads");
    neve.wait("both issuers", |_| odd.iter().all(|odd| odd.asked(CHANGES) == 1).then_some(()));
}

#[test]
fn filters_of_an_upstream_that_stays_are_known_after_another_one_was_replaced() {
    let (nodes, dir) = ([devnet(5), devnet(5), devnet(5)], fresh_dir());
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    for (odd, id) in odd.iter().zip(["0xa1", "0xb2", "0xc3"]) {
        odd.answer_with(OPEN, &result(1, &format!("\"{id}\"")));
        odd.answer_with(CHANGES, &result(1, &format!("[\"of {id}\"]")));
    }
    let path = dir.path().join("neve.toml");
    let settings = |all: [&Odd; 2]| {
        let urls = all.map(|odd| format!("\"{}\"", odd.url())).join(",");
        let text = format!("upstream = [{urls}]\nstart = 0\non-miss = \"relay\"\n");
        fs::write(&path, text).expect("a file");
    };
    settings([&odd[0], &odd[1]]);
    let neve = Neve::start(dir.path(), &["--config", &path.display().to_string()]);
    let wait_for_both = || {
        neve.wait("both upstreams", |health| {
            let all = health["upstreams"].as_array()?;
            let up = all.iter().filter(|one| one["state"] == "up" && one["head"] == 5);
            (up.count() == 2).then_some(())
        });
    };
    wait_for_both();
    let absent = b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n";
    odd[0].answer_as(OPEN, absent);
    neve.wait("a filter of the second one", |_| {
        neve.client().call(OPEN, "[]");
        (odd[1].asked(OPEN) > 0).then_some(())
    });
    settings([&odd[1], &odd[2]]);
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstreams replaced");
    wait_for_both();
    // Others are asked of any, and of the third one while the second one is doubted.
    odd[1].answer_as(CHANGES, absent);
    neve.wait("the third one", |_| {
        neve.client().call(CHANGES, "[\"0xdd\"]");
        (odd[2].asked(CHANGES) > 0).then_some(())
    });
    odd[1].answer_with(CHANGES, &result(1, "[\"of 0xb2\"]"));
    let before = odd[2].asked(CHANGES);
    for _ in 0..8 {
        assert_eq!(neve.client().result(CHANGES, "[\"0xb2\"]")[0], "of 0xb2");
    }
    assert_eq!(odd[2].asked(CHANGES), before);
}
