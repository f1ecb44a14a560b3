//! `neve doctor`: each check as well, and as it fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Output;

use neve_devnet::Fault;
use serde_json::{Value, json};

use crate::support::closed_port::ClosedPort;
use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::recorded::Recorded;
use crate::support::served::devnet;

/// Runs the doctor on a fresh directory. Returns its exit code and its findings.
fn doctor(upstream: &str, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let dir = fresh_dir();
    let store = dir.path().join("store").display().to_string();
    let fixed = ["doctor", "--json", "--upstream", upstream, "--data-dir", &store];
    let bounds =
        ["--retain-bytes", "10MiB", "--disk-reserve-bytes", "1MiB", "--lock-newest-bytes", "none"];
    let ports = ["--listen", "127.0.0.1:0", "--connections-max", "16"];
    let output = run(&[&fixed[..], &bounds, &ports, arguments].concat());
    assert!(!store_exists(&store), "the doctor made a store");
    (output.status.code(), findings(&output))
}

fn store_exists(path: &str) -> bool {
    std::path::Path::new(path).exists()
}

fn findings(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// The findings of a check.
fn of<'a>(findings: &'a [Value], check: &str) -> Vec<&'a Value> {
    findings.iter().filter(|finding| finding["check"] == check).collect()
}

/// The only finding of a check: its level, and its text with the advice.
fn only(findings: &[Value], check: &str) -> (String, String) {
    let found = of(findings, check);
    let [finding] = found[..] else { panic!("{check}: {findings:#?}") };
    let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    (text("level"), format!("{}; {}", text("text"), text("advice")))
}

#[test]
fn all_checks_pass_before_a_node_of_a_known_release() {
    let node = Recorded::start(MAIN);
    let (code, findings) = doctor(&node.url(), &[]);
    for finding in &findings {
        // The file system of a test machine may be any.
        assert!(finding["level"] == "ok" || finding["check"] == "file-system", "{findings:#?}");
    }
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    let (_, standing) = only(&findings, "upstream");
    assert!(standing.contains("head 339"), "{standing}");
    let (_, methods) = only(&findings, "methods");
    assert!(methods.contains("eth_getBlockReceipts"), "{methods}");
    for check in ["settings", "release", "data-dir", "nofile", "memlock", "mincore", "listen"] {
        only(&findings, check);
    }
}

#[test]
fn front_is_asked_for_a_hit_and_a_miss() {
    let (node, dirs) = (devnet(5), [fresh_dir(), fresh_dir()]);
    let url = node.base_url();
    let start = |dir: &tempfile::TempDir, more: &[&str]| {
        let neve = Neve::start(dir.path(), &[&["--upstream", &url, "--start", "0"], more].concat());
        neve.wait_for_head(5);
        neve
    };
    // A neve that relays does what a front does; one that does not is a front without a node.
    let good = start(&dirs[0], &["--on-miss", "relay"]);
    let (_, found) = doctor(&url, &["--front", &format!("http://{}/", good.address)]);
    let (level, text) = only(&found, "front");
    assert_eq!(level, "ok", "{text}");
    assert!(text.contains("eth_blockNumber comes from neve"), "{text}");
    let (level, text) = only(&found, "front-miss");
    assert_eq!(level, "ok", "{text}");
    let bad = start(&dirs[1], &[]);
    let (code, found) = doctor(&url, &["--front", &format!("http://{}/", bad.address)]);
    let (level, text) = only(&found, "front-miss");
    assert_eq!((code, level.as_str()), (Some(2), "problem"), "{text}");
    assert!(text.contains("misses do not reach a node: HTTP 421"), "{text}");
    let port = ClosedPort::bind();
    let closed = port.address();
    let (_, found) = doctor(&url, &["--front", &format!("http://{closed}/")]);
    let (level, text) = only(&found, "front");
    assert_eq!(level, "problem");
    assert!(text.starts_with(&format!("cannot reach http://{closed}")), "{text}");
    assert!(of(&found, "front-miss").is_empty(), "{found:#?}");
    let (_, text) = only(&found, "filter");
    assert!(text.contains("this process, neve doctor"), "{text}");
}

