//! Transactions that go to all upstreams, and outlive their clients.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use neve_devnet::{DevnetThread, Fault, RetryAfter};
use serde_json::{Value, json};

use super::attacks::start;
use super::odd::Odd;
use crate::support::client::{Client, Response};
use crate::support::neve::Neve;
use crate::support::served::devnet;
use crate::support::ws::Ws;

const SEND: &str = "eth_sendRawTransaction";
/// Bytes of a transaction that a client makes neve hold.
const LEN: u32 = 1 << 20;

fn raw() -> String {
    format!("[\"0x02{}\"]", "00".repeat(LEN as usize / 2))
}

/// A batch with a call that neve answers, two transactions and the notification of one, and a read.
const MIXED: &str = concat!(
    r#"[{"jsonrpc":"2.0","id":"a<","method":"eth_sendRawTransaction","params":["0x0200000000000000000000000000000000000000000000000000000000000000"]},"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"eth_blockNumber"},"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]},"#,
    r#"{"jsonrpc":"2.0","method":"eth_sendRawTransaction","params":["0x0200000000000000000000000000000000000000000000000000000000000001"]},"#,
    r#"{"jsonrpc":"2.0","id":1.50,"method":"eth_sendRawTransaction","params":["0x0200000000000000000000000000000000000000000000000000000000000002"]}]"#,
);

/// Transactions of a batch with these ids.
fn transactions(ids: impl Iterator<Item = u32>) -> String {
    let call = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{SEND}","params":["0x02{id:062x}"]}}"#)
    };
    format!("[{}]", ids.map(call).collect::<Vec<_>>().join(","))
}

fn calls(nodes: &[DevnetThread], method: &str) -> Vec<u64> {
    nodes.iter().map(|node| node.counters().calls(method)).collect()
}

fn outcome(neve: &Neve, name: &str) -> u64 {
    neve.count(&format!("neve_relay_broadcasts_total{{outcome=\"{name}\"}}"))
}

fn told(response: &Response) -> (u16, Option<&str>, Option<&str>) {
    (response.status, response.header("x-neve"), response.header("x-neve-misses"))
}

