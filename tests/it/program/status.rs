//! `neve status`: once, again and again, and of a neve that does not run.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::closed_port::ClosedPort;
use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, command_of, fresh_dir, run};
use crate::support::recorded::Recorded;

fn status(admin: &str) -> (Option<i32>, String) {
    let output = run(&["status", "--admin-listen", admin]);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn status_shows_state_heights_upstream_disk_memory_and_calls() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(339);
    neve.wait("readiness", |health| (health["status"] == "ok").then_some(()));
    neve.client().call("eth_chainId", "[]");
    let balance = r#"["0x0000000000000000000000000000000000000000","latest"]"#;
    neve.client().call("eth_getBalance", balance);
    neve.wait_for_count(r#"neve_rpc_calls_total{method="eth_chainId",outcome="hit"}"#, 1);
    neve.wait_for_count(r#"neve_rpc_calls_total{method="eth_getBalance",outcome="miss"}"#, 1);
    let (code, text) = status(&neve.admin.to_string());
    assert_eq!(code, Some(0), "{text}");
    let line = |name: &str| {
        let found = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    };
    assert!(line("neve").ends_with(": ok"), "{text}");
    assert!(line("store").ends_with(&dir.path().join("store").display().to_string()), "{text}");
    assert!(line("served").ends_with("300 to 339, 40 heights"), "{text}");
    assert!(line("head").contains("339, ") && line("head").contains("lag 0"), "{text}");
    assert!(line("upstream").contains(&format!("{}: ", node.url())), "{text}");
    let segments = "segments     1; heights: 0 packed, 0 sealed, 40 active; 0 quarantined";
    assert_eq!(line("segments"), segments, "{text}");
    assert!(line("disk").contains(" used of 20.00 GiB, "), "{text}");
    assert!(line("memory").ends_with(" of 256.0 MiB for clients"), "{text}");
    assert!(line("method").contains("eth_chainId hit: 1, half up to "), "{text}");
    assert!(line("disk").contains(" free") && line("memory").contains(" resident, "), "{text}");
    assert!(line("times").contains("half of the hits up to "), "{text}");
    assert!(line("misses").contains("1 not_served"), "{text}");
    assert!(line("calls").contains("1 hits (") && line("calls").contains("1 misses"), "{text}");
}

#[test]
fn neve_that_is_not_ready_or_does_not_run_has_an_exit_code_of_its_own() {
    let port = ClosedPort::bind();
    let closed = port.address();
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &format!("http://{closed}")]);
    let (code, text) = status(&neve.admin.to_string());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("not ready: no block is stored yet"), "{text}");
    let (code, text) = status(&neve.address.to_string());
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("has no full /health; name the admin listener"), "{text}");
    let (code, text) = status(&closed.to_string());
    assert_eq!(code, Some(2), "{text}");
    assert!(text.starts_with(&format!("neve: cannot reach neve at {closed}: ")), "{text}");
    let (code, text) = status("none");
    assert_eq!(code, Some(64), "{text}");
    assert!(text.contains("no admin listener; start neve with --admin-listen"), "{text}");
    for wrong in [["--idle-timeout", "0s"], ["--config", "/nowhere"]] {
        let output = run(&[&["status"][..], &wrong].concat());
        assert_eq!(output.status.code(), Some(64), "{output:?}");
    }
}

#[test]
fn watch_prints_again_and_ends_with_its_reader() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    let mut command = command_of(&["status", "--watch", "--config", "none", "--admin-listen"]);
    command.arg(neve.admin.to_string()).stdout(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut looks = 0;
    while looks < 3 {
        let line = lines.next().expect("it goes on").unwrap();
        assert!(!line.contains('\u{1b}'), "escapes outside of a terminal: {line}");
        looks += usize::from(line.starts_with("neve "));
    }
    drop(lines);
    assert!(watch.wait().unwrap().code().is_some_and(|code| code < 2));
}

#[test]
fn watch_goes_on_while_neve_starts_again() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let socket = format!("unix:{}", dir.path().join("admin.sock").display());
    let arguments = ["--upstream", &node.url(), "--start", "300", "--admin-listen", &socket];
    let neve = Neve::start(dir.path(), &arguments);
    let mut command = command_of(&["status", "--watch", "--admin-listen", &socket]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = command.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut errors = BufReader::new(watch.stderr.take().unwrap()).lines();
    assert!(lines.next().is_some_and(|line| line.unwrap().starts_with("neve ")));
    neve.stop_in_time();
    let error = errors.next().expect("it says so").unwrap();
    assert!(error.starts_with(&format!("neve: cannot reach neve at {socket}: ")), "{error}");
    let other = ["--retain-bytes", "30GiB"];
    let _neve = Neve::start(dir.path(), &[&arguments[..], &other].concat());
    let is_of_other = |line: String| line.contains(" used of 30.00 GiB, ");
    assert!(lines.map_while(Result::ok).any(is_of_other), "it goes on");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn status_reads_a_socket_in_the_file_system() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let socket = format!("unix:{}", dir.path().join("admin.sock").display());
    let arguments = ["--upstream", &node.url(), "--start", "300", "--admin-listen", &socket];
    let neve = Neve::start(dir.path(), &arguments);
    neve.client().call("eth_chainId", "[]");
    neve.wait_for_log("following");
    let (code, text) = status(&socket);
    assert!(code.is_some_and(|code| code < 2), "{text}");
    assert!(text.contains("\nserved ") && text.contains("\ncalls "), "{text}");
    neve.stop_in_time();
    let (code, text) = status(&socket);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.starts_with(&format!("neve: cannot reach neve at {socket}: ")), "{text}");
}
