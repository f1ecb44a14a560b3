//! Settings from flags, variables and the file: precedence, origins, mistakes, reload, help.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use neve_devnet::{Config, DevnetThread};
use rustix::process::Signal;

use crate::support::client::Client;
use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir, run, run_with};
use crate::support::recorded::Recorded;
use crate::support::served::devnet;

/// Writes a file of settings and returns its path.
fn file(dir: &Path, text: &str) -> String {
    let path = dir.join("neve.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Runs a command; returns its standard output, standard error and exit code.
fn said(variables: &[(&str, &str)], arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = run_with(variables, arguments);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn flag_goes_before_variable_before_file_before_default() {
    let dir = fresh_dir();
    let text =
        "threads = 2\nretain-bytes = \"50GiB\"\nidle-timeout = \"60s\"\nserve-mirrors = true\n";
    let file = file(dir.path(), text);
    let variables = [("NEVE_THREADS", "3"), ("NEVE_RETAIN_BYTES", "60GiB")];
    let (out, err, code) =
        said(&variables, &["config", "print", "--config", &file, "--threads", "4"]);
    assert_eq!((err.as_str(), code), ("", Some(0)));
    for line in [
        "threads = \"4\"  # flag",
        "retain-bytes = \"60GiB\"  # variable",
        &format!("idle-timeout = \"60s\"  # {file}:3"),
        &format!("serve-mirrors = true  # {file}:4"),
        "write-timeout = \"30s\"  # default",
        "# data-dir: none  # default",
    ] {
        assert!(out.lines().any(|found| found == line), "{line:?} is not in\n{out}");
    }
}

#[test]
fn printed_settings_hide_what_may_be_a_key() {
    let dir = fresh_dir();
    let file = file(dir.path(), "upstream = [\"https://x.example/SECRET\"]\n");
    let (out, ..) = said(&[], &["config", "print", "--config", &file]);
    assert!(out.contains("upstream = \"https://x.example/...\"") && !out.contains("SECRET"));
}

#[test]
fn checked_file_names_each_mistake_with_its_line() {
    let dir = fresh_dir();
    let good = file(dir.path(), "retain-bytes = \"1GiB\"\n");
    let (out, _, code) = said(&[], &["config", "check", &good]);
    assert_eq!((out, code), (format!("{good}: all keys and values are allowed\n"), Some(0)));
    let bad = file(dir.path(), "\nretain-byts = \"1GiB\"\nthreads = 0\n");
    let (_, err, code) = said(&[], &["config", "check", &bad]);
    let first = format!("{bad}:2: unknown key retain-byts; nearest: retain-bytes\n");
    let second = format!("{bad}:3: threads = 0: too small; allowed: 1 to 1024\n");
    assert_eq!((err, code), (first + &second, Some(1)));
    let cross = file(dir.path(), "filters-max = 1\nfilters-address-max = 2\n");
    let (_, err, code) = said(&[], &["config", "check", &cross]);
    let named = format!("--filters-address-max 2 ({cross}:2): allowed: 0 to 1, which is");
    assert!(err.starts_with(&named) && code == Some(1), "{err}");
    for (key, value, why) in [
        ("archive", "ftp://x", "no URL of an archive; write s3://BUCKET/PREFIX or file:///DIR"),
        ("archive-endpoint", "nourl", "no address of an S3 API; write http://HOST:PORT"),
    ] {
        let archive = file(dir.path(), &format!("{key} = {value:?}\n"));
        let (_, err, code) = said(&[], &["config", "check", &archive]);
        let named = format!("{archive}:1: {key} = {value}: {why}");
        assert!(err.starts_with(&named) && code == Some(1), "{err}");
    }
    assert_eq!(run(&["config", "check"]).status.code(), Some(64));
}

/// No error: the file may serve several machines, and one of them may have the flag.
#[test]
fn setting_without_effect_is_named_by_check_doctor_and_log() {
    let dir = fresh_dir();
    let idle = file(dir.path(), "\nrelay-broadcast = true\n");
    let named = format!("--relay-broadcast true ({idle}:2): no effect without --on-miss relay");
    let (out, _, code) = said(&[], &["config", "check", &idle]);
    let expected = format!("{named}\n{idle}: all keys and values are allowed\n");
    assert_eq!((out, code), (expected, Some(0)));
    let node = Recorded::start(MAIN);
    let url = node.url();
    let flags = ["--config", &idle, "--upstream", &url, "--start", "300"];
    let free = ["--listen", "127.0.0.1:0", "--data-dir", &dir.path().display().to_string()];
    let (out, ..) = said(&[], &[&["doctor"][..], &flags, &free].concat());
    assert!(out.contains(&format!("warning  settings      {named}; ")), "{out}");
    let neve = Neve::start(dir.path(), &flags);
    neve.wait_for_log("settings without effect");
    neve.wait_for_log(&named);
    let (out, ..) = said(&[], &[&["doctor", "--on-miss", "relay"][..], &flags, &free].concat());
    assert!(!out.contains("no effect"), "{out}");
}

#[test]
fn wrong_variable_of_a_switch_is_named_as_a_variable() {
    let (_, err, code) = said(&[("NEVE_SERVE_MIRRORS", "1")], &["serve", "--dev"]);
    let expected = "neve: NEVE_SERVE_MIRRORS=1 (variable): write true or false\n";
    assert_eq!((&*err, code), (expected, Some(64)));
    for (variable, flag, shown) in [
        ("true", None, "true  # variable"),
        ("false", None, "false  # variable"),
        ("false", Some("--serve-mirrors"), "true  # flag"),
    ] {
        let arguments = ["config", "print", "--config", "none"].into_iter().chain(flag);
        let arguments: Vec<_> = arguments.collect();
        let (out, err, _) = said(&[("NEVE_SERVE_MIRRORS", variable)], &arguments);
        let line = format!("serve-mirrors = {shown}");
        assert!(out.lines().any(|found| found == line), "{line:?} is not in\n{out}{err}");
    }
}

#[test]
fn wrong_arguments_of_other_commands_end_with_64() {
    for (arguments, says) in [
        (&["keys", "hash", "--name", "a b"][..], "neve: --name a b: name: allowed are "),
        (&["get", "1", "--from", "127.0.0.1:1"], "neve: --from 127.0.0.1:1: no URL; "),
        (&["export", "--first", "1", "--from", "host"], "neve: --from host: no URL; "),
        (&["status", "--config", "/nowhere"], "neve: cannot read /nowhere: "),
        (&["status", "--idle-timeout", "0s"], "neve: --idle-timeout 0s (flag): too small"),
        (&["archive", "push", "--data-dir", "x", "/tmp/x"], "write s3://BUCKET/PREFIX or file:///"),
        (&["archive", "ls", "--archive-endpoint", "x", "s3://b"], "no address of an S3 API"),
    ] {
        let (_, err, code) = said(&[], arguments);
        assert!(code == Some(64) && err.contains(says), "{arguments:?}: {code:?} {err}");
    }
}

#[test]
fn wrong_file_ends_serve_with_64() {
    let dir = fresh_dir();
    let bad = file(dir.path(), "upstraem = \"http://a\"\n");
    let (_, err, code) = said(&[], &["serve", "--data-dir", "x", "--config", &bad]);
    assert_eq!(err, format!("neve: {bad}:1: unknown key upstraem; nearest: upstream\n"));
    assert_eq!(code, Some(64));
    let (_, err, code) = said(&[], &["serve", "--dev", "--config", &bad]);
    assert!(err.contains("cannot be used with --dev; use none") && code == Some(64), "{err}");
}

#[test]
fn short_help_fits_a_screen_and_long_help_has_all() {
    for command in ["serve", "repair", "verify"] {
        let (short, ..) = said(&[], &[command, "-h"]);
        assert!(short.lines().count() <= 40, "{command}: {} lines", short.lines().count());
    }
    let (short, ..) = said(&[], &["serve", "-h"]);
    let (long, ..) = said(&[], &["serve", "--help"]);
    for flag in [
        "--config",
        "--data-dir",
        "--upstream",
        "--network",
        "--mirror-from",
        "--dev",
        "--listen",
        "--admin-listen",
        "--start",
        "--retain-bytes",
    ] {
        assert!(short.contains(&format!("{flag} ")) || short.contains(&format!("{flag}\n")));
    }
    assert_eq!(short.matches("\n  neve serve").count(), 3, "{short}");
    assert!(!short.contains("--miss-status") && long.contains("--miss-status <COUNT>"));
    assert!(long.contains("<DURATION>  a number and a unit"));
}

#[test]
fn manual_page_has_the_settings() {
    let (page, _, code) = said(&[], &["man"]);
    assert_eq!(code, Some(0));
    assert!(page.contains(".TH") && page.contains("retain\\-bytes"), "{page}");
}

#[test]
fn completions_have_commands_and_settings_for_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (script, _, code) = said(&[], &["completions", shell]);
        assert_eq!(code, Some(0), "{shell}");
        for word in ["serve", "verify", "repair", "inspect", "retain-bytes"] {
            assert!(script.contains(word), "{shell}: {word} is missing in {script}");
        }
    }
    let (_, err, code) = said(&[], &["completions", "tcsh"]);
    assert!(err.contains("possible values: bash, elvish, fish") && code == Some(64), "{err}");
}

#[test]
fn name_of_a_host_is_resolved() {
    let dir = fresh_dir();
    let neve = Neve::spawn(dir.path(), &["serve", "--dev", "--listen", "localhost:0"]);
    assert!(neve.address.ip().is_loopback(), "{}", neve.address);
    neve.wait_for_head(1);
}

#[test]
fn sighup_reloads_the_file_and_names_what_needs_a_restart() {
    let dir = fresh_dir();
    let settings =
        |text: &str| file(dir.path(), &format!("upstream = \"http://127.0.0.1:1\"\n{text}"));
    let path = settings("ready-lag-max = 5\n");
    let neve = Neve::start(dir.path(), &["--config", &path, "--ready-silence-max", "1h"]);
    settings(
        "ready-lag-max = 6\nready-silence-max = \"2h\"\nlog-filter = \"debug\"\nthreads = 1\n\
         scrub-bytes-per-second = \"1MiB\"\nupstream-requests-per-second = 5\n",
    );
    neve.signal(Signal::HUP);
    neve.wait_for_log(
        "reloaded=scrub-bytes-per-second, upstream-requests-per-second, ready-lag-max, log-filter",
    );
    neve.wait_for_log("settings need a restart");
    // Nothing is logged at that level before.
    neve.wait_for_log(" DEBUG ");
    settings("ready-lag-max = -1\n");
    neve.signal(Signal::HUP);
    neve.wait_for_log("settings not reloaded");
    let (status, _) = neve.stop();
    assert!(status.success(), "{status}");
}

/// The error code of a batch of so many calls, if it has one.
fn batch_error(client: &mut Client, items: usize) -> Option<i64> {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
    let batch = client.post(&format!("[{}]", vec![call; items].join(","))).json();
    let first = batch.as_array().map_or(batch.clone(), |all| all[0].clone());
    first["error"]["code"].as_i64()
}

#[test]
fn sighup_reloads_limits_of_clients_for_open_connections_of_the_fast_path() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let settings = |text: &str| {
        let upstream = format!("upstream = \"{}\"\nstart = 300\n", node.url());
        file(dir.path(), &format!("{upstream}{text}"))
    };
    let path = settings("batch-items-max = 2\nbody-bytes-max = \"1KiB\"\nfilters-max = 0\n");
    let neve = Neve::start(dir.path(), &["--config", &path]);
    neve.wait_for_head(339);
    let mut open = neve.client();
    assert_eq!((batch_error(&mut open, 2), batch_error(&mut open, 3)), (None, Some(-32600)));
    assert_eq!(neve.client().post(&" ".repeat(2000)).status, 413);
    assert!(neve.client().call("eth_newBlockFilter", "[]").text().contains("too many filters"));
    settings(
        "batch-items-max = 3\nbody-bytes-max = \"4KiB\"\nfilters-max = 4\nconnections-max = 77\n\
         client-bytes-total-max = \"9MiB\"\nrpc-paths = \"/x\"\n",
    );
    neve.signal(Signal::HUP);
    neve.wait_for_log("settings reloaded");
    neve.wait_for_log("settings need a restart settings=rpc-paths");
    neve.wait("the new limit", |_| batch_error(&mut neve.client(), 3).is_none().then_some(()));
    // Each event loop takes the limits by itself.
    neve.wait("the connection from before", |_| batch_error(&mut open, 3).is_none().then_some(()));
    assert_eq!(batch_error(&mut open, 4), Some(-32600));
    let long = || neve.client().post(&" ".repeat(2000)).status;
    neve.wait("the new length", |_| (long() != 413).then_some(()));
    assert_eq!(neve.client().call("eth_newBlockFilter", "[]").status, 200);
    let health = neve.health();
    assert_eq!(health["memory"]["client_bytes_max"], 9 << 20);
    assert_eq!(health["connections_max"], 77);
    // A connection that is idle for longer than is allowed now.
    let idle = TcpStream::connect(neve.address).unwrap();
    settings("idle-timeout = \"200ms\"\n");
    neve.signal(Signal::HUP);
    let closed = r#"neve_http_connection_timeouts_total{reason="idle"}"#;
    neve.wait("an idle connection closed", |_| (neve.count(closed) > 0).then_some(()));
    drop(idle);
    neve.stop_in_time();
}

