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

const PAGE: usize = 64 << 10;

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

/// Cut off within the page that is read, and before it: S3 says 416 then.
#[test]
fn object_that_is_cut_off_stops_no_read_of_others() {
    let bucket = Bucket::large();
    let path = &bucket.objects("segment")[1];
    let good = fs::read(path).expect("it can be read");
    let server = ObjectServer::start(bucket.dir.path());
    for (length, from_directory) in [(10, true), (10, false), (2 * PAGE, true), (2 * PAGE, false)] {
        fs::write(path, &good[..length]).expect("it is ours");
        let dir = fresh_dir();
        let replica = if from_directory {
            bucket.replica(dir.path(), &[])
        } else {
            bucket.replica_of(dir.path(), &server, &[])
        };
        let statuses: Vec<_> = (32..64).map(|height| block(&replica, height).status).collect();
        let last = statuses.iter().rev().take(6).all(|status| *status == 421);
        assert!(last, "{length} bytes: {statuses:?}");
        assert_eq!(statuses[0] == 200, length > PAGE, "the front is whole: {statuses:?}");
        let changed = replica.count("neve_archive_read_errors_total{reason=\"changed\"}");
        let pages = replica.count("neve_archive_refused_pages_total");
        assert!(pages >= 12 && (changed >= 12 || length < PAGE), "{changed} reads, {pages} pages");
        assert_eq!(replica.count("neve_archive_breaker_openings_total"), 0);
        serves(&replica, &bucket.node, (0..32).chain(FIRST..=LAST));
        fs::write(path, &good).expect("it is ours");
        serves(&replica, &bucket.node, 32..64);
        replica.stop_in_time();
    }
}

/// Terms without any entry would say that no segment has the address.
#[test]
fn terms_that_are_changed_or_absent_are_not_believed() {
    let bucket = Bucket::new(Helicon::Never);
    let logs = r#"[{"fromBlock":"0x0","toBlock":"0x3f"}]"#;
    let all = bucket.source.client().result("eth_getLogs", logs);
    let address = &all.as_array().expect("a list")[0]["address"];
    let logs = format!(r#"[{{"fromBlock":"0x0","toBlock":"0x3f","address":{address}}}]"#);
    let theirs = bucket.source.client().call("eth_getLogs", &logs).text();
    assert!(theirs.contains("blockHash"), "{theirs}");
    let path = &bucket.objects("terms")[0];
    let good = fs::read(path).expect("it can be read");
    for bad in [Some(vec![0; good.len()]), None] {
        match &bad {
            Some(bad) => fs::write(path, bad).expect("it is ours"),
            None => fs::remove_file(path).expect("it is ours"),
        }
        let dir = fresh_dir();
        let replica = bucket.replica(dir.path(), &[]);
        let ours = replica.client().call("eth_getLogs", &logs);
        assert_eq!((ours.status, ours.text()), (200, theirs.clone()));
        assert!(reads(&replica, "terms") > 0);
        let pages = replica.count("neve_archive_refused_pages_total");
        assert_eq!(pages > 0, bad.is_some(), "{pages}");
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

/// Waits until the breaker is closed, or is not. /health shows it a moment after the reads.
fn wait_for_breaker(replica: &Neve, is_closed: bool) {
    replica.wait(&format!("a breaker, closed: {is_closed}"), |health| {
        ((health["archive"]["breaker"] == "closed") == is_closed).then_some(())
    });
}

/// Modes in which no read has an outcome.
const FAILING: [Mode; 6] =
    [Mode::Closes, Mode::SlowDown, Mode::Silent, Mode::CutsBodies, Mode::Resets, Mode::Trickles];

#[test]
fn store_that_fails_is_a_miss_in_bounded_time_and_the_tail_goes_on() {
    let bucket = Bucket::new(Helicon::Never);
    let server = ObjectServer::start(bucket.dir.path());
    for mode in FAILING {
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
        let paused = "neve_archive_read_errors_total{reason=\"paused\"}";
        assert!(replica.metric(paused) > Some(0.0), "the store is left alone");
        wait_for_breaker(&replica, false);
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
        wait_for_breaker(&replica, true);
        replica.stop_in_time();
    }
}

#[test]
fn network_that_cuts_each_third_body_gives_all_heights_in_some_attempts() {
    let bucket = Bucket::large();
    let server = ObjectServer::start(bucket.dir.path());
    let dir = fresh_dir();
    let replica = bucket.replica_of(dir.path(), &server, &[]);
    server.set(Mode::CutsSome);
    let mut misses = 0;
    for height in (0..64).rev() {
        let served = wait_until("an answer", LIMIT, || {
            let answer = block(&replica, height);
            if answer.status == 200 {
                return Ok(answer.text());
            }
            misses += 1;
            assert_eq!((answer.status, answer.header("retry-after")), (421, Some("1")));
            Err(Miss::NotYet(answer.status.to_string()))
        });
        assert_eq!(served.expect("it comes"), block(&bucket.source, height).text(), "{height}");
    }
    assert!(
        misses > 0
            && replica.metric("neve_archive_read_errors_total{reason=\"failed\"}") > Some(0.0)
    );
    assert_eq!(replica.count("neve_archive_breaker_openings_total"), 0, "never three in a row");
    replica.stop_in_time();
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

/// The store holds the first read until all readers have come.
#[test]
fn pages_of_many_readers_are_read_once() {
    const READERS: u64 = 16;
    let bucket = Bucket::large();
    let server = ObjectServer::start(bucket.dir.path());
    let dir = fresh_dir();
    let replica = bucket.replica_of(dir.path(), &server, &[]);
    assert_eq!(block(&replica, 32).status, 200, "the front and the page lists");
    let theirs = |height| block(&bucket.source, height).text();
    let mut heights = (40..64).rev().step_by(5);
    let is_read_once = || {
        let height = heights.next().expect("a machine that is too slow each time");
        let (before, requests) = (reads(&replica, "segment"), "neve_http_requests_total");
        let arrived = replica.count(requests) + READERS;
        server.set(Mode::Holds);
        let statuses: Vec<_> = thread::scope(|threads| {
            let mut asking = Vec::new();
            asking.resize_with(READERS as usize, || threads.spawn(|| block(&replica, height)));
            replica.wait("all readers", |_| (replica.count(requests) >= arrived).then_some(()));
            server.set(Mode::Serves);
            asking.into_iter().map(|asking| asking.join().expect("no panic")).collect()
        });
        let are_served = statuses.iter().all(|answer| answer.status == 200);
        let all = (reads(&replica, "segment") - before, are_served);
        // A read that was held for over 3 seconds is given up.
        if !are_served || all.0 == 0 {
            return Err(Miss::NotYet(format!("height {height}: {all:?}")));
        }
        assert!(statuses.iter().all(|answer| answer.text() == theirs(height)), "{height}");
        Ok(all.0)
    };
    assert_eq!(wait_until("a height", LIMIT, is_read_once), Ok(1));
    replica.stop_in_time();
}

#[test]
fn manifest_that_is_not_trusted_is_not_read_from() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.trusting(dir.path(), &format!("sha256:{}", "ab".repeat(32)));
    replica.wait_for_log("archive manifest refused");
    for height in 0..64 {
        assert_eq!(block(&replica, height).status, 421, "{height}");
    }
    assert!(replica.health()["archive"]["answers"].is_null());
    replica.stop_in_time();
}
