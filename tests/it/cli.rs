//! Bad usage: each mistake is named, with what would be right, and the exit code says "usage".

use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::recorded::Recorded;

/// Runs with these arguments; expects exit code 64 and `text` on standard error.
fn refused(arguments: &[&str], text: &str) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{arguments:?}: {stderr}");
    assert!(stderr.contains(text), "{arguments:?} says {stderr:?}, expected {text:?}");
}

/// Refused although everything else is right.
fn serve_refused(arguments: &[&str], text: &str) {
    let fixed = ["serve", "--data-dir", "/nonexistent/neve", "--upstream", "http://127.0.0.1:1"];
    refused(&[&fixed, arguments].concat(), text);
}

#[test]
fn what_is_missing_is_named() {
    refused(&[], "Usage:");
    refused(&["serve"], "--data-dir <DIR>");
    refused(&["serve", "--data-dir", "/tmp/x"], "--upstream <URL>");
    refused(&["verify"], "--data-dir <DIR>|--segment <FILE>");
    refused(&["verify", "--data-dir", "a", "--segment", "b"], "cannot be used with");
    refused(&["nonsense"], "unrecognized subcommand 'nonsense'");
    refused(&["serve", "--nonsense"], "unexpected argument '--nonsense'");
}

#[test]
fn sources_exclude_each_other() {
    refused(&["serve", "--dev", "--upstream", "http://x"], "cannot be used with");
    refused(&["serve", "--dev", "--network", "fuji"], "cannot be used with");
    refused(
        &["serve", "--data-dir", "x", "--network", "dogecoin"],
        "[possible values: mainnet, fuji]",
    );
    refused(
        &["serve", "--dev", "--dev-rate", "1e9"],
        "--dev-rate 1000000000: allowed is 0 (no new blocks) to 1000",
    );
    refused(
        &["serve", "--data-dir", "x", "--upstream", "http://x", "--dev-rate", "2"],
        "--dev-rate 2: goes with --dev",
    );
}

#[test]
fn addresses_that_are_none_are_named() {
    let upstream = |url: &str, text: &str| {
        refused(&["serve", "--data-dir", "/nonexistent/neve", "--upstream", url], text);
    };
    upstream(
        "127.0.0.1:9650",
        "--upstream 127.0.0.1:9650: neither http nor https; write http://127.0.0.1:9650",
    );
    upstream("ftp://host", "neither http nor https");
    upstream("http://", "--upstream http://: no address");
    upstream("http://user:pw@host", "user names in the address are not supported");
    serve_refused(
        &["--upstream-ws", "http://host"],
        "--upstream-ws http://host: neither ws nor wss; write ws://",
    );
    serve_refused(&["--listen", "8545"], "invalid socket address syntax");
    serve_refused(
        &["--listen", "127.0.0.1:8545", "--admin-listen", "127.0.0.1:8545"],
        "--admin-listen 127.0.0.1:8545: must be another address than --listen",
    );
}

#[test]
fn starts_that_are_none_are_named() {
    for start in ["newest", "-", "1.5", "0x", "--5", "99999999999999999999"] {
        let text = "write a height (69000000 or 0x41cdb40), latest, or -1000";
        serve_refused(&["--start", start], text);
    }
}

/// What a wrong number of bytes is told.
const UNITS: &str = "write a whole number and a unit: 4096, 25MB, 128MiB, 20GiB, or none";
/// What a wrong time is told.
const TIMES: &str = "write a number and a unit: 500ms, 30s, 12h, 7d";