#[test]
fn node_that_does_not_run_cannot_be_reached() {
    let port = ClosedPort::bind();
    let closed = port.address();
    let (code, findings) = doctor(&format!("http://{closed}"), &[]);
    let (level, text) = only(&findings, "upstream");
    assert_eq!((code, level.as_str()), (Some(2), "problem"));
    assert!(text.starts_with(&format!("cannot reach http://{closed}: ")), "{text}");
    assert!(text.contains("start the node, or correct --upstream"), "{text}");
}

#[test]
fn lacking_method_is_a_warning_and_wrong_network_a_problem() {
    let node = Recorded::start(MAIN);
    node.change(|state| state.block_receipts = false);
    let (code, findings) = doctor(&node.url(), &[]);
    let (level, text) = only(&findings, "methods");
    assert_eq!((code, level.as_str()), (Some(1), "warning"));
    assert!(text.contains("fails eth_getBlockReceipts (error -32601"), "{text}");
    let (code, findings) = doctor(&node.url(), &["--network", "fuji"]);
    let (level, text) = only(&findings, "upstream");
    assert_eq!((code, level.as_str()), (Some(2), "problem"));
    assert!(text.contains("not 43113; correct --upstream or --network"), "{text}");
}

#[test]
fn upstreams_must_be_of_one_chain_and_of_that_of_the_store() {
    let (node, other, dir) = (Recorded::start(MAIN), devnet(5), fresh_dir());
    let _wrong = other.faults().inject(Fault::WrongChainId.on("eth_chainId"));
    let (_, findings) = doctor(&node.url(), &["--upstream", &other.base_url()]);
    let found = of(&findings, "upstream");
    let [first, second] = found[..] else { panic!("{findings:#?}") };
    assert_eq!((&first["level"], &second["level"]), (&json!("ok"), &json!("problem")));
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(339);
    neve.stop_in_time();
    let store = dir.path().join("store").display().to_string();
    let upstream = ["doctor", "--json", "--upstream", &other.base_url(), "--data-dir", &store];
    let output = run(&[&upstream[..], &["--listen", "127.0.0.1:0"]].concat());
    let (level, text) = only(&self::findings(&output), "upstream");
    assert_eq!(level, "problem");
    assert!(text.contains(", not ") && text.contains("another --data-dir"), "{text}");
}

#[test]
fn upstream_of_a_rule_must_be_of_the_same_chain() {
    let [node, same] = [(); 2].map(|()| Recorded::start(MAIN));
    let other = devnet(5);
    let _wrong = other.faults().inject(Fault::WrongChainId.on("eth_chainId"));
    for (url, level, says) in
        [(same.url(), "ok", "head 339"), (other.base_url(), "problem", "correct --relay-to")]
    {
        let rule = format!("eth_call={url}");
        let (_, findings) = doctor(&node.url(), &["--on-miss", "relay", "--relay-to", &rule]);
        let found = of(&findings, "upstream");
        let [_, second] = found[..] else { panic!("{findings:#?}") };
        assert_eq!(second["level"], level);
        assert!(second.to_string().contains(says), "{second}");
        assert_eq!(of(&findings, "methods").len(), 1, "it need not have what neve follows by");
    }
}

#[test]
fn port_in_use_is_a_problem_unless_its_owner_is_a_neve() {
    let node = Recorded::start(MAIN);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // It closes each connection without an answer, and ends with the test's process.
    std::thread::spawn(move || taken.incoming().for_each(drop));
    let (code, findings) = doctor(&node.url(), &["--admin-listen", &address]);
    let (level, text) = only(&findings, "admin-listen");
    assert_eq!((code, level.as_str()), (Some(2), "problem"));
    assert!(text.contains("port in use; stop its owner (see ss -ltnp)"), "{text}");

    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    let (_, findings) = doctor(&node.url(), &["--admin-listen", &neve.admin.to_string()]);
    let (level, text) = only(&findings, "admin-listen");
    assert_eq!(level, "ok");
    assert!(text.contains("is in use by a neve"), "{text}");
}

