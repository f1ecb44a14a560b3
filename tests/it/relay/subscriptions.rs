//! Subscriptions that neve does not have, relayed over a WebSocket to an upstream.

use neve_devnet::DevnetThread;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::script::{Script, Scripted, result, told};
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::node::wait::at_some_pace;
use crate::support::served::{devnet, follow};
use crate::support::ws::{End, Ws};

const PENDING: &str = r#"["newPendingTransactions"]"#;
const LIMITED: &str = "relay: too many requests; try again later";
const LEFT: &str = "relay: the upstream of a subscription left";

/// A node, an upstream for subscriptions, and a neve before both.
struct World {
    node: DevnetThread,
    script: Script,
    _dir: TempDir,
    neve: Neve,
}

fn start(arguments: &[&str]) -> World {
    let (node, script) = (devnet(5), Script::start());
    let rule = script.rule();
    let fixed = ["--on-miss", "relay", "--relay-to", &rule];
    let (dir, neve) = follow(&node, &[&fixed, arguments].concat());
    World { node, script, _dir: dir, neve }
}

impl World {
    /// A client with a relayed subscription of this id, and the upstream's side of it.
    fn subscribed(&self, id: &str) -> (Ws, Scripted) {
        let mut ws = Ws::open(&self.neve);
        send(&mut ws, "eth_subscribe", PENDING);
        let mut upstream = self.script.accept();
        upstream.opens(id);
        assert_eq!(ws.text(), result(&format!("\"{id}\"")));
        (ws, upstream)
    }

    fn wait_for_sockets(&self, count: u32) {
        self.neve.wait("WebSockets to upstreams", |_| {
            let now = self.neve.metric("neve_relay_websocket_connections").unwrap_or_default();
            (now.to_bits() == f64::from(count).to_bits()).then_some(())
        });
    }
}

fn send(ws: &mut Ws, method: &str, params: &str) {
    ws.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#));
}

fn ended(code: u16, reason: &str) -> End {
    End::Frame(Some((code, reason.to_owned())))
}

/// Code and message of the error of call 1.
fn error(text: &str) -> (i64, String) {
    let error: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(error["id"], json!(1), "{error}");
    let message = error["error"]["message"].as_str().unwrap_or_else(|| panic!("{error}"));
    (error["error"]["code"].as_i64().expect("a code"), message.to_owned())
}

