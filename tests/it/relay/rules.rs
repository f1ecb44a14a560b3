//! Upstreams of `--relay-to`: by method and height.

use std::time::Instant;

use neve_devnet::{DevnetThread, Fault};
use tempfile::TempDir;

use super::odd::Odd;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::{devnet, follow};
use crate::support::ws::Ws;

const BALANCE: &str = "eth_getBalance";
const TRACE: &str = "debug_traceTransaction";

fn result(text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{text}"}}"#)
}

/// A node that is followed, one for old heights, one for traces, and a neve before them.
fn start() -> (DevnetThread, [Odd; 2], TempDir, Neve) {
    let node = devnet(9);
    let [archive, tracer] = [(); 2].map(|()| Odd::start(node.address()));
    archive.answer_with(BALANCE, &result("old"));
    tracer.answer_with(TRACE, &result("trace"));
    tracer.answer_with(BALANCE, &result("never"));
    let old = format!("*@0-4={}", archive.url());
    let traces = format!("debug_*+trace_*={}", tracer.url());
    let methods = format!("default,{TRACE}");
    let (dir, neve) = follow(
        &node,
        &[
            "--on-miss",
            "relay",
            "--relay-methods",
            &methods,
            "--relay-to",
            &old,
            "--relay-to",
            &traces,
        ],
    );
    (node, [archive, tracer], dir, neve)
}

fn balance(at: &str) -> String {
    format!(r#"["0x0000000000000000000000000000000000000001",{at}]"#)
}

#[test]
fn call_goes_to_the_upstream_of_its_method_and_height() {
    let (node, [archive, tracer], _dir, neve) = start();
    let mut client = neve.client();
    for at in [r#""0x4""#, r#""0x0""#, r#""earliest""#, r#"{"blockNumber":"0x1"}"#] {
        assert_eq!(client.result(BALANCE, &balance(at)), "old", "{at}");
    }
    let hash = client.result("eth_getBlockByNumber", r#"["0x2",false]"#)["hash"].to_string();
    for at in [r#""0x5""#, r#""latest""#, r#""pending""#, &format!(r#"{{"blockHash":{hash}}}"#)] {
        let text = client.call(BALANCE, &balance(at)).text();
        assert!(text.contains("\"result\":\"0x"), "{at}: {text}");
    }
    assert_eq!(client.result(TRACE, "[\"0x1\"]"), "trace");
    assert_eq!((archive.asked(BALANCE), tracer.asked(BALANCE), tracer.asked(TRACE)), (4, 0, 1));
    assert_eq!(node.counters().calls(TRACE), 0);
}

#[test]
fn upstream_of_a_rule_is_not_followed_and_others_are_asked_if_it_fails() {
    let (node, [archive, _tracer], _dir, neve) = start();
    assert_eq!(neve.health()["upstreams"].as_array().map(Vec::len), Some(1));
    let mut client = neve.client();
    let newer = balance("\"0x4\"");
    let balance = balance("\"0x3\"");
    // One that lacks the state is known for it.
    let pruned =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"missing trie node"}}"#;
    archive.answer_with(BALANCE, pruned);
    let before = node.counters().calls(BALANCE);
    (0..6).for_each(|_| assert_ne!(client.result(BALANCE, &balance), "old"));
    assert_eq!((archive.asked(BALANCE), node.counters().calls(BALANCE) - before), (1, 6));
    // One that fails is asked last for a while.
    archive.answer(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n", true);
    for _ in 0..3 {
        let text = client.call(BALANCE, &newer).text();
        assert!(text.contains("\"result\":\"0x"), "the followed one answers: {text}");
    }
    assert_eq!(archive.asked(BALANCE), 1);
}

const SEND: &str = "eth_sendRawTransaction";

/// An upstream for transactions alone, the parameters of one, and the rule.
fn private_upstream(node: &DevnetThread) -> (Odd, String, String) {
    let private = Odd::start(node.address());
    let (raw, rule) = (format!(r#"["0x02{:062x}"]"#, 1), format!("{SEND}={}", private.url()));
    (private, raw, rule)
}

/// Else a client could have the transactions of all others sent to the public upstream.
#[test]
fn call_that_its_upstream_refuses_sends_no_other_one_elsewhere() {
    let node = devnet(9);
    let (private, raw, rule) = private_upstream(&node);
    let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--relay-to", &rule]);
    let mut client = neve.client();
    for status in [400, 403, 404, 413, 414, 415, 422, 431] {
        let refusal =
            format!("HTTP/1.1 {status} x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        private.answer_as(SEND, refusal.as_bytes());
        let refused = client.call(SEND, &raw);
        assert_eq!(refused.status, 502, "{status}: {}", refused.text());
        private.answer_with(SEND, &result("private"));
        assert_eq!(client.result(SEND, &raw), "private", "{status}");
    }
    assert_eq!(node.counters().calls(SEND), 0);
    // One that lacks the method sends this call elsewhere, and not those behind it.
    let lacks = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}"#;
    private.answer_with(SEND, lacks);
    client.call(SEND, &raw);
    assert_eq!(node.counters().calls(SEND), 1);
    private.answer_with(SEND, &result("private"));
    assert_eq!(client.result(SEND, &raw), "private");
    assert_eq!(node.counters().calls(SEND), 1);
}

/// Else a client could bring the transactions of a batch past the upstream that is meant for them.
#[test]
fn rule_matches_a_batch_by_any_of_many_methods() {
    let node = devnet(9);
    let (private, raw, rule) = private_upstream(&node);
    // Methods that a node may have: of others neve itself says that they are not there.
    let names = [
        "blockProfile",
        "cpuProfile",
        "freeOSMemory",
        "gcStats",
        "goTrace",
        "memStats",
        "mutexProfile",
        "setBlockProfileRate",
        "setGCPercent",
        "setMutexProfileFraction",
        "stacks",
        "startCPUProfile",
        "startGoTrace",
        "stopCPUProfile",
        "stopGoTrace",
        "verbosity",
        "vmodule",
    ];
    let names = names.map(|name| format!("debug_{name}"));
    let methods = format!("default,{}", names.join(","));
    let arguments = ["--on-miss", "relay", "--relay-methods", &methods, "--relay-to", &rule];
    let (_dir, neve) = follow(&node, &arguments);
    private.answer_with(SEND, "[]");
    let others = names.iter().map(|name| (name.as_str(), "[]"));
    let calls = others.chain([(SEND, raw.as_str())]).map(|(method, params)| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
    });
    let batch = format!("[{}]", calls.collect::<Vec<_>>().join(","));
    assert_eq!(neve.client().post(&batch).status, 200);
    assert_eq!((private.asked(SEND), node.counters().calls(SEND)), (1, 0));
}

/// Else an upstream that uses such words for its own reasons would have its transactions made public.
#[test]
fn words_of_a_lack_send_no_transaction_elsewhere() {
    let node = devnet(9);
    let (private, raw, rule) = private_upstream(&node);
    let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--relay-to", &rule]);
    let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{SEND}","params":{raw}}}"#);
    let batch = format!("[{call},{call}]");
    let error = |code: i32, words: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"{words}"}}}}"#)
    };
    let pruned = error(-32000, "transaction pruned from the private pool");
    let missing = error(-32000, "missing trie node 1a (path ) state 0x1a is not available");
    let absent = error(-32601, "the method does not exist");
    // An error alone for a batch does not say that nothing of the batch was done.
    for (body, answer) in
        [(&call, &pruned), (&call, &missing), (&batch, &pruned), (&batch, &absent)]
    {
        private.answer_with(SEND, answer);
        let told = neve.client().post(body);
        assert_eq!((told.status, told.text()), (200, answer.clone()), "{body}");
        assert_eq!(node.counters().calls(SEND), 0, "{answer}");
    }
}

