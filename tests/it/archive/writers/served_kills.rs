//! `kill -9` of `neve serve --archive-push` again and again, at random moments while it packs, pushes and evicts: each
//! height is in the archive or in the store, and the next life goes on.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use neve_devnet::DevnetThread;

use super::kills::files;
use crate::store::archive::{HEAD, archive, devnet, verified};
use crate::store::kill::verify;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};

/// Names the number of kills, for more than the usual ones.
const KILLS: &str = "NEVE_SERVED_KILLS";
const KILLS_USUAL: u32 = 4;
/// Ranges that each life packs and pushes, and the heights of one.
const RANGES: u64 = 2;
const RANGE: u64 = 32;
/// Objects that a life puts at least: those ranges, and a span with its page lists, filter and terms.
const OBJECTS: usize = RANGES as usize + 4;
/// Time after the last object that is waited for, at most: a life may die beside its manifest.
const MORE_MS: u64 = 50;
/// Ranges of a span.
const SPAN: u64 = 64;

fn pushing(dir: &Path, node: &DevnetThread, place: &str) -> Neve {
    let url = node.base_url();
    let from = ["--upstream", &url, "--start", "0", "--segment-blocks", "32"];
    let kept = ["--retain-blocks", "40", "--unpacked-bytes", "0B"];
    let push = ["--archive", place, "--archive-push"];
    Neve::start(dir, &[&from[..], &kept, &push].concat())
}

/// Objects of an archive that are whole.
fn count(bucket: &Path) -> usize {
    let paths = files(&bucket.join("43112")).into_iter().map(|path| path.display().to_string());
    paths.filter(|path| !path.contains('#')).count()
}

/// Lives until so many more objects are there, and a moment longer.
fn life(dir: &Path, node: &DevnetThread, bucket: &Path, more: usize, moment: Duration) {
    let wanted = count(bucket) + more;
    let neve = pushing(dir, node, &format!("file://{}", bucket.display()));
    let reached = wait_until("a push with some of its objects", LIMIT, || {
        let there = count(bucket);
        if there >= wanted { Ok(()) } else { Err(Miss::NotYet(format!("{there} of {wanted}"))) }
    });
    reached.expect("it goes on");
    thread::park_timeout(moment);
    neve.kill();
}

/// Expects a whole archive and a whole store, with all heights in one of them. Returns the end of the archive.
fn is_whole(dir: &Path, bucket: &Path, round: u32) -> u64 {
    let store = verify(dir, round);
    let [stored, newest] =
        ["first", "last"].map(|name| store[name].as_u64().expect("the store has heights"));
    let (first, end) = if bucket.join("manifest.json").exists() {
        let (code, summary) = verified(&[&format!("file://{}", bucket.display())]);
        assert_eq!(code, 0, "round {round}: {summary}");
        let height = |name| summary[name].as_u64().expect("it has segments");
        (height("first"), height("last") + 1)
    } else {
        (0, 0)
    };
    // The newest range may be packed, and pushed, first.
    let end_of_pushed = if first == 0 { end } else { 0 };
    let archived = format!("archived from {first} to below {end}, stored from {stored}");
    assert!(stored <= end_of_pushed && newest + 1 >= end, "round {round}: {archived} to {newest}");
    end
}

#[test]
fn kills_of_a_serving_writer_lose_nothing() {
    let kills = std::env::var(KILLS).map_or(KILLS_USUAL, |text| text.parse().expect(KILLS));
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (node, dir, bucket) = (devnet(), fresh_dir(), fresh_dir());
    let place = format!("file://{}", bucket.path().display());
    let (mut before, mut advanced) = (0, 0);
    // Without a block there is no store to verify.
    let first = pushing(dir.path(), &node, &place);
    first.wait_for_head(1);
    first.kill();
    for round in 0..kills {
        node.advance(RANGES * RANGE);
        let more = random.usize(0..=OBJECTS);
        let moment = Duration::from_millis(random.u64(0..MORE_MS));
        life(dir.path(), &node, bucket.path(), more, moment);
        let end = is_whole(dir.path(), bucket.path(), round);
        assert!(end >= before, "round {round}: archived below {end}, before below {before}");
        advanced += u32::from(end > before);
        before = end;
    }
    let ranges = 3 + u64::from(kills) * RANGES;
    let neve = pushing(dir.path(), &node, &place);
    neve.wait_for_head(HEAD + u64::from(kills) * RANGES * RANGE);
    neve.wait("the push", |health| {
        let push = &health["archive"]["push"];
        let is_all = push["min_height"] == 0 && push["max_height"] == ranges * RANGE - 1;
        (is_all && push["error"].is_null()).then_some(())
    });
    assert_eq!(neve.count("neve_archive_lost_heights_total"), 0);
    neve.stop_in_time();
    assert_eq!(is_whole(dir.path(), bucket.path(), kills), ranges * RANGE);
    assert_eq!(archive("gc", None, &["--older-than", "0s", &place]).0, 0);
    assert_eq!(count(bucket.path()) as u64, ranges + ranges.div_ceil(SPAN) * 4, "each once");
    assert_eq!(verified(&[&place]).0, 0);
    // What a killed writer wrote beside a name, or tried the store with, is collected a day later.
    let entries = fs::read_dir(bucket.path()).expect("it is there");
    let names = entries.map(|entry| entry.expect("it can be listed").file_name());
    let mut left: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    left.retain(|name| !name.contains('#') && !name.starts_with("trial-"));
    left.sort();
    assert_eq!(left, ["43112", "manifest.json", "manifest.lock"]);
    eprintln!("{kills} kills, {advanced} lives pushed");
}