#[test]
fn limits_of_the_store_are_refused_beyond_their_edges() {
    for (arguments, text) in [
        (["--retain-age", "5"], TIMES),
        (["--retain-bytes", "1.5GB"], UNITS),
        (
            ["--retain-bytes", "100kB"],
            "--retain-bytes 100000: must hold at least two segments of 65536 bytes",
        ),
        (["--compress", "br"], "--compress br: allowed is gzip, zstd, gzip,zstd or none"),
        (
            ["--compress", "gzip,none"],
            "--compress gzip,none: allowed is gzip, zstd, gzip,zstd or none",
        ),
        (["--retain-blocks", "few"], "invalid value 'few' for '--retain-blocks <N>'"),
        (
            ["--lock-newest-bytes", "2097151"],
            "--lock-newest-bytes 2097151: allowed is none, or 2097152 and more",
        ),
        (["--lock-newest-bytes", "0"], "--lock-newest-bytes 0: allowed is none, or 2097152"),
        (["--segment-bytes", "1KiB"], "--segment-bytes 1024: allowed is 65536 to 68719476736"),
        (["--segment-bytes", "none"], "--segment-bytes none: a segment has a size"),
        (["--segment-blocks", "0"], "--segment-blocks 0: allowed is 1 to 1048576"),
        (["--segment-blocks", "1048577"], "--segment-blocks 1048577: allowed is 1 to 1048576"),
    ] {
        serve_refused(&arguments, text);
    }
}