#[test]
fn files_that_settings_name_are_read_and_none_is_made() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let [keys, log] = ["keys", "access.log"].map(|name| dir.path().join(name));
    let named = |path: &std::path::Path| path.display().to_string();
    let flags = ["--keys", &named(&keys), "--access-log", &named(&log)];
    std::fs::write(&keys, format!("[[key]]\nname = \"a\"\nsha256 = \"{}\"\n", "ab".repeat(32)))
        .unwrap();
    let (_, findings) = doctor(&node.url(), &flags);
    assert_eq!(only(&findings, "keys").0, "ok", "{findings:#?}");
    assert_eq!(only(&findings, "access-log").0, "ok", "{findings:#?}");
    assert!(!log.exists());
    std::fs::write(&keys, "[[key]]\n").unwrap();
    let flags = ["--keys", &named(&keys), "--access-log", "/nowhere/access.log"];
    let (code, findings) = doctor(&node.url(), &flags);
    for (check, says) in [("keys", "--keys "), ("access-log", "No such file or directory")] {
        let (level, text) = only(&findings, check);
        assert_eq!((code, level.as_str()), (Some(2), "problem"), "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn disk_without_room_for_the_bound_is_a_warning() {
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    let store = dir.path().display().to_string();
    let url = node.url();
    let output = run(&[
        "doctor",
        "--json",
        "--upstream",
        &url,
        "--data-dir",
        &store,
        "--listen",
        "127.0.0.1:0",
        "--retain-bytes",
        "1000TiB",
        "--disk-reserve-bytes",
        "1MiB",
    ]);
    let (level, text) = only(&findings(&output), "data-dir");
    assert_eq!(level, "warning");
    assert!(text.contains("short of --retain-bytes; free some space"), "{text}");
}

#[test]
fn store_of_another_chain_than_the_network_is_a_problem() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(339);
    neve.stop();
    let store = dir.path().join("store").display().to_string();
    let url = node.url();
    let checked = |network: &[&str]| {
        let fixed = ["doctor", "--json", "--upstream", &url, "--data-dir", &store];
        findings(&run(&[&fixed[..], &["--listen", "127.0.0.1:0"], network].concat()))
    };
    let other = checked(&["--network", "fuji"]);
    let [chain, _] = of(&other, "data-dir")[..] else { panic!("{other:#?}") };
    assert_eq!(chain["level"], "problem");
    let text = chain["text"].as_str().unwrap_or_default();
    assert!(text.contains("holds chain 43112") && text.contains("but chain 43113"), "{text}");
    assert_eq!(chain["advice"], "use another data directory");
    assert_eq!(of(&checked(&[]), "data-dir").len(), 1);
}

#[test]
fn start_above_the_head_is_a_warning_until_the_store_has_blocks() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let (code, found) = doctor(&node.url(), &["--start", "5000"]);
    let (level, text) = only(&found, "start");
    assert_eq!((code, level.as_str()), (Some(1), "warning"), "{found:#?}");
    assert!(text.contains(": head 339 is below --start 5000; correct --start, or wait"), "{text}");
    let (_, found) = doctor(&node.url(), &["--start", "339"]);
    assert_eq!(of(&found, "start").len(), 0, "{found:#?}");
    let late = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "5000"]);
    late.wait_for_log("start above the upstream head start=5000 upstream_head=339");
    late.stop();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(339);
    neve.stop();
    let store = dir.path().join("store").display().to_string();
    let (url, json) = (node.url(), ["doctor", "--json", "--start", "5000"]);
    let kept = ["--listen", "127.0.0.1:0", "--data-dir", &store, "--upstream", &url];
    let found = findings(&run(&[&json[..], &kept].concat()));
    assert_eq!(of(&found, "start").len(), 0, "{found:#?}");
}

