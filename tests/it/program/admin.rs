//! The pages for operators: on a listener of their own, and the short ones that every client sees.

use std::fs;
use std::net::{TcpListener, TcpStream};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;

fn start(arguments: &[&str]) -> (Recorded, tempfile::TempDir, Neve) {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let url = node.url();
    let arguments = [&["--upstream", &url, "--start", "300"], arguments].concat();
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_log("following");
    (node, dir, neve)
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn main_listener_names_no_path_and_no_upstream() {
    let (node, dir, neve) = start(&[]);
    neve.wait_for_head(339);
    neve.wait_until_ready();
    assert_ne!(neve.admin, neve.address);
    let mut main = neve.client();
    let health = main.get("/health");
    assert_eq!(health.status, 200);
    let (text, health) = (health.text(), health.json());
    assert_eq!(health["status"], "ok");
    assert_eq!(health["reason"], Value::Null);
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(health["blocks"]["min_height"], 300);
    assert_eq!(health["blocks"]["max_contiguous_height"], 339);
    let upstream = node.url();
    let upstream = upstream.strip_prefix("http://").unwrap();
    for secret in [upstream, &dir.path().display().to_string(), "upstream", "storage", "memory"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert_eq!(main.get("/ready").json(), json!({ "ready": true }));
    assert_eq!(main.get("/metrics").status, 404);
    let full = neve.health();
    let age = |health: &Value| health["blocks"]["head_age_seconds"].as_f64().unwrap_or_default();
    assert!(age(&health) > 0.0 && age(&full) >= age(&health), "{health} {full}");
    assert!(keys(&full).contains(&"storage") && keys(&full).contains(&"upstreams"));
    assert!(neve.admin().get("/metrics").text().contains("neve_head_height 339"));
    assert_eq!(neve.admin().call("eth_chainId", "[]").status, 404);
    neve.wait_for_log(&format!("admin listener address={}", neve.admin));
}

#[test]
fn admin_on_main_puts_all_pages_on_the_main_listener() {
    let (_node, _dir, neve) = start(&["--admin-on-main"]);
    assert_eq!(neve.admin, neve.address);
    assert!(keys(&neve.health()).contains(&"storage"));
    assert_eq!(neve.client().get("/metrics").status, 200);
}

#[test]
fn no_page_of_another_origin_reads_what_is_for_operators() {
    let (_node, _dir, neve) = start(&["--serve-mirrors", "--admin-on-main"]);
    let origin = ("Origin", "https://a.example");
    let preflight = [origin, ("Access-Control-Request-Method", "GET")];
    let is_cors =
        |(name, _): &(String, String)| name.starts_with("access-control") || name == "vary";
    for path in ["/health", "/ready", "/metrics", "/mirror/v1/segments", "/mirror/v1/x"] {
        let answer = neve.client().request("GET", path, &[origin], b"");
        assert!(!answer.headers.iter().any(is_cors), "{path}: {answer:?}");
        let asked = neve.client().request("OPTIONS", path, &preflight, b"");
        assert_eq!(asked.status, 405, "{path}");
        assert!(!asked.headers.iter().any(is_cors), "{path}: {asked:?}");
    }
    let rpc = neve.client().request(
        "OPTIONS",
        "/",
        &[origin, ("Access-Control-Request-Method", "POST")],
        b"",
    );
    assert_eq!(rpc.header("access-control-allow-origin"), Some("*"));
}

#[test]
fn admin_listener_on_loopback_refuses_names_that_point_to_it() {
    let (_node, _dir, neve) = start(&[]);
    let ask = |host: &str| {
        let request = format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n");
        neve.admin().raw(request.as_bytes()).unwrap().status
    };
    assert_eq!(ask("evil.example"), 403);
    assert_eq!(ask("localhost:8549"), 200);
    assert_eq!(ask("127.0.0.1:8549"), 200);
    assert_eq!(
        neve.client().raw(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").unwrap().status,
        200
    );
}

/// A number without dots is a name to neve, and 127.0.0.1 to the resolver.
#[test]
fn admin_listener_on_loopback_by_a_name_is_reached_by_that_name_only() {
    let name = "2130706433";
    let (_node, _dir, neve) = start(&["--admin-listen", &format!("{name}:0")]);
    assert!(neve.admin.ip().is_loopback(), "{}", neve.admin);
    let ask = |host: &str| {
        let request = format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n");
        neve.admin().raw(request.as_bytes()).unwrap().status
    };
    assert_eq!(ask("evil.example"), 403);
    assert_eq!(ask(&format!("{name}:8549")), 200);
    assert_eq!(ask("localhost"), 200);
}

#[test]
fn admin_listener_can_be_turned_off() {
    let (_node, _dir, neve) = start(&["--admin-listen", "none"]);
    assert_eq!(neve.admin, neve.address, "the greeting names the short page");
    assert_eq!(neve.client().get("/metrics").status, 404);
    assert!([200, 503].contains(&neve.client().get("/ready").status));
}

/// Only the default may be left out: an address that was given is wanted.
#[test]
fn given_admin_address_in_use_ends_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let (url, store) = (node.url(), dir.path().join("store").display().to_string());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &store, "--upstream", &url];
    let output =
        crate::support::neve::run(&[&arguments[..], &["--admin-listen", &address]].concat());
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains(&format!("--admin-listen {address} (flag): port in use; stop its owner")),
        "{stderr}"
    );
}

