//! Replicas: neves that take whole segments from an archive, with an upstream and without one.

use std::fs;
use std::path::{Path, PathBuf};

use neve_devnet::{Config, DevnetThread, Helicon};
use tempfile::TempDir;

use super::sources::{digest, wait_for_first};
use crate::store::archive::{objects, packed_store, pushed};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{Neve, fresh_dir, run};
use crate::support::served::serves;

const RANGES: [&str; 2] = ["--segment-blocks", "32"];
/// Three whole ranges of 32 heights, and a part of another.
const HEAD: u64 = 110;

fn chain(helicon: Helicon) -> DevnetThread {
    chain_up_to(HEAD, helicon)
}

fn chain_up_to(head: u64, helicon: Helicon) -> DevnetThread {
    let config = Config::test().with_head(head).with_helicon(helicon);
    DevnetThread::start(config).expect("loopback has free ports")
}

/// A bucket with heights 0 to 95 of a chain, its URL, and their logs.
fn archived(node: &DevnetThread) -> (TempDir, String, String) {
    let (dir, bucket) = (fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let neve = packed_store(dir.path(), node, HEAD);
    wait_for_packed(&neve, 96);
    let logs = logs(&neve);
    neve.stop_in_time();
    assert_eq!(pushed(dir.path(), &[&place])["last"], 95);
    (bucket, place, logs)
}

fn anchor(node: &DevnetThread, height: u64) -> String {
    let block = node.block(height).expect("the chain has it");
    format!("{height}:{:#x}", block.hash())
}

/// A replica without an upstream.
fn replica(dir: &Path, place: &str, anchor: &str) -> Neve {
    let from = ["--archive", place, "--archive-anchor", anchor];
    Neve::start(dir, &[&from[..], &RANGES].concat())
}

/// A replica that follows the node from its head on.
fn follower(dir: &Path, place: &str, node: &DevnetThread) -> Neve {
    let url = node.base_url();
    let from = ["--archive", place, "--upstream", &url];
    Neve::start(dir, &[&from[..], &RANGES].concat())
}

fn received(neve: &Neve, outcome: &str) -> u64 {
    neve.count(&format!("neve_archive_received_segments_total{{outcome=\"{outcome}\"}}"))
}

fn segments(bucket: &Path) -> Vec<PathBuf> {
    let is_segment = |path: &PathBuf| path.display().to_string().contains("/segment-");
    let mut found: Vec<_> = objects(bucket).into_iter().filter(is_segment).collect();
    let first = |path: &PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        name.split('-').nth(1).and_then(|first| first.parse::<u64>().ok())
    };
    found.sort_by_key(first);
    assert_eq!(found.len(), 3);
    found
}

