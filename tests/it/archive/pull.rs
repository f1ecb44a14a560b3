//! `neve archive pull`: a store has the archive's heights afterwards, each proven.

use std::fs;
use std::path::Path;
use std::thread;

use neve_devnet::{Config, DevnetThread, Helicon};
use serde_json::Value;

use super::bucket::Bucket;
use super::object_server::{Mode, ObjectServer};
use crate::store::archive::{archive, outcome, packed_store};
use crate::support::neve::{LIMIT, Neve, fresh_dir, run, run_with};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::served::serves;

const AWS: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_REGION", "c")];

fn pulled(dir: &Path, words: &[&str]) -> (i32, Option<Value>, String) {
    let (code, mut lines, errors) = archive("pull", Some(dir), words);
    (code, lines.pop(), errors)
}

/// Exit code and digest of `neve verify`.
fn digest(dir: &Path) -> (i32, Value) {
    let store = dir.join("store").display().to_string();
    let words = ["verify", "--data-dir", &store, "--digest", "--json"];
    let (code, lines, errors) = outcome(&run(&words));
    let summary = lines.last().unwrap_or_else(|| panic!("no line: {errors}")).clone();
    (code, summary["digest"].clone())
}

fn heights(line: Option<&Value>) -> [Value; 3] {
    let line = line.expect("a line");
    ["first", "last", "rejected"].map(|name| line[name].clone())
}

#[test]
fn pulled_store_is_that_of_a_neve_that_followed_a_node() {
    let bucket = Bucket::new(Helicon::Never);
    let (dir, place) = (fresh_dir(), bucket.place());
    let anchor = format!("95:{:#x}", bucket.node.block(95).expect("it is there").hash());
    let (code, _, errors) = pulled(dir.path(), &[&place]);
    assert_eq!((code, errors.contains("--archive-anchor HEIGHT:HASH")), (2, true), "{errors}");
    // Partly filled first.
    let (code, line, errors) =
        pulled(dir.path(), &["--archive-anchor", &anchor, "--from", "64", &place]);
    assert_eq!((code, heights(line.as_ref())), (0, [64, 95, 0].map(Value::from)), "{errors}");
    let (code, line, errors) = pulled(dir.path(), &[&place]);
    assert_eq!((code, heights(line.as_ref())), (0, [0, 95, 0].map(Value::from)), "{errors}");
    let (code, line, errors) = pulled(dir.path(), &[&place]);
    assert_eq!((code, &line.expect("a line")["accepted"]), (0, &0.into()), "{errors}");
    let node = DevnetThread::start(Config::test().with_head(95)).expect("loopback has free ports");
    let followed = fresh_dir();
    packed_store(followed.path(), &node, 95).stop_in_time();
    assert_eq!(digest(dir.path()), digest(followed.path()));
    assert_eq!(digest(dir.path()).0, 0);
    let neve = Neve::start(dir.path(), &["--upstream", &bucket.node.base_url()]);
    neve.wait_for_head(110);
    serves(&neve, &bucket.node, 0..=110);
    neve.stop_in_time();
}

/// A server that pushes has lost its disk.
#[test]
fn settings_of_a_server_that_pushes_do_not_keep_a_pull_from_beginning() {
    let bucket = Bucket::new(Helicon::Never);
    let (dir, place) = (fresh_dir(), bucket.place());
    let (store, file) = (dir.path().join("store"), dir.path().join("neve.toml"));
    let zeros = "0".repeat(64);
    let settings = format!(
        "archive = {place:?}\narchive-push = true\narchive-anchor = \"7:0x{zeros}\"\nretain-bytes = \"20GiB\"\n"
    );
    fs::write(&file, settings).expect("a file");
    let anchor = format!("95:{:#x}", bucket.node.block(95).expect("it is there").hash());
    let (file, shown) = (file.display().to_string(), store.display().to_string());
    let words =
        ["archive", "pull", "--json", "--data-dir", &shown, "--archive-anchor", &anchor, &place];
    let (code, lines, errors) = outcome(&run_with(&[("NEVE_CONFIG", &file)], &words));
    assert_eq!((code, heights(lines.last())), (0, [0, 95, 0].map(Value::from)), "{errors}");
    assert_eq!(digest(dir.path()).0, 0);
}

