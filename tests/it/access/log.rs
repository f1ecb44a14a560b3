//! Lines of `--access-log` through all paths.

use std::fs;
use std::path::{Path, PathBuf};

use neve_devnet::DevnetThread;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::{devnet, follow};
use crate::support::ws::Ws;

const BLOCK: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBlockByNumber","params":["0x5",false]}"#;
const BALANCE: &str = r#"{"jsonrpc":"2.0","id":8,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]}"#;

/// A neve with an access log, and its file.
pub(super) struct Logged {
    _node: DevnetThread,
    _store: TempDir,
    pub(super) dir: TempDir,
    pub(super) neve: Neve,
}

impl Logged {
    pub(super) fn start(more: &[&str]) -> Self {
        let (node, dir) = (devnet(5), fresh_dir());
        let file = dir.path().join("access.log").display().to_string();
        let (store, neve) = follow(&node, &[&["--access-log", &file], more].concat());
        Self { _node: node, _store: store, dir, neve }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.path().join("access.log")
    }

    /// Waits for this number of lines, and returns them.
    pub(super) fn lines(&self, count: usize) -> Vec<String> {
        lines(&self.file(), count)
    }

    /// Waits for this number of lines of JSON, and returns them.
    pub(super) fn objects(&self, count: usize) -> Vec<Value> {
        let read = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        self.lines(count).iter().map(read).collect()
    }
}

/// Waits for this number of lines of a file.
pub(super) fn lines(file: &Path, count: usize) -> Vec<String> {
    let look = || {
        let text = fs::read_to_string(file).unwrap_or_default();
        let found: Vec<_> = text.lines().map(str::to_owned).collect();
        if found.len() >= count { Ok(found) } else { Err(Miss::NotYet(text)) }
    };
    let found =
        wait_until("lines of the access log", LIMIT, look).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(found.len(), count, "{found:#?}");
    found
}

