//! Sources that lack files, take them back, limit mirrors, or have another format.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use neve_devnet::{Fault, Helicon};
use serde_json::Value;

use super::between::Between;
use super::sources::{
    HEAD, devnet, digest, large_devnet, mirror, mirror_in, source, taken, wait_for_first,
    wait_for_stream,
};
use crate::clients::keys::entry;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;
use crate::support::ws::Ws;

const KEY: &str = "mirror-key-SECRET-0123456789";
const LIMITED: &str = "limited-key-SECRET-0123456789";

/// A neve that gives no segments is an upstream like any other.
#[test]
fn without_segments_it_is_followed_over_json_rpc() {
    let (devnet, source_dir) = (devnet(Helicon::FromGenesis), fresh_dir());
    let url = devnet.base_url();
    let source = Neve::start(source_dir.path(), &["--upstream", &url, "--start", "0"]);
    source.wait_for_head(HEAD);
    assert_eq!(source.client().get("/mirror/v1/segments").status, 404);
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), source.address, &["--start", "-100"]);
    mirror.wait_for_head(HEAD);
    devnet.advance(20);
    mirror.wait_for_log("does it run with --serve-mirrors?");
    let about = &mirror.health()["mirror"];
    let says = |error: &Value| error.as_str().is_some_and(|error| error.contains("HTTP 404"));
    assert!(!about["stream"]["connected"].as_bool().unwrap() && says(&about["stream"]["error"]));
    wait_for_first(&mirror, 0);
    mirror.wait_for_head(HEAD + 20);
    serves(&mirror, &devnet, (0..=HEAD + 20).step_by(7));
    assert_eq!(taken(&mirror, "accepted"), 0);
}

/// Follows a source that is asked for more than it holds, whatever its status.
#[test]
fn height_that_the_source_lacks_ends_nothing() {
    for status in ["421", "200", "404", "503"] {
        let devnet = devnet(Helicon::Never);
        let url = devnet.base_url();
        let from = |start| ["--upstream", &url, "--start", start, "--backfill-to", "none"];
        let (source_dir, dir) = (fresh_dir(), fresh_dir());
        let tail = [&from("350")[..], &["--miss-status", status]].concat();
        let source = Neve::start(source_dir.path(), &tail);
        source.wait_for_head(HEAD);
        // So that it knows which chain it is: neither the genesis block nor a list is there.
        let neve = Neve::start(dir.path(), &from("380"));
        neve.wait_for_head(HEAD);
        neve.stop();
        let mirror = mirror_in(dir.path(), source.address, &["--backfill-to", "0"]);
        let peer = format!("upstream=\"http://{}\"", source.address);
        let lacks = format!("neve_upstream_faults_total{{{peer},reason=\"missing_height\"}}");
        mirror.wait("what is not held", |_| (mirror.count(&lacks) > 0).then_some(()));
        for _ in 0..10 {
            mirror.wait_for_head(devnet.advance(1));
        }
        assert_eq!(mirror.health()["blocks"]["min_height"], 380);
        let metrics = mirror.admin().get("/metrics").text();
        let faults = metrics.lines().filter(|line| line.starts_with("neve_upstream_faults_total{"));
        let other: Vec<_> = faults.filter(|line| !line.contains("missing_height")).collect();
        assert!(other.is_empty(), "{other:?}\n{}", mirror.log());
        assert!(!mirror.log().contains("retry_in"), "{}", mirror.log());
    }
}

/// A front answers so while its source starts.
#[test]
fn files_of_a_source_that_fails_for_a_moment_come_all_the_same() {
    let devnet = devnet(Helicon::Never);
    let (_source_dir, source) = source(&devnet, &[]);
    let front = Between::failing(source.address, "502 Bad Gateway", 2);
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), front.address, &[]);
    wait_for_first(&mirror, 0);
    assert!(front.cuts() >= 3, "{} files", front.cuts());
    assert!(!mirror.log().contains("segment not downloaded"), "{}", mirror.log());
    assert!(taken(&mirror, "accepted") > 0);
}

