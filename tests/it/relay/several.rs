//! Several upstreams that do not all have the same.

use std::time::{Duration, Instant};

use neve_devnet::{DevnetThread, Fault, RetryAfter};

use super::attacks::start;
use super::odd::{Odd, each_asked};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::{devnet, follow};

const BALANCE: &str = "eth_getBalance";
const SEND: &str = "eth_sendRawTransaction";
const ACCOUNT: &str = "0x0000000000000000000000000000000000000001";

fn error(code: i32, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"{message}"}}}}"#)
}

#[test]
fn upstream_that_lacks_what_a_call_needs_is_asked_once() {
    let nodes = [devnet(5), devnet(5)];
    let odd = Odd::start(nodes[0].address());
    // A hedge would ask it once more, and end before its error came.
    let arguments = ["--relay-hedge-percent", "0"];
    let (_dir, neve) = start(&[odd.url(), nodes[1].base_url()], &arguments);
    let mut client = neve.client();
    let mut ask = |height: &str| {
        let params = format!(r#"["{ACCOUNT}","{height}"]"#);
        client.call(BALANCE, &params).json()
    };
    let pruned = "missing trie node 1a (path ) state 0x1a is not available";
    odd.answer_with(BALANCE, &error(-32000, pruned));
    neve.wait("a state that is not there", |_| {
        assert!(ask("0x3")["result"].is_string());
        (odd.asked(BALANCE) == 1).then_some(())
    });
    for _ in 0..8 {
        assert!(ask("0x3")["result"].is_string());
        assert!(ask("0x2")["result"].is_string(), "older states are not there either");
    }
    assert_eq!(odd.asked(BALANCE), 1);
    neve.wait("a newer state", |_| {
        assert!(ask("0x4")["result"].is_string());
        (odd.asked(BALANCE) == 2).then_some(())
    });
    odd.answer_with(BALANCE, &error(-32601, "the method eth_getBalance does not exist"));
    neve.wait("a method that is not there", |_| {
        assert!(ask("latest")["result"].is_string());
        (odd.asked(BALANCE) == 1).then_some(())
    });
    (0..8).for_each(|_| assert!(ask("latest")["result"].is_string()));
    assert_eq!(odd.asked(BALANCE), 1);
}

#[test]
fn error_of_a_node_comes_back_if_all_upstreams_lack_it() {
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let (_dir, neve) = start(&odd.each_ref().map(Odd::url), &[]);
    let lacks = error(-32601, "the method eth_getBalance does not exist/is not available");
    odd.iter().for_each(|odd| odd.answer_with(BALANCE, &lacks));
    for _ in 0..3 {
        let answer = neve.client().call(BALANCE, &format!(r#"["{ACCOUNT}","latest"]"#));
        assert_eq!((answer.status, answer.text()), (200, lacks.clone()));
    }
}

#[test]
fn filter_is_asked_of_the_upstream_that_opened_it() {
    const OPEN: &str = "eth_newPendingTransactionFilter";
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let (_dir, neve) = start(&odd.each_ref().map(Odd::url), &[]);
    let ids = ["0xA1", "0xB2"];
    let result = |value: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{value}}}"#);
    for (odd, id) in odd.iter().zip(ids) {
        odd.answer_with("eth_getFilterChanges", &result(&format!("[\"of {id}\"]")));
    }
    let mut client = neve.client();
    let answers = ids.map(|id| result(&format!("\"{id}\"")));
    each_asked(&neve, &odd, OPEN, &answers, || drop(client.call(OPEN, "[]")));
    for _ in 0..6 {
        for id in ids {
            let changes = client.result("eth_getFilterChanges", &format!("[\"{id}\"]"));
            assert_eq!(changes[0], format!("of {id}"));
        }
    }
}

#[test]
fn filters_that_a_batch_opened_are_asked_of_their_upstream() {
    const OPEN: &str = "eth_newPendingTransactionFilter";
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let (_dir, neve) = start(&odd.each_ref().map(Odd::url), &[]);
    let answer =
        |id: usize, result: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let opened = [0, 1].map(|number| {
        // neve numbers the calls that it passes on. An upstream may answer in any order.
        let opened = [
            (2, format!("\"0xc{number}\"")),
            (1, "\"0x1\"".into()),
            (0, format!("\"0xa{number}\"")),
        ];
        let opened = opened.map(|(id, result)| answer(id, &result)).join(",");
        format!("[{opened}]")
    });
    for (number, odd) in odd.iter().enumerate() {
        odd.answer_with("eth_getFilterChanges", &answer(1, &format!("[\"of {number}\"]")));
    }
    let call = |id: &str, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#)
    };
    let params = format!(r#"["{ACCOUNT}","latest"]"#);
    let count = call("n", "eth_getTransactionCount", &params);
    let head = call("h", "eth_blockNumber", "[]");
    let batch = format!("[{head},{},{count},{}]", call("f", OPEN, "[]"), call("g", OPEN, "[]"));
    let mut client = neve.client();
    each_asked(&neve, &odd, OPEN, &opened, || {
        assert_eq!(client.post(&batch).json()[3]["id"], "g");
    });
    for _ in 0..6 {
        for id in ["0xa0", "0xa1", "0xc0", "0xc1"] {
            let changes = client.result("eth_getFilterChanges", &format!("[\"{id}\"]"));
            assert_eq!(changes[0], format!("of {}", &id[3..]));
        }
    }
}

#[test]
fn filter_of_the_last_upstream_that_may_be_asked_is_remembered() {
    const OPEN: &str = "eth_newPendingTransactionFilter";
    const CHANGES: &str = "eth_getFilterChanges";
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let rule = format!("{OPEN}+{CHANGES}={}", odd[0].url());
    let (_dir, neve) = start(&odd.each_ref().map(Odd::url), &["--relay-to", &rule]);
    let result = |value: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{value}}}"#);
    for (odd, id) in odd.iter().zip(["0xa1", "0xb2"]) {
        odd.answer_with(OPEN, &result(&format!("\"{id}\"")));
        odd.answer_with(CHANGES, &result(&format!("[\"of {id}\"]")));
    }
    let busy = "HTTP/1.1 429 x\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n";
    odd[0].answer(busy.as_bytes(), true);
    odd[1].answer_with(BALANCE, &result("\"0x1\""));
    let mut client = neve.client();
    let balance = format!(r#"["{ACCOUNT}","latest"]"#);
    neve.wait("a pause of the first upstream", |_| {
        client.call(BALANCE, &balance);
        (odd[0].asked(BALANCE) > 0).then_some(())
    });
    // The second one alone may be asked now; on a busy machine the first one, too.
    let id = client.result(OPEN, "[]").as_str().map(str::to_owned).expect("an id");
    neve.wait("the end of the pause", |_| {
        (client.result(CHANGES, "[\"0xcc\"]")[0] == "of 0xa1").then_some(())
    });
    assert_eq!(client.result(CHANGES, &format!("[\"{id}\"]"))[0], format!("of {id}"));
}

