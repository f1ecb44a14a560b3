//! Faults of an archive that heights are read from: nothing false is served, and all else goes on.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use neve_devnet::Helicon;
use serde_json::Value;

use super::bucket::{Bucket, FIRST, LAST, reads};
use super::object_server::{Mode, ObjectServer};
use crate::support::client::Response;
use crate::support::neve::{LIMIT, Neve, fresh_dir, run};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::serves;

fn block(neve: &Neve, height: u64) -> Response {
    neve.client().call("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]"))
}

#[test]
fn flipped_byte_is_never_served_and_all_else_goes_on() {
    let bucket = Bucket::new(Helicon::Never);
    let path = &bucket.objects("segment")[1];
    let good = fs::read(path).expect("it can be read");
    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        fs::write(path, &bad).expect("it is ours");
        let dir = fresh_dir();
        let replica = bucket.replica(dir.path(), &[]);
        let mut refused = 0;
        for height in 32..64 {
            let answer = block(&replica, height);
            let theirs = block(&bucket.source, height).text();
            assert!(answer.status == 421 || answer.text() == theirs, "byte {at}, height {height}");
            refused += u32::from(answer.status == 421);
        }
        assert!(refused > 0, "byte {at}");
        // Each attempt asks once more.
        let pages = replica.count("neve_archive_refused_pages_total");
        assert!(pages >= 2 * u64::from(refused), "byte {at}: {pages} pages, {refused} refused");
        assert_evidence(&replica, dir.path());
        serves(&replica, &bucket.node, (0..32).chain(FIRST..=LAST));
        fs::write(path, &good).expect("it is ours");
        serves(&replica, &bucket.node, 32..64);
        replica.stop_in_time();
    }
}

/// The page is kept, with the byte that is false.
fn assert_evidence(replica: &Neve, dir: &Path) {
    replica.wait_for_count("neve_evidence_files_total", 1);
    let kept = fs::read_dir(dir.join("store/evidence")).expect("it is there");
    let kept: Vec<_> = kept.map(|entry| entry.expect("it can be listed").path()).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let contents = fs::read(&kept[0]).expect("it can be read");
    let end = contents.iter().position(|byte| *byte == b'\n').expect("a line");
    let head: Value = serde_json::from_slice(&contents[..end]).expect("JSON");
    assert_eq!(head["verdict"], "archive_page");
    assert!(head["object"].as_str().is_some_and(|name| name.contains("/segment-32-")), "{head}");
    assert_eq!(head["bytes"], contents.len() - end - 1);
}

