//! A manifest of the whole history: 1,500 spans.

use std::fs;
use std::time::Instant;

use neve_devnet::Helicon;
use serde_json::{Value, json};

use super::bucket::{Bucket, LAST, reads, trust_in};
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::serves;

const SPANS: u64 = 1500;
const SEGMENTS: u64 = SPANS * 64;
/// Memory that the manifest, and what leads from it to pages, may take.
const BYTES_MAX: u64 = 64 << 20;

/// Memory of a process beside maps (proc(5), `status`).
fn anonymous(neve: &Neve) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", neve.pid())).expect("it runs");
    let line =
        status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel says");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

fn digest(number: u64) -> String {
    format!("{number:064x}")
}

/// Adds segments that no object has behind those of a manifest, and their spans.
fn grown(mut manifest: Value) -> Value {
    let segments = manifest["segments"].as_array_mut().expect("a list");
    let mut parent = segments.last().expect("there are some")["last"].clone();
    for number in segments.len() as u64..SEGMENTS {
        let last = json!(digest(number));
        segments.push(json!({
            "first": number * 32, "bytes": 100_000, "digest": digest(number), "last": last,
            "parent": parent,
        }));
        parent = last;
    }
    let spans = manifest["spans"].as_array_mut().expect("a list");
    spans[0]["segments"] = json!(64);
    for number in 1..SPANS {
        let index = |kind: u64| json!({ "bytes": 100_000, "digest": digest(kind << 32 | number) });
        spans.push(json!({
            "first": number * 2048, "segments": 64, "bytes": 100_000, "digest": digest(number),
            "pages": index(1), "filter": index(2), "terms": index(3),
        }));
    }
    manifest
}

#[test]
fn manifest_of_the_whole_history_takes_few_reads_and_little_memory() {
    let bucket = Bucket::new(Helicon::Never);
    let start = || {
        let dir = fresh_dir();
        let path = bucket.dir.path().join("manifest.json");
        let replica = bucket.replica(dir.path(), &["--archive-trust", &trust_in(&path)]);
        let begun = Instant::now();
        let answer = replica.client().call("eth_getBlockByNumber", "[\"0x3\",true]");
        let took = begun.elapsed();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let counts = ["pages", "segment", "span"].map(|kind| reads(&replica, kind));
        assert!(counts[0] == 1 && counts[1] <= 2 && counts[2] == 0, "{counts:?}");
        serves(&replica, &bucket.node, 0..=LAST);
        (dir, anonymous(&replica), replica, took)
    };
    let (_dir, small, replica, _) = start();
    replica.stop_in_time();
    let path = bucket.dir.path().join("manifest.json");
    let manifest = serde_json::from_slice(&fs::read(&path).expect("it is there")).expect("JSON");
    fs::write(&path, grown(manifest).to_string()).expect("it is ours");
    let (dir, large, replica, took) = start();
    assert_eq!(replica.health()["archive"]["answers"]["max_height"], SEGMENTS * 32 - 1);
    let bytes = fs::metadata(&path).expect("it is there").len();
    assert!(large < small + BYTES_MAX, "{small} to {large} bytes");
    replica.stop_in_time();
    fs::remove_dir_all(dir.path().join("store/archive")).expect("its pages are there");
    let begun = Instant::now();
    let replica = bucket.start(&[], dir.path(), &["--archive", &bucket.place()]);
    let answered = wait_until("an answer", LIMIT, || {
        let answer = replica.client().call("eth_getBlockByNumber", "[\"0x3\",true]");
        if answer.status == 200 { Ok(()) } else { Err(Miss::NotYet(answer.text())) }
    });
    answered.expect("it comes");
    println!(
        "manifest {bytes} bytes; memory {small} to {large}; first answer {took:?}, from the start of \
         the program {:?}, {:?} of processor time",
        begun.elapsed(),
        replica.processor_time()
    );
    replica.stop_in_time();
}
