//! Bad usage: each mistake is named, with what would be right, and the exit code says "usage".

use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir, run, run_with};
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
fn missing_arguments_are_named() {
    refused(&[], "Usage:");
    refused(&["serve"], "no source of blocks; use --dev, or --data-dir DIR with --upstream");
    refused(&["serve", "--data-dir", "/tmp/x"], "no source of blocks; use --dev");
    refused(&["serve", "--upstream", "http://x"], "no directory for the store; use --data-dir DIR");
    refused(&["repair"], "no upstream to fetch damaged records from; use --upstream URL");
    refused(&["verify"], "--data-dir <DIR>|--segment <FILE>");
    refused(&["nonsense"], "unrecognized subcommand 'nonsense'");
    refused(&["serve", "--nonsense"], "unexpected argument '--nonsense'");
}

#[test]
fn sources_exclude_each_other() {
    let text = "--upstream http://x (flag): cannot be used with --dev; leave one of them out";
    refused(&["serve", "--dev", "--upstream", "http://x"], text);
    refused(&["serve", "--dev", "--network", "fuji"], "cannot be used with");
    refused(
        &["serve", "--data-dir", "x", "--network", "dogecoin"],
        "--network dogecoin (flag): allowed: mainnet, fuji",
    );
    refused(
        &["serve", "--dev", "--dev-rate", "1e9"],
        "--dev-rate 1e9 (flag): too large; allowed: 0 to 1000",
    );
    refused(
        &["serve", "--data-dir", "x", "--upstream", "http://x", "--dev-rate", "2"],
        "--dev-rate 2 (flag): needs --dev",
    );
}

#[test]
fn addresses_that_are_none_are_named() {
    let upstream = |url: &str, text: &str| {
        refused(&["serve", "--data-dir", "/nonexistent/neve", "--upstream", url], text);
    };
    upstream(
        "127.0.0.1:9650",
        "--upstream 127.0.0.1:9650 (flag): no URL; write http://127.0.0.1:9650",
    );
    upstream("ftp://host", "neither http nor https");
    upstream("http://", "--upstream http:// (flag): no address");
    upstream("http://user:pw@host", "user names in the address are not supported");
    serve_refused(
        &["--upstream-ws", "http://host"],
        "--upstream-ws http://host (flag): neither ws nor wss; write ws://",
    );
    for address in ["1234", ":8545", "localhost", "127.0.0.1", "256.0.0.1:80", "a b:80", "x:65536"]
    {
        let text = format!("--listen {address} (flag): no address; write HOST:PORT, for example");
        serve_refused(&["--listen", address], &text);
    }
    serve_refused(
        &["--listen", "127.0.0.1:8545", "--admin-listen", "127.0.0.1:8545"],
        "--admin-listen 127.0.0.1:8545 (flag): must be another address than --listen",
    );
    serve_refused(
        &["--admin-listen", "8549"],
        "write HOST:PORT, for example 127.0.0.1:8549, or none",
    );
}

#[test]
fn starts_that_are_none_are_named() {
    for start in ["newest", "-", "1.5", "0x", "--5", "99999999999999999999"] {
        let text = "write a height (69000000 or 0x41cdb40), latest, or -1000";
        serve_refused(&["--start", start], text);
    }
}

/// Error of a wrong number of bytes.
const UNITS: &str = "write a whole number and a unit: 4096, 25MB, 128MiB, 20GiB, or none";
/// Error of a wrong time.
const TIMES: &str = "write a number and a unit: 500ms, 30s, 12h, 7d";

