//! `neve serve --archive-push`: ranges go to the archive as they are packed, and eviction waits for it.

use std::fs;
use std::path::Path;

use neve_devnet::DevnetThread;

use crate::store::archive::{HEAD, archive, devnet, packed_store, verified};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

fn pushing(dir: &Path, node: &DevnetThread, place: &str, more: &[&str]) -> Neve {
    pushing_from(dir, node, place, &[&["--start", "0"], more].concat())
}

fn pushing_from(dir: &Path, node: &DevnetThread, place: &str, more: &[&str]) -> Neve {
    Neve::start(dir, &[&flags(&node.base_url(), place), more].concat())
}

fn flags<'a>(url: &'a str, place: &'a str) -> Vec<&'a str> {
    let push = ["--unpacked-bytes", "0B", "--archive", place, "--archive-push"];
    [&["--upstream", url, "--segment-blocks", "32"][..], &push].concat()
}

/// Waits until all of these heights are in the archive: the newest range can be packed and pushed first.
fn wait_for_archived(neve: &Neve, first: u64, last: u64) {
    neve.wait("the push", |health| {
        let push = &health["archive"]["push"];
        let is_all = push["min_height"] == first && push["max_height"] == last;
        let is_all = is_all && push["backlog"]["heights"] == 0;
        (is_all && push["error"].is_null()).then_some(())
    });
}

/// Waits until at least so many lost heights are counted. Clients miss them a moment earlier.
fn wait_for_lost(neve: &Neve, heights: u64) {
    let lost = || neve.count("neve_archive_lost_heights_total");
    neve.wait("lost heights", |_| (lost() >= heights).then_some(()));
}

#[test]
fn ranges_are_pushed_as_they_are_packed() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let neve = pushing(dir.path(), &node, &place, &[]);
    neve.wait_for_head(HEAD);
    wait_for_archived(&neve, 0, 95);
    node.advance(60);
    neve.wait_for_head(HEAD + 60);
    wait_for_archived(&neve, 0, 159);
    assert!(neve.count("neve_archive_pushes_total{outcome=\"done\"}") > 0);
    assert_eq!(neve.metric("neve_archive_push_failing"), Some(0.0));
    assert_eq!(neve.metric("neve_archive_backlog_bytes"), Some(0.0));
    assert!(neve.metric("neve_archive_manifest_put_timestamp_seconds") > Some(1.7e9));
    let puts = "neve_archive_requests_total{operation=\"put\",outcome=\"done\"}";
    assert!(neve.count(puts) > 5, "five segments and their spans");
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["segments"], &summary["last"]), (0, &5.into(), &159.into()));
    serves(&neve, &node, 0..=HEAD + 60);
    neve.stop_in_time();
}

/// Heights below the first one come later, and join the archive at its lower end.
#[test]
fn backfilled_ranges_are_pushed_below_the_others() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let neve = pushing_from(dir.path(), &node, &place, &["--start", "70", "--backfill-to", "0"]);
    wait_for_archived(&neve, 0, 95);
    serves(&neve, &node, 0..=HEAD);
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["segments"]), (0, &3.into()), "{summary}");
    assert_eq!((&summary["first"], &summary["last"]), (&0.into(), &95.into()), "{summary}");
    neve.stop_in_time();
}

/// The manifest cannot be read, so nothing is pushed.
#[test]
fn eviction_waits_for_the_archive() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let manifest = bucket.path().join("manifest.json");
    fs::write(&manifest, r#"{"version":1}"#).expect("it can be written");
    let neve = pushing(dir.path(), &node, &place, &["--retain-blocks", "40"]);
    neve.wait_for_log("archive push failed");
    node.advance(100);
    neve.wait_for_head(HEAD + 100);
    neve.wait("segments that wait", |_| {
        (neve.metric("neve_archive_held_bytes") > Some(0.0)).then_some(())
    });
    assert_eq!(neve.health()["blocks"]["min_height"], 0);
    neve.wait("the backlog", |health| {
        let backlog = &health["archive"]["push"]["backlog"];
        let has_some = backlog["heights"].as_u64() >= Some(32) && backlog["bytes"] != 0;
        has_some.then_some(())
    });
    assert!(neve.metric("neve_archive_backlog_heights") >= Some(32.0));
    assert_eq!(neve.metric("neve_archive_push_failing"), Some(1.0));
    let error = &neve.health()["archive"]["push"]["error"];
    assert!(error.as_str().is_some_and(|error| error.contains("version 1")), "{error}");
    fs::remove_file(&manifest).expect("it is ours");
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64() >= Some(160)).then_some(())
    });
    assert_eq!(neve.count("neve_archive_lost_heights_total"), 0);
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["first"]), (0, &0.into()), "{summary}");
    neve.stop_in_time();
}

