//! API keys of clients (`--keys`).

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use neve_devnet::DevnetThread;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::relay::wire::Wire;
use crate::support::client::Response;
use crate::support::neve::{Neve, command_of, fresh_dir};
use crate::support::served::{devnet, follow};
use crate::support::ws::{End, Ws};

const SHOP: &str = "shop-key-SECRET-0123456789";
const SLOW: &str = "slow-key-SECRET-0123456789";
const BLOCK: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBlockByNumber","params":["0x5",false]}"#;
const BALANCE: &str = r#"{"jsonrpc":"2.0","id":8,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]}"#;

/// Entry of the file, as `neve keys hash` prints it.
pub(crate) fn entry(name: &str, key: &str) -> String {
    let mut hash = command_of(&["keys", "hash", "--name", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("neve starts");
    writeln!(hash.stdin.take().expect("piped"), "{key}").expect("it reads");
    let output = hash.wait_with_output().expect("it ends");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

fn start(more: &[&str]) -> (DevnetThread, [TempDir; 2], Neve) {
    let (node, dir) = (devnet(5), fresh_dir());
    let slow = entry("slow", SLOW) + "requests-per-second = 0.01\nmethods = [\"eth_get*\"]\n";
    let file = dir.path().join("keys.toml");
    fs::write(&file, entry("shop", SHOP) + &slow).expect("a file");
    let file = file.display().to_string();
    let (store, neve) = follow(&node, &[&["--keys", &file], more].concat());
    (node, [store, dir], neve)
}

/// Posts a body to a path with one more header.
fn post(neve: &Neve, path: &str, header: (&str, &str), body: &str) -> Response {
    let headers = [("Content-Type", "application/json"), header];
    neve.client().request("POST", path, &headers, body.as_bytes())
}

fn reload(neve: &Neve, file: &Path, text: &str) {
    fs::write(file, text).expect("a file");
    neve.signal(Signal::HUP);
}

#[test]
fn client_with_a_key_is_served_and_another_is_not() {
    let (_node, _dirs, neve) = start(&[]);
    let none = ("X-Other", "1");
    let bearer = format!("Bearer {SHOP}");
    let in_path = format!("/k/{SHOP}/ext/bc/C/rpc");
    for (path, header) in
        [("/", ("X-Api-Key", SHOP)), ("/", ("Authorization", &*bearer)), (&in_path, none)]
    {
        let answer = post(&neve, path, header, BLOCK);
        assert_eq!((answer.status, answer.header("x-neve")), (200, Some("hit")), "{path}");
    }
    let wrong = format!("/k/{SHOP}x");
    for (path, header) in [("/", none), ("/", ("X-Api-Key", "")), (&*wrong, ("X-Api-Key", SHOP))] {
        let answer = post(&neve, path, header, BLOCK);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")));
        assert_eq!(answer.json()["error"]["message"], "API key: missing or unknown");
    }
    let mut client = neve.client();
    for (path, status) in [
        ("/ready", 200),
        ("/v1/block/5", 401),
        (&format!("/k/{SHOP}/v1/block/5"), 200),
        ("/", 401),
        (&format!("/k/{SLOW}/v1/block/5"), 403),
    ] {
        let answer = client.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(!format!("{answer:?}").contains("SECRET"), "{answer:?}");
    }
    assert_eq!(neve.count("neve_key_unknown_requests_total"), 5);
    assert_eq!(neve.count("neve_key_requests_total{key=\"shop\",outcome=\"ok\"}"), 4);
    assert!(!neve.admin().get("/metrics").text().contains("SECRET"));
    assert!(!neve.health().to_string().contains("SECRET"));
}

#[test]
fn redirect_keeps_the_key_of_its_path() {
    let (_node, _dirs, neve) = start(&[]);
    let mut client = neve.client();
    for path in ["//v1/block/5", "/x/../v1/block/5", "//v1/block/5?x=/k/y"] {
        let moved = client.get(&format!("/k/{SHOP}{path}"));
        let location = moved.header("location").expect("a place");
        let clean = if path.contains('?') { "/v1/block/5?x=/k/y" } else { "/v1/block/5" };
        assert_eq!((moved.status, location), (301, &*format!("/k/{SHOP}{clean}")), "{path}");
        assert_ne!(client.get(location).status, 401, "{path}");
    }
    // A key in a header stays there.
    let moved = client.request("GET", "//v1/block/5", &[("X-Api-Key", SHOP)], b"");
    assert_eq!((moved.status, moved.header("location")), (301, Some("/v1/block/5")));
    assert!(!neve.log().contains("SECRET"));
}

#[test]
fn key_has_a_rate_and_methods() {
    let (_node, _dirs, neve) = start(&[]);
    let slow = ("X-Api-Key", SLOW);
    let other = post(&neve, "/", slow, r#"{"jsonrpc":"2.0","id":3,"method":"eth_chainId"}"#);
    let error = &other.json()["error"]["message"];
    assert_eq!((other.status, error.as_str()), (403, Some("API key: this method is not allowed")));
    assert_eq!(post(&neve, "/", slow, BLOCK).status, 200);
    let limited = post(&neve, "/", slow, BLOCK);
    assert_eq!((limited.status, &limited.json()["id"]), (429, &serde_json::json!(7)));
    let wait: u64 = limited.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((90..=100).contains(&wait), "{wait}");
    assert_eq!(limited.json()["error"]["code"], -32005);
    assert_eq!(neve.count("neve_key_requests_total{key=\"slow\",outcome=\"limited\"}"), 1);
    assert_eq!(neve.count("neve_key_requests_total{key=\"slow\",outcome=\"method\"}"), 1);
    assert_eq!(neve.count("neve_key_calls_total{key=\"slow\"}"), 1);
}

#[test]
fn websocket_has_the_key_that_opened_it_until_a_reload_drops_the_key() {
    let (_node, [_store, dir], neve) = start(&[]);
    let handshake = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    assert_eq!(neve.client().request("GET", "/ws", &handshake, b"").status, 401);
    let open = |path: String| Ws::open_at(neve.address, &path).0;
    let (mut shop, mut slow) = (open(format!("/k/{SHOP}/ws")), open(format!("/k/{SLOW}")));
    shop.send(BLOCK);
    assert!(shop.text().contains("\"result\""));
    slow.send(BLOCK);
    assert!(slow.text().contains("\"result\""));
    slow.send(&format!("[{BLOCK},{BLOCK}]"));
    assert_eq!(slow.text().matches("API key: too many requests").count(), 2);
    let file = dir.path().join("keys.toml");
    reload(&neve, &file, "[[key]]\nname = 1\n");
    neve.wait_for_log("API keys not reloaded");
    assert_eq!(post(&neve, "/", ("X-Api-Key", SHOP), BLOCK).status, 200, "a wrong file is none");
    reload(&neve, &file, &entry("slow", SLOW));
    neve.wait("the reload", |_| {
        (post(&neve, "/", ("X-Api-Key", SHOP), BLOCK).status == 401).then_some(())
    });
    shop.send(BLOCK);
    let (_, end) = shop.rest();
    assert_eq!(end, End::Frame(Some((1008, "API key: missing or unknown".to_owned()))));
    slow.send(BLOCK);
    assert!(slow.text().contains("\"result\""), "its rate went with the old file");
}

#[test]
fn key_never_reaches_an_upstream() {
    let (node, dirs) = (devnet(5), [fresh_dir(), fresh_dir()]);
    let (wire, file) = (Wire::start(node.address()), dirs[1].path().join("keys.toml"));
    fs::write(&file, entry("shop", SHOP)).expect("a file");
    let file = file.display().to_string();
    let arguments = ["--start", "0", "--on-miss", "relay", "--relay-paths", "/ext/info"];
    let own = ["--upstream", &wire.url(), "--keys", &file];
    let neve = Neve::start(dirs[0].path(), &[&own[..], &arguments].concat());
    neve.wait_for_head(5);
    let info = r#"{"jsonrpc":"2.0","id":1,"method":"info.getNodeID"}"#;
    for (path, body) in [("", BALANCE), ("/ext/info", info)] {
        let answer = post(&neve, &format!("/k/{SHOP}{path}"), ("X-Api-Key", SHOP), body);
        assert_eq!(answer.header("x-neve"), Some("relay"), "{}", answer.text());
    }
    assert!(wire.sent().contains("info.getNodeID") && wire.sent().contains("eth_getBalance"));
    assert!(!wire.sent().contains("SECRET") && !neve.log().contains("SECRET"));
}

#[test]
fn each_call_of_a_batch_for_another_path_counts_against_the_rate_of_a_key() {
    const PACED: &str = "paced-key-SECRET-0123456789";
    let (node, dir) = (devnet(5), fresh_dir());
    let slow = entry("slow", SLOW) + "methods = [\"*\"]\n";
    let file = dir.path().join("keys.toml");
    fs::write(&file, entry("paced", PACED) + "requests-per-second = 0.1\n" + &slow)
        .expect("a file");
    let file = file.display().to_string();
    let paths = ["--on-miss", "relay", "--relay-paths", "/ext/info,/ext/health", "--keys", &file];
    let (_store, neve) = follow(&node, &paths);
    let info = r#"{"jsonrpc":"2.0","id":7,"method":"info.getNodeID"}"#;
    let batch = format!("[{}]", [info; 50].join(","));
    let key = ("x-api-key", PACED);
    assert_eq!(post(&neve, "/ext/info", key, &batch).header("x-neve"), Some("relay"));
    assert_eq!(neve.count("neve_key_calls_total{key=\"paced\"}"), 50);
    let limited = post(&neve, "/ext/info", key, info);
    assert_eq!(limited.status, 429, "{}", limited.text());
    let wait: u64 =
        limited.header("retry-after").and_then(|wait| wait.parse().ok()).expect("a time");
    assert!(wait > 300, "{wait} s for 50 calls");
    assert_eq!(neve.client().request("GET", "/ext/health", &[key], b"").status, 429);
    let refused = post(&neve, "/ext/info", ("x-api-key", SLOW), info);
    assert_eq!(
        (refused.status, refused.json()["id"].as_u64()),
        (403, Some(7)),
        "a key with methods"
    );
}

/// Notifications put the ping off, and a stream hears nothing of the mirror.
#[test]
fn removed_key_ends_its_subscriptions_and_its_stream() {
    let (node, [_store, dir], neve) = start(&["--serve-mirrors"]);
    let mut socket = Ws::open_at(neve.address, &format!("/k/{SHOP}/ws")).0;
    socket.subscribe("[\"newHeads\"]");
    let mut stream = TcpStream::connect(neve.address).expect("neve listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let path = format!("/k/{SHOP}/mirror/v1/records?from=0");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    stream.read_exact(&mut [0; 1000]).expect("the stream has begun");
    reload(&neve, &dir.path().join("keys.toml"), &entry("slow", SLOW));
    neve.wait("the reload", |_| {
        (post(&neve, "/", ("X-Api-Key", SHOP), BLOCK).status == 401).then_some(())
    });
    let head = node.advance(1);
    neve.wait_for_head(head);
    let end = socket.end();
    assert_eq!(end, End::Frame(Some((1008, "API key: missing or unknown".to_owned()))));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the stream ends");
    let text = String::from_utf8_lossy(&rest);
    assert!(!text.contains(&format!("\"number\":\"{head:#x}\"")), "block {head} was sent");
}

/// Without a key a client of the main listener gets the short pages only.
#[test]
fn full_pages_on_the_main_listener_need_a_key() {
    let (_node, _dirs, neve) = start(&["--admin-on-main", "--admin-listen", "127.0.0.1:0"]);
    let mut client = neve.client();
    let short = client.get("/health");
    assert!(short.status == 200 && !short.text().contains("data_dir"), "{}", short.text());
    assert_eq!((client.get("/ready").status, client.get("/metrics").status), (200, 401));
    let key = [("X-Api-Key", SHOP)];
    let mut get = |path: &str| client.request("GET", path, &key, b"");
    assert!(get("/health").text().contains("data_dir"));
    assert!(get("/metrics").text().contains("neve_key_calls_total{key=\"shop\"}"));
    assert_eq!(neve.client().get(&format!("/k/{SHOP}/metrics")).status, 200);
    // An unknown key, and one with methods.
    let mut status = |path: &str, key| client.request("GET", path, &[("X-Api-Key", key)], b"");
    for key in ["x", SLOW] {
        let short = status("/health", key);
        assert!(short.status == 200 && !short.text().contains("data_dir"), "{}", short.text());
        assert_eq!(status("/ready", key).status, 200);
    }
    assert_eq!((status("/metrics", "x").status, status("/metrics", SLOW).status), (401, 403));
    assert_eq!(status("/k/x/ready", "x").status, 200);
}

/// Entries for keys that no client has.
fn entries(prefix: &str, count: usize) -> String {
    let entry = |at: usize| format!("[[key]]\nname = \"{prefix}-{at}\"\nsha256 = \"{at:064x}\"\n");
    (0..count).map(entry).collect()
}

#[test]
fn metrics_have_the_keys_in_force_and_are_never_cut() {
    let pages = ["--admin-on-main", "--admin-listen", "127.0.0.1:0"];
    let more = [&pages[..], &["--client-bytes-total-max", "1MiB"]].concat();
    let (_node, [_store, dir], neve) = start(&more);
    let file = dir.path().join("keys.toml");
    let metrics = || neve.client().request("GET", "/metrics", &[("X-Api-Key", SHOP)], b"");
    let has = |name: &str| metrics().text().contains(&format!("{{key=\"{name}\""));
    let shop = entry("shop", SHOP);
    reload(&neve, &file, &(entries("first", 10) + &shop));
    neve.wait("the reload", |_| has("first-9").then_some(()));
    assert!(has("shop"));
    reload(&neve, &file, &(entries("wrong", 10) + "[[key]]\n"));
    neve.wait_for_log("API keys not reloaded");
    reload(&neve, &file, &(entries("next", 10) + &shop));
    neve.wait("the reload", |_| has("next-9").then_some(()));
    assert!(!has("first-9") && !has("wrong-9") && !has("slow"));
    // As much as clients may make neve hold.
    reload(&neve, &file, &(entries(&"long".repeat(14), 9_000) + &shop));
    let refused = neve.wait("the reload", |_| Some(metrics()).filter(|page| page.status != 200));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    neve.wait_for_log("no memory for a page");
}

/// A pipe without a writer has no end.
#[test]
fn file_of_keys_that_became_a_pipe_stops_nothing() {
    let (_node, [_store, dir], neve) = start(&[]);
    let file = dir.path().join("keys.toml");
    fs::remove_file(&file).expect("it is there");
    assert!(Command::new("mkfifo").arg(&file).status().expect("coreutils are there").success());
    neve.signal(Signal::HUP);
    neve.wait_for_log("it was a regular file before, and is none now");
    assert_eq!(post(&neve, "/", ("X-Api-Key", SHOP), BLOCK).status, 200);
    neve.stop_in_time();
}
