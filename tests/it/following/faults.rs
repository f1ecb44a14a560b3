//! An upstream that cannot be reached, is slow, throttles, or sends what is no answer: each is
//! named in /health and counted, what is stored is served meanwhile, and following goes on when it
//! is over.

use std::thread;
use std::time::{Duration, Instant};

use neve_devnet::{Block, Config, DevnetThread, Fault, Part, RetryAfter, Rule};
use neve_jsonrpc::Rules;
use serde_json::Value;

use crate::support::neve::{LIMIT, Neve, fresh_dir, run};
use crate::support::node::wait::at_some_pace;

/// Block 11 is the first one that a fault may hold up.
const HELD: u64 = 10;

fn devnet() -> DevnetThread {
    DevnetThread::start(Config::test().with_head(HELD)).expect("loopback has free ports")
}

/// Follows `devnet` with these arguments besides, up to its head.
fn following(devnet: &DevnetThread, arguments: &[&str]) -> (tempfile::TempDir, Neve) {
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let fixed = ["--upstream", &url, "--start", "0"];
    let neve = Neve::start(dir.path(), &[&fixed, arguments].concat());
    neve.wait_for_head(HELD);
    (dir, neve)
}

/// Returns the error of the upstream in /health, once there is one.
fn upstream_error(neve: &Neve) -> String {
    neve.wait("the error", |health| health["upstream"]["error"].as_str().map(str::to_owned))
}

fn errors(neve: &Neve, method: &str, reason: &str) -> u64 {
    let labels = format!("{{method=\"{method}\",reason=\"{reason}\"}}");
    neve.count(&format!("neve_upstream_call_errors_total{labels}"))
}

/// With this fault the upstream's error is as said and counted, and the store serves; without it
/// following goes on.
fn is_lived_through(rule: impl Into<Rule>, arguments: &[&str], reason: &str, says: &str) {
    let devnet = devnet();
    let (_dir, neve) = following(&devnet, arguments);
    let fault = devnet.faults().inject(rule);
    devnet.advance(5);
    let error = upstream_error(&neve);
    assert!(error.contains(says), "{reason}: {error:?}, expected {says:?}");
    // An upstream whose head cannot be read is asked for nothing else.
    let methods = [
        "eth_blockNumber",
        "eth_getHeaderByNumber",
        "eth_getBlockByNumber",
        "eth_getBlockReceipts",
    ];
    let counted = || methods.map(|method| errors(&neve, method, reason)).iter().sum::<u64>();
    neve.wait("a counted error", |_| (counted() >= 1).then_some(()));
    assert_eq!(neve.client().result("eth_blockNumber", "[]"), "0xa", "{reason}");
    fault.clear();
    neve.wait_for_head(HELD + 5);
    neve.wait("no error", |health| health["upstream"]["error"].is_null().then_some(()));
}

const BLOCK: &str = "eth_getBlockByNumber";

#[test]
fn refused_connection_is_named_unreachable() {
    // The system's words differ: a connection that was waiting to be accepted is reset.
    is_lived_through(Fault::Refuse, &[], "unreachable", "cannot reach the upstream: ");
}

#[test]
fn connections_are_reset() {
    is_lived_through(Fault::Reset, &[], "unreachable", "cannot reach the upstream: ");
}

#[test]
fn stalled_upstream_times_out() {
    let arguments = ["--upstream-request-timeout", "2s"];
    is_lived_through(Fault::Stall.on(BLOCK), &arguments, "timeout", "no answer within 2s");
}

#[test]
fn slow_upstream_times_out() {
    let arguments = ["--upstream-request-timeout", "2s"];
    let rule = Fault::Bandwidth(50).on(BLOCK);
    is_lived_through(rule, &arguments, "timeout", "no answer within 2s");
}

#[test]
fn half_an_answer_comes() {
    is_lived_through(Fault::Truncate.on(BLOCK), &[], "unreachable", "cannot reach the upstream: ");
}

#[test]
fn a_page_comes_instead_of_an_answer() {
    is_lived_through(Fault::Garbage.on(BLOCK), &[], "invalid_json", "not a JSON-RPC answer: ");
}