#[test]
fn directory_that_is_not_there_is_named() {
    let node = Recorded::start(MAIN);
    let (_, findings) = doctor(&node.url(), &[]);
    let (_, text) = only(&findings, "data-dir");
    assert!(text.contains("/store will be made: 0 B used of"), "{text}");
}

#[test]
fn wrong_setting_is_a_problem_and_lines_are_for_people_without_json() {
    let output = run(&["doctor", "--data-dir", "/nowhere"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.starts_with("problem  settings      no source of blocks; use --dev"), "{text}");
    let output = run(&["doctor", "--dev", "--listen", "127.0.0.1:0"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("ok       upstream      the development chain of --dev\n"), "{text}");
}

/// A node of which each method has one answer, whatever the path.
struct Facts {
    url: String,
}

impl Facts {
    /// Starts it; it ends with the test's process.
    fn start(seconds: u64, version: &'static str, upgrades: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let head = json!({ "number": "0x10", "timestamp": format!("{seconds:#x}") });
        let answer = move |method: &str| match method {
            "eth_chainId" => json!("0xa86a"),
            "info.getNodeVersion" => json!({ "version": version }),
            "info.upgrades" => upgrades.clone(),
            "eth_getBlockByNumber" => head.clone(),
            _ => json!([]),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.clone();
                std::thread::spawn(move || serve(&stream, &answer));
            }
        });
        Self { url }
    }
}

/// Answers requests until the client closes.
fn serve(stream: &TcpStream, answer: &dyn Fn(&str) -> Value) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            let line = line.to_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let call: Value = serde_json::from_slice(&body).ok()?;
        let result = answer(call["method"].as_str()?);
        let body = json!({ "jsonrpc": "2.0", "id": call["id"], "result": result }).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
        write!(&mut &*stream, "{head}: {}\r\n\r\n{body}", body.len()).ok()?;
    }
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("it is after 1970").as_secs()
}

#[test]
fn release_and_unknown_upgrade_of_a_node_are_named() {
    let soon = humantime::format_rfc3339_seconds(
        std::time::SystemTime::now() + std::time::Duration::from_hours(24 * 7),
    );
    let upgrades = json!({ "heliconTime": "2026-09-22T15:00:00Z", "ionTime": soon.to_string() });
    let node = Facts::start(now(), "avalanchego/1.15.0", upgrades);
    let (_, findings) = doctor(&node.url, &[]);
    assert_eq!(only(&findings, "release").0, "ok", "{findings:#?}");
    let (level, text) = only(&findings, "upgrade");
    assert_eq!(level, "warning");
    assert!(text.contains(&format!("upgrade ionTime at {soon}")), "{text}");
    let node = Facts::start(now(), "avalanchego/1.13.0", json!({}));
    let (_, findings) = doctor(&node.url, &[]);
    let (level, text) = only(&findings, "release");
    // Mainnet has Helicon from September 2026 on; before, the release is only old.
    assert_ne!(level, "ok");
    assert!(text.contains("upgrade the node"), "{text}");
}

#[test]
fn clock_behind_the_chain_is_a_problem_and_an_old_head_a_warning() {
    let node = Facts::start(now() + 3600, "avalanchego/1.15.0", json!({}));
    let (code, findings) = doctor(&node.url, &[]);
    let (level, text) = only(&findings, "clock");
    assert_eq!((code, level.as_str()), (Some(2), "problem"));
    assert!(text.contains("ahead of this clock; synchronize the clock"), "{text}");
    let node = Facts::start(now() - 3600, "avalanchego/1.15.0", json!({}));
    let (_, findings) = doctor(&node.url, &[]);
    let (level, text) = only(&findings, "upstream");
    assert_eq!(level, "warning");
    assert!(text.contains("chain 43114, head 16, 1h"), "{text}");
}
