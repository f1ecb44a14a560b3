//! Prices that are too old: requested when a client wants one.

#![expect(clippy::needless_collect, reason = "all clients ask before any is awaited")]

use std::thread;
use std::time::Duration;

use neve_devnet::{DevnetThread, Fault, RetryAfter};
use tempfile::TempDir;

use crate::support::neve::{Neve, fresh_dir};
use crate::support::node::wait::at_some_pace;
use crate::support::served::{devnet, follow};
use crate::support::ws::{Ws, wait_for_answers};

const PRICE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_gasPrice"}"#;
const CLIENTS: usize = 20;
/// Calls that take longer than a millisecond together.
const SLOW_CALLS: usize = 900;

/// Lets prices become older than `age`.
#[expect(clippy::disallowed_methods, reason = "no condition but time; a plain test thread")]
fn grow_old(age: Duration) {
    thread::sleep(age * 4 / 3);
}

/// A neve whose prices are too old after `age`.
fn follow_with_age(node: &DevnetThread, age: Duration) -> (TempDir, Neve) {
    follow(node, &["--price-age-max", &format!("{}ms", age.as_millis())])
}

#[test]
fn old_price_is_requested_once_for_all_clients() {
    at_some_pace(old_price_is_requested_once);
}

fn old_price_is_requested_once(age: Duration) {
    let node = devnet(5);
    let (_dir, neve) = follow_with_age(&node, age);
    let price = |answer: &str| answer.contains("\"result\":\"0x");
    neve.wait("a price", |_| price(&neve.client().post(PRICE).text()).then_some(()));
    // The chain stands still: each price is older when the next round comes.
    for _ in 0..3 {
        grow_old(age);
        let before = node.counters().calls("eth_gasPrice");
        let answers: Vec<_> = thread::scope(|scope| {
            let ask = |_| scope.spawn(|| neve.client().post(PRICE));
            let asked: Vec<_> = (0..CLIENTS).map(ask).collect();
            asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for answer in &answers {
            assert_eq!((answer.status, answer.header("x-neve")), (200, Some("hit")));
            assert!(price(&answer.text()), "{}", answer.text());
        }
        let requests = node.counters().calls("eth_gasPrice") - before;
        assert!((1..=CLIENTS as u64 / 4).contains(&requests), "{requests} for {CLIENTS} clients");
    }
    grow_old(age);
    let batch = format!("[{PRICE},{}]", PRICE.replace("eth_gasPrice", "eth_chainId"));
    let answer = neve.client().post(&batch);
    assert_eq!((answer.status, answer.json().as_array().map(Vec::len)), (200, Some(2)));
    grow_old(age);
    let mut ws = Ws::open(&neve);
    ws.send(PRICE);
    assert!(price(&ws.text()));
}

/// Calls before a price may take longer than a price stays new.
#[test]
fn price_behind_slow_calls_of_a_batch_is_served() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--price-age-max", "1ms", "--api", "debug-raw"]);
    let slow = r#"{"jsonrpc":"2.0","id":2,"method":"debug_getRawReceipts","params":["0x5"]},"#;
    let batch = format!("[{}{PRICE}]", slow.repeat(SLOW_CALLS));
    let has_all = |text: &str| text.matches("\"result\":").count() == SLOW_CALLS + 1;
    wait_for_answers(&neve, &batch, has_all);
}

#[test]
fn price_comes_from_the_upstream_that_has_its_method() {
    let nodes = [devnet(5), devnet(5)];
    // Each lacks one, so that it does not matter which is asked first.
    for (node, method) in nodes.iter().zip(["eth_baseFee", "eth_gasPrice"]) {
        node.faults().inject(Fault::Error("no such method".into()).on(method));
    }
    let (dir, urls) = (fresh_dir(), [nodes[0].base_url(), nodes[1].base_url()]);
    let upstreams = ["--upstream", &*urls[0], "--upstream", &*urls[1], "--start", "0"];
    let neve = Neve::start(dir.path(), &upstreams);
    neve.wait("both", |health| {
        let all = health["upstreams"].as_array()?;
        all.iter().all(|one| one["state"] == "up").then_some(())
    });
    let bodies = [PRICE.to_owned(), PRICE.replace("eth_gasPrice", "eth_baseFee")];
    let both = || bodies.iter().all(|body| neve.client().post(body).status == 200);
    neve.wait("both", |_| both().then_some(()));
    (0..20).for_each(|_| assert!(both()));
}

#[test]
fn old_price_comes_from_another_upstream_while_one_stalls() {
    at_some_pace(old_price_comes_from_another);
}

fn old_price_comes_from_another(age: Duration) {
    const PRICES: [&str; 4] =
        ["eth_gasPrice", "eth_baseFee", "eth_maxPriorityFeePerGas", "eth_suggestPriceOptions"];
    let nodes = [devnet(5), devnet(5)];
    let (dir, urls) = (fresh_dir(), nodes.each_ref().map(|node| node.base_url()));
    let age_max = format!("{}ms", age.as_millis());
    let upstreams = ["--upstream", &*urls[0], "--upstream", &*urls[1], "--start", "0"];
    let neve = Neve::start(dir.path(), &[&upstreams[..], &["--price-age-max", &age_max]].concat());
    neve.wait("both", |health| {
        let all = health["upstreams"].as_array()?;
        all.iter().all(|one| one["state"] == "up").then_some(())
    });
    let status = |method: &str| neve.client().post(&PRICE.replace("eth_gasPrice", method)).status;
    neve.wait("prices", |_| PRICES.iter().all(|method| status(method) == 200).then_some(()));
    // One of them is asked first.
    for node in &nodes {
        let stalls = PRICES.map(|method| node.faults().inject(Fault::Stall.on(method)));
        for method in PRICES {
            grow_old(age);
            assert_eq!(status(method), 200, "{method}");
        }
        stalls.into_iter().for_each(|stall| stall.clear());
    }
}

#[test]
fn old_price_is_a_miss_only_if_no_upstream_answers() {
    at_some_pace(old_price_is_a_miss);
}

fn old_price_is_a_miss(age: Duration) {
    let node = devnet(5);
    let (_dir, neve) = follow_with_age(&node, age);
    let status = |body: &str| neve.client().post(body).status;
    neve.wait("a price", |_| (status(PRICE) == 200).then_some(()));
    let fails = Fault::Status(500, RetryAfter::Absent).on("eth_gasPrice");
    for fault in [fails, Fault::Stall.on("eth_gasPrice")] {
        let injected = node.faults().inject(fault);
        grow_old(age);
        assert_eq!(status(PRICE), 421);
        let block = PRICE.replace("eth_gasPrice", "eth_blockNumber");
        assert_eq!(status(&block), 200, "others are served");
        injected.clear();
        neve.wait("a price again", |_| (status(PRICE) == 200).then_some(()));
    }
}