/// The file system of the archive is not mounted at the start.
#[test]
fn restart_without_the_directory_begins_no_other_archive() {
    let (node, dir, parent) = (devnet(), fresh_dir(), fresh_dir());
    let [bucket, away] = ["archive", "away"].map(|name| parent.path().join(name));
    fs::create_dir(&bucket).expect("it can be made");
    let place = format!("file://{}", bucket.display());
    let neve = pushing(dir.path(), &node, &place, &[]);
    wait_for_archived(&neve, 0, 95);
    neve.stop_in_time();
    fs::rename(&bucket, &away).expect("it is ours");
    fs::create_dir(&bucket).expect("it can be made");
    node.advance(60);
    let neve = pushing(dir.path(), &node, &place, &[]);
    wait_for_packed(&neve, 160);
    let error = neve
        .wait("an error", |health| health["archive"]["push"]["error"].as_str().map(str::to_owned));
    let memory = dir.path().join("store/archive-newest-");
    for part in [&format!("is the file system of {place} mounted?"), "seen manifest ", "remove "] {
        assert!(error.contains(part), "{error}");
    }
    assert!(error.contains(&memory.display().to_string()), "{error}");
    assert_eq!(fs::read_dir(&bucket).expect("it is there").count(), 0, "{error}");
    fs::remove_dir(&bucket).expect("it is empty");
    fs::rename(&away, &bucket).expect("it is ours");
    wait_for_archived(&neve, 0, 159);
    neve.stop_in_time();
}

/// A directory is unmounted beside the server, so that its mount point is empty.
#[test]
fn directory_that_vanishes_is_an_error_and_gets_no_other_archive() {
    let (node, dir, parent) = (devnet(), fresh_dir(), fresh_dir());
    let [bucket, away] = ["archive", "away"].map(|name| parent.path().join(name));
    fs::create_dir(&bucket).expect("it can be made");
    let place = format!("file://{}", bucket.display());
    let neve = pushing(dir.path(), &node, &place, &["--retain-blocks", "40"]);
    wait_for_archived(&neve, 0, 95);
    fs::rename(&bucket, &away).expect("it is ours");
    fs::create_dir(&bucket).expect("it can be made");
    node.advance(100);
    neve.wait_for_head(HEAD + 100);
    neve.wait_for_log("archive push failed");
    neve.wait("segments that wait", |_| {
        (neve.metric("neve_archive_held_bytes") > Some(0.0)).then_some(())
    });
    assert_eq!(neve.health()["blocks"]["min_height"], 96);
    fs::remove_dir(&bucket).expect("nothing is put there");
    fs::rename(&away, &bucket).expect("it is ours");
    wait_for_archived(&neve, 0, 191);
    assert_eq!(neve.count("neve_archive_lost_heights_total"), 0);
    assert_eq!(verified(&[&place]).0, 0);
    neve.stop_in_time();
}

/// Files below a damaged one are set aside, and no push has them before the gap is filled.
#[test]
fn heights_below_a_damaged_file_wait_for_the_archive() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let manifest = bucket.path().join("manifest.json");
    fs::write(&manifest, "{}").expect("it can be written");
    node.advance(100);
    let neve = pushing(dir.path(), &node, &place, &["--retain-blocks", "40"]);
    wait_for_packed(&neve, 192);
    neve.stop_in_time();
    let damaged = dir.path().join("store").join(format!("{:020}.pack", 96));
    fs::File::options()
        .write(true)
        .open(&damaged)
        .and_then(|file| file.set_len(file.metadata()?.len() / 2))
        .expect("it is ours");
    let neve = pushing(dir.path(), &node, &place, &["--retain-blocks", "40"]);
    neve.wait_for_log("evicted"); // the damaged file
    neve.wait("the heights below the gap", |health| {
        (health["blocks"]["min_height"] == 0).then_some(())
    });
    fs::remove_file(&manifest).expect("it is ours");
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64() >= Some(160)).then_some(())
    });
    assert_eq!(neve.count("neve_archive_lost_heights_total"), 0);
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["first"], &summary["last"]), (0, &0.into(), &191.into()));
    neve.stop_in_time();
}

