//! `kill -9` again and again, at random moments, while ranges are packed: the store is whole each
//! time, and every height that was stored is served to the byte.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Helicon};
use serde_json::Value;

use crate::store::kill::verify;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

/// Names the number of kills, for more than the usual ones.
const KILLS: &str = "NEVE_PACKING_KILLS";
const KILLS_USUAL: u32 = 5;
/// The longest life after its first packed range.
const LIFE_MS: u64 = 250;
/// Time in which a range of the chain is full.
const LIFE_MAX: Duration = Duration::from_secs(2);
/// Ending of a packed file that is being written.
const UNFINISHED: &str = ".pack.new";
/// Small ranges, and few heights: every life packs several, and evicts.
const ARGUMENTS: [&str; 10] = [
    "--start",
    "0",
    "--segment-blocks",
    "8",
    "--retain-blocks",
    "96",
    "--fsync-interval",
    "20ms",
    "--segment-bytes",
    "1MiB",
];
/// No node listens here: the store stays as it is.
const NOWHERE: &str = "http://127.0.0.1:1";

/// The chain goes on between two lives: each life has ranges to pack.
fn chain() -> DevnetThread {
    let config = Config::test().with_helicon(Helicon::FromGenesis).with_head(100);
    DevnetThread::start(Config { rate: 40.0, ..config }).expect("loopback has free ports")
}

fn start(dir: &Path, url: &str, unpacked: &str) -> Neve {
    let source = ["--upstream", url, "--unpacked-bytes", unpacked];
    Neve::start(dir, &[&source, &ARGUMENTS[..]].concat())
}

/// Packs at least a range, lives on for a random time, and is killed; in every second life as soon
/// as a packed file is written after that time.
fn life(dir: &Path, url: &str, time: Duration, in_a_file: bool) {
    let neve = start(dir, url, "0B");
    neve.wait_for_nice("packed heights", |_| {
        (neve.count("neve_store_packed_heights_total") > 0).then_some(())
    });
    std::thread::park_timeout(time);
    let end = Instant::now() + LIFE_MAX;
    while in_a_file && files(dir, UNFINISHED) == 0 && Instant::now() < end {
        std::thread::yield_now();
    }
    neve.kill();
}

/// Number of files whose names end in `ending`.
fn files(dir: &Path, ending: &str) -> usize {
    let files = fs::read_dir(dir.join("store")).expect("the store is there");
    let names = files.map(|file| file.expect("it can be listed").file_name());
    names.filter(|name| name.to_string_lossy().ends_with(ending)).count()
}

/// Serves the store as it is, and compares every height with the chain.
fn serves_all(dir: &Path, devnet: &DevnetThread, summary: &Value) {
    let heights = ["first", "last"].map(|key| summary[key].as_u64().expect("heights are stored"));
    let neve = start(dir, NOWHERE, "none");
    let served = &neve.health()["blocks"];
    assert_eq!([&served["min_height"], &served["head"]].map(Value::as_u64), heights.map(Some));
    serves(&neve, devnet, heights[0]..=heights[1]);
    neve.kill();
}

#[test]
fn kills_while_packing_leave_every_height() {
    let kills = std::env::var(KILLS).map_or(KILLS_USUAL, |text| text.parse().expect(KILLS));
    let (devnet, dir) = (chain(), fresh_dir());
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut unfinished, mut packed, mut heights) = (0, 0, 0);
    let (mut first, mut last) = (None, None);
    for round in 0..kills {
        let time = Duration::from_millis(random.u64(0..LIFE_MS));
        life(dir.path(), &devnet.base_url(), time, round % 2 == 0);
        unfinished += u32::from(files(dir.path(), UNFINISHED) > 0);
        let summary = verify(dir.path(), round);
        let stored = summary["last"].as_u64();
        // On a busy machine the chain runs ahead: eviction may take all packed files, or the kill come before a new head.
        packed += u32::from(files(dir.path(), ".pack") > 0);
        assert!(stored >= last, "round {round}: {stored:?}, was {last:?}");
        serves_all(dir.path(), &devnet, &summary);
        heights += summary["records"].as_u64().unwrap_or(0);
        (first, last) = (first.or(stored), stored);
    }
    assert!(packed > 0 && last > first, "{packed} stores with packed files, {first:?} to {last:?}");
    eprintln!("{kills} kills, {unfinished} in the middle of a file; {heights} heights compared");
}
