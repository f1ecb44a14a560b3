//! Metrics of WebSockets.

use neve_devnet::{Config, DevnetThread};

use crate::support::neve::{Neve, fresh_dir};
use crate::support::ws::Ws;

fn ended(neve: &Neve, reason: &str) -> u64 {
    neve.count(&format!("neve_ws_closed_connections_total{{reason=\"{reason}\"}}"))
}

/// WebSockets, subscriptions to heads and to logs that are open.
fn open(neve: &Neve) -> [u64; 3] {
    [
        "neve_ws_connections",
        "neve_ws_subscriptions{kind=\"new_heads\"}",
        "neve_ws_subscriptions{kind=\"logs\"}",
    ]
    .map(|series| neve.count(series))
}

fn sent(neve: &Neve, kind: &str) -> u64 {
    neve.count(&format!("neve_ws_notifications_total{{kind=\"{kind}\"}}"))
}

fn wait_until_open(neve: &Neve, expected: [u64; 3]) {
    neve.wait(&format!("{expected:?} open"), |_| (open(neve) == expected).then_some(()));
}

#[test]
fn metrics_count_open_subscriptions_and_sent_notifications() {
    let devnet = DevnetThread::start(Config::test()).expect("loopback has free ports");
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let arguments = ["--upstream", &url, "--start", "0", "--ws-message-bytes-max", "300"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &["--threads", "2"]].concat());
    neve.wait_for_head(devnet.latest());
    assert_eq!(open(&neve), [0; 3]);
    let (mut one, mut other, mut third) = (Ws::open(&neve), Ws::open(&neve), Ws::open(&neve));
    let heads = one.subscribe("[\"newHeads\"]");
    other.subscribe("[\"logs\",{}]");
    let third_heads = third.subscribe("[\"newHeads\"]");
    wait_until_open(&neve, [3, 2, 1]);
    let latest = devnet.latest();
    devnet.advance(5);
    assert_eq!(one.heads(&heads, 5).last(), Some(&(latest + 5)));
    assert_eq!(third.heads(&third_heads, 5).last(), Some(&(latest + 5)));
    let logs = format!("[{{\"fromBlock\":\"{:#x}\"}}]", latest + 1);
    let logs = neve.client().result("eth_getLogs", &logs).as_array().map_or(0, Vec::len) as u64;
    neve.wait("all notifications", |_| {
        ((sent(&neve, "new_heads"), sent(&neve, "logs")) == (10, logs)).then_some(())
    });
    // Ended at once, not with the next message.
    assert!(third.call("eth_unsubscribe", &format!("[\"{third_heads}\"]")).contains("true"));
    wait_until_open(&neve, [3, 1, 1]);
    assert!(third.call("eth_unsubscribe", "[\"0x1\"]").contains("error"));
    assert!(third.call("eth_subscribe", "[\"newPendingTransactions\"]").contains("not served"));
    for (method, outcome, count) in [
        ("eth_subscribe", "hit", 3),
        ("eth_subscribe", "miss", 1),
        ("eth_unsubscribe", "hit", 1),
        ("eth_unsubscribe", "error", 1),
    ] {
        let labels = format!("method=\"{method}\",outcome=\"{outcome}\"");
        neve.wait_for_count(&format!("neve_rpc_calls_total{{{labels}}}"), count);
    }
    third.send("{");
    third.end();
    wait_until_open(&neve, [2, 1, 1]);
    other.send(&" ".repeat(301));
    wait_until_open(&neve, [1, 1, 0]);
    drop(one);
    wait_until_open(&neve, [0; 3]);
    let found = ["malformed", "too_large", "client", "lagging", "ping_timeout"]
        .map(|why| ended(&neve, why));
    assert_eq!(found, [1, 1, 1, 0, 0]);
}