/// A request on a connection of its own, without a look at its response.
fn send(neve: &Neve, body: &str) -> TcpStream {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(neve.address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

#[test]
fn transactions_of_a_batch_go_to_all_upstreams_and_its_other_calls_to_one() {
    for (miss, source) in [("split", "mixed"), ("whole", "relay")] {
        let nodes = [devnet(5), devnet(5), devnet(5)];
        let urls = nodes.each_ref().map(|node| node.base_url());
        let (_dir, neve) = start(&urls, &["--relay-broadcast", "--batch-miss", miss]);
        let other = devnet(5);
        let expected = |body: &str| Client::new(other.address()).post(body).text();
        let mixed = neve.client().post(MIXED);
        assert_eq!(told(&mixed), (200, Some(source), None), "{}", mixed.text());
        assert_eq!(mixed.text(), expected(MIXED), "{miss}");
        neve.wait("all upstreams", |_| (outcome(&neve, "ok") == 6).then_some(()));
        assert_eq!(calls(&nodes, SEND), [3, 3, 3], "{miss}: each item once, the notification too");
        assert_eq!(calls(&nodes, "eth_getBalance").iter().sum::<u64>(), 1, "{miss}");
        let mut ws = Ws::open(&neve);
        ws.send(MIXED);
        assert_eq!(ws.text(), expected(MIXED), "{miss}");
        neve.wait("all upstreams", |_| (outcome(&neve, "ok") == 12).then_some(()));
        assert_eq!(calls(&nodes, SEND), [6, 6, 6], "{miss}");
        assert_eq!(calls(&nodes, "eth_getBalance").iter().sum::<u64>(), 2, "{miss}");
        // Transactions alone, with long responses together: one request to each upstream.
        let asked = || neve.count("neve_relay_requests_total{outcome=\"ok\"}");
        let (before, many) = (asked(), transactions(0..1000));
        let alone = neve.client().post(&many);
        assert_eq!(told(&alone), (200, Some("relay"), None), "{:.300}", alone.text());
        assert!(alone.text() == expected(&many), "{miss}: {:.300}", alone.text());
        assert_eq!(asked(), before + 1, "{miss}");
        neve.wait("all upstreams", |_| (outcome(&neve, "ok") == 3012).then_some(()));
        assert_eq!(calls(&nodes, SEND), [1006; 3], "{miss}");
    }
}

#[test]
fn transaction_of_a_batch_gets_the_first_result_or_the_error_of_a_node() {
    let nodes = [devnet(5), devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let (_dir, neve) = start(&urls, &["--relay-broadcast", "--relay-timeout", "10s"]);
    let refusal = || Fault::Error("nonce too low".to_owned()).on(SEND).times(1);
    // One refuses the first transaction, one stalls: the third one's results are the response.
    let faults = nodes[0].faults().inject(refusal());
    let stall = nodes[1].faults().inject(Fault::Stall.on(SEND));
    let two = transactions(1..3);
    let sent = neve.client().post(&two);
    let answers = sent.json();
    let results = [0, 1].map(|at| (answers[at]["id"].as_u64(), answers[at]["result"].is_string()));
    assert_eq!(results, [(Some(1), true), (Some(2), true)], "{answers}");
    neve.wait("the refusal", |_| (outcome(&neve, "rejected") == 1).then_some(()));
    neve.wait("the results", |_| (outcome(&neve, "ok") == 3).then_some(()));
    stall.clear();
    neve.wait("the late ones", |_| (outcome(&neve, "ok") == 5).then_some(()));
    faults.clear();
    // All refuse the first one: it has a node's error, and the second one its result.
    let faults = nodes.each_ref().map(|node| node.faults().inject(refusal()));
    let sent = neve.client().post(&two);
    let answers = sent.json();
    assert_eq!(told(&sent), (200, Some("relay"), None), "{answers}");
    assert_eq!(answers[0]["error"]["message"], "nonce too low", "{answers}");
    assert!(answers[1]["result"].is_string(), "{answers}");
    faults.into_iter().for_each(|fault| fault.clear());
    // All fail: the other calls have their answers.
    let status = || Fault::Status(400, RetryAfter::Absent).on(SEND);
    let faults = nodes.each_ref().map(|node| node.faults().inject(status()));
    let sent = neve.client().post(MIXED);
    assert_eq!(told(&sent), (200, Some("mixed"), Some("2")), "{}", sent.text());
    let answers = sent.json();
    let message = "relay: the upstream answered with HTTP 400";
    for (at, id) in [(0, json!("a<")), (3, json!(1.5))] {
        let error = (&answers[at]["id"], &answers[at]["error"]["message"]);
        assert_eq!(error, (&id, &json!(message)), "{answers}");
    }
    assert_eq!((&answers[1]["result"], answers[2]["result"].is_string()), (&json!("0x5"), true));
    neve.wait("the failures", |_| (outcome(&neve, "http_status") == 6).then_some(()));
    faults.into_iter().for_each(|fault| fault.clear());
}

#[test]
fn response_that_is_none_is_worse_than_the_error_of_a_node() {
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let arguments = ["--relay-broadcast", "--relay-timeout", "10s"];
    let (_dir, neve) = start(&odd.each_ref().map(Odd::url), &arguments);
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"nonce too low"}}"#;
    let raw = r#"["0x0200000000000000000000000000000000000000000000000000000000000000"]"#;
    for (sent, garbage) in ["{}", "", "\"x\"", "[]"].into_iter().enumerate() {
        odd[0].answer_with(SEND, garbage);
        // Later than the other one.
        odd[1].answer_with(SEND, error);
        odd[1].delay(SEND, Duration::from_millis(100));
        let refused = neve.client().call(SEND, raw);
        assert_eq!((refused.status, refused.text().as_str()), (200, error), "{garbage}");
        assert_eq!(outcome(&neve, "invalid_json"), 3 * sent as u64 + 1, "{garbage}");
        odd[1].answer_with(SEND, garbage);
        let failed = neve.client().call(SEND, raw);
        let message = "relay: the upstream's response is not JSON";
        assert_eq!(failed.status, 502, "{garbage}: {}", failed.text());
        assert_eq!(failed.json()["error"]["message"], message, "{garbage}");
    }
}

#[test]
fn item_without_a_result_is_worse_than_the_error_of_a_node() {
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let arguments = ["--relay-broadcast", "--relay-timeout", "10s"];
    let (_dir, neve) = start(&odd.each_ref().map(Odd::url), &arguments);
    let error = r#"[{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"nonce too low"}}]"#;
    for item in [r#"{"id":0}"#, r#"{"id":0,"result":null}"#] {
        odd[0].answer_with(SEND, &format!("[{item}]"));
        // Later than the other one.
        odd[1].answer_with(SEND, error);
        odd[1].delay(SEND, Duration::from_millis(100));
        let refused = neve.client().post(&transactions(7..8)).json();
        assert_eq!(refused[0]["error"]["message"], "nonce too low", "{item}: {refused}");
    }
}

#[test]
fn upstream_that_answers_a_transaction_with_nothing_is_asked_last() {
    let alone = transactions(1..2);
    let alone = &alone[1..alone.len() - 1];
    nothing_is_no_quick_answer(alone, "{}", r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#);
    let hash = r#"[{"jsonrpc":"2.0","id":0,"result":"0x1"}]"#;
    nothing_is_no_quick_answer(&transactions(1..2), r#"[{"id":0}]"#, hash);
}

/// Sends a transaction to an upstream that says nothing at once, and to one that says `hash` later.
fn nothing_is_no_quick_answer(transaction: &str, nothing: &str, hash: &str) {
    const BALANCE: &str = "eth_getBalance";
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let arguments = ["--relay-broadcast", "--relay-hedge-percent", "0"];
    let (_dir, neve) = start(&odd.each_ref().map(Odd::url), &arguments);
    let result = r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#;
    odd.iter().for_each(|odd| odd.answer_with(BALANCE, result));
    odd[0].answer_with(SEND, nothing);
    // Later than the other one, which would be asked first by its time.
    odd[1].answer_with(SEND, hash);
    odd[1].delay(SEND, Duration::from_millis(200));
    let sent = neve.client().post(transaction);
    assert!(sent.status == 200 && sent.text().contains(r#""result":"0x1""#), "{}", sent.text());
    // The reads must come after the outcome that makes the first upstream the last choice.
    neve.wait("nothing", |_| (outcome(&neve, "invalid_json") >= 1).then_some(()));
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    (0..5).for_each(|_| assert_eq!(neve.client().call(BALANCE, balance).status, 200));
    assert_eq!(odd.each_ref().map(|odd| odd.asked(BALANCE)), [0, 5]);
}

#[test]
fn notification_of_a_transaction_goes_to_all_upstreams_too() {
    let nodes = [devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let (_dir, neve) = start(&urls, &["--relay-broadcast"]);
    let silent = transactions(1..2).replace("\"id\":1,", "");
    for (sent, body) in [&silent[1..silent.len() - 1], &silent].into_iter().enumerate() {
        let answer = neve.client().post(body);
        assert_eq!(told(&answer), (200, Some("relay"), None), "{body}");
        assert_eq!(answer.text(), "", "{body}");
        let all = vec![sent as u64 + 1; 2];
        neve.wait("all upstreams", |_| (calls(&nodes, SEND) == all).then_some(()));
    }
    let mut ws = Ws::open(&neve);
    ws.send(&silent);
    ws.send(&transactions(5..6));
    let answers: Value = serde_json::from_str(&ws.text()).unwrap();
    assert_eq!((&answers[0]["id"], answers.as_array().map(Vec::len)), (&json!(5), Some(1)));
    neve.wait("all upstreams", |_| (calls(&nodes, SEND) == [4, 4]).then_some(()));
    neve.wait("the outcomes of the call", |_| (outcome(&neve, "ok") >= 2).then_some(()));
    assert_eq!(outcome(&neve, "ok"), 2, "no outcome of a notification");
}

#[test]
fn transaction_keeps_place_and_memory_of_its_client_until_all_upstreams_have_answered() {
    let one = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{SEND}","params":{}}}"#, raw());
    keeps_place_and_memory(&one, LEN);
    let number = r#"{"jsonrpc":"2.0","id":7,"method":"eth_blockNumber"}"#;
    keeps_place_and_memory(&format!("[{one},{number},{one}]"), 2 * LEN);
}

/// Each transaction of a client would hold a place for `--relay-timeout`.
#[test]
fn upstream_that_stalls_keeps_no_place_of_a_transaction_that_another_one_took() {
    let nodes = [devnet(5), devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    for max in ["1", "2"] {
        let limits = ["--relayed-requests-total-max", max, "--relayed-requests-address-max", max];
        let fixed = ["--relay-broadcast", "--relay-timeout", "1h"];
        let (_dir, neve) = start(&urls, &[&fixed[..], &limits].concat());
        let stall = nodes[0].faults().inject(Fault::Stall.on(SEND));
        let mut client = neve.client();
        for number in 0..4 {
            let sent = client.post(&transactions(number..=number));
            assert_eq!(sent.status, 200, "{number} of {max}: {}", sent.text());
            assert!(sent.json()[0]["result"].is_string(), "{number} of {max}: {}", sent.text());
        }
        let read = client.call("eth_getBalance", balance);
        assert_eq!(read.status, 200, "{max}: {}", read.text());
        stall.clear();
    }
}

fn keeps_place_and_memory(body: &str, len: u32) {
    let nodes = [devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let limits = ["--relayed-requests-address-max", "1", "--relay-timeout", "1h"];
    let (_dir, neve) = start(&urls, &[&["--relay-broadcast"], &limits[..]].concat());
    let stalls = nodes.each_ref().map(|node| node.faults().inject(Fault::Stall.on(SEND)));
    let client = send(&neve, body);
    neve.wait("both upstreams", |_| stalls.iter().all(|stall| stall.hits() == 1).then_some(()));
    drop(client);
    let in_flight = || neve.metric("neve_relay_in_flight_requests");
    neve.wait("the end of the client's request", |_| (in_flight() == Some(0.0)).then_some(()));
    let reserved = neve.metric("neve_client_reserved_bytes").unwrap_or_default();
    assert!(reserved >= f64::from(len), "{reserved} bytes are reserved, {len} are held");
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    let second = neve.client().call("eth_getBalance", balance);
    assert_eq!(second.status, 429, "the address has its share: {}", second.text());
    stalls.into_iter().for_each(|stall| stall.clear());
    neve.wait("a place", |_| {
        (neve.client().call("eth_getBalance", balance).status == 200).then_some(())
    });
    neve.wait("the memory", |_| {
        (neve.metric("neve_client_reserved_bytes") < Some(f64::from(LEN))).then_some(())
    });
}