#[test]
fn limits_are_refused_beyond_their_edges() {
    for (arguments, text) in [
        (["--threads", "0"], "--threads 0: allowed is 1 to 1024"),
        (["--threads", "1025"], "--threads 1025: allowed is 1 to 1024"),
        (["--miss-status", "204"], "--miss-status 204: allowed is 200, or 400 to 599"),
        (["--miss-status", "600"], "--miss-status 600: allowed is 200, or 400 to 599"),
        (["--head-bytes-max", "8191"], "--head-bytes-max 8191: allowed is 8KiB to 1MiB"),
        (["--head-bytes-max", "2MiB"], "--head-bytes-max 2097152: allowed is 8KiB to 1MiB"),
        (["--body-bytes-max", "0"], "--body-bytes-max 0: allowed is 1 to 4GiB"),
        (["--body-bytes-max", "5GiB"], "--body-bytes-max 5368709120: allowed is 1 to 4GiB"),
        (["--body-bytes-max", "none"], "--body-bytes-max none: this needs a bound"),
        (["--body-bytes-max", "many"], UNITS),
        (["--batch-items-max", "0"], "--batch-items-max 0: must be at least 1"),
        (["--batch-response-bytes-max", "0"], "--batch-response-bytes-max 0: allowed is 1 to 4GiB"),
        (["--connections-max", "0"], "--connections-max 0: must be at least 1"),
        (["--idle-timeout", "soon"], TIMES),
        (["--ws-message-bytes-max", "none"], "--ws-message-bytes-max none: this needs a bound"),
        (["--logs-bytes-max", "0"], "--logs-bytes-max 0: allowed is 1 to 4GiB"),
        (["--rpc-paths", "ext/rpc"], "--rpc-paths ext/rpc: a path begins with /"),
        (["--api", "debug"], "[possible values: debug-raw]"),
        (["--fetch-concurrency", "0"], "--fetch-concurrency 0: allowed is 1 to 1024"),
        (["--fetch-concurrency", "1025"], "--fetch-concurrency 1025: allowed is 1 to 1024"),
        (["--verify-threads", "0"], "--verify-threads 0: allowed is 1 to 1024"),
        (["--agree", "0"], "--agree 0: allowed is 1 to 1, the number of upstreams"),
        (["--agree", "2"], "--agree 2: allowed is 1 to 1, the number of upstreams"),
        (["--requests-per-second", "0"], "write a number from 0.01 to 1000000, or none"),
        (
            ["--backfill-to", "latest"],
            "write a height (69000000 or 0x41cdb40), -1000, retained, or none",
        ),
        (["--upstream-ws", "none,none"], "--upstream-ws none: there are 1 upstreams"),
        (["--queue-bytes-max", "0"], "--queue-bytes-max 0: allowed is 1 to 4GiB"),
        (
            ["--upstream-body-bytes-max", "none"],
            "--upstream-body-bytes-max none: this needs a bound",
        ),
        (["--poll-interval", "0s"], "--poll-interval 0: must be longer than nothing"),
        (["--ws-message-bytes-max", "0"], "--ws-message-bytes-max 0: allowed is 1 to 4GiB"),
        (["--ws-message-bytes-max", "5GiB"], "--ws-message-bytes-max 5368709120: allowed is 1"),
        (["--ws-message-bytes-max", "none"], "--ws-message-bytes-max none: this needs a bound"),
        (
            ["--ws-messages-bytes-max", "33554431"],
            "--ws-messages-bytes-max 33554431: must be at least --ws-message-bytes-max",
        ),
        (["--ws-messages-bytes-max", "none"], "--ws-messages-bytes-max none: this needs a bound"),
        (["--ws-subscriptions-max", "-1"], "unexpected argument '-1' found"),
        (["--ws-lag-max", "far"], "invalid value 'far' for '--ws-lag-max <N>'"),
        (["--ws-ping-interval", "0s"], "--ws-ping-interval 0: must be longer than nothing"),
        (["--ws-ping-interval", "often"], TIMES),
        (
            ["--bodies-bytes-max", "5242879"],
            "--bodies-bytes-max 5242879: must be at least --body-bytes-max",
        ),
        (["--bodies-bytes-max", "none"], "--bodies-bytes-max none: this needs a bound"),
        (["--filters-bytes-max", "none"], "--filters-bytes-max none: this needs a bound"),
        (["--filters-bytes-max", "0"], "--filters-bytes-max 0: allowed is 1 to 4GiB"),
        (["--verify-senders", "sometimes"], "[possible values: live, always, never]"),
        (["--log-format", "xml"], "[possible values: text, json]"),
    ] {
        serve_refused(&arguments, text);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let help = run(&["serve", "--help"]);
    assert!(help.status.success());
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for flag in ["--data-dir", "--upstream", "--start", "--retain-bytes", "--miss-status", "--dev"]
    {
        assert!(text.contains(flag), "{flag} is not in the help");
    }
    let version = run(&["--version"]);
    assert_eq!(
        String::from_utf8_lossy(&version.stdout),
        concat!("neve ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

/// What stops the program at its start ends it with 1, not with 64: the usage was right.
#[test]
fn what_cannot_be_opened_or_bound_is_named() {
    let failed = |arguments: &[&str], text: &str| {
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(text), "{stderr}");
    };
    let upstream = ["--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let serve =
        |rest: &[&str], text: &str| failed(&[&["serve"][..], &upstream, rest].concat(), text);
    serve(&["--data-dir", "/proc/neve"], "/proc/neve");
    let dir = fresh_dir();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    serve(&["--data-dir", &file.display().to_string()], "file");
    let ca = [
        "--data-dir",
        &dir.path().join("a").display().to_string(),
        "--upstream-ca",
        "/nonexistent.pem",
    ];
    serve(&ca, "--upstream-ca /nonexistent.pem: ");
    let empty = file.display().to_string();
    let ca = ["--data-dir", &dir.path().join("b").display().to_string(), "--upstream-ca", &empty];
    serve(&ca, "no certificate in it; a PEM file is wanted");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let store = dir.path().join("c").display().to_string();
    let arguments =
        ["serve", "--upstream", "http://127.0.0.1:1", "--data-dir", &store, "--listen", &address];
    failed(&arguments, &format!("cannot listen on {address}: "));
}

#[test]
fn a_store_in_use_and_a_store_of_another_chain_are_named() {
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(MAIN.head);
    let store = dir.path().join("store").display().to_string();
    let again = |rest: &[&str]| {
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &store];
        let output = run(&[&fixed, rest].concat());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = again(&["--upstream", &node.url()]);
    assert!(
        text.contains(&format!("{store} is in use by another neve: its lock file is held")),
        "{text}"
    );
    neve.stop();
    let text = again(&["--network", "mainnet"]);
    let genesis = node.height(0).hash;
    assert!(text.contains(&format!("holds chain 43112 with genesis {genesis}")), "{text}");
    assert!(text.contains("but chain 43114 with genesis 0x31ced5b9beb7f878"), "{text}");
}
