//! Every published height is announced exactly once and in order, however it came; and a
//! subscription can begin below the head.

use std::time::Duration;

use neve_devnet::{Config, DevnetThread, Fault, Helicon};
use serde_json::Value;

use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;
use crate::support::served::{devnet, follow};
use crate::support::ws::{Notification, Ws, result};

const HEAD: u64 = 10;

/// The next heads are these heights, and the hashes are the chain's.
fn hears(ws: &mut Ws, id: &str, devnet: &DevnetThread, heights: std::ops::RangeInclusive<u64>) {
    for height in heights {
        let head = ws.notification();
        assert_eq!((head.id.as_str(), head.height("number")), (id, height));
        let found: Value = serde_json::from_str(&head.result).unwrap();
        let expected = devnet.block(height).unwrap().hash();
        assert_eq!(found["hash"], expected.to_string());
    }
}

/// Heights of which hundreds are published at once, and one by one, and over a new session.
#[test]
fn catching_up_and_reconnecting() {
    let devnet = devnet(HEAD);
    let (_dir, neve) = follow(&devnet, &[]);
    let mut all: Vec<_> = std::iter::repeat_with(|| {
        let mut ws = Ws::open(&neve);
        let id = ws.subscribe("[\"newHeads\"]");
        (ws, id)
    })
    .take(3)
    .collect();
    let mut hear = |from: u64, to: u64| {
        all.iter_mut().for_each(|(ws, id)| hears(ws, id, &devnet, from..=to));
    };
    devnet.advance(400);
    hear(11, 410);
    for _ in 0..5 {
        devnet.advance(1);
    }
    hear(411, 415);
    devnet.cut_websockets();
    devnet.advance(20);
    hear(416, 435);
    let gone = devnet.faults().inject(Fault::Refuse);
    devnet.cut_websockets();
    devnet.advance(150);
    neve.wait("the outage", |health| health["upstream"]["error"].as_str().map(|_| ()));
    gone.clear();
    hear(436, 585);
    all.iter_mut().for_each(|(ws, _)| ws.is_quiet_for(Duration::from_millis(300)));
}

/// The node executes a notification, and drops its answer alone.
#[test]
fn notifications_begin_and_end_subscriptions() {
    let devnet = devnet(HEAD);
    let (_dir, neve) = follow(&devnet, &[]);
    let mut ws = Ws::open(&neve);
    ws.send(r#"{"jsonrpc":"2.0","method":"eth_subscribe","params":["newHeads"]}"#);
    assert!(ws.call("eth_chainId", "[]").contains("result"));
    devnet.advance(1);
    let head = ws.notification();
    assert_eq!(head.height("number"), HEAD + 1);
    let id = head.id;
    ws.send(&format!(r#"{{"jsonrpc":"2.0","method":"eth_unsubscribe","params":["{id}"]}}"#));
    let text = ws.call("eth_unsubscribe", &format!("[\"{id}\"]"));
    assert!(text.contains("subscription not found"), "{text}");
}

/// A height that is withdrawn is not announced again when it comes back, under whatever hash: who
/// must know asks for the block.
#[test]
fn withdrawn_heights_are_announced_once() {
    let config = Config::test().with_head(20).with_helicon(Helicon::FromGenesis);
    let devnet = DevnetThread::start(config).expect("loopback has free ports");
    let (_dir, neve) = follow(&devnet, &[]);
    let mut ws = Ws::open(&neve);
    let id = ws.subscribe("[\"newHeads\"]");
    let mut wrong = devnet.latest();
    while wrong == 20 || devnet.block(wrong).unwrap().transactions().is_empty() {
        wrong += 1;
        devnet.faults().inject(Fault::LyingReceipts.at(wrong));
        devnet.advance(1);
    }
    neve.wait_for_head(wrong);
    while devnet.settled() < wrong {
        devnet.advance(1);
    }
    neve.wait("the withdrawal", |_| (neve.count("neve_blocks_withdrawn_total") >= 1).then_some(()));
    devnet.faults().clear();
    while devnet.settled() < devnet.latest() - 3 || devnet.latest() < wrong + 40 {
        devnet.advance(1);
    }
    neve.wait_for_head(devnet.latest());
    hears(&mut ws, &id, &devnet, 21..=devnet.latest());
    ws.is_quiet_for(Duration::from_millis(300));
}

/// Replays what is stored, and goes on while blocks come.
#[test]
fn resuming_goes_on_at_the_live_edge() {
    let devnet = devnet(300);
    let (_dir, neve) = follow(&devnet, &[]);
    let mut all = Vec::new();
    for from in [0_u64, 1, 250, 299, 300, 301, 305] {
        let mut ws = Ws::open(&neve);
        let id = ws.subscribe(&format!("[\"newHeads\",{{\"fromBlock\":\"{from:#x}\"}}]"));
        all.push((ws, id, from));
        devnet.advance(7); // while it is replayed
    }
    let last = devnet.advance(50);
    for (ws, id, from) in &mut all {
        hears(ws, id, &devnet, *from..=last);
        ws.is_quiet_for(Duration::from_millis(50));
    }
}

/// Logs from a height on are those that `eth_getLogs` has, and then those of new blocks.
#[test]
fn logs_resume_too() {
    let (node, dir) = (Recorded::start_at(MAIN, 200, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(200);
    let mut ws = Ws::open(&neve);
    ws.subscribe("[\"logs\",{\"fromBlock\":\"0x64\"}]");
    let mut bounded = Ws::open(&neve);
    bounded.subscribe("[\"logs\",{\"fromBlock\":\"0x64\",\"toBlock\":\"0xfa\"}]");
    node.grow(260);
    node.grow(MAIN.head);
    neve.wait_for_head(MAIN.head);
    for (ws, to) in [(&mut ws, "0x153"), (&mut bounded, "0xfa")] {
        let range = format!("[{{\"fromBlock\":\"0x64\",\"toBlock\":\"{to}\"}}]");
        let answer = neve.client().call("eth_getLogs", &range).text();
        let (_, list) = answer.split_once("\"result\":").unwrap();
        let list = list.trim_end().strip_suffix('}').unwrap();
        let expected: Vec<&serde_json::value::RawValue> = serde_json::from_str(list).unwrap();
        assert!(expected.len() > 500, "{}", expected.len());
        for log in expected {
            assert_eq!(ws.notification().result, log.get());
        }
        ws.is_quiet_for(Duration::from_millis(100));
    }
}

#[test]
fn below_the_first_height_nothing_resumes() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "100"]);
    neve.wait_for_head(MAIN.head);
    let mut ws = Ws::open(&neve);
    for params in [
        "[\"newHeads\",{\"fromBlock\":\"0x63\"}]",
        "[\"logs\",{\"fromBlock\":\"0x63\"}]",
        "[\"logs\",{\"fromBlock\":\"0x1\",\"toBlock\":\"0x100\"}]",
    ] {
        let answer = ws.call("eth_subscribe", params);
        assert!(answer.contains("\"code\":-32000,\"message\":\"header not found: "), "{answer}");
        let data = "\"data\":{\"firstHeight\":\"0x64\",\"head\":\"0x153\"}";
        assert!(answer.contains(data), "{answer}");
    }
    let id = ws.subscribe("[\"newHeads\",{\"fromBlock\":\"0x64\"}]");
    assert_eq!(ws.heads(&id, 240), (100..=339).collect::<Vec<_>>());
    ws.is_quiet_for(Duration::from_millis(50));
}

/// A store that is empty yet: a number cannot be told to be there or not; what comes first is.
#[test]
fn before_there_is_anything() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    node.change(|state| state.hold = true);
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "90"]);
    let mut ws = Ws::open(&neve);
    let miss = ws.call("eth_subscribe", "[\"newHeads\",{\"fromBlock\":\"0x5a\"}]");
    assert!(miss.contains("nothing is served yet") || miss.contains("is not served"), "{miss}");
    let id = ws.subscribe("[\"newHeads\"]");
    node.change(|state| state.hold = false);
    assert_eq!(ws.heads(&id, 11), (90..=100).collect::<Vec<_>>());
}

