//! Settings from flags, variables and the file: precedence, origins, mistakes, reload, help.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::support::neve::{Neve, fresh_dir, run, run_with};

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
    assert_eq!(run(&["config", "check"]).status.code(), Some(64));
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