#[test]
fn sighup_reads_headers_of_upstreams_again() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let headers = dir.path().join("headers");
    fs::write(&headers, "X-Key: first-key-of-it").unwrap();
    let arguments = ["--upstream", &node.url(), "--start", "300", "--upstream-header-file"];
    let path = headers.display().to_string();
    let neve = Neve::start(dir.path(), &[&arguments[..], &[&path]].concat());
    neve.wait_for_head(339);
    fs::write(&headers, "no header").unwrap();
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstream headers not reloaded");
    fs::write(&headers, "X-Key: second-key-of-it").unwrap();
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstream headers read");
    assert!(!neve.log().contains("key-of-it"), "{}", neve.log());
    neve.stop_in_time();
}

#[test]
fn standard_error_is_json_throughout_if_the_log_is() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let bad = file(dir.path(), "ready-lag-max = 5\n");
    let arguments = ["--upstream", &node.url(), "--start", "300", "--log-format", "json"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &["--config", &bad]].concat());
    neve.wait_for_head(339);
    file(dir.path(), "ready-lag-max = -1\n");
    // The same warning, more often than the log has it.
    let begin = std::time::Instant::now();
    neve.wait("lines left out", |_| {
        neve.signal(Signal::HUP);
        neve.log().contains("repeated lines left out").then_some(())
    });
    let seconds = begin.elapsed().as_secs() + 2;
    let log = neve.log();
    neve.stop_in_time();
    let text = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| {
            panic!("{error}: {line:?}");
        });
        line["message"].as_str().expect("a message").to_owned()
    };
    let all: Vec<_> = log.lines().map(text).collect();
    assert!(all.iter().any(|message| message == "following upstreams"), "{all:?}");
    let warned = all.iter().filter(|message| *message == "settings not reloaded").count() as u64;
    assert!((1..=seconds).contains(&warned), "{warned} in {seconds} s");
    // A wrong setting is a line of JSON, too, by flag, by variable and by the file.
    let good = file(dir.path(), "log-format = \"json\"\n");
    for (variables, arguments) in [
        (&[][..], &["--log-format", "json", "--config", "none"][..]),
        (&[("NEVE_LOG_FORMAT", "json")], &["--config", "none"]),
        (&[], &["--config", &good]),
    ] {
        let arguments = [&["serve", "--listen", "x", "--dev-rate", "1"], arguments].concat();
        let (_, err, code) = said(variables, &arguments);
        assert_eq!(code, Some(64), "{err}");
        assert!(err.lines().all(|line| text(line).contains("--listen x (flag)")), "{err}");
    }
}