/// Each page of each object that heights below the tail are read from, with a false byte.
#[test]
fn flipped_byte_of_any_page_gives_no_false_answer() {
    const PAGE: usize = 64 << 10;
    let bucket = Bucket::new(Helicon::Never);
    let logs = r#"[{"fromBlock":"0x0","toBlock":"0x3f"}]"#;
    let all = bucket.source.client().result("eth_getLogs", logs);
    let address = &all.as_array().expect("a list")[0]["address"];
    let logs_of = format!(r#"[{{"fromBlock":"0x0","toBlock":"0x3f","address":{address}}}]"#);
    let segments = bucket.objects("segment").into_iter().take(2);
    let others = ["span", "pages", "filter", "terms"].map(|kind| bucket.objects(kind));
    let (mut pages, mut misses) = (0, 0);
    for path in segments.chain(others.into_iter().flatten()) {
        let good = fs::read(&path).expect("it can be read");
        for at in (0..good.len()).step_by(PAGE) {
            let mut bad = good.clone();
            let flipped = at + (pages * 7919) % PAGE.min(good.len() - at);
            bad[flipped] ^= 1 << (pages % 8);
            fs::write(&path, bad).expect("it is ours");
            let dir = fresh_dir();
            let replica = bucket.replica_without_filters(dir.path());
            let mut ask = |method: &str, params: &str| {
                let (ours, theirs) = (
                    replica.client().call(method, params),
                    bucket.source.client().call(method, params),
                );
                misses += u32::from(ours.status == 421);
                let is_right = ours.status == 421 || ours.text() == theirs.text();
                assert!(is_right, "{} byte {flipped}: {method} {params}", path.display());
            };
            for height in (0..64).step_by(5) {
                let hash = bucket.node.block(height).expect("it is there").hash();
                ask("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]"));
                ask("eth_getBlockReceipts", &format!("[\"{height:#x}\"]"));
                ask("eth_getBlockByHash", &format!("[\"{hash:#x}\",false]"));
            }
            ask("eth_getLogs", logs);
            ask("eth_getLogs", &logs_of);
            ask("eth_feeHistory", r#"["0x10","0x30",[10,90]]"#);
            serves(&replica, &bucket.node, FIRST..=LAST);
            replica.stop_in_time();
            pages += 1;
        }
        fs::write(&path, good).expect("it is ours");
    }
    assert!(pages >= 6 && misses > 0, "{pages} pages, {misses} misses");
    println!("{pages} pages flipped, {misses} misses, no false answer");
}

#[test]
fn object_that_is_cut_off_stops_no_read_of_others() {
    let bucket = Bucket::new(Helicon::Never);
    let path = &bucket.objects("segment")[1];
    let good = fs::read(path).expect("it can be read");
    fs::write(path, &good[..10]).expect("it is ours");
    let server = ObjectServer::start(bucket.dir.path());
    for more in [None, Some(&server)] {
        let dir = fresh_dir();
        let replica = match more {
            None => bucket.replica(dir.path(), &[]),
            Some(server) => bucket.replica_of(dir.path(), server, &[]),
        };
        for height in 32..44 {
            assert_eq!(block(&replica, height).status, 421, "{height}");
        }
        assert_eq!(replica.count("neve_archive_breaker_openings_total"), 0);
        serves(&replica, &bucket.node, (0..32).chain(FIRST..=LAST));
        replica.stop_in_time();
    }
}

#[test]
fn removed_object_is_a_miss() {
    let bucket = Bucket::new(Helicon::Never);
    let objects = [bucket.objects("segment")[1].clone(), bucket.objects("pages")[0].clone()];
    for (path, absent) in objects.iter().zip([32..64, 0..64]) {
        let kept = fs::read(path).expect("it can be read");
        fs::remove_file(path).expect("it is ours");
        let dir = fresh_dir();
        let replica = bucket.replica(dir.path(), &[]);
        for height in [0, 31, 32, 63] {
            let answer = block(&replica, height);
            let expected = if absent.contains(&height) { 421 } else { 200 };
            assert_eq!(answer.status, expected, "{} {height}", path.display());
        }
        let series = "neve_archive_read_errors_total{reason=\"absent\"}";
        assert!(replica.metric(series) > Some(0.0), "{}", path.display());
        serves(&replica, &bucket.node, FIRST..=LAST);
        fs::write(path, kept).expect("it is ours");
        serves(&replica, &bucket.node, 0..64);
        replica.stop_in_time();
    }
}

/// To open a FIFO waits for a writer, as a read of a stalled mount waits.
#[test]
fn fifo_in_place_of_an_object_is_absent_and_holds_up_neither_reads_nor_the_end() {
    let bucket = Bucket::new(Helicon::Never);
    for path in [&bucket.objects("segment")[1], &bucket.objects("pages")[0]] {
        let kept = fs::read(path).expect("it can be read");
        fs::remove_file(path).expect("it is ours");
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).expect("it can be made");
        let dir = fresh_dir();
        let replica = bucket.replica(dir.path(), &[]);
        assert_eq!(block(&replica, 40).status, 421, "{}", path.display());
        serves(&replica, &bucket.node, FIRST..=LAST);
        replica.stop_in_time();
        let verified = run(&["archive", "verify", &bucket.place()]);
        let text = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert_eq!(verified.status.code(), Some(1), "{text}");
        assert!(text.contains("is not in the object store"), "{text}");
        fs::remove_file(path).expect("it is ours");
        fs::write(path, kept).expect("it is ours");
    }
}