#[test]
fn the_upstream_fails() {
    let rule = Fault::Status(500, RetryAfter::Absent).on(BLOCK);
    is_lived_through(rule, &[], "http_status", "HTTP 500 Internal Server Error: ");
}

/// A longer answer than allowed is not read to its end.
#[test]
fn an_answer_longer_than_allowed() {
    let devnet = devnet();
    let longest = (0..=HELD).filter_map(|height| devnet.block(height)).map(|block| answers(&block));
    let longest = longest.max().expect("there are blocks");
    let limit = |bytes: usize| bytes.to_string();
    let (_dir, neve) = following(&devnet, &["--upstream-response-bytes-max", &limit(longest)]);
    assert_eq!(errors(&neve, BLOCK, "too_large"), 0);
    let dir = fresh_dir();
    let (url, limit) = (devnet.base_url(), limit(longest - 2)); // its id may have one digit
    let arguments = ["--upstream", &url, "--start", "0", "--upstream-response-bytes-max", &limit];
    let neve = Neve::start(dir.path(), &arguments);
    let error = upstream_error(&neve);
    assert_eq!(error, format!("the answer is longer than {limit} bytes"));
}

/// Bytes of the longer one of a block's two answers, with an id of two digits.
fn answers(block: &Block) -> usize {
    let result = block.answer(Part::Full, Rules::BeforeHelicon).len().max(block.receipts().len());
    "{\"jsonrpc\":\"2.0\",\"id\":,\"result\":}\n".len() + 2 + result
}

/// The time to a new block after it could first be had, with a fault that hits once.
fn time_to_block(rule: Rule) -> (Duration, u64) {
    let devnet = devnet();
    let (_dir, neve) = following(&devnet, &[]);
    devnet.faults().inject(rule.times(1));
    let start = Instant::now();
    devnet.advance(1);
    neve.wait_for_head(HELD + 1);
    (start.elapsed(), errors(&neve, BLOCK, "throttled"))
}

#[test]
fn retry_after_is_honoured_in_both_forms() {
    for (status, after) in [
        (429, RetryAfter::Seconds(2)),
        (503, RetryAfter::Date(Duration::from_secs(3))), // whole seconds: two to three
    ] {
        let (took, throttled) = time_to_block(Fault::Status(status, after).on(BLOCK));
        let least = Duration::from_millis(1_900);
        assert!(took >= least && throttled == 1, "{after:?}: {took:?}, {throttled}");
    }
    let rule = Fault::Status(429, RetryAfter::Absent).on(BLOCK);
    let (took, throttled) = time_to_block(rule);
    assert!(took < LIMIT && throttled == 1, "{took:?}, {throttled}");
}

/// Also when it is the question for the head: the next session waits for as long.
#[test]
fn a_throttled_session_waits() {
    let devnet = devnet();
    devnet.faults().inject(Fault::Status(429, RetryAfter::Seconds(2)).on("eth_chainId").times(1));
    let start = Instant::now();
    let (_dir, neve) = following(&devnet, &[]);
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    neve.wait_for_log("HTTP 429 Too Many Requests, try again in 2s retry_in=2.0s");
}