/// A source may pack or evict a file after its list was sent.
#[test]
fn file_that_the_source_lists_and_lacks_is_named_as_gone() {
    let devnet = devnet(Helicon::Never);
    let (_source_dir, source) = source(&devnet, &[]);
    let front = Between::failing(source.address, "404 Not Found", usize::MAX);
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), front.address, &[]);
    mirror.wait_for_log("it no longer has this file (HTTP 404 Not Found)");
    wait_for_first(&mirror, 0);
    assert!(!mirror.log().contains("--serve-mirrors"), "{}", mirror.log());
    assert_eq!(taken(&mirror, "accepted"), 0);
}

/// Files of a later format are left alone; what the stream brings is not the format's.
#[test]
fn segments_of_another_format_are_left_alone() {
    let devnet = devnet(Helicon::Never);
    let (source_dir, source) = source(&devnet, &[]);
    let newer = Between::of_format(source.address, 2);
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), newer.address, &[]);
    mirror.wait_for_log("its segments are of format 2, this release reads format 1");
    wait_for_first(&mirror, 0);
    wait_for_stream(&mirror);
    devnet.advance(30);
    mirror.wait_for_head(HEAD + 30);
    serves(&mirror, &devnet, (0..=HEAD + 30).step_by(7));
    assert_eq!(taken(&mirror, "accepted"), 0);
    assert!(mirror.count("neve_mirror_received_records_total") >= 30);
    source.stop();
    mirror.stop();
    assert_eq!(digest(dir.path()), digest(source_dir.path()));
}

/// Under Helicon receipts may be disproved seconds later: what the source takes back goes here too.
#[test]
fn height_that_the_source_withdraws_is_withdrawn_here() {
    let devnet = devnet(Helicon::FromGenesis);
    let (source_dir, source) = source(&devnet, &[]);
    devnet.advance(20);
    let (dir, mirror) = mirror(&source);
    wait_for_first(&mirror, 0);
    mirror.wait_for_head(HEAD + 20);
    let lie = devnet.faults().inject(Fault::LyingReceipts.at(HEAD + 22));
    devnet.advance(3);
    mirror.wait_for_head(HEAD + 23); // nothing tells yet
    devnet.advance(22);
    source.wait_for_log("withdrawing unproven heights");
    mirror.wait_for_log("mirror source withdrew heights");
    lie.clear();
    devnet.advance(5);
    source.wait_for_head(HEAD + 50);
    mirror.wait_for_head(HEAD + 50);
    serves(&mirror, &devnet, HEAD..=HEAD + 50);
    source.stop();
    mirror.stop();
    assert_eq!(digest(dir.path()), digest(source_dir.path()));
}

/// Another upstream gives the heights: the source can neither take them back nor hold up following.
#[test]
fn source_that_withdraws_again_and_again_does_not_stop_following() {
    let devnet = devnet(Helicon::FromGenesis);
    let (_source_dir, source) = source(&devnet, &[]);
    let (between, dir) = (Between::withdrawing(source.address), fresh_dir());
    let node = devnet.base_url();
    let neve = mirror_in(dir.path(), between.address, &["--upstream", &node, "--start", "0"]);
    neve.wait_for_log("mirror source withdrew heights");
    for _ in 0..20 {
        neve.wait_for_head(devnet.advance(1));
    }
    serves(&neve, &devnet, HEAD - 20..=HEAD + 20);
}

#[test]
fn a_mirror_that_does_not_read_is_cut_off_and_their_number_is_bounded() {
    let devnet = large_devnet(200);
    // Time enough to ask for more while it is not cut yet.
    let more = ["--write-timeout", "5s", "--mirrors-max", "1"];
    let (_dir, source) = source(&devnet, &more);
    let mut slow = TcpStream::connect(source.address).unwrap();
    let request = "GET /mirror/v1/records?from=0 HTTP/1.1\r\nHost: x\r\n\r\n";
    std::io::Write::write_all(&mut slow, request.as_bytes()).unwrap();
    slow.read_exact(&mut [0; 12]).unwrap();
    let full = source.client().get("/mirror/v1/segment/0");
    assert_eq!((full.status, full.header("retry-after")), (503, Some("1")));
    assert_eq!(source.count("neve_mirror_connections"), 1);
    assert_eq!(source.health()["mirrors"], serde_json::json!({ "open": 1, "max": 1 }));
    source.wait("the cut", |_| {
        (source.count("neve_http_connection_timeouts_total{reason=\"write\"}") >= 1).then_some(())
    });
    source.wait("room for another", |_| {
        (source.client().get("/mirror/v1/segment/0").status == 200).then_some(())
    });
}