fn logs(neve: &Neve) -> String {
    let answer = neve.client().call("eth_getLogs", r#"[{"fromBlock":"0x0","toBlock":"0x5f"}]"#);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// Compares transactions and receipts by their hashes.
fn serves_transactions(neve: &Neve, node: &DevnetThread, heights: impl Iterator<Item = u64>) {
    let mut client = neve.client();
    let mut compared = 0;
    for block in heights.map(|height| node.block(height).expect("the chain has it")) {
        for (at, hash) in block.transactions().iter().enumerate() {
            for (method, theirs) in [
                ("eth_getTransactionByHash", block.transaction(at)),
                ("eth_getTransactionReceipt", block.receipt(at)),
            ] {
                let theirs = theirs.expect("the block has it");
                let theirs = String::from_utf8_lossy(&theirs).into_owned();
                let ours = client.call(method, &format!("[\"{hash:#x}\"]")).text();
                assert_eq!(
                    ours,
                    format!(
                        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{theirs}}}
"
                    )
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn replica_without_a_node_serves_what_is_archived() {
    let node = chain(Helicon::Never);
    let (_bucket, place, archived_logs) = archived(&node);
    let dir = fresh_dir();
    let neve = replica(dir.path(), &place, &anchor(&node, 95));
    wait_for_first(&neve, 0);
    serves(&neve, &node, 0..=95);
    serves_transactions(&neve, &node, 0..=95);
    assert_eq!(logs(&neve), archived_logs);
    assert_eq!(received(&neve, "accepted"), 3);
    let mut client = neve.client();
    let ready = client.get("/ready");
    assert_eq!((ready.status, ready.json()["ready"].as_bool()), (200, Some(true)));
    assert!(ready.text().contains("no upstream"), "{}", ready.text());
    for (method, params) in [
        ("eth_blockNumber", "[]"),
        ("eth_getBlockByNumber", "[\"latest\",false]"),
        ("eth_getBlockByNumber", "[\"0x60\",false]"),
        ("eth_getLogs", "[{\"fromBlock\":\"0x1\"}]"),
    ] {
        assert_eq!(client.call(method, params).status, 421, "{method} {params}");
    }
    let text = client.call("eth_blockNumber", "[]").text();
    assert!(text.contains("no upstream is followed (served: 0x0 to 0x5f)"), "{text}");
    neve.stop_in_time();
    // What is here is served without the archive, too.
    let neve = replica(dir.path(), "file:///", &anchor(&node, 95));
    serves(&neve, &node, 0..=95);
    assert_eq!(neve.client().call("eth_blockNumber", "[]").status, 421);
    neve.stop_in_time();
    let (_, first, last) = digest(dir.path());
    assert_eq!((first, last), (0.into(), 95.into()));
}

#[test]
fn doctor_says_whether_the_archive_has_the_anchor() {
    let node = chain(Helicon::Never);
    let (_bucket, place, _) = archived(&node);
    let (dir, empty) = (fresh_dir(), fresh_dir());
    let dir = dir.path().display().to_string();
    let said_with = |place: &str, anchor: &str, more: &[&str]| {
        let from = ["--archive", place, "--archive-anchor", anchor];
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "none"];
        let fixed = ["doctor", "--json", "--data-dir", &dir];
        let output = run(&[&fixed[..], &from, &ports, more].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("\"check\":\"archive\""));
        line.unwrap_or_else(|| panic!("no line of the archive: {text}")).to_owned()
    };
    let said = |place: &str, anchor: &str| said_with(place, anchor, &[]);
    let push = ["--archive-push", "--archive-sign-key", "/nowhere"];
    let unsigned = said_with(&place, &anchor(&node, 95), &push);
    let named = "--archive-sign-key /nowhere (flag): ";
    assert!(unsigned.contains("\"problem\"") && unsigned.contains(named), "{unsigned}");
    let good = said(&place, &anchor(&node, 95));
    assert!(good.contains("\"ok\"") && good.contains("heights 0 to 95"), "{good}");
    let above = said(&place, &anchor(&node, 96));
    assert!(above.contains("\"problem\"") && above.contains("without the anchor 96"), "{above}");
    let none = said(&format!("file://{}", empty.path().display()), &anchor(&node, 95));
    assert!(none.contains("\"problem\"") && none.contains("no manifest"), "{none}");
}

/// The anchor need not be the last block of a segment.
#[test]
fn replica_serves_nothing_above_its_anchor() {
    let node = chain(Helicon::Never);
    let (_bucket, place, _) = archived(&node);
    let dir = fresh_dir();
    let neve = replica(dir.path(), &place, &anchor(&node, 40));
    wait_for_first(&neve, 0);
    serves(&neve, &node, 0..=40);
    assert_eq!(neve.client().call("eth_getBlockByNumber", "[\"0x29\",true]").status, 421);
    assert_eq!(received(&neve, "accepted"), 2);
    // The alerts on a silent upstream and on an old head would fire for good.
    let metrics = neve.admin().get("/metrics").text();
    for name in ["\nneve_upstream_silence_seconds ", "\nneve_head_age_seconds "] {
        assert!(!metrics.contains(name), "{name}: {metrics}");
    }
    neve.stop_in_time();
}

/// Behind a header of Helicon the receipts of some heights are not proven yet.
#[test]
fn replica_serves_what_the_anchor_settles() {
    let node = chain(Helicon::At(50));
    let (_bucket, place, _) = archived(&node);
    let dir = fresh_dir();
    let neve = replica(dir.path(), &place, &anchor(&node, 95));
    wait_for_first(&neve, 0);
    let head = neve.health()["blocks"]["head"].as_u64().expect("a number");
    assert!((80..95).contains(&head), "{head}");
    assert_eq!(neve.health()["blocks"]["unsettled"], 0);
    serves(&neve, &node, 0..=head);
    assert_eq!(received(&neve, "accepted"), 3);
    neve.stop_in_time();
    // It has all that the anchor settles, and its answers stay in the form of Helicon.
    let neve = replica(dir.path(), &place, &anchor(&node, 95));
    neve.wait_for_count("neve_archive_received_segments_total{outcome=\"accepted\"}", 1);
    assert_eq!(neve.health()["blocks"]["head"], head);
    serves(&neve, &node, 0..=head);
    neve.stop_in_time();
}

/// Fills a store up to height 80 from a node that has no more.
fn begun(dir: &Path, helicon: Helicon) {
    let node = chain_up_to(80, helicon);
    let url = node.base_url();
    let neve = Neve::start(dir, &[&["--upstream", &url, "--start", "70"][..], &RANGES].concat());
    neve.wait_for_head(80);
    neve.stop_in_time();
}

#[test]
fn replica_goes_on_where_it_was_killed() {
    let node = chain(Helicon::Never);
    let (_bucket, place, _) = archived(&node);
    let dir = fresh_dir();
    begun(dir.path(), Helicon::Never);
    let neve = replica(dir.path(), &place, &anchor(&node, 95));
    neve.wait_for_head(95);
    serves(&neve, &node, 70..=95);
    neve.stop_in_time();
    assert_eq!(digest(dir.path()).2, 95);
}

#[test]
fn store_with_other_blocks_than_the_archive_stays_as_it_is() {
    let node = chain(Helicon::Never);
    let (_bucket, place, _) = archived(&node);
    let dir = fresh_dir();
    begun(dir.path(), Helicon::At(10));
    let neve = replica(dir.path(), &place, &anchor(&node, 95));
    let error = neve.wait("an error of the archive", |health| {
        health["archive"]["segments"]["error"].as_str().map(str::to_owned)
    });
    assert!(error.contains("use an empty --data-dir"), "{error}");
    assert_eq!(neve.health()["blocks"]["head"], 80);
    neve.stop_in_time();
    assert!(digest(dir.path()).2 == 80, "nothing was appended");
}

#[test]
fn replica_with_a_node_takes_history_from_the_archive() {
    for helicon in [Helicon::Never, Helicon::At(50)] {
        let node = chain(helicon);
        let (_bucket, place, _) = archived(&node);
        let dir = fresh_dir();
        let neve = follower(dir.path(), &place, &node);
        neve.wait_for_head(HEAD);
        node.advance(10);
        wait_for_first(&neve, 0);
        neve.wait_for_head(HEAD + 10);
        serves(&neve, &node, 0..=HEAD + 10);
        assert_eq!(received(&neve, "accepted"), 3, "{helicon:?}");
        assert_eq!(neve.health()["archive"]["max_height"], 95);
        neve.stop_in_time();
    }
}

/// Each file takes a map of the kernel, and stays as it came.
#[test]
fn archive_with_ranges_of_another_length_is_not_taken() {
    let node = chain(Helicon::Never);
    let (_bucket, place, _) = archived(&node);
    let (dir, url) = (fresh_dir(), node.base_url());
    let from = ["--archive", &place, "--segment-blocks", "16"];
    let neve = Neve::start(dir.path(), &[&from[..], &["--upstream", &url]].concat());
    wait_for_first(&neve, 0);
    let error = |neve: &Neve| neve.health()["archive"]["segments"]["error"].to_string();
    let reason = "have 32 heights, this store's 16: same --segment-blocks?";
    assert!(error(&neve).contains(reason), "{}", error(&neve));
    assert_eq!((received(&neve, "accepted"), received(&neve, "rejected")), (0, 0));
    serves(&neve, &node, (0..=HEAD).step_by(7));
    neve.stop_in_time();
    let (dir, anchor) = (fresh_dir(), anchor(&node, 95));
    let neve = Neve::start(dir.path(), &[&from[..], &["--archive-anchor", &anchor]].concat());
    neve.wait("the reason", |_| error(&neve).contains(reason).then_some(()));
    assert_eq!(neve.client().get("/ready").status, 503);
    neve.stop_in_time();
}

/// Heights that the archive does not have come from the node, one by one.
#[test]
fn damaged_or_absent_segment_is_never_served() {
    let node = chain(Helicon::Never);
    let (bucket, place, _) = archived(&node);
    let files = segments(bucket.path());
    let good: Vec<_> = files.iter().map(|file| fs::read(file).expect("it can be read")).collect();
    let restore = || {
        files.iter().zip(&good).for_each(|(file, good)| fs::write(file, good).expect("it is ours"));
    };
    for (outcome, damage) in [("changed", Some(0x40)), ("absent", None)] {
        match damage {
            Some(flip) => {
                let mut bad = good[1].clone();
                let middle = bad.len() / 2;
                bad[middle] ^= flip;
                fs::write(&files[1], bad).expect("it is ours");
            }
            None => fs::remove_file(&files[1]).expect("it is there"),
        }
        let dir = fresh_dir();
        let neve = follower(dir.path(), &place, &node);
        neve.wait_for_head(HEAD);
        wait_for_first(&neve, 0);
        serves(&neve, &node, 0..=HEAD);
        assert!(received(&neve, outcome) > 0, "{outcome}");
        assert_eq!(received(&neve, "accepted"), 2, "the others");
        neve.stop_in_time();
        let dir = fresh_dir();
        let neve = replica(dir.path(), &place, &anchor(&node, 95));
        let error = neve.wait("an error of the archive", |health| {
            health["archive"]["segments"]["error"].as_str().map(str::to_owned)
        });
        assert!(error.contains("segment-32-"), "{error}");
        serves(&neve, &node, 64..=95);
        assert_eq!(neve.client().call("eth_getBlockByNumber", "[\"0x3f\",true]").status, 421);
        neve.stop_in_time();
        restore();
    }
}

/// No later segment says that the archive works.
#[test]
fn error_of_a_segment_ends_once_its_heights_are_here() {
    let node = chain(Helicon::Never);
    let (bucket, place, _) = archived(&node);
    fs::remove_file(&segments(bucket.path())[0]).expect("it is there");
    let dir = fresh_dir();
    let neve = follower(dir.path(), &place, &node);
    neve.wait_for_log("archive failed");
    wait_for_first(&neve, 0);
    neve.wait("the end of the error", |health| {
        health["archive"]["segments"]["error"].is_null().then_some(())
    });
    neve.stop_in_time();
}

/// A writer of the bucket may lie with right digests.
#[test]
fn forged_segment_is_rejected() {
    let node = chain(Helicon::Never);
    let (bucket, place, _) = archived(&node);
    let manifest = bucket.path().join("manifest.json");
    let good = fs::read_to_string(&manifest).expect("it can be read");
    // The segment of other heights under this one's name: its digest is right in its own name only.
    let files = segments(bucket.path());
    let swapped = fs::read(&files[0]).expect("it can be read");
    let of = |path: &PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let digest = name.rsplit('-').next().expect("a digest").to_owned();
        (digest, fs::metadata(path).expect("it is there").len())
    };
    let ((digest0, bytes0), (digest1, bytes1)) = (of(&files[0]), of(&files[1]));
    let forged = good.replace(
        &format!("\"bytes\":{bytes1},\"digest\":\"{digest1}\""),
        &format!("\"bytes\":{bytes0},\"digest\":\"{digest0}\""),
    );
    assert_ne!(forged, good);
    fs::write(&manifest, forged).expect("it is ours");
    let name = format!("segment-32-{digest0}");
    let folder = files[1].ancestors().nth(2).expect("a folder").join(&digest0[..2]);
    fs::create_dir_all(&folder).expect("it can be made");
    fs::write(folder.join(name), swapped).expect("it is ours");
    let dir = fresh_dir();
    let neve = follower(dir.path(), &place, &node);
    neve.wait_for_head(HEAD);
    wait_for_first(&neve, 0);
    serves(&neve, &node, 0..=HEAD);
    assert_eq!(received(&neve, "rejected"), 1);
    let metrics = neve.admin().get("/metrics").text();
    assert!(metrics.contains("neve_blocks_rejected_total{"), "for the alert NeveFalseData");
    neve.stop_in_time();
}

#[test]
fn anchor_that_contradicts_the_store_is_said() {
    let node = chain(Helicon::Never);
    let (_bucket, place, _) = archived(&node);
    let dir = fresh_dir();
    let neve = replica(dir.path(), &place, &anchor(&node, 95));
    wait_for_first(&neve, 64);
    neve.stop_in_time();
    let neve = replica(dir.path(), &place, &format!("80:0x{}", "22".repeat(32)));
    neve.wait_for_log("archive failed");
    let error = neve.health()["archive"]["segments"]["error"].to_string();
    assert!(error.contains("anchor at height 80: its block is 0x"), "{error}");
    neve.stop_in_time();
}

#[test]
fn anchor_that_the_archive_does_not_have_is_said() {
    let node = chain(Helicon::Never);
    let (_bucket, place, _) = archived(&node);
    let zeros = "0".repeat(64);
    for (anchor, expected) in [
        (anchor(&node, 100), "the archive has no block 100; it has 0 to 95"),
        (format!("70:0x{zeros}"), "not that of --archive-anchor"),
    ] {
        let dir = fresh_dir();
        let neve = replica(dir.path(), &place, &anchor);
        let error = neve.wait("an error of the archive", |health| {
            health["archive"]["segments"]["error"].as_str().map(str::to_owned)
        });
        assert!(error.contains(expected), "{error}");
        assert_eq!(neve.client().get("/ready").status, 503);
        assert_eq!(neve.client().call("eth_getBlockByNumber", "[\"0x1\",true]").status, 421);
        neve.stop_in_time();
    }
}

#[test]
fn archive_of_another_chain_is_left_alone() {
    let node = chain(Helicon::Never);
    let mut config = Config::test().with_head(HEAD);
    config.chain.chain_id += 1;
    let other = DevnetThread::start(config).expect("loopback has free ports");
    let (_bucket, place, _) = archived(&other);
    let dir = fresh_dir();
    let neve = follower(dir.path(), &place, &node);
    neve.wait_for_head(HEAD);
    wait_for_first(&neve, 0);
    serves(&neve, &node, 0..=HEAD);
    assert_eq!(received(&neve, "accepted"), 0);
    let error = neve.health()["archive"]["segments"]["error"].to_string();
    assert!(error.contains("it has chain"), "{error}");
    neve.stop_in_time();
}

#[test]
fn archive_without_a_manifest_holds_nothing_up() {
    let (node, bucket, dir) = (chain(Helicon::Never), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let neve = follower(dir.path(), &place, &node);
    neve.wait_for_head(HEAD);
    wait_for_first(&neve, 0);
    serves(&neve, &node, 0..=HEAD);
    let error = neve.health()["archive"]["segments"]["error"].to_string();
    assert!(error.contains("no manifest"), "{error}");
    neve.stop_in_time();
}