/// Else a client could have the transactions of all others sent to the public upstream.
#[test]
fn failures_of_the_upstream_of_a_rule_send_no_transaction_elsewhere() {
    let node = devnet(9);
    let (private, raw, rule) = private_upstream(&node);
    let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--relay-to", &rule]);
    let broken = b"HTTP/1.1 500 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for method in ["eth_chainId", SEND] {
        private.answer_as(method, broken);
    }
    for _ in 0..12 {
        let failed = neve.client().call(SEND, &raw);
        assert_eq!(failed.status, 502, "{}", failed.text());
    }
    private.answer_with(SEND, &result("private"));
    assert_eq!(neve.client().result(SEND, &raw), "private");
    assert_eq!(node.counters().calls(SEND), 0);
}

/// Else a client could send so many that those of all others go to the public upstream.
#[test]
fn limit_of_the_upstream_of_a_rule_sends_no_transaction_elsewhere() {
    let node = devnet(9);
    let (private, raw, rule) = private_upstream(&node);
    let relay = ["--on-miss", "relay", "--relay-to"];
    let (_dir, neve) = follow(&node, &[&relay[..], &[&rule]].concat());
    let mut client = neve.client();
    for status in [429, 503] {
        let limit = format!(
            "HTTP/1.1 {status} x\r\nConnection: close\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n"
        );
        private.answer_as(SEND, limit.as_bytes());
        assert_eq!(client.call(SEND, &raw).status, 429);
        private.answer_with(SEND, &result("private"));
        let paused = client.call(SEND, &raw);
        assert_eq!((paused.status, paused.header("retry-after")), (503, Some("1")), "{status}");
        let sent = neve.wait("the end of the pause", |_| {
            let sent = neve.client().call(SEND, &raw);
            (sent.status != 503).then_some(sent)
        });
        assert_eq!(sent.json()["result"], "private", "{}", sent.text());
    }
    let rate = ["--relay-requests-per-second", "0.1"];
    let (_rate_dir, slow) = follow(&node, &[&relay[..], &[&rule], &rate].concat());
    let statuses = [(); 2].map(|()| slow.client().call(SEND, &raw).status);
    assert_eq!(statuses, [200, 429]);
    assert_eq!(node.counters().calls(SEND), 0);
    // One that is down has nothing.
    let absent = format!("{SEND}=http://127.0.0.1:1");
    let (_down_dir, neve) = follow(&node, &[&relay[..], &[&absent]].concat());
    assert_eq!((neve.client().call(SEND, &raw).status, node.counters().calls(SEND)), (200, 1));
}