/// A single answer must not silence neve for longer than a minute, and an operator sees the wait.
#[test]
fn retry_after_in_another_century_is_a_minute_which_health_and_status_show() {
    let devnet = devnet();
    let century = RetryAfter::Date(Duration::from_hours(24 * 365 * 73));
    devnet.faults().inject(Fault::Status(503, century).on("eth_chainId"));
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let neve = Neve::start(dir.path(), &["--upstream", &url]);
    neve.wait_for_log("HTTP 503 Service Unavailable, try again in 60s retry_in=60.0s");
    let (left, reason) = neve.wait("the wait", |health| {
        let left = health["upstreams"][0]["retry_in_seconds"].as_f64()?;
        assert!(health["upstream"]["retry_in_seconds"].is_number(), "{health}");
        Some((left, health["reason"].as_str()?.to_owned()))
    });
    assert!(left > 0.0 && left <= 60.0, "{left}");
    let begins = "no block is stored yet; neve waits: it asks the next upstream in ";
    assert!(reason.starts_with(begins), "{reason}");
    let status = run(&["status", "--admin-listen", &neve.admin.to_string()]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    let line = status.lines().find(|line| line.starts_with("upstream ")).expect("the upstream");
    assert!(line.contains(&url) && line.contains(", asked again in "), "{status}");
}

#[test]
fn a_websocket_that_is_cut_is_opened_again() {
    let devnet = devnet();
    let (_dir, neve) = following(&devnet, &["--upstream-poll-interval", "1h"]);
    let live = |health: &Value| (health["upstream"]["websocket"] == true).then_some(());
    neve.wait("the WebSocket", live);
    devnet.cut_websockets();
    neve.wait_for_log("WebSocket ended, polling");
    neve.wait("another WebSocket", live);
    assert_eq!(devnet.counters().websockets(), 2);
    // neve does not poll here: heads come over the new one.
    devnet.advance(3);
    neve.wait_for_head(HELD + 3);
}

/// A socket that neither end closed and on which nothing comes, not even pongs.
#[test]
fn a_dead_websocket_is_noticed_and_polling_takes_over() {
    let devnet = devnet();
    let (_dir, neve) = following(&devnet, &["--upstream-ws-idle-timeout", "600ms"]);
    let silent = devnet.faults().inject(Fault::SilentWebSocket);
    neve.wait_for_log("WebSocket ended, polling why=nothing came for 600ms");
    // A busy machine may have ended one before, and there is another.
    neve.wait("none", |health| (health["upstream"]["websocket"] == false).then_some(()));
    devnet.advance(3);
    neve.wait_for_head(HELD + 3);
    silent.clear();
    neve.wait("the WebSocket", |health| (health["upstream"]["websocket"] == true).then_some(()));
}

/// Pongs count as life: a chain may have no blocks for as long as it likes.
#[test]
fn a_quiet_websocket_is_not_taken_for_dead() {
    at_some_pace(|idle| {
        let devnet = devnet();
        let timeout = format!("{}ms", idle.as_millis());
        let (_dir, neve) = following(&devnet, &["--upstream-ws-idle-timeout", &timeout]);
        let live = |health: &Value| (health["upstream"]["websocket"] == true).then_some(());
        neve.wait("the WebSocket", live);
        thread::park_timeout(3 * idle);
        assert_eq!(devnet.counters().websockets(), 1);
        assert_eq!(neve.health()["upstream"]["websocket"], true);
    });
}

#[test]
fn without_a_websocket_heads_are_polled_for() {
    let devnet = devnet();
    devnet.faults().inject(Fault::NoWebSocket);
    let (_dir, neve) = following(&devnet, &[]);
    devnet.advance(5);
    neve.wait_for_head(HELD + 5);
    assert_eq!(neve.health()["upstream"]["websocket"], false);
}

/// Behind a balancer a head may be announced by one node and asked of another.
#[test]
fn a_head_that_is_announced_early_is_waited_for() {
    let devnet = devnet();
    let (_dir, neve) = following(&devnet, &["--upstream-poll-interval", "1h"]);
    neve.wait("the WebSocket", |health| (health["upstream"]["websocket"] == true).then_some(()));
    devnet.faults().inject(Fault::HeadsAhead(Duration::from_millis(300)));
    devnet.advance(3);
    neve.wait_for_head(HELD + 3);
    assert_eq!(errors(&neve, BLOCK, "rpc_error"), 0);
}

/// Values of the upstream and prices are requested beside, and never waited for.
#[test]
fn relayed_methods_that_stall_hold_nothing_up() {
    let devnet = devnet();
    for method in ["web3_clientVersion", "eth_getChainConfig", "eth_gasPrice"] {
        devnet.faults().inject(Fault::Stall.on(method));
    }
    // Whatever waited for them would wait longer than this test does.
    let (_dir, neve) = following(&devnet, &["--upstream-request-timeout", "1h"]);
    devnet.advance(3);
    neve.wait_for_head(HELD + 3);
    assert_eq!(neve.client().call("web3_clientVersion", "[]").status, 421);
    drop(neve);
    devnet.faults().clear();
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &devnet.base_url()]);
    neve.wait("the version", |_| {
        (neve.client().call("web3_clientVersion", "[]").status == 200).then_some(())
    });
    assert_eq!(neve.client().result("web3_clientVersion", "[]"), "v1.14.2");
}