/// Heights 5 to 31 are no whole range, so that no push has them. Those above are not held for them.
#[test]
fn beginning_of_a_store_amid_a_range_holds_nothing() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let more = ["--start", "5", "--retain-blocks", "40"];
    let neve = pushing_from(dir.path(), &node, &place, &more);
    neve.wait_for_head(HEAD);
    wait_for_archived(&neve, 32, 95);
    node.advance(100);
    neve.wait_for_head(HEAD + 100);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64() >= Some(128)).then_some(())
    });
    assert_eq!(neve.count("neve_archive_lost_heights_total"), 0);
    let (code, summary) = verified(&[&place]);
    assert_eq!((code, &summary["first"]), (0, &32.into()), "{summary}");
    neve.stop_in_time();
}

/// No reserve is left, so that no segment can begin.
#[test]
fn full_disk_evicts_segments_that_wait_for_the_archive() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    fs::write(bucket.path().join("manifest.json"), "{}").expect("it can be written");
    let retain = ["--start", "0", "--retain-blocks", "40"];
    let neve = pushing_from(dir.path(), &node, &place, &retain);
    neve.wait_for_head(HEAD);
    neve.wait("segments that wait", |_| {
        (neve.metric("neve_archive_held_bytes") > Some(0.0)).then_some(())
    });
    assert_eq!(neve.health()["blocks"]["min_height"], 0);
    assert_eq!(neve.metric("neve_archive_held_limit_bytes"), Some(17_179_869_184.0));
    neve.stop_in_time();
    let store = dir.path().join("store").display().to_string();
    let full = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &store];
    let full = [&full[..], &["--disk-reserve-bytes", "1000TiB"], &retain].concat();
    let neve = Neve::spawn(dir.path(), &[full, flags(&node.base_url(), &place)].concat());
    node.advance(100);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64() >= Some(64)).then_some(())
    });
    wait_for_lost(&neve, 64);
    neve.wait_for_log("heights evicted before they were archived");
    neve.stop_in_time();
}

/// Nothing may wait, so that a height which is not known to be in the archive would be lost. The archive can be
/// read, and takes no object.
#[test]
fn heights_that_an_earlier_run_pushed_are_not_lost() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let neve = pushing(dir.path(), &node, &place, &[]);
    neve.wait_for_head(HEAD);
    wait_for_archived(&neve, 0, 95);
    neve.stop_in_time();
    let objects = bucket.path().join("43112");
    fs::rename(&objects, bucket.path().join("aside")).expect("it is there");
    fs::write(&objects, "").expect("it can be written");
    node.advance(60);
    let neve = packed_store(dir.path(), &node, HEAD + 60); // one that does not push
    wait_for_packed(&neve, 160);
    neve.stop_in_time();
    let limits = ["--retain-blocks", "80", "--retain-unpushed-bytes", "0B"];
    let neve = pushing(dir.path(), &node, &place, &limits);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64() >= Some(64)).then_some(())
    });
    neve.wait_for_log("archive push failed");
    assert_eq!(neve.count("neve_archive_lost_heights_total"), 0);
    let push = &neve.health()["archive"]["push"];
    assert_eq!((&push["min_height"], &push["max_height"]), (&0.into(), &95.into()));
    neve.stop_in_time();
}

#[test]
fn bad_packed_file_is_set_aside_and_counted() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let neve = pushing(dir.path(), &node, &place, &[]);
    neve.wait_for_head(HEAD);
    wait_for_archived(&neve, 0, 95);
    assert_eq!(neve.metric("neve_archive_bad_files"), Some(0.0));
    let bad = dir.path().join("store").join("bad.pack");
    fs::write(&bad, [0; 100]).expect("it can be written");
    neve.wait_for_log("packed file set aside");
    node.advance(60);
    neve.wait_for_head(HEAD + 60);
    wait_for_archived(&neve, 0, 159);
    assert_eq!(neve.metric("neve_archive_bad_files"), Some(1.0));
    assert_eq!(neve.metric("neve_archive_push_failing"), Some(0.0));
    neve.stop_in_time();
    let store = dir.path().join("store").display().to_string();
    let (code, lines, errors) = archive("push", None, &["--data-dir", &store, &place]);
    assert_eq!((code, &lines[0]["bad"]), (1, &1.into()), "{errors}");
    assert!(errors.contains("bad.pack: set aside: "), "{errors}");
}

#[test]
fn heights_go_without_a_copy_beyond_the_bytes_and_are_counted() {
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    fs::write(bucket.path().join("manifest.json"), "{}").expect("it can be written");
    let limits = ["--retain-blocks", "40", "--retain-unpushed-bytes", "0B"];
    let neve = pushing(dir.path(), &node, &place, &limits);
    neve.wait_for_head(HEAD);
    node.advance(100);
    neve.wait_for_head(HEAD + 100);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64() >= Some(96)).then_some(())
    });
    neve.wait_for_log("heights evicted before they were archived");
    wait_for_lost(&neve, 96);
    neve.stop_in_time();
}