#[test]
fn store_that_fails_is_a_miss_in_bounded_time_and_the_tail_goes_on() {
    let bucket = Bucket::new(Helicon::Never);
    let server = ObjectServer::start(bucket.dir.path());
    for mode in [Mode::Closes, Mode::SlowDown, Mode::Silent] {
        let dir = fresh_dir();
        let replica = bucket.replica_of(dir.path(), &server, &[]);
        assert_eq!(block(&replica, 3).status, 200);
        assert_eq!(replica.health()["archive"]["breaker"], "closed");
        server.set(mode);
        for attempt in 0..6 {
            let begun = Instant::now();
            let answer = block(&replica, 40);
            assert_eq!(answer.status, 421, "{}", answer.text());
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(begun.elapsed() < Duration::from_secs(30), "attempt {attempt}");
        }
        let resting = "neve_archive_read_errors_total{reason=\"resting\"}";
        assert!(replica.metric(resting) > Some(0.0), "the store is left alone");
        assert_ne!(replica.health()["archive"]["breaker"], "closed");
        assert_eq!(replica.count("neve_archive_breaker_openings_total"), 1);
        let asked = server.gets();
        let begun = reads(&replica, "segment");
        (0..20).for_each(|_| assert_eq!(block(&replica, 40).status, 421));
        assert_eq!(reads(&replica, "segment"), begun, "probes alone try the store");
        let document = replica.client().get("/v1/block/40");
        assert_eq!((document.status, document.header("retry-after")), (421, Some("1")));
        assert!(server.gets() - asked < 20, "requests do not reach a store that fails");
        assert_eq!(block(&replica, 3).status, 200, "it is here");
        serves(&replica, &bucket.node, FIRST..=LAST);
        server.set(Mode::Serves);
        let again = wait_until("an answer", LIMIT, || match block(&replica, 40).status {
            200 => Ok(()),
            status => Err(Miss::NotYet(status.to_string())),
        });
        again.expect("it comes back");
        assert_eq!(replica.health()["archive"]["breaker"], "closed");
        replica.stop_in_time();
    }
}

#[test]
fn pages_survive_a_restart_and_are_compared_again() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    serves(&replica, &bucket.node, 0..64);
    assert!(replica.count("neve_archive_cache_bytes") > 0);
    replica.stop_in_time();
    let replica = bucket.replica(dir.path(), &[]);
    serves(&replica, &bucket.node, 0..64);
    let reads_of = |neve: &Neve| ["segment", "span", "pages"].map(|kind| reads(neve, kind));
    assert_eq!(reads_of(&replica), [0, 0, 0]);
    replica.stop_in_time();
    // A page that changed on the disk is read again.
    let kept = fs::read_dir(dir.path().join("store/archive")).expect("it is there");
    for path in kept.map(|entry| entry.expect("it can be listed").path()) {
        let mut bytes = fs::read(&path).expect("it can be read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).expect("it is ours");
    }
    let replica = bucket.replica(dir.path(), &[]);
    serves(&replica, &bucket.node, 0..64);
    assert!(reads_of(&replica)[0] > 0);
    replica.stop_in_time();
}

#[test]
fn disk_that_takes_no_pages_leaves_them_in_memory() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    fs::create_dir_all(dir.path().join("store")).expect("it can be made");
    fs::write(dir.path().join("store/archive"), "no directory").expect("it can be written");
    let replica = bucket.replica(dir.path(), &[]);
    serves(&replica, &bucket.node, 0..64);
    let first = reads(&replica, "segment");
    serves(&replica, &bucket.node, 0..64);
    assert_eq!((reads(&replica, "segment"), replica.count("neve_archive_cache_bytes")), (first, 0));
    replica.stop_in_time();
}

#[test]
fn pages_of_many_readers_are_read_once() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    thread::scope(|threads| {
        for _ in 0..16 {
            threads.spawn(|| assert_eq!(block(&replica, 40).status, 200));
        }
    });
    assert_eq!(reads(&replica, "segment"), 1);
    replica.stop_in_time();
}

#[test]
fn manifest_that_is_not_trusted_is_not_read_from() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    assert_eq!(block(&replica, 3).status, 200);
    replica.stop_in_time();
    let other = format!("sha256:{}", "ab".repeat(32));
    for trust in [other.as_str(), "prove"] {
        let replica = bucket.trusting(fresh_dir().path(), trust);
        assert_eq!(block(&replica, 3).status, 421, "{trust}");
        assert!(replica.health()["archive"]["answers"].is_null());
        replica.stop_in_time();
    }
}