#[test]
fn changed_segment_is_not_pulled_and_a_later_pull_goes_on() {
    let bucket = Bucket::new(Helicon::Never);
    let (dir, place) = (fresh_dir(), bucket.place());
    let path = &bucket.objects("segment")[0];
    let good = fs::read(path).expect("it can be read");
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(path, bad).expect("it is ours");
    let anchor = format!("95:{:#x}", bucket.node.block(95).expect("it is there").hash());
    let (code, _, errors) = pulled(dir.path(), &["--archive-anchor", &anchor, &place]);
    assert_eq!((code, errors.contains("not those of its name")), (2, true), "{errors}");
    assert_eq!(digest(dir.path()).0, 0, "the heights above are there");
    fs::write(path, good).expect("it is ours");
    let (code, line, errors) = pulled(dir.path(), &[&place]);
    assert_eq!((code, heights(line.as_ref())), (0, [0, 95, 0].map(Value::from)), "{errors}");
    assert_eq!(digest(dir.path()).0, 0);
}

/// `neve archive retain` and `gc` run while a pull waits for the store.
#[test]
fn pull_ends_at_the_heights_that_are_left() {
    let bucket = Bucket::of_ranges(24);
    let server = ObjectServer::start(bucket.dir.path());
    server.set(Mode::Delays);
    let (dir, endpoint) = (fresh_dir(), server.endpoint());
    let store = dir.path().join("store").display().to_string();
    let last = bucket.first() + 31;
    let anchor = format!("{last}:{:#x}", bucket.node.block(last).expect("it is there").hash());
    let pulling = thread::spawn(move || {
        let words = ["archive", "pull", "--json", "--data-dir", &store];
        let words = [&words[..], &["--archive-anchor", &anchor]].concat();
        let words = [&words[..], &["--archive-endpoint", &endpoint, "s3://bucket"]].concat();
        outcome(&run_with(&AWS, &words))
    });
    // Two manifests, the segment with the anchor, and a few others.
    let some = wait_until("a few segments", LIMIT, || match server.gets() {
        0..6 => Err(Miss::NotYet("too few requests".to_owned())),
        _ => Ok(()),
    });
    some.expect("the pull requests them");
    server.set(Mode::Holds);
    let place = bucket.place();
    for (command, words) in [("retain", ["--from", "200"]), ("gc", ["--older-than", "0s"])] {
        let (code, _, errors) = archive(command, None, &[&words[..], &[&place]].concat());
        assert_eq!(code, 0, "{errors}");
    }
    server.set(Mode::Serves);
    let (code, lines, errors) = pulling.join().expect("no panic");
    assert_eq!((code, heights(lines.last())), (0, [192, last, 0].map(Value::from)), "{errors}");
    assert_eq!(digest(dir.path()).0, 0);
}

/// An empty store has no chain that would contradict the archive.
#[test]
fn pull_from_an_archive_of_another_network_is_refused() {
    let bucket = Bucket::new(Helicon::Never);
    let (dir, place) = (fresh_dir(), bucket.place());
    let store = dir.path().join("store").display().to_string();
    let anchor = format!("95:{:#x}", bucket.node.block(95).expect("it is there").hash());
    let words = ["archive", "pull", "--data-dir", &store, "--archive-anchor", &anchor, &place];
    let (code, _, errors) = outcome(&run_with(&[("NEVE_NETWORK", "fuji")], &words));
    assert_eq!((code, errors.contains("NEVE_NETWORK=fuji (variable)")), (2, true), "{errors}");
    assert!(!dir.path().join("store").exists(), "no store is begun");
}

#[test]
fn anchor_that_is_another_block_is_refused() {
    let bucket = Bucket::new(Helicon::Never);
    let (dir, place) = (fresh_dir(), bucket.place());
    let anchor = format!("95:0x{}", "ab".repeat(32));
    let (code, _, errors) = pulled(dir.path(), &["--archive-anchor", &anchor, &place]);
    assert_ne!(code, 0, "{errors}");
    assert!(errors.contains("95"), "{errors}");
}

/// Anchors below the head, above it, and at a height that comes with the pull.
#[test]
fn anchor_that_contradicts_the_store_ends_a_pull() {
    let bucket = Bucket::new(Helicon::Never);
    let (dir, place) = (fresh_dir(), bucket.place());
    let block = |height: u64| {
        format!("{height}:{:#x}", bucket.node.block(height).expect("it is there").hash())
    };
    let pull = |anchor: &str, from: &str| {
        let (code, _, errors) =
            pulled(dir.path(), &["--archive-anchor", anchor, "--from", from, &place]);
        (code, errors)
    };
    let (code, errors) = pull(&block(80), "64");
    assert_eq!(code, 0, "{errors}");
    for (height, from) in [(70, "0"), (90, "64"), (40, "0")] {
        let (code, errors) = pull(&format!("{height}:0x{}", "22".repeat(32)), from);
        let text = format!("anchor at height {height}: its block is 0x");
        assert!(code == 2 && errors.contains(&text), "{height}: {code} {errors}");
    }
    let (code, errors) = pull(&block(90), "0");
    assert_eq!(code, 0, "{errors}");
    assert_eq!(digest(dir.path()).0, 0);
}