#[test]
fn mirror_endpoints_name_what_is_not_there() {
    let devnet = devnet(Helicon::Never);
    let (_dir, source) = source(&devnet, &[]);
    let mut client = source.client();
    let list = client.get("/mirror/v1/segments").json();
    assert_eq!((&list["format"], &list["head"]), (&Value::from(1), &Value::from(HEAD)));
    assert_eq!(list["segments"][1], serde_json::json!({ "base": 64, "records": 64 }));
    let whole = client.get("/mirror/v1/segment/64");
    assert_eq!((whole.status, whole.header("accept-ranges")), (200, Some("bytes")));
    let tag = whole.header("etag").unwrap().to_owned();
    let range = [("Range", "bytes=100-299"), ("If-Range", &*tag)];
    let part = client.request("GET", "/mirror/v1/segment/64", &range, b"");
    assert_eq!((part.status, &part.body[..]), (206, &whole.body[100..300]));
    let range = [("Range", "bytes=100-299"), ("If-Range", "\"other\"")];
    assert_eq!(client.request("GET", "/mirror/v1/segment/64", &range, b"").body, whole.body);
    for (path, status) in [
        ("/mirror/v1/segment/65", 404),
        ("/mirror/v1/segment/384", 404), // not sealed yet
        ("/mirror/v1/segment/x", 404),
        ("/mirror/v1/", 404),
        ("/mirror/v1/records", 400),
        ("/mirror/v1/records?from=0x1", 400),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
}

#[test]
fn mirror_names_its_key_in_the_address_of_its_source() {
    let (devnet, keys) = (devnet(Helicon::Never), fresh_dir());
    let file = keys.path().join("keys.toml");
    let limited = entry("limited", LIMITED) + "methods = [\"*\"]\n";
    fs::write(&file, entry("mirror", KEY) + &limited).unwrap();
    let (_dir, source) = source(&devnet, &["--keys", &file.display().to_string()]);
    let [dir, other] = [fresh_dir(), fresh_dir()];
    let mirror = |dir: &Path, key: &str| {
        let url = format!("http://{}/k/{key}", source.address);
        let mirror = Neve::start(dir, &["--mirror-from", &url, "--segment-blocks", "64"]);
        mirror.wait_for_head(HEAD);
        mirror
    };
    let keyed = mirror(dir.path(), KEY);
    wait_for_first(&keyed, 0);
    wait_for_stream(&keyed);
    keyed.wait("segments", |_| (taken(&keyed, "accepted") >= 5).then_some(()));
    let limited = mirror(other.path(), LIMITED);
    limited.wait_for_log("it forbids mirrors (HTTP 403 Forbidden); does its key have methods");
    for neve in [&keyed, &limited, &source] {
        assert!(!neve.log().contains("SECRET") && !neve.health().to_string().contains("SECRET"));
    }
}

/// A head comes over the stream, and not with the next poll. docs/benchmarks/log/mirrors.md has the measurement of
/// the delay.
#[test]
fn a_head_arrives_with_one_hop_of_delay() {
    let devnet = devnet(Helicon::FromGenesis);
    let (_source_dir, source) = source(&devnet, &[]);
    let dir = fresh_dir();
    let mirror = mirror_in(dir.path(), source.address, &["--upstream-poll-interval", "1h"]);
    mirror.wait_for_head(HEAD);
    let mut sockets = [Ws::open(&source), Ws::open(&mirror)];
    for ws in &mut sockets {
        ws.send(r#"{"jsonrpc":"2.0","id":1,"method":"eth_subscribe","params":["newHeads"]}"#);
        ws.text();
    }
    let [mut there, mut here] = sockets;
    let mut delays: Vec<Duration> = (0..40)
        .map(|_| {
            devnet.advance(1);
            there.text();
            let begun = Instant::now();
            here.text();
            begun.elapsed()
        })
        .collect();
    delays.sort_unstable();
    eprintln!("one hop: median {:?}, most {:?}", delays[20], delays[39]);
}