#[test]
fn slow_read_goes_to_a_second_upstream_as_well() {
    let nodes = [devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let arguments = ["--relay-hedge-percent", "100", "--relay-timeout", "60s"];
    let (_dir, neve) = start(&urls, &arguments);
    let mut client = neve.client();
    let params = format!(r#"["{ACCOUNT}","latest"]"#);
    neve.wait("times of both", |_| {
        for (node, millis) in nodes.iter().zip([20, 200]) {
            let late = Fault::Latency(Duration::from_millis(millis)).on(BALANCE);
            let late = node.faults().inject(late);
            (0..40).for_each(|_| assert!(client.result(BALANCE, &params).is_string()));
            late.clear();
        }
        nodes.iter().all(|node| node.counters().calls(BALANCE) > 20).then_some(())
    });
    let won = || neve.count("neve_relay_hedges_total{outcome=\"won\"}");
    let (before, began) = (won(), Instant::now());
    for node in &nodes {
        let stall = node.faults().inject(Fault::Stall.on(BALANCE));
        assert!(client.result(BALANCE, &params).is_string());
        stall.clear();
    }
    assert!(began.elapsed().as_secs() < 29, "it waited for half of its time");
    assert!(won() > before);
    assert_eq!(neve.metric("neve_relay_in_flight_requests"), Some(0.0));
    // A transaction is sent once, however long it takes.
    let late = || Fault::Latency(Duration::from_millis(300)).on(SEND);
    let _late = nodes.each_ref().map(|node| node.faults().inject(late()));
    client.call(SEND, &format!(r#"["0x02{}"]"#, "00".repeat(31)));
    assert_eq!(nodes.iter().map(|node| node.counters().calls(SEND)).sum::<u64>(), 1);
}

#[test]
fn upstream_that_may_be_slow_is_tried_by_one_call_at_a_time() {
    let nodes = [devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let arguments = ["--relay-hedge-percent", "0", "--relay-timeout", "1h", "--threads", "1"];
    let (_dir, neve) = start(&urls, &arguments);
    let params = format!(r#"["{ACCOUNT}","latest"]"#);
    // The first call measures one of them.
    let began = Instant::now();
    assert_eq!(neve.client().call(BALANCE, &params).status, 200);
    let is_known = |node: &DevnetThread| node.counters().calls(BALANCE) == 1;
    let [first, second] = &nodes;
    let (known, other) = if is_known(first) { (first, second) } else { (second, first) };
    let stall = other.faults().inject(Fault::Stall.on(BALANCE));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(neve.client().call(BALANCE, &params).status, 200));
        }
        neve.wait("all calls, the one before among them", |_| {
            (known.counters().calls(BALANCE) + stall.hits() >= 9).then_some(())
        });
        // After ten seconds another one may try it.
        let tries = 1 + began.elapsed().as_secs() / 10;
        assert!(stall.hits() <= tries, "{} calls", stall.hits());
        stall.clear();
    });
}

/// Parameters of a transaction.
fn raw(number: u32) -> String {
    format!(r#"["0x02{number:062x}"]"#)
}

#[test]
fn transaction_tries_no_upstream_that_was_not_measured_lately() {
    let nodes = [devnet(5), devnet(5)];
    let urls = nodes.each_ref().map(|node| node.base_url());
    let arguments = ["--relay-hedge-percent", "0", "--relay-timeout", "10s", "--threads", "1"];
    let (_dir, neve) = start(&urls, &arguments);
    let params = format!(r#"["{ACCOUNT}","latest"]"#);
    assert_eq!(neve.client().call(BALANCE, &params).status, 200);
    let [first, second] = &nodes;
    let is_known = first.counters().calls(BALANCE) == 1;
    let (known, other) = if is_known { (first, second) } else { (second, first) };
    let stall = other.faults().inject(Fault::Stall.on(SEND));
    let sent = neve.client().call(SEND, &raw(1));
    assert_eq!((sent.status, known.counters().calls(SEND)), (200, 1), "{}", sent.text());
    assert_eq!(stall.hits(), 0);
    // A read tries it.
    assert_eq!(neve.client().call(BALANCE, &params).status, 200);
    assert_eq!(other.counters().calls(BALANCE), 1);
}

#[test]
fn upstream_that_is_a_neve_without_a_relay_keeps_no_call_from_the_node() {
    let node = devnet(5);
    let neves = [(); 2].map(|()| follow(&node, &[]));
    let [first, second] = neves.each_ref().map(|(_dir, neve)| format!("http://{}", neve.address));
    let urls = [first.clone(), second, node.base_url()];
    let (_dir, neve) = start(&urls, &["--relay-hedge-percent", "0"]);
    let mut client = neve.client();
    for number in 0..4 {
        let sent = client.call(SEND, &raw(number));
        assert_eq!(sent.status, 200, "{}", sent.text());
        assert!(sent.json()["result"].is_string(), "{}", sent.text());
    }
    assert_eq!(node.counters().calls(SEND), 4, "each once");
    let began = Instant::now();
    for _ in 0..16 {
        let answer = client.call(BALANCE, &format!(r#"["{ACCOUNT}","latest"]"#));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    // Each neve is tried with one read in ten seconds, and not with each.
    let tries = 1 + began.elapsed().as_secs() / 10;
    let missed = "neve_rpc_misses_total{method=\"eth_getBalance\",reason=\"not_served\"}";
    let missed = neves.each_ref().map(|(_dir, neve)| neve.count(missed));
    assert!(missed.iter().all(|missed| *missed <= tries), "{missed:?}");
    // Alone it is asked once, and the response is a miss.
    let (_alone_dir, alone) = start(&[first], &[]);
    let refused = alone.client().call(SEND, &raw(9));
    let told = (refused.status, refused.header("x-neve"));
    assert_eq!(told, (421, Some("miss")), "{}", refused.text());
    assert!(refused.text().contains("the upstream does not have it"), "{}", refused.text());
}

#[test]
fn upstream_that_answers_with_a_page_at_once_is_asked_last() {
    let nodes = [devnet(5), devnet(5)];
    let odd = Odd::start(nodes[0].address());
    let arguments = ["--relay-hedge-percent", "0"];
    let (_dir, neve) = start(&[odd.url(), nodes[1].base_url()], &arguments);
    let page = "HTTP/1.1 502 x\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\nx";
    odd.answer(page.as_bytes(), true);
    let (mut client, began) = (neve.client(), Instant::now());
    let params = format!(r#"["{ACCOUNT}","latest"]"#);
    (0..40).for_each(|_| assert!(client.result(BALANCE, &params).is_string()));
    // Doubt ends after ten seconds. Each failure begins it anew.
    let doubts = 1 + began.elapsed().as_secs() / 10;
    assert!(odd.asked(BALANCE) <= doubts, "{} of 40 calls", odd.asked(BALANCE));
}

#[test]
fn words_of_a_contract_teach_nothing_of_an_upstream() {
    let nodes = [devnet(5), devnet(5)];
    let odd = Odd::start(nodes[0].address());
    let rule = format!("{BALANCE}={}", odd.url());
    let arguments = ["--relay-hedge-percent", "0", "--relay-to", &rule];
    let (_dir, neve) = start(&[odd.url(), nodes[1].base_url()], &arguments);
    let reverted = error(3, "execution reverted: missing trie node, pruned");
    odd.answer_with(BALANCE, &reverted);
    let mut client = neve.client();
    for asked in 1..4 {
        let answer = client.call(BALANCE, &format!(r#"["{ACCOUNT}","0x3"]"#));
        assert_eq!((answer.text(), odd.asked(BALANCE)), (reverted.clone(), asked));
    }
}

#[test]
fn pause_that_an_upstream_wants_outlasts_responses_to_older_requests() {
    let nodes = [devnet(5)];
    let (_dir, neve) = start(&[nodes[0].base_url()], &["--relay-timeout", "1h"]);
    let stall = nodes[0].faults().inject(Fault::Stall.on("eth_getCode"));
    let params = format!(r#"["{ACCOUNT}","latest"]"#);
    std::thread::scope(|scope| {
        let older = scope.spawn(|| neve.client().call("eth_getCode", &params).status);
        neve.wait("a request in flight", |_| (stall.hits() > 0).then_some(()));
        let limit = Fault::Status(429, RetryAfter::Seconds(30)).on(BALANCE);
        let limit = nodes[0].faults().inject(limit);
        let began = Instant::now();
        assert_eq!(neve.client().call(BALANCE, &params).status, 429);
        limit.clear();
        stall.clear();
        assert_eq!(older.join().expect("no panic"), 200);
        let status = neve.client().call(BALANCE, &params).status;
        assert!(status == 503 || began.elapsed().as_secs() >= 30, "the pause is over: {status}");
    });
}

#[test]
fn block_that_one_upstream_lacks_comes_from_another() {
    const COUNT: &str = "eth_getBlockTransactionCountByNumber";
    const RECEIPT: &str = "eth_getTransactionReceipt";
    let nodes = [devnet(5), devnet(5)];
    let odd = nodes.each_ref().map(|node| Odd::start(node.address()));
    let (dir, urls) = (fresh_dir(), odd.each_ref().map(Odd::url));
    let rule = format!("{COUNT}+{RECEIPT}={}", urls[0]);
    let arguments = ["--upstream", &urls[0], "--upstream", &urls[1], "--start", "4"];
    let relay = ["--on-miss", "relay", "--relay-hedge-percent", "0", "--relay-to", &rule];
    let neve = Neve::start(dir.path(), &[&arguments[..], &relay].concat());
    neve.wait_for_head(5);
    neve.wait("both upstreams", |health| {
        let all = health["upstreams"].as_array()?;
        all.iter().all(|one| one["state"] == "up" && one["head"] == 5).then_some(())
    });
    let null = r#"{"jsonrpc":"2.0","id":1,"result":null}"#;
    let mut client = neve.client();
    let mut ask = |method: &str, what: &str| client.call(method, &format!("[\"{what}\"]")).json();
    odd[0].answer_with(COUNT, null);
    odd[1].answer_with(COUNT, r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#);
    (0..4).for_each(|_| assert!(ask(COUNT, "0x2")["result"].is_string()));
    assert!(ask(COUNT, "0x1")["result"].is_string(), "older blocks are not there either");
    assert_eq!(odd[0].asked(COUNT), 1);
    assert!(ask(COUNT, "0x3")["result"].is_string());
    assert_eq!(odd[0].asked(COUNT), 2);
    // Nothing is learnt of a hash.
    let hash = format!("0x{:064x}", 7);
    odd[1].answer_with(RECEIPT, r#"{"jsonrpc":"2.0","id":1,"result":{"x":1}}"#);
    let absent = error(-32000, "cannot query unfinalized data");
    for lacking in [null, &absent] {
        odd[0].answer_with(RECEIPT, lacking);
        (0..4).for_each(|_| assert_eq!(ask(RECEIPT, &hash)["result"]["x"], 1));
        assert_eq!(odd[0].asked(RECEIPT), 4);
    }
    // If no other one has it either, `null` is the response.
    odd[0].answer_with(RECEIPT, null);
    for other in [null, &absent, &error(-32601, "no such method")] {
        odd[1].answer_with(RECEIPT, other);
        let got = ask(RECEIPT, &hash);
        assert!(got["result"].is_null() && got.get("error").is_none(), "{got}");
        assert_eq!(odd[1].asked(RECEIPT), 1, "{other}");
    }
}

#[test]
fn receipt_that_is_not_there_waits_for_no_upstream_that_stalls() {
    const RECEIPT: &str = "eth_getTransactionReceipt";
    let nodes = [devnet(5), devnet(5)];
    let rule = format!("{RECEIPT}={}", nodes[0].base_url());
    let urls = nodes.each_ref().map(|node| node.base_url());
    let arguments = ["--relay-hedge-percent", "0", "--relay-timeout", "1h", "--relay-to", &rule];
    let (_dir, neve) = start(&urls, &arguments);
    let stall = nodes[1].faults().inject(Fault::Stall.on(RECEIPT));
    let (mut client, began) = (neve.client(), Instant::now());
    for _ in 0..8 {
        assert!(client.result(RECEIPT, &format!("[\"0x{:064x}\"]", 7)).is_null());
    }
    // One call waits for two seconds; the stalled one is not asked again for ten.
    assert!(began.elapsed().as_secs() < 50, "it waited for the stalled one");
    let waits = 1 + began.elapsed().as_secs() / 10;
    assert!(stall.hits() <= waits, "{} of 8 calls", stall.hits());
    stall.clear();
}

#[test]
fn receipt_that_is_not_there_waits_for_no_hedge_that_stalls() {
    const RECEIPT: &str = "eth_getTransactionReceipt";
    let nodes = [devnet(5), devnet(5)];
    let rule = format!("{RECEIPT}={}", nodes[0].base_url());
    let urls = nodes.each_ref().map(|node| node.base_url());
    let arguments = ["--relay-hedge-percent", "100", "--relay-timeout", "1h", "--relay-to", &rule];
    let (_dir, neve) = start(&urls, &arguments);
    let mut client = neve.client();
    let mut receipt = || client.result(RECEIPT, &format!("[\"0x{:064x}\"]", 7));
    // So many that there is a usual time.
    (0..30).for_each(|_| assert!(receipt().is_null()));
    let slow = nodes[0].faults().inject(Fault::Latency(Duration::from_secs(1)).on(RECEIPT));
    let stall = nodes[1].faults().inject(Fault::Stall.on(RECEIPT));
    let began = Instant::now();
    assert!(receipt().is_null());
    assert!(began.elapsed().as_secs() < 30, "it waited for the stalled one");
    assert!(stall.hits() > 0, "it was asked beside the slow one");
    slow.clear();
    stall.clear();
}