#[test]
fn limits_of_the_store_are_refused_beyond_their_edges() {
    for (arguments, text) in [
        (["--retain-age", "5"], TIMES),
        (["--retain-bytes", "1.5GB"], UNITS),
        (
            ["--retain-bytes", "100kB"],
            "--retain-bytes 100kB (flag): too small; allowed: 128KiB to 1024TiB, or none",
        ),
        (
            ["--precompress", "br"],
            "--precompress br (flag): allowed: gzip, zstd, gzip,zstd, or none",
        ),
        (
            ["--precompress", "gzip,none"],
            "--precompress gzip,none (flag): allowed: gzip, zstd, gzip,zstd, or none",
        ),
        (["--retain-blocks", "few"], "--retain-blocks few (flag): write a whole number"),
        (
            ["--lock-newest-bytes", "2097151"],
            "--lock-newest-bytes 2097151 (flag): too small; allowed: 2MiB to 1TiB, or none",
        ),
        (["--lock-newest-bytes", "0"], "--lock-newest-bytes 0 (flag): too small; allowed: 2MiB"),
        (
            ["--segment-bytes", "1KiB"],
            "--segment-bytes 1KiB (flag): too small; allowed: 64KiB to 64GiB",
        ),
        (["--segment-bytes", "none"], "--segment-bytes none (flag): no bound; allowed: 64KiB"),
        (["--segment-blocks", "0"], "--segment-blocks 0 (flag): too small; allowed: 1 to 1048576"),
        (
            ["--segment-blocks", "1048577"],
            "--segment-blocks 1048577 (flag): too large; allowed: 1 to 1048576",
        ),
    ] {
        serve_refused(&arguments, text);
    }
}

/// The edges of all others are in src/config/settings/config/tests.rs.
#[test]
fn limits_are_refused_beyond_their_edges() {
    for (arguments, text) in [
        (["--threads", "0"], "--threads 0 (flag): too small; allowed: 1 to 1024"),
        (["--threads", "1025"], "--threads 1025 (flag): too large; allowed: 1 to 1024"),
        (["--miss-status", "204"], "--miss-status 204 (flag): allowed: 200, or 400 to 599"),
        (
            ["--body-bytes-max", "5GiB"],
            "--body-bytes-max 5GiB (flag): too large; allowed: 1B to 4GiB",
        ),
        (
            ["--body-bytes-max", "none"],
            "--body-bytes-max none (flag): no bound; allowed: 1B to 4GiB",
        ),
        (["--body-bytes-max", "many"], UNITS),
        (
            ["--connections-address-max", "10001"],
            "--connections-address-max 10001 (flag): allowed: 1 to 10000, which is --connections-max",
        ),
        (["--trusted-proxies", "10.0.0.0/33"], "write a network or an address: 10.0.0.0/8"),
        (
            ["--client-address-from", "x-real-ip"],
            "allowed: x-forwarded-for, forwarded, proxy-protocol",
        ),
        (["--idle-timeout", "soon"], TIMES),
        (["--rpc-paths", "ext/rpc"], "--rpc-paths ext/rpc (flag): a path begins with /"),
        (["--rpc-paths", "/a b"], "' ' cannot stand in the path of a request; write it as %XX"),
        (["--rpc-paths", "/a?b"], "'?' cannot stand in the path of a request; write it as %XX"),
        (["--rpc-paths", "/a%2"], "two hex digits follow each % in a path"),
        (["--api", "debug"], "--api debug (flag): allowed: debug-raw"),
        (
            ["--upstream-quorum", "2"],
            "--upstream-quorum 2 (flag): allowed: 1 to 1, the number of upstreams",
        ),
        (
            ["--backfill-to", "latest"],
            "write a height (69000000 or 0x41cdb40), -1000, retained, or none",
        ),
        (["--upstream-ws", "none,none"], "--upstream-ws none (flag): there are 1 upstreams"),
        (["--ws-subscriptions-max", "-1"], "unexpected argument '-1' found"),
        (["--ws-lag-max", "far"], "--ws-lag-max far (flag): write a whole number"),
        (["--ws-ping-interval", "often"], TIMES),
        (
            ["--client-bytes-address-max", "268435457"],
            "--client-bytes-address-max 268435457 (flag): allowed: 1 to 268435456, which is --client-bytes-total-max",
        ),
        (
            ["--filters-address-max", "10001"],
            "--filters-address-max 10001 (flag): allowed: 0 to 10000, which is --filters-max",
        ),
        (
            ["--recover-senders", "sometimes"],
            "--recover-senders sometimes (flag): allowed: live, always, never",
        ),
        (["--log-format", "xml"], "--log-format xml (flag): allowed: text, json"),
    ] {
        serve_refused(&arguments, text);
    }
}