/// A second neve on a machine must start, too.
#[test]
fn default_admin_address_in_use_is_a_warning() {
    // This test or another process has the port: it is in use.
    let _taken = TcpListener::bind("127.0.0.1:8549");
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let (url, store) = (node.url(), dir.path().join("store").display().to_string());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let arguments = ["serve", "--listen", &listen, "--data-dir", &store, "--upstream", &url];
    let neve = Neve::spawn(dir.path(), &[&arguments[..], &["--start", "300"]].concat());
    neve.wait_for_log("no admin listener");
    assert_eq!(neve.admin, neve.address);
    assert_eq!(neve.client().get("/health").status, 200);
}

/// Descriptors are what both listeners have in common.
#[test]
fn ready_answers_while_clients_hold_all_descriptors_that_they_may() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let arguments =
        ["--upstream", &node.url(), "--start", "300", "--connections-address-max", "10000"];
    let neve =
        Neve::start_by(&["sh", "-c", "ulimit -n 320; exec \"$@\"", "sh"], dir.path(), &arguments);
    neve.wait_for_head(339);
    neve.wait_for_log("few descriptors, fewer connections connections_max=80");
    neve.wait_until_ready();
    let held: Vec<_> = (0..400).map(|_| TcpStream::connect(neve.address).unwrap()).collect();
    for _ in 0..20 {
        let ready = neve.admin().get("/ready");
        assert_eq!(ready.status, 200, "{}", ready.text());
    }
    drop(held);
}

#[test]
fn sighup_without_a_change_repeats_no_warning_and_names_no_setting() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let file = dir.path().join("neve.toml");
    let settings = |most: u32| {
        let text =
            format!("upstream = \"{}\"\nstart = 300\nconnections-max = {most}\n", node.url());
        fs::write(&file, text).unwrap();
    };
    settings(1000);
    let path = file.display().to_string();
    let by = ["sh", "-c", "ulimit -n 320; exec \"$@\"", "sh"];
    let neve = Neve::start_by(&by, dir.path(), &["--config", &path]);
    neve.wait_for_head(339);
    let few = || neve.log().matches("few descriptors, fewer connections").count();
    neve.wait_for_log("few descriptors, fewer connections");
    assert_eq!(few(), 1);
    // A warning that repeats within a second is left out in any case.
    let passed = |seconds: u64| {
        neve.wait("the next second", |health| {
            (health["uptime_seconds"].as_u64()? >= seconds).then_some(())
        });
    };
    passed(2);
    neve.signal(Signal::HUP);
    neve.wait_for_log("settings reloaded");
    assert!(few() == 1 && !neve.log().contains("reloaded="), "{}", neve.log());
    passed(4);
    settings(900);
    neve.signal(Signal::HUP);
    neve.wait_for_log("reloaded=connections-max");
    neve.wait("the second warning", |_| (few() == 2).then_some(()));
    neve.stop_in_time();
}

/// Clients that take all connections of the main listener must not make a healthy server look dead.
#[test]
fn ready_answers_while_clients_hold_all_connections() {
    let (_node, _dir, neve) = start(&["--connections-max", "8"]);
    neve.wait_for_head(339);
    neve.wait_until_ready();
    let held: Vec<_> = (0..20).map(|_| TcpStream::connect(neve.address).unwrap()).collect();
    // One connection: the admin listener has eight too, and one that was closed counts until the server sees it.
    let mut admin = neve.admin();
    for _ in 0..20 {
        let ready = admin.get("/ready");
        assert_eq!(ready.status, 200, "{}", ready.text());
    }
    drop(held);
}

/// A browser's header. Clients of a node send none such, and get the node's 404.
const HTML: (&str, &str) = ("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");

#[test]
fn browser_gets_the_status_page_on_both_listeners_and_clients_get_404() {
    let (_node, _dir, neve) = start(&[]);
    for mut client in [neve.client(), neve.admin()] {
        let page = client.request("GET", "/", &[HTML], b"");
        assert_eq!(page.status, 200);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        let policy = page.header("content-security-policy").expect("it has a policy");
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert_eq!(page.header("access-control-allow-origin"), None);
        assert!(page.text().contains("<title>neve</title>"));
        assert_eq!(client.get("/").status, 404);
    }
    // The same request of another host is refused, as any other.
    let foreign = b"GET / HTTP/1.1\r\nHost: evil.example\r\nAccept: text/html\r\n\r\n";
    assert_eq!(neve.admin().raw(foreign).unwrap().status, 403);
}