/// The answer comes first, then what it subscribes to; a batch that is refused subscribes to
/// nothing.
#[test]
fn batches_and_unsubscribing() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(100);
    let mut ws = Ws::open(&neve);
    let subscribe = |id: u32, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_subscribe","params":{params}}}"#)
    };
    let resumed = subscribe(2, "[\"newHeads\",{\"fromBlock\":\"0x64\"}]");
    let call = r#"{"jsonrpc":"2.0","id":3,"method":"eth_chainId","params":[]}"#;
    ws.send(&format!("[{},{resumed},{call}]", subscribe(1, "[\"newHeads\"]")));
    let answer: Value = serde_json::from_str(&ws.text()).unwrap();
    let [first, second] = [0, 1].map(|at| answer[at]["result"].as_str().unwrap().to_owned());
    assert_eq!(answer[2]["result"], "0xa868");
    assert_eq!(ws.heads(&second, 1), [100]);
    // Refused: neither opens nor ends anything.
    let end =
        format!(r#"{{"jsonrpc":"2.0","id":4,"method":"eth_unsubscribe","params":["{first}"]}}"#);
    let unknown = r#"{"jsonrpc":"2.0","id":5,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000000","latest"]}"#;
    ws.send(&format!("[{},{end},{unknown}]", subscribe(1, "[\"newHeads\"]")));
    let refused: Value = serde_json::from_str(&ws.text()).unwrap();
    let codes: Vec<_> =
        refused.as_array().unwrap().iter().map(|answer| &answer["error"]["code"]).collect();
    assert_eq!(codes, [-32000; 3]);
    node.grow(102);
    for height in [101, 102] {
        let heads = [ws.notification(), ws.notification()];
        let ids = heads.each_ref().map(|head| head.id.clone());
        assert_eq!(ids, [first.clone(), second.clone()], "{height}");
        assert_eq!(heads.map(|head| head.height("number")), [height; 2]);
    }
    let ended = ws.call("eth_unsubscribe", &format!("[\"{first}\"]"));
    assert_eq!(result(&ended), Some(Value::Bool(true)));
    node.grow(104);
    assert_eq!(ws.heads(&second, 2), [103, 104]);
    ws.is_quiet_for(Duration::from_millis(200));
}

/// Heads and logs of a height come in the order of subscribing, and a height before the next.
#[test]
fn connection_with_two_subscriptions_hears_height_by_height() {
    let (node, dir) = (Recorded::start_at(MAIN, 100, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(100);
    let mut ws = Ws::open(&neve);
    let logs = ws.subscribe("[\"logs\",{}]");
    let heads = ws.subscribe("[\"newHeads\"]");
    node.grow(200);
    let mut height = 100;
    while height < 200 {
        let Notification { id, result } = ws.notification();
        let key = if id == heads { "number" } else { "blockNumber" };
        let here = Notification { id: id.clone(), result }.height(key);
        assert_eq!(here, height + 1, "{id}");
        assert!(id == heads || id == logs);
        height += u64::from(id == heads);
    }
}