#[test]
fn relayed_notifications_are_the_upstreams_to_the_byte_and_ids_stay_apart() {
    let world = start(&[]);
    let mut ws = Ws::open(&world.neve);
    let heads = ws.subscribe(r#"["newHeads"]"#);
    send(&mut ws, "eth_subscribe", r#"["newPendingTransactions", true]"#);
    let mut upstream = world.script.accept();
    let call = upstream.opens("0xAbC");
    let expected = r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newPendingTransactions", true]}"#;
    assert_eq!(call, expected);
    assert_eq!(ws.text(), result("\"0xAbC\""));
    send(&mut ws, "eth_subscribe", r#"["newAcceptedTransactions"]"#);
    upstream.opens("0x2");
    assert_eq!(ws.text(), result("\"0x2\""));
    let odd =
        " {\"params\": {\"result\":[1.50,\"\\u00e9<\"],\"subscription\":\"0xAbC\"}, \"x\":1} ";
    let texts = [told("0xAbC", "\"0x1\""), odd.to_owned(), told("0x2", "{\"a\":1}")];
    for text in &texts {
        // One of an id that the client has not is not its business.
        assert!(upstream.send(&told("0x9", "1")) && upstream.send(text));
        assert_eq!(ws.text(), *text);
    }
    world.node.advance(1);
    assert_eq!(ws.heads(&heads, 1), [6]);
    assert!(ws.call("eth_blockNumber", "[]").contains("\"0x6\""));
    let kinds = ["relayed", "new_heads"]
        .map(|kind| world.neve.metric(&format!("neve_ws_subscriptions{{kind=\"{kind}\"}}")));
    assert_eq!(kinds, [Some(2.0), Some(1.0)]);
    assert_eq!(world.neve.count("neve_ws_notifications_total{kind=\"relayed\"}"), 3);
    assert!(world.script.is_idle(), "one WebSocket is enough for a client");
    upstream.is_answered();
}

#[test]
fn unsubscribing_ends_the_subscription_at_the_upstream() {
    let world = start(&["--batch-miss", "whole"]);
    let (mut ws, mut upstream) = world.subscribed("0x1");
    send(&mut ws, "eth_subscribe", PENDING);
    upstream.opens("0x2");
    ws.text();
    assert_eq!(ws.call("eth_unsubscribe", "[\"0x1\"]"), result("true"));
    let ends = r#"{"jsonrpc":"2.0","id":0,"method":"eth_unsubscribe","params":["0x1"]}"#;
    assert_eq!(upstream.text(), ends);
    assert!(upstream.send(&told("0x1", "1")) && upstream.send(&result("true")));
    assert!(upstream.send(&told("0x2", "2")));
    assert_eq!(ws.text(), told("0x2", "2"), "nothing more of the first one, and one response");
    let again = ws.call("eth_unsubscribe", "[\"0x1\"]");
    assert_eq!(error(&again), (-32000, "subscription not found".to_owned()));
    // A batch that is refused has ended nothing.
    let ends = r#"{"jsonrpc":"2.0","id":1,"method":"eth_unsubscribe","params":["0x2"]}"#;
    let missed = r#"{"jsonrpc":"2.0","id":2,"method":"debug_traceTransaction","params":["0x"]}"#;
    ws.send(&format!("[{ends},{missed}]"));
    assert!(ws.text().contains("header not found"));
    assert!(upstream.send(&told("0x2", "3")));
    assert_eq!(ws.text(), told("0x2", "3"));
    ws.send(&format!("[{ends}]"));
    assert_eq!(ws.text(), format!("[{}]\n", result("true").trim()));
    assert!(upstream.is_closed(), "the WebSocket ends with its last subscription");
    world.wait_for_sockets(0);
    // And the client goes on.
    send(&mut ws, "eth_subscribe", PENDING);
    world.script.accept().opens("0x3");
    assert_eq!(ws.text(), result("\"0x3\""));
}

#[test]
fn websocket_to_the_upstream_ends_with_the_client() {
    let world = start(&[]);
    let (ws, mut upstream) = world.subscribed("0x1");
    world.wait_for_sockets(1);
    drop(ws);
    assert!(upstream.is_closed());
    // Also while the upstream owes a response.
    let mut ws = Ws::open(&world.neve);
    send(&mut ws, "eth_subscribe", PENDING);
    let mut upstream = world.script.accept();
    upstream.text();
    drop(ws);
    assert!(upstream.is_closed());
    world.wait_for_sockets(0);
    let in_flight = || world.neve.metric("neve_relay_in_flight_requests");
    world.neve.wait("no request", |_| (in_flight() == Some(0.0)).then_some(()));
}

#[test]
fn client_of_an_upstream_that_leaves_is_closed_and_can_come_back() {
    let world = start(&[]);
    let (mut ws, upstream) = world.subscribed("0x1");
    drop(upstream);
    assert_eq!(ws.end(), ended(1012, LEFT));
    world.neve.wait_for_count("neve_ws_closed_connections_total{reason=\"upstream\"}", 1);
    let (_ws, _upstream) = world.subscribed("0x1");
    // A client that has nothing there yet goes on.
    let mut ws = Ws::open(&world.neve);
    send(&mut ws, "eth_subscribe", PENDING);
    drop(world.script.accept());
    let unreachable = "relay: the upstream cannot be reached";
    assert_eq!(error(&ws.text()), (-32603, unreachable.to_owned()));
    assert!(ws.call("eth_blockNumber", "[]").contains("\"0x5\""));
}

#[test]
fn upstream_that_does_not_answer_is_given_up() {
    at_some_pace(|timeout| {
        let world = start(&["--relay-timeout", &format!("{}ms", timeout.as_millis())]);
        let mut ws = Ws::open(&world.neve);
        send(&mut ws, "eth_subscribe", PENDING);
        let mut upstream = world.script.accept();
        upstream.text();
        let head = ws.call("eth_blockNumber", "[]");
        assert!(head.contains("\"0x5\""), "others are answered meanwhile: {head}");
        assert_eq!(error(&ws.text()), (-32002, "request timed out".to_owned()));
        assert!(upstream.is_closed());
    });
}

#[test]
fn silent_upstream_is_given_up() {
    at_some_pace(|idle| {
        let world = start(&["--upstream-ws-idle-timeout", &format!("{}ms", idle.as_millis())]);
        // The upstream does not read the pings of neve.
        let (mut ws, _upstream) = world.subscribed("0x1");
        assert_eq!(ws.end(), ended(1012, LEFT));
    });
}

#[test]
fn messages_of_the_upstream_have_a_bound() {
    let bounds = ["--relayed-message-bytes-max", "1KiB", "--relayed-unsent-bytes-max", "1KiB"];
    let world = start(&bounds);
    let (mut ws, mut upstream) = world.subscribed("0x1");
    let of_len = |len: usize| {
        let bare = told("0x1", "\"\"").len();
        told("0x1", &format!("\"{}\"", "x".repeat(len - bare)))
    };
    for _ in 0..3 {
        assert!(upstream.send(&of_len(1024)));
        assert_eq!(ws.text(), of_len(1024));
    }
    upstream.send(&of_len(1025));
    let reason = "relay: a notification is longer than 1024 bytes";
    assert_eq!(ws.end(), ended(1011, reason));
    assert!(upstream.is_closed());
    // What is no message of JSON-RPC ends it, too.
    for text in ["x", "[]", "{}", &result("\"a b\"")] {
        let (mut ws, mut upstream) = world.subscribed("0x1");
        upstream.send(text);
        assert_eq!(ws.end(), ended(1012, LEFT), "{text}");
    }
}

#[test]
fn slow_client_is_closed_and_never_holds_up_the_upstream() {
    let bounds = ["--relayed-message-bytes-max", "16KiB", "--relayed-unsent-bytes-max", "64KiB"];
    let world = start(&[&bounds[..], &["--write-timeout", "1h"]].concat());
    let mut slow = Ws::open_narrow(&world.neve);
    send(&mut slow, "eth_subscribe", PENDING);
    let mut upstream = world.script.accept();
    upstream.opens("0x1");
    let before = world.neve.metric("neve_memory_anonymous_bytes").expect("a metric");
    let text = told("0x1", &format!("\"{}\"", "x".repeat(8000)));
    // 200 MB, if it came to that.
    let sent = (0..25_000).take_while(|_| upstream.send(&text)).count();
    assert!(sent < 2_000, "{sent}");
    let grown = world.neve.metric("neve_memory_anonymous_bytes").expect("a metric") - before;
    assert!(grown < 32e6, "{grown} bytes");
    let (texts, end) = slow.rest();
    assert_eq!(texts[0], result("\"0x1\""));
    assert!(texts[1..].iter().all(|one| *one == text), "all that came is whole");
    assert_eq!(end, ended(1008, "too slow: over 65536 bytes of notifications wait"));
    world.wait_for_sockets(0);
    let freed = || world.neve.metric("neve_client_reserved_bytes") == Some(0.0);
    world.neve.wait("its memory", |_| freed().then_some(()));
}

#[test]
fn memory_for_the_messages_of_an_upstream_is_the_clients() {
    let room = ["--client-bytes-total-max", "1MB", "--client-bytes-address-max", "400kB"];
    let world = start(&room);
    let (mut ws, mut upstream) = world.subscribed("0x1");
    let text = told("0x1", &format!("\"{}\"", "x".repeat(100_000)));
    assert!(upstream.send(&text));
    assert_eq!(ws.text(), text);
    // A message takes memory before it has come whole.
    upstream.begin(&told("0x1", &format!("\"{}\"", "x".repeat(500_000))), 450_000);
    assert_eq!(ws.end(), ended(1013, "memory for clients is used up; try again later"));
    world.wait_for_sockets(0);
}

#[test]
fn websockets_to_upstreams_are_bounded_by_address_and_in_total() {
    for (total, has_place) in [("1", false), ("2", true)] {
        let bounds = ["--relayed-sockets-total-max", total, "--relayed-sockets-address-max", "1"];
        let world = start(&bounds);
        let (first, mut upstream) = world.subscribed("0x1");
        let refused = Ws::open(&world.neve).call("eth_subscribe", PENDING);
        assert_eq!(error(&refused), (-32005, LIMITED.to_owned()));
        let mut other = Ws::open_from(&world.neve, [127, 0, 0, 2]);
        send(&mut other, "eth_subscribe", PENDING);
        if has_place {
            world.script.accept().opens("0x3");
            assert_eq!(other.text(), result("\"0x3\""));
        } else {
            assert_eq!(error(&other.text()), (-32005, LIMITED.to_owned()));
        }
        drop((first, other));
        assert!(upstream.is_closed());
        world.wait_for_sockets(0);
        let (_third, _upstream) = world.subscribed("0x1");
    }
    let world = start(&["--relayed-sockets-total-max", "0"]);
    let refused = Ws::open(&world.neve).call("eth_subscribe", PENDING);
    assert_eq!(error(&refused), (-32005, LIMITED.to_owned()));
    assert!(world.script.is_idle());
}

#[test]
fn subscriptions_of_a_connection_are_bounded_together() {
    let world = start(&["--ws-subscriptions-max", "2"]);
    let (mut ws, mut upstream) = world.subscribed("0x1");
    ws.subscribe(r#"["newHeads"]"#);
    let refused = ws.call("eth_subscribe", PENDING);
    let too_many = "too many subscriptions on this connection, allowed are 2";
    assert_eq!(error(&refused), (-32000, too_many.to_owned()));
    assert_eq!(ws.call("eth_unsubscribe", "[\"0x1\"]"), result("true"));
    assert!(upstream.is_closed());
    send(&mut ws, "eth_subscribe", PENDING);
    world.script.accept().opens("0x2");
    assert_eq!(ws.text(), result("\"0x2\""), "there is a place again");
}

#[test]
fn rate_of_relayed_requests_holds_for_subscriptions() {
    let world = start(&["--relay-requests-per-second", "0.01"]);
    let (mut ws, _upstream) = world.subscribed("0x1");
    let refused = ws.call("eth_subscribe", PENDING);
    assert_eq!(error(&refused), (-32005, LIMITED.to_owned()));
    // Without a WebSocket there is no other upstream to ask: the followed one has its own rate.
    assert_eq!(ws.call("eth_unsubscribe", "[\"0x1\"]"), result("true"));
}

#[test]
fn id_of_another_subscription_of_the_client_is_refused() {
    let world = start(&[]);
    let mut ws = Ws::open(&world.neve);
    let own = ws.subscribe(r#"["newHeads"]"#);
    send(&mut ws, "eth_subscribe", PENDING);
    let mut upstream = world.script.accept();
    upstream.opens(&own);
    assert_eq!(error(&ws.text()), (-32005, LIMITED.to_owned()));
    assert!(upstream.is_closed());
    world.node.advance(1);
    assert_eq!(ws.heads(&own, 1), [6]);
}

#[test]
fn id_that_an_upstream_gives_twice_ends_the_connection() {
    let world = start(&[]);
    let (mut ws, mut upstream) = world.subscribed("0x1");
    send(&mut ws, "eth_subscribe", PENDING);
    upstream.opens("0x1");
    assert_eq!(ws.end(), ended(1012, LEFT));
    assert!(upstream.is_closed());
}

/// Else an upstream could answer other calls of the client, or speak for subscriptions that neve serves.
#[test]
fn message_with_the_id_of_another_call_ends_the_connection() {
    let world = start(&[]);
    for text in [
        r#"{"jsonrpc":"2.0","id":99,"result":"0x1"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":"0x1","id":99}"#,
        r#"{"jsonrpc":"2.0","result":"0x1"}"#,
    ] {
        let mut ws = Ws::open(&world.neve);
        send(&mut ws, "eth_subscribe", PENDING);
        let mut upstream = world.script.accept();
        upstream.text();
        assert!(upstream.send(text));
        assert_eq!(error(&ws.text()).0, -32603, "{text}");
        assert!(upstream.is_closed());
    }
    for text in [
        r#"{"id":5,"result":"0x1","method":"eth_subscription","params":{"subscription":"0x1"}}"#,
        r#"{"id":5,"RESULT":"0x1","params":{"subscription":"0x1","result":"0x1"}}"#,
        r#"{"method":"eth_subscription","params":{"subscription":"0x1","Subscription":"0x2"}}"#,
    ] {
        let (mut ws, mut upstream) = world.subscribed("0x1");
        assert!(upstream.send(text));
        assert_eq!(ws.end(), ended(1012, LEFT), "{text}");
    }
}

#[test]
fn memory_of_one_client_is_no_failure_of_the_upstream() {
    let node = devnet(5);
    // Room for a call and a WebSocket, and none for what comes over it.
    let room = ["--client-bytes-total-max", "1MB", "--client-bytes-address-max", "190000"];
    let (_dir, neve) = follow(&node, &[&["--on-miss", "relay"], &room[..]].concat());
    for _ in 0..5 {
        let mut ws = Ws::open_from(&neve, [127, 0, 0, 2]);
        send(&mut ws, "eth_subscribe", PENDING);
        assert_eq!(ws.end(), ended(1013, "memory for clients is used up; try again later"));
    }
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    let other = neve.client().call("eth_getBalance", balance);
    assert_eq!(other.status, 200, "{}", other.text());
}

/// Else any client could stop the HTTP calls of others.
#[test]
fn upstream_without_websockets_still_gets_http_calls() {
    let node = devnet(5);
    let arguments = ["--on-miss", "relay", "--upstream-ws", "ws://127.0.0.1:1/"];
    let (_dir, neve) = follow(&node, &arguments);
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    for _ in 0..6 {
        let mut ws = Ws::open(&neve);
        send(&mut ws, "eth_subscribe", PENDING);
        assert_eq!(error(&ws.text()).0, -32603);
    }
    let other = neve.client().call("eth_getBalance", balance);
    assert_eq!(other.status, 200, "{}", other.text());
}

#[test]
fn secrets_stay_on_their_sides_and_a_loop_is_seen() {
    let (node, script, dir) = (devnet(5), Script::start(), fresh_dir());
    let files = ["followed", "rule"].map(|name| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("X-Key: secret-of-{name}\n")).expect("a file");
        path.display().to_string()
    });
    let (url, rule) = (node.base_url(), script.rule());
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay", "--relay-to", &rule];
    let keys = ["--upstream-header-file", &files[0], "--upstream-header-file", &files[1]];
    let neve = Neve::start(dir.path(), &[&arguments[..], &keys].concat());
    neve.wait_for_head(5);
    let mut ws = Ws::open_through(&neve, "1.1 client-secret");
    send(&mut ws, "eth_subscribe", PENDING);
    let mut upstream = script.accept();
    upstream.opens("0x1");
    let seen = upstream.request.clone();
    assert!(seen.contains("/SECRET") && seen.contains("neve/"), "{seen}");
    assert!(!seen.contains("client-secret") && !seen.contains("secret-of-followed"), "{seen}");
    let got = ws.text();
    drop(upstream);
    let got = format!("{got}{:?}{}", ws.end(), neve.log());
    assert!(!got.to_lowercase().contains("secret"), "{got}");
    // A client that came through this neve already is not relayed.
    let at = seen.find("1.1 neve-").expect("neve names itself");
    let mut looping = Ws::open_through(&neve, &seen[at..at + "1.1 neve-".len() + 16]);
    let refused = error(&looping.call("eth_subscribe", PENDING));
    assert_eq!(refused.0, -32000);
    assert!(refused.1.contains("relayed in a loop"), "{refused:?}");
    let balance = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
    assert!(looping.call("eth_getBalance", balance).contains("relayed in a loop"));
    assert!(script.is_idle());
}

#[test]
fn only_allowed_kinds_that_neve_does_not_have_are_relayed() {
    let world = start(&[]);
    let mut ws = Ws::open(&world.neve);
    let missed = |text: &str| {
        let (code, message) = error(text);
        assert!(code == -32000 && message.starts_with("header not found: "), "{message}");
    };
    missed(&ws.call("debug_subscribe", r#"["traceChain","0x1","0x2"]"#));
    assert_eq!(error(&ws.call("eth_subscribe", "[\"x\"]")).0, -32601);
    // In a batch, too: its response could not come as one.
    ws.send(&format!(
        r#"[{{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":{PENDING}}}]"#
    ));
    missed(ws.text().trim().trim_start_matches('[').trim_end_matches(']'));
    // What neve has begins where the client wants; a node would leave a gap.
    let (dir, url, rule) = (fresh_dir(), world.node.base_url(), world.script.rule());
    let late = ["--upstream", &url, "--start", "3", "--on-miss", "relay", "--relay-to", &rule];
    let late = Neve::start(dir.path(), &late);
    late.wait_for_head(5);
    missed(&Ws::open(&late).call("eth_subscribe", r#"["logs",{"fromBlock":"0x1"}]"#));
    assert!(world.script.is_idle());
    let script = Script::start();
    let named = ["--relay-methods", "debug_subscribe", "--on-miss", "relay", "--relay-to"];
    let (_dir, neve) = follow(&world.node, &[&named[..], &[&script.rule()]].concat());
    let mut ws = Ws::open(&neve);
    missed(&ws.call("eth_subscribe", PENDING));
    send(&mut ws, "debug_subscribe", r#"["traceChain","0x1","0x2"]"#);
    assert!(script.accept().opens("0x1").contains("debug_subscribe"));
    assert_eq!(ws.text(), result("\"0x1\""));
}

#[test]
fn subscription_is_asked_of_the_upstream_that_is_followed() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--on-miss", "relay"]);
    let mut ws = Ws::open(&neve);
    let refused = ws.call("eth_subscribe", PENDING);
    let mut bare = Ws::open_at(node.address(), "/ext/bc/C/ws").0;
    assert_eq!(refused, bare.call("eth_subscribe", PENDING), "the node's own words");
    // So it is if the upstream of a rule cannot be reached.
    let rule = ["--on-miss", "relay", "--relay-to", "eth_subscribe=http://127.0.0.1:1"];
    let (_dir, other) = follow(&node, &rule);
    assert_eq!(Ws::open(&other).call("eth_subscribe", PENDING), refused);
    let in_flight = || neve.metric("neve_relay_websocket_connections");
    neve.wait("the end of the WebSocket", |_| (in_flight() == Some(0.0)).then_some(()));
}

#[test]
fn bounds_of_relayed_subscriptions_are_checked_at_the_start() {
    for (arguments, why) in [
        (["--relayed-unsent-bytes-max", "1023KiB"], "allowed: 1048576 or more"),
        (["--relayed-message-bytes-max", "1023"], "too small"),
        (["--relayed-sockets-address-max", "257"], "allowed: 0 to 256"),
    ] {
        let output = run(&[&["serve", "--dev"][..], &arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(arguments[0]) && said.contains(why), "{said}");
    }
}