#[test]
fn log_level_is_a_setting_and_a_level_of_the_filter_goes_before_it() {
    let dir = fresh_dir();
    let start = |more: &[&str]| {
        let arguments = [&["--upstream", "http://127.0.0.1:1", "--log-level", "debug"], more];
        Neve::start(dir.path(), &arguments.concat())
    };
    let neve = start(&[]);
    neve.wait_for_log(" DEBUG ");
    neve.stop_in_time();
    fs::remove_file(dir.path().join("neve.log")).unwrap();
    let neve = start(&["--log-filter", "error"]);
    neve.signal(Signal::HUP); // it would warn that it has no file
    neve.wait("an error of the upstream", |health| health["upstream"]["error"].as_str().map(drop));
    let log = neve.log();
    neve.stop_in_time();
    assert!(
        !log.contains(" DEBUG ") && !log.contains(" WARN ") && !log.contains(" INFO "),
        "{log}"
    );
}

#[test]
fn sighup_replaces_upstreams_and_following_goes_on_where_it_was() {
    let dir = fresh_dir();
    let node = |head| DevnetThread::start(Config::test().with_head(head)).expect("free ports");
    let (first, second) = (node(30), node(45));
    let settings = |upstream: &str| {
        file(dir.path(), &format!("upstream = \"{upstream}\"\nstart = 20\non-miss = \"relay\"\n"))
    };
    let path = settings(&first.base_url());
    let neve = Neve::start(dir.path(), &["--config", &path]);
    neve.wait_for_head(30);
    settings(&second.base_url());
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstreams replaced");
    neve.wait_for_head(45);
    let health = neve.health();
    let upstreams = health["upstreams"].as_array().expect("a list");
    assert_eq!(upstreams.len(), 1, "{health}");
    let named = |value: &serde_json::Value| {
        value.as_str().is_some_and(|url| {
            second.base_url().starts_with(url) || url.starts_with(&second.base_url())
        })
    };
    assert!(named(&upstreams[0]["url"]) && named(&health["upstream"]["url"]), "{health}");
    // Misses go to the second one, too: the first one has ended.
    drop(first);
    let balance = r#"["0x0000000000000000000000000000000000000000","latest"]"#;
    neve.wait("a relayed call", |_| {
        let answer = neve.client().call("eth_getBalance", balance);
        (answer.status == 200).then_some(())
    });
    // One that cannot be used changes nothing.
    fs::write(&path, "upstream = \"http://a\"\nupstream-header-file = \"/nothing\"\nstart = 20\non-miss = \"relay\"\n").unwrap();
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstreams not replaced");
    assert_eq!(neve.client().call("eth_getBlockByNumber", r#"["0x2d",false]"#).status, 200);
    neve.stop_in_time();
}

/// The quorum is that of the start: one upstream alone would never be agreed with.
#[test]
fn sighup_takes_no_fewer_upstreams_than_the_quorum() {
    let dir = fresh_dir();
    let node = || DevnetThread::start(Config::test().with_head(30)).expect("free ports");
    let (first, second) = (node(), node());
    let settings = |upstreams: &[&str], quorum: u32| {
        let text = format!("upstream = {upstreams:?}\nupstream-quorum = {quorum}\nstart = 20\n");
        file(dir.path(), &text)
    };
    let path = settings(&[&first.base_url(), &second.base_url()], 2);
    let neve = Neve::start(dir.path(), &["--config", &path]);
    neve.wait_for_head(30);
    settings(&[&first.base_url()], 1);
    neve.signal(Signal::HUP);
    neve.wait_for_log("fewer than --upstream-quorum");
    assert_eq!(neve.health()["upstreams"].as_array().map(Vec::len), Some(2));
    neve.stop_in_time();
}

#[test]
fn sighup_tries_upstreams_again_that_could_not_be_used() {
    let dir = fresh_dir();
    let [first, second] = [devnet(5), devnet(5)];
    let headers = dir.path().join("headers");
    let text = |upstream: &str| format!("upstream = \"{upstream}\"\nstart = 0\n");
    let path = file(dir.path(), &text(&first.base_url()));
    let neve = Neve::start(dir.path(), &["--config", &path]);
    neve.wait_for_head(5);
    let named = format!("upstream-header-file = \"{}\"\n", headers.display());
    file(dir.path(), &(text(&second.base_url()) + &named));
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstreams not replaced");
    fs::write(&headers, "X-Key: key-of-it").unwrap();
    neve.signal(Signal::HUP);
    neve.wait_for_log("upstreams replaced");
    second.advance(1);
    neve.wait_for_head(6);
    neve.stop_in_time();
}

/// A pipe without a writer is a file whose disk never answers.
#[test]
fn sighup_waits_for_no_header_file_of_other_upstreams() {
    let (node, dir) = (devnet(5), fresh_dir());
    let text = format!("upstream = \"{}\"\nstart = 0\n", node.base_url());
    let path = file(dir.path(), &text);
    let neve = Neve::start(dir.path(), &["--config", &path]);
    neve.wait_for_head(5);
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils are there").success());
    file(dir.path(), &format!("{text}upstream-header-file = \"{}\"\n", pipe.display()));
    neve.signal(Signal::HUP);
    neve.wait_for_log("settings reloaded");
    node.advance(1);
    neve.wait_for_head(6);
    neve.stop_in_time();
}

/// Upstreams and limits of a reload, for a connection that the full path has.
#[test]
fn sighup_replaces_upstreams_and_limits_for_a_busy_connection_of_the_full_path() {
    let dir = fresh_dir();
    let [first, second] = [devnet(5), devnet(5)];
    let text = |upstream: &str, items: u8| {
        let relay = "start = 0\non-miss = \"relay\"\nrelay-hedge-percent = 0\n";
        format!("upstream = \"{upstream}\"\nbatch-items-max = {items}\n{relay}")
    };
    let path = file(dir.path(), &text(&first.base_url(), 2));
    let neve = Neve::start(dir.path(), &["--config", &path]);
    neve.wait_for_head(5);
    neve.wait("an upstream", |health| (health["upstreams"][0]["state"] == "up").then_some(()));
    let balance = r#"["0x0000000000000000000000000000000000000000","latest"]"#;
    let mut busy = neve.client();
    assert_eq!(busy.call("eth_getBalance", balance).status, 200);
    file(dir.path(), &text(&second.base_url(), 3));
    neve.signal(Signal::HUP);
    // It is never idle for a second.
    neve.wait("a call of the second upstream", |_| {
        busy.call("eth_getBalance", balance);
        (second.counters().calls("eth_getBalance") > 0).then_some(())
    });
    assert_eq!(batch_error(&mut busy, 3), None);
}