#[test]
fn endless_file_is_refused_with_its_name_and_its_bound() {
    let dir = fresh_dir();
    let store = dir.path().join("store").display().to_string();
    let https = ["--data-dir", &store, "--listen", "127.0.0.1:0", "--upstream", "https://a"];
    for (flag, bound) in [
        ("--config", 1 << 20),
        ("--keys", 4 << 20),
        ("--upstream-header-file", 64 << 10),
        ("--upstream-ca", 1 << 20),
    ] {
        let output = run(&[&["serve", flag, "/dev/zero"][..], &https].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        let why = format!("/dev/zero: more than {bound} bytes; allowed: {bound}");
        let by_flag = why.replace(": more", " (flag): more");
        assert!(stderr.contains(&why) || stderr.contains(&by_flag), "{flag}: {stderr}");
        assert!(!output.status.success(), "{flag}: {stderr}");
    }
}

#[test]
fn value_of_a_variable_is_refused_by_its_name() {
    let variables = [("NEVE_IDLE_TIMEOUT", "0s"), ("NEVE_LISTEN", "127.0.0.1:0")];
    let output = run_with(&variables, &["serve", "--data-dir", "x", "--upstream", "http://a"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{stderr}");
    let text = "neve: NEVE_IDLE_TIMEOUT=0s (variable): too small; allowed: 100ms to 1d\n";
    assert_eq!(stderr, text);
}

#[test]
fn unknown_variables_are_named_in_one_warning() {
    let dir = fresh_dir();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let file = dir.path().join("file").display().to_string();
    let variables = [("NEVE_PORT", "tcp://10.0.0.1:8545"), ("NEVE_IDLE_TIMOUT", "secret")];
    let output = run_with(&variables, &["serve", "--data-dir", &file, "--upstream", "http://a"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "the usage is right: {stderr}");
    assert!(stderr.contains("NEVE_IDLE_TIMOUT (nearest: NEVE_IDLE_TIMEOUT)"), "{stderr}");
    assert_eq!(stderr.matches("unknown variables").count(), 1, "{stderr}");
    assert!(stderr.contains("NEVE_PORT (nearest: NEVE_") && !stderr.contains("secret"), "{stderr}");
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
    let version = String::from_utf8_lossy(&run(&["--version"]).stdout).into_owned();
    let build = version.strip_prefix(concat!("neve ", env!("CARGO_PKG_VERSION")));
    // Release builds name the commit and its date: packaging/reproducible compares them.
    assert!(build.is_some_and(|build| build == "\n" || is_commit(build)), "{version}");
}

/// True for ` (d56de3eb1d3f 2026-11-25)` and a line feed.
fn is_commit(build: &str) -> bool {
    let words = build.strip_prefix(" (").and_then(|build| build.strip_suffix(")\n"));
    words.and_then(|words| words.split_once(' ')).is_some_and(|(hash, date)| {
        hash.len() == 12 && u64::from_str_radix(hash, 16).is_ok() && date.len() == 10
    })
}

/// Failures at the start end the program with 1, not with 64: the usage was right.
#[test]
fn path_or_address_that_fails_is_named() {
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
    failed(
        &arguments,
        &format!("--listen {address} (flag): port in use; stop its owner (see ss -ltnp)"),
    );
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
        text.contains(&format!(
            "--data-dir {store} (flag): locked by another process; stop that one"
        )),
        "{text}"
    );
    neve.stop();
    let text = again(&["--network", "mainnet"]);
    let genesis = node.height(0).hash;
    assert!(text.contains(&format!("holds chain 43112 with genesis {genesis}")), "{text}");
    assert!(text.contains("but chain 43114 with genesis 0x31ced5b9beb7f878"), "{text}");
}
