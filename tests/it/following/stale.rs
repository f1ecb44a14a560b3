//! The age of the head: a stopped chain is seen through mirrors, and its head can be a miss.

use std::time::{SystemTime, UNIX_EPOCH};

use neve_devnet::{Config, DevnetThread};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::Response;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::ws::Ws;

const RATE: f64 = 4.0;
/// Longer than a busy machine takes to hand a block through three stores.
const AGE_MAX: [&str; 2] = ["--ready-age-max", "15s"];

/// A chain whose blocks have the time at which they are made.
fn chain() -> DevnetThread {
    chain_ahead(0)
}

/// A chain whose blocks have a time so many seconds ahead.
fn chain_ahead(seconds: u64) -> DevnetThread {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let now = now + 1000 * seconds;
    let config = Config { rate: RATE, ..Config::dev(RATE, now) };
    DevnetThread::start(config).expect("loopback has free ports")
}

fn serve(more: &[&str]) -> (TempDir, Neve) {
    let dir = fresh_dir();
    let fixed = ["--serve-mirrors", "--recover-senders", "never"];
    let neve = Neve::start(dir.path(), &[&fixed, &AGE_MAX[..], more].concat());
    (dir, neve)
}

fn mirror(of: &Neve, more: &[&str]) -> (TempDir, Neve) {
    let url = format!("http://{}", of.address);
    serve(&[&["--mirror-from", &url][..], more].concat())
}

fn ready(neve: &Neve) -> Response {
    neve.client().get("/ready")
}

fn wait_until_ready(neve: &Neve, wanted: bool) {
    neve.wait(&format!("ready: {wanted}"), |_| {
        (ready(neve).json()["ready"] == Value::Bool(wanted)).then_some(())
    });
}

fn call(neve: &Neve, method: &str, params: &str) -> u16 {
    neve.client().call(method, params).status
}