#[test]
fn request_has_a_line_of_the_combined_form() {
    let logged = Logged::start(&[]);
    let mut client = logged.neve.client();
    let answer = client.post(BLOCK);
    let headers = [("Content-Type", "application/json"), ("User-Agent", "curl/8.14")];
    let batch = format!("[{BLOCK},{BALANCE}]");
    let missed = client.request("POST", "/ext/bc/C/rpc", &headers, batch.as_bytes());
    client.get("/nothing?apikey=SECRET");
    client.get("/v1/block/5");
    let lines = logged.lines(4);
    let (began, rest) = lines[0].split_once(" [").expect("a time");
    let (_, rest) = rest.split_once("] ").expect("the end of the time");
    let (before, after) = rest.split_once(" time=").expect("a duration");
    assert_eq!(began, "127.0.0.1 - -");
    let len = answer.body.len();
    assert_eq!(before, format!(r#""POST / HTTP/1.1" 200 {len} "-" "-""#));
    let (time, after) = after.split_once(' ').expect("more fields");
    assert!(time.parse::<f64>().is_ok_and(|time| time < LIMIT.as_secs_f64()), "{time}");
    let len = BLOCK.len();
    let fields = format!("request_bytes={len} calls=1 methods=eth_getBlockByNumber source=hit");
    assert_eq!(after, fields);
    let len = missed.body.len();
    let begin = format!(r#""POST /ext/bc/C/rpc HTTP/1.1" {} {len} "-" "curl/8.14""#, missed.status);
    assert!(lines[1].contains(&begin), "{}", lines[1]);
    let ends = "calls=2 methods=eth_getBlockByNumber,eth_getBalance source=miss";
    assert!(lines[1].ends_with(ends), "{}", lines[1]);
    assert!(lines[2].contains(r#""GET /nothing HTTP/1.1" 404 "#), "{}", lines[2]);
    assert!(lines[3].contains(r#""GET /v1/block/5 HTTP/1.1" 200 "#), "{}", lines[3]);
    assert!(!lines.concat().contains("SECRET"));
    assert_eq!(logged.neve.count("neve_http_fast_requests_total"), 0);
    logged.neve.wait_for_count("neve_access_log_lines_total{outcome=\"written\"}", 4);
    assert_eq!(logged.neve.count("neve_access_log_lines_total{outcome=\"dropped\"}"), 0);
}

#[test]
fn response_is_the_same_with_an_access_log_and_without() {
    let node = devnet(5);
    let dir = fresh_dir();
    let file = dir.path().join("access.log").display().to_string();
    let (_plain_store, plain) = follow(&node, &[]);
    let (_store, logged) = follow(&node, &["--access-log", &file]);
    let batch = format!("[{BLOCK},{BLOCK}]");
    for body in [BLOCK, BALANCE, &batch, "{", ""] {
        let [expected, found] = [&plain, &logged].map(|neve| {
            let mut answer = neve.client().post(body);
            answer.headers.retain(|(name, _)| name != "date");
            answer
        });
        assert_eq!(found, expected, "{body}");
    }
    assert_eq!(plain.metric("neve_access_log_lines_total{outcome=\"written\"}"), None);
    assert_eq!(plain.count("neve_http_fast_requests_total"), 5);
}

#[test]
fn log_of_json_has_an_object_for_requests_relays_and_messages() {
    let relay = ["--on-miss", "relay", "--batch-miss", "split"];
    let logged = Logged::start(&[&["--log-format", "json"], &relay[..]].concat());
    let neve = &logged.neve;
    let relayed = neve.client().post(BALANCE);
    assert_eq!(relayed.header("x-neve"), Some("relay"));
    let mut ws = Ws::open(neve);
    ws.send(BLOCK);
    let block = ws.text();
    ws.send(BALANCE);
    let balance = ws.text();
    ws.send(&format!("[{BLOCK},{BALANCE}]"));
    ws.text();
    let id = ws.subscribe("[\"newHeads\"]");
    assert!(id.starts_with("0x"), "{id}");
    let objects = logged.objects(6);
    let of = |at: usize, name: &str| &objects[at][name];
    for (at, object) in objects.iter().enumerate() {
        assert_eq!(object["client"], "127.0.0.1");
        assert!(object["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{object}");
        assert!(object["duration_seconds"].as_f64().is_some_and(|took| took > 0.0), "{object}");
        let is_message = at > 1;
        assert_eq!(object["protocol"] == "WebSocket", is_message, "{object}");
        assert_eq!(object["status"].is_null(), is_message, "{object}");
        assert_eq!(object["request_id"], Value::Null, "ids are off");
    }
    assert_eq!((of(0, "source"), of(0, "status")), (&"relay".into(), &200.into()));
    assert_eq!(of(0, "response_bytes"), relayed.body.len());
    assert_eq!(of(0, "methods"), &serde_json::json!(["eth_getBalance"]));
    assert_eq!((of(1, "http_method"), of(1, "status")), (&"GET".into(), &101.into()));
    assert_eq!((of(2, "source"), of(2, "path")), (&"hit".into(), &"/ws".into()));
    assert_eq!(of(2, "request_bytes"), BLOCK.len());
    assert_eq!(of(2, "response_bytes"), block.len());
    assert_eq!(
        (of(3, "source"), of(3, "response_bytes")),
        (&"relay".into(), &balance.len().into())
    );
    assert_eq!((of(4, "source"), of(4, "calls")), (&"mixed".into(), &2.into()));
    assert_eq!(of(5, "methods"), &serde_json::json!(["eth_subscribe"]));
    assert_eq!(of(5, "source"), "hit");
}

#[test]
fn hostile_request_forges_no_line() {
    let logged = Logged::start(&["--trusted-proxies", "127.0.0.1"]);
    let forged = "x\\n10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] \\\"GET / HTTP/1.1\\\" 200";
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{forged}\u001b[31m"}}"#);
    let headers = [
        ("Content-Type", "application/json"),
        ("X-Forwarded-For", "203.0.113.9"),
        ("User-Agent", "\" 200 \t\u{202e}"),
    ];
    logged.neve.client().request("POST", "/", &headers, body.as_bytes());
    let text = logged.lines(1).concat();
    assert!(text.starts_with("203.0.113.9 - - ["), "{text}");
    assert!(text.bytes().all(|b| (b' '..=b'~').contains(&b)), "{text}");
    assert_eq!(text.matches('"').count(), 6, "{text}");
    assert!(text.contains(r"methods=x\x0A10.0.0.1\x20-"), "{text}");
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "x".repeat(40_000));
    logged.neve.client().request(
        "POST",
        &format!("/{}", "y".repeat(5000)),
        &headers,
        long.as_bytes(),
    );
    logged.neve.client().request("POST", "/", &headers, long.as_bytes());
    let lines = logged.lines(3);
    assert!(lines.iter().all(|line| line.len() < 700), "{lines:#?}");
    assert!(lines[2].contains(&format!("methods={} ", "x".repeat(64))), "{}", lines[2]);
}

#[test]
fn key_has_its_name_in_the_log_and_not_itself() {
    let dir = fresh_dir();
    let file = dir.path().join("keys.toml");
    let key = "shop-key-SECRET-0123456789";
    let hash = crate::clients::keys::entry("shop", key);
    fs::write(&file, hash).expect("a file");
    let logged = Logged::start(&["--keys", &file.display().to_string()]);
    let neve = &logged.neve;
    let json = ("Content-Type", "application/json");
    let path = format!("/k/{key}/ext/bc/C/rpc");
    neve.client().request("POST", &path, &[json], BLOCK.as_bytes());
    neve.client().request("POST", "/", &[json, ("X-Api-Key", key)], BLOCK.as_bytes());
    neve.client().request("POST", &format!("/k/{key}x"), &[json], BLOCK.as_bytes());
    let (mut ws, _) = Ws::open_at(neve.address, &format!("/k/{key}/ws"));
    ws.send(BLOCK);
    ws.text();
    let lines = logged.lines(5);
    assert!(!lines.concat().contains("SECRET"), "{lines:#?}");
    for (line, begin, request) in [
        (0, "127.0.0.1 - shop [", "\"POST /k/-/ext/bc/C/rpc HTTP/1.1\" 200"),
        (1, "127.0.0.1 - shop [", "\"POST / HTTP/1.1\" 200"),
        (2, "127.0.0.1 - - [", "\"POST /k/- HTTP/1.1\" 401"),
        (3, "127.0.0.1 - shop [", "\"GET /k/-/ws HTTP/1.1\" 101"),
        (4, "127.0.0.1 - shop [", "\"MESSAGE /k/-/ws WebSocket\" -"),
    ] {
        let line = &lines[line];
        assert!(line.starts_with(begin) && line.contains(request), "{line}");
    }
}

#[test]
fn wrong_place_of_the_log_ends_the_start_with_an_error_that_names_it() {
    let dir = fresh_dir();
    let store = dir.path().join("store").display().to_string();
    let place = dir.path().display().to_string();
    for place in [place.as_str(), "/nowhere/access.log", ""] {
        let output = crate::support::neve::run(&[
            "serve",
            "--dev",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &store,
            "--access-log",
            place,
        ]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{place}");
        assert!(error.contains(&format!("--access-log {place}")), "{error}");
        assert!(error.contains("stdout"), "it says what is allowed: {error}");
    }
}
