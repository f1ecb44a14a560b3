//! `kill -9` of eight writers to one archive, again and again: no update is lost, and the archive is whole.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use neve_devnet::{Config, DevnetThread, Helicon};
use tempfile::TempDir;

use crate::store::archive::{archive, objects, packed_store, pushed, verified};
use crate::store::packed::{packed_files, wait_for_packed};
use crate::support::neve::{LIMIT, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};

/// Names the number of kills, for more than the usual ones.
const KILLS: &str = "NEVE_ARCHIVE_KILLS";
const KILLS_USUAL: u32 = 8;
/// Ranges of the chain. Each writer has some of them; all have the range 2, so that none leaves a gap.
const RANGES: u64 = 6;
const WRITERS: [RangeInclusive<usize>; 8] =
    [0..=2, 1..=2, 2..=3, 2..=5, 0..=5, 2..=2, 1..=4, 0..=3];

/// A data directory for each writer.
fn stores() -> Vec<TempDir> {
    let config = Config::test().with_head(RANGES * 32 + 14).with_helicon(Helicon::Never);
    let node = DevnetThread::start(config).expect("loopback has free ports");
    let dir = fresh_dir();
    let neve = packed_store(dir.path(), &node, RANGES * 32 + 14);
    wait_for_packed(&neve, RANGES * 32);
    neve.stop_in_time();
    let files = packed_files(dir.path());
    let store = |ranges: &RangeInclusive<usize>| {
        let dir = fresh_dir();
        fs::create_dir(dir.path().join("store")).expect("it can be made");
        for file in &files[ranges.clone()] {
            let name = file.file_name().expect("it has one");
            fs::copy(file, dir.path().join("store").join(name)).expect("it can be copied");
        }
        dir
    };
    WRITERS.iter().map(store).collect()
}

fn begun(store: &Path, bucket: &Path) -> Child {
    let store = store.join("store").display().to_string();
    let place = format!("file://{}", bucket.display());
    Command::new(env!("CARGO_BIN_EXE_neve"))
        .args(["archive", "push", "--data-dir", &store, &place])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts")
}

/// Starts all writers, and kills each when so many objects are there. Returns the number of those that had not
/// ended before.
fn round(stores: &[TempDir], bucket: &Path, mut objects_of: impl FnMut() -> usize) -> u32 {
    let mut writers: Vec<_> = stores.iter().map(|store| begun(store.path(), bucket)).collect();
    let mut killed = 0;
    for writer in &mut writers {
        let wanted = objects_of();
        let reached = wait_until("a push with some of its objects", LIMIT, || {
            let is_over = writer.try_wait().expect("it is our child").is_some();
            let there = objects(bucket).len();
            if is_over || there >= wanted { Ok(()) } else { Err(Miss::NotYet(there.to_string())) }
        });
        reached.expect("it goes on");
        writer.kill().expect("it is our child");
        let status = writer.wait().expect("it is our child");
        killed += u32::from(status.code().is_none());
    }
    killed
}

#[test]
fn kills_of_eight_writers_lose_and_double_nothing() {
    let kills = std::env::var(KILLS).map_or(KILLS_USUAL, |text| text.parse().expect(KILLS));
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (stores, mut killed, mut rounds) = (stores(), 0, 0);
    while killed < kills {
        let bucket = fresh_dir();
        let place = format!("file://{}", bucket.path().display());
        killed += round(&stores, bucket.path(), || random.usize(0..20));
        rounds += 1;
        if bucket.path().join("manifest.json").exists() {
            assert_eq!(verified(&[&place]).0, 0, "after {killed} kills");
        }
        for store in &stores {
            pushed(store.path(), &[&place]);
        }
        let (code, summary) = verified(&[&place]);
        assert_eq!((code, &summary["segments"]), (0, &RANGES.into()), "{summary}");
        assert_eq!((&summary["first"], &summary["last"]), (&0.into(), &(RANGES * 32 - 1).into()));
        let (code, _, errors) = archive("gc", None, &["--older-than", "0s", &place]);
        assert_eq!(code, 0, "{errors}");
        // Files that a killed writer had not renamed have a name of their own.
        let whole = |path: &&PathBuf| !path.display().to_string().contains('#');
        let left = objects(bucket.path()).iter().filter(whole).count() as u64;
        assert_eq!(left, 1 + RANGES + 4, "each object is there once");
        assert_eq!(verified(&[&place]).0, 0);
    }
    eprintln!("{killed} kills in {rounds} rounds");
}