/// Subscriptions to what comes after the head.
const SUBSCRIPTIONS: [&str; 2] = [r#"["newHeads"]"#, r#"["logs",{}]"#];

/// Calls whose answer depends on the head.
const OF_THE_HEAD: [(&str, &str); 13] = [
    ("eth_blockNumber", "[]"),
    ("eth_getBlockByNumber", r#"["latest",false]"#),
    ("eth_getBlockByNumber", r#"["pending",true]"#),
    ("eth_getHeaderByNumber", r#"["safe"]"#),
    ("eth_getBlockReceipts", r#"["finalized"]"#),
    ("eth_getLogs", "[{}]"),
    ("eth_getLogs", r#"[{"fromBlock":"0x60","toBlock":"latest"}]"#),
    ("eth_getLogs", r#"[{"fromBlock":"0x60","toBlock":"0xffffff"}]"#),
    ("eth_feeHistory", r#"["0x1","latest",[]]"#),
    ("eth_syncing", "[]"),
    ("eth_newBlockFilter", "[]"),
    ("eth_newFilter", "[{}]"),
    ("eth_getBlockTransactionCountByNumber", r#"["latest"]"#),
];
/// Prices, which an upstream may not have told of late.
const PRICES: [&str; 2] = ["eth_gasPrice", "eth_maxPriorityFeePerGas"];

/// Calls whose answer does not.
const OF_THE_PAST: [(&str, &str); 6] = [
    ("eth_getBlockByNumber", r#"["0x5f",false]"#),
    ("eth_getBlockByNumber", r#"["earliest",false]"#),
    ("eth_getLogs", r#"[{"fromBlock":"0x50","toBlock":"0x5f"}]"#),
    ("eth_feeHistory", r#"["0x1","0x5f",[]]"#),
    ("eth_chainId", "[]"),
    ("net_version", "[]"),
];

#[test]
fn stopped_root_is_seen_by_a_mirror_of_a_mirror() {
    let chain = chain();
    let url = chain.base_url();
    let (_first_dir, first) = serve(&["--upstream", &url, "--start", "0"]);
    let (_second_dir, second) = mirror(&first, &[]);
    let (_third_dir, third) = mirror(&second, &["--stale-heads", "miss"]);
    third.wait("the whole chain", |health| (health["blocks"]["min_height"] == 0).then_some(()));
    wait_until_ready(&third, true);
    assert_eq!(call(&third, "eth_blockNumber", "[]"), 200);
    let filter = third.client().result("eth_newBlockFilter", "[]");
    let relays =
        ["--upstream", &url, "--start", "0", "--stale-heads", "miss", "--on-miss", "relay"];
    let (_relaying_dir, relaying) = serve(&relays);
    // The flag follows within a second here, too. Until then the node is asked, which makes no filters.
    let own_filter = relaying.wait("a filter", |_| {
        let answer = relaying.client().call("eth_newBlockFilter", "[]").json();
        answer.get("result").cloned()
    });

    chain.set_rate(0.0);
    wait_until_ready(&third, false);
    let answer = ready(&third);
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("the newest block is ") && answer.text().contains("15s"));
    let health = third.health();
    assert_eq!(health["blocks"]["lag"], 0, "{health}");
    assert!(health["blocks"]["head_age_seconds"].as_f64().unwrap() >= 15.0, "{health}");
    assert_eq!(health["blocks"]["head_time"], first.health()["blocks"]["head_time"]);
    assert!(third.metric("neve_head_age_seconds").unwrap() >= 15.0);
    third.wait_for_log("head is older than --ready-age-max");

    // The flag follows within a second.
    third.wait("a miss", |_| (call(&third, "eth_blockNumber", "[]") == 421).then_some(()));
    for (method, params) in OF_THE_HEAD {
        assert_eq!(call(&third, method, params), 421, "{method} {params}");
        assert_eq!(call(&first, method, params), 200, "{method} {params} of --stale-heads serve");
    }
    assert_eq!(call(&third, "eth_getFilterChanges", &format!("[{filter}]")), 421);
    // The node does not know the filter, and would say that it is gone.
    let own_filter = format!("[{own_filter}]");
    relaying.wait("a miss", |_| {
        (call(&relaying, "eth_getFilterChanges", &own_filter) == 421).then_some(())
    });
    assert_eq!(chain.counters().calls("eth_getFilterChanges"), 0);
    for method in PRICES {
        let text = third.client().call(method, "[]").text();
        assert!(text.contains("the newest block is too old"), "{method}: {text}");
    }
    for params in SUBSCRIPTIONS {
        let text = Ws::open(&third).call("eth_subscribe", params);
        assert!(text.contains("the newest block is too old"), "{params}: {text}");
        Ws::open(&first).subscribe(params);
    }
    assert_eq!(third.client().get("/v1/block/latest").status, 421);
    let text = third.client().call("eth_blockNumber", "[]").text();
    assert!(text.contains("header not found: the newest block is too old"), "{text}");
    for (method, params) in OF_THE_PAST {
        assert_eq!(call(&third, method, params), 200, "{method} {params}");
    }

    chain.advance(400); // which are 100 seconds
    wait_until_ready(&third, true);
    third.wait("a hit", |_| (call(&third, "eth_blockNumber", "[]") == 200).then_some(()));
    assert_eq!(call(&third, "eth_getFilterChanges", &format!("[{filter}]")), 200);
    SUBSCRIPTIONS.iter().for_each(|params| drop(Ws::open(&third).subscribe(params)));
}

/// The process of the root is suspended, and later killed: its mirror stays up, and says lag 0 to its own mirror.
#[test]
fn suspended_or_killed_root_is_seen_by_a_mirror_of_a_mirror() {
    let chain = chain();
    let (_root_dir, root) = serve(&["--upstream", &chain.base_url(), "--start", "0"]);
    let (_second_dir, second) = mirror(&root, &[]);
    let (_third_dir, third) = mirror(&second, &["--stale-heads", "miss"]);
    wait_until_ready(&third, true);
    root.signal(Signal::STOP);
    is_seen_as_stale(&third);
    root.signal(Signal::CONT);
    wait_until_ready(&third, true);
    third.wait("a hit", |_| (call(&third, "eth_blockNumber", "[]") == 200).then_some(()));
    root.kill();
    is_seen_as_stale(&third);
}

fn is_seen_as_stale(neve: &Neve) {
    neve.wait("an old head", |_| {
        let ready = ready(neve);
        (ready.status == 503 && ready.text().contains("the newest block is ")).then_some(())
    });
    let health = neve.health();
    assert_eq!(health["blocks"]["lag"], 0, "{health}");
    assert!(health["blocks"]["head_age_seconds"].as_f64().unwrap() >= 15.0, "{health}");
    // The flag follows within a second.
    neve.wait("a miss", |_| (call(neve, "eth_blockNumber", "[]") == 421).then_some(()));
}

/// A block of the future cannot be told from a clock that is behind, so the operator must look.
#[test]
fn clock_behind_the_newest_block_is_said_in_log_and_health() {
    let chain = chain_ahead(3600);
    let (_dir, neve) = serve(&["--upstream", &chain.base_url(), "--start", "0"]);
    let said = neve.wait("a doubt", |health| health["clock"]["error"].as_str().map(str::to_owned));
    assert!(said.ends_with(" s behind the newest block"), "{said}");
    neve.wait_for_log("system clock is wrong");
    let status = run(&["status", "--admin-listen", &neve.admin.to_string()]).stdout;
    let status = String::from_utf8_lossy(&status);
    assert!(status.lines().any(|line| line.starts_with("clock ")), "{status}");
}

#[test]
fn old_head_is_ready_on_a_chain_that_may_be_quiet() {
    let chain = DevnetThread::start(Config::test().with_head(20)).expect("free ports");
    let dir = fresh_dir();
    let arguments = ["--upstream", &chain.base_url(), "--start", "0", "--stale-heads", "miss"];
    let neve = Neve::start(dir.path(), &arguments);
    wait_until_ready(&neve, true);
    assert!(neve.health()["blocks"]["head_age_seconds"].as_f64().unwrap() > 60.0);
    assert_eq!(call(&neve, "eth_blockNumber", "[]"), 200);
}