/// Else a client could have the transactions of all others sent to the public upstream.
#[test]
fn upstream_of_a_rule_that_opens_no_websocket_still_gets_transactions() {
    let node = devnet(9);
    // Its connections end after all but a transaction, and so do handshakes.
    let private = Odd::start(([127, 0, 0, 1], 1).into());
    private.answer_with(SEND, &result("private"));
    let (rule, ws) = (format!("{SEND}+eth_subscribe={}", private.url()), "ws://127.0.0.1:1/");
    let arguments = ["--on-miss", "relay", "--upstream-ws", ws, "--relay-to", &rule];
    let (_dir, neve) = follow(&node, &arguments);
    for _ in 0..6 {
        let mut ws = Ws::open(&neve);
        let refused = ws.call("eth_subscribe", r#"["newPendingTransactions"]"#);
        assert!(refused.contains("-32603"), "{refused}");
    }
    let raw = format!(r#"["0x02{:062x}"]"#, 1);
    let sent = neve.client().call(SEND, &raw);
    assert_eq!((sent.status, node.counters().calls(SEND)), (200, 0), "{}", sent.text());
    assert_eq!(sent.json()["result"], "private");
}

/// A node reads keys in any case, and takes the last of a name.
#[test]
fn first_block_of_logs_is_read_as_a_node_reads_it() {
    const LOGS: &str = "eth_getLogs";
    let node = devnet(9);
    let archive = Odd::start(node.address());
    archive.answer_with(LOGS, &result("old"));
    let (rule, dir, url) = (format!("*@0-4={}", archive.url()), fresh_dir(), node.base_url());
    let arguments = ["--upstream", &url, "--start", "7", "--on-miss", "relay", "--relay-to", &rule];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(9);
    let mut client = neve.client();
    for first in
        [r#""fromBlock":"0x1""#, r#""fromblock":"0x1""#, r#""fromBlock":"0x5","FROMBLOCK":"0x1""#]
    {
        let logs = client.result(LOGS, &format!(r#"[{{{first},"toBlock":"0x6"}}]"#));
        assert_eq!(logs, "old", "{first}");
    }
}

#[test]
fn rule_that_can_never_apply_is_refused_at_the_start() {
    let dir = fresh_dir();
    let store = dir.path().display().to_string();
    let many = ["eth_call=http://127.0.0.1:1"; 65].join(",");
    for (rule, why) in [
        (&*many, "65 rules; allowed: up to 64"),
        ("http://127.0.0.1:1", "write METHODS=URL or METHODS@HEIGHTS=URL"),
        ("=http://127.0.0.1:1", "no method"),
        ("eth_call@5=http://127.0.0.1:1", "no heights; write FIRST-LAST"),
        ("eth_call@5-4=http://127.0.0.1:1", "the last height is below the first"),
        ("eth_call=ftp://127.0.0.1:1/SECRET", "neither http nor https"),
        ("debug_*=http://127.0.0.1:1/SECRET", "--relay-methods has no such method"),
    ] {
        let arguments = ["serve", "--data-dir", &store, "--upstream", "http://127.0.0.1:1"];
        let output = run(&[&arguments[..], &["--on-miss", "relay", "--relay-to", rule]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(why) && said.contains("--relay-to "), "{rule}: {said}");
        assert!(!said.contains("SECRET"), "{said}");
    }
}

#[test]
fn response_says_that_an_upstream_that_is_not_followed_lacks_the_head() {
    let (node, own) = (devnet(5), devnet(4));
    let rule = format!("{BALANCE}={}", own.base_url());
    let arguments = ["--on-miss", "relay", "--relay-hedge-percent", "100", "--relay-to", &rule];
    let (_dir, neve) = follow(&node, &arguments);
    let mut client = neve.client();
    let mut said = |at: &str| {
        let got = client.call(BALANCE, &balance(at));
        assert_eq!((got.status, got.header("x-neve")), (200, Some("relay")), "{}", got.text());
        got.header("x-neve-upstream").map(str::to_owned)
    };
    let behind = || Some("behind".to_owned());
    assert_eq!(said(r#""latest""#), behind());
    assert_eq!(said(r#""0x3""#), None, "no head is needed");
    own.advance(1);
    neve.wait("its head", |_| said(r#""latest""#).is_none().then_some(()));
    // It is asked once for each head of neve.
    let asked = || own.counters().calls("eth_blockNumber");
    let before = asked();
    (0..20).for_each(|_| assert_eq!(said(r#""latest""#), None));
    assert_eq!(asked(), before);
    // One that does not say its head holds calls up for a second.
    let stall = own.faults().inject(Fault::Stall.on("eth_blockNumber"));
    node.advance(1);
    neve.wait_for_head(6);
    let began = Instant::now();
    assert_eq!(said(r#""latest""#), behind());
    assert!(began.elapsed().as_secs() < 20);
    stall.clear();
    assert_eq!(node.counters().calls(BALANCE), 0);
}
