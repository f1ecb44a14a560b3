//! A manifest of the whole history: 1,500 spans.

use std::fs;
use std::time::{Duration, Instant};

use neve_devnet::Helicon;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::bucket::{Bucket, LAST, reads};
use super::trust::key;
use crate::support::neve::{LIMIT, Neve, fresh_dir, run};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::serves;

const SPANS: u64 = 1500;
const SEGMENTS: u64 = SPANS * 64;
/// Memory that the manifest, and what leads from it to pages, may take.
const BYTES_MAX: u64 = 64 << 20;

/// Memory that it may take at any time, a signature included: 42 MB, and 61 MB with a copy that grows.
const PEAK_BYTES_MAX: u64 = 56 << 20;
/// Processor time of one call, of a build without optimization. A look at the whole manifest for each call takes more.
const CALL_TIME_MAX: Duration = Duration::from_secs(1);

/// Memory of a process (proc(5), `status`): `RssAnon` is that beside maps, `VmHWM` the peak of all.
fn memory(neve: &Neve, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", neve.pid())).expect("it runs");
    let line = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let line = line.expect("the kernel says").trim().trim_end_matches(" kB");
    line.parse::<u64>().expect("a number") << 10
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

/// Replaces the manifest of a bucket by a grown one.
fn grow(bucket: &Bucket) -> u64 {
    let path = bucket.dir.path().join("manifest.json");
    let manifest = serde_json::from_slice(&fs::read(&path).expect("it is there")).expect("JSON");
    fs::write(&path, grown(manifest).to_string()).expect("it is ours");
    fs::metadata(&path).expect("it is there").len()
}

/// A replica that has answered, its directory, and its present and its highest memory. The peak has pages of files,
/// which two replicas of one binary have alike: their difference is that of the other memory.
fn start(bucket: &Bucket, trust: &str) -> (TempDir, Neve, [u64; 2]) {
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &["--archive-trust", trust]);
    let (begun, before) = (Instant::now(), replica.processor_time());
    let answer = replica.client().call("eth_getBlockByNumber", "[\"0x3\",true]");
    let (took, computed) = (begun.elapsed(), replica.processor_time().saturating_sub(before));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(computed < CALL_TIME_MAX, "{computed:?} of processor time");
    let counts = ["pages", "segment", "span"].map(|kind| reads(&replica, kind));
    assert!(counts[0] == 1 && counts[1] <= 2 && counts[2] == 0, "{counts:?}");
    serves(&replica, &bucket.node, 0..=LAST);
    let taken = ["RssAnon", "VmHWM"].map(|line| memory(&replica, line));
    println!("first answer {took:?}, {computed:?} of processor time; memory {taken:?}");
    (dir, replica, taken)
}

#[test]
fn manifest_of_the_whole_history_takes_few_reads_and_little_memory() {
    let bucket = Bucket::new(Helicon::Never);
    let (_dir, replica, small) = start(&bucket, &bucket.trust());
    replica.stop_in_time();
    let bytes = grow(&bucket);
    let (dir, replica, large) = start(&bucket, &bucket.trust());
    assert_eq!(replica.health()["archive"]["answers"]["max_height"], SEGMENTS * 32 - 1);
    assert!(large[0] < small[0] + BYTES_MAX, "{small:?} to {large:?} bytes");
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
        "manifest {bytes} bytes; first answer {:?} from the start of the program, {:?} of processor time",
        begun.elapsed(),
        replica.processor_time()
    );
    replica.stop_in_time();
}

/// A signature is of all bytes of the manifest, so that they are in memory again while it is checked.
#[test]
fn signed_manifest_of_the_whole_history_takes_little_memory_at_any_time() {
    let (bucket, keys) = (Bucket::new(Helicon::Never), fresh_dir());
    let (path, trust) = key(keys.path());
    let place = bucket.place();
    let sign = || {
        let digest = bucket.trust();
        let init = ["archive", "init", "--sign-existing", &digest, "--archive-sign-key", &path];
        let signed = run(&[&init[..], &[&place]].concat());
        assert!(signed.status.success(), "{}", String::from_utf8_lossy(&signed.stderr));
    };
    sign();
    let (_dir, replica, small) = start(&bucket, &trust);
    replica.stop_in_time();
    grow(&bucket);
    sign();
    let (_dir, replica, large) = start(&bucket, &trust);
    assert_eq!(replica.health()["archive"]["answers"]["max_height"], SEGMENTS * 32 - 1);
    assert!(large[1] < small[1] + PEAK_BYTES_MAX, "{small:?} to {large:?} bytes");
    replica.stop_in_time();
}
