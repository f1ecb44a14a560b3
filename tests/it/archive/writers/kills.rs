//! `kill -9` of eight writers to one archive, again and again: no update is lost, and the archive is whole.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use neve_devnet::{Config, DevnetThread, Helicon};
use serde_json::Value;
use tempfile::TempDir;

use crate::store::archive::{outcome, packed_store};
use crate::store::packed::{packed_files, wait_for_packed};
use crate::support::neve::{LIMIT, fresh_dir, run_with};
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

/// Files below a directory. A store may remove an empty one meanwhile.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

/// An archive that writers push to.
pub(crate) struct Target {
    /// Directory with its objects.
    pub(crate) dir: PathBuf,
    /// URL and flags.
    pub(crate) place: Vec<String>,
    pub(crate) variables: Vec<(&'static str, &'static str)>,
}

impl Target {
    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let place = self.place.iter().map(String::as_str);
        ["archive"].into_iter().chain(words.iter().copied()).chain(place).collect()
    }

    /// The last line of a command that succeeds.
    fn line(&self, words: &[&str]) -> Value {
        let words = self.words(&[words, &["--json"]].concat());
        let (code, mut lines, errors) = outcome(&run_with(&self.variables, &words));
        assert_eq!(code, 0, "{words:?}: {lines:?} {errors}");
        lines.pop().expect("a line")
    }

    fn begin_push(&self, store: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_neve"))
            .args(self.words(&["push", "--data-dir", store]))
            .envs(self.variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts")
    }

    /// Objects besides the manifest and those of trials. A killed writer leaves files with a `#` that it had not
    /// renamed.
    fn count(&self) -> usize {
        let is_whole = |path: &&PathBuf| {
            let path = path.display().to_string();
            path.contains("/43112/") && !path.contains('#')
        };
        files(&self.dir).iter().filter(is_whole).count()
    }

    /// Starts all writers, and kills each when so many objects are there. Returns the number of those that had
    /// not ended before.
    fn killed(&self, stores: &[String], mut objects: impl FnMut() -> usize) -> u32 {
        let mut writers: Vec<_> = stores.iter().map(|store| self.begin_push(store)).collect();
        let mut killed = 0;
        for writer in &mut writers {
            let wanted = objects();
            let reached = wait_until("a push with some of its objects", LIMIT, || {
                let is_over = writer.try_wait().expect("it is our child").is_some();
                let there = self.count();
                let is_reached = is_over || there >= wanted;
                if is_reached { Ok(()) } else { Err(Miss::NotYet(there.to_string())) }
            });
            reached.expect("it goes on");
            writer.kill().expect("it is our child");
            killed += u32::from(writer.wait().expect("it is our child").code().is_none());
        }
        killed
    }

    /// Pushes all, and expects that nothing is lost or there twice.
    fn is_whole(&self, stores: &[String]) {
        if self.dir.join("manifest.json").exists() {
            self.line(&["verify"]); // as the killed writers left it
        }
        for store in stores {
            self.line(&["push", "--data-dir", store]);
        }
        let summary = self.line(&["verify"]);
        assert_eq!(summary["segments"], RANGES);
        assert_eq!((&summary["first"], &summary["last"]), (&0.into(), &(RANGES * 32 - 1).into()));
        self.line(&["gc", "--older-than", "0s"]);
        assert_eq!(self.count() as u64, RANGES + 4, "each object is there once");
        self.line(&["verify"]);
    }
}

/// Kills writers to one target after the other. Each is new.
pub(crate) fn kill_writers(kills: u32, mut target: impl FnMut(u32) -> Target) {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let stores = stores();
    let path = |store: &TempDir| store.path().join("store").display().to_string();
    let paths: Vec<_> = stores.iter().map(path).collect();
    let (mut killed, mut rounds) = (0, 0);
    while killed < kills {
        let target = target(rounds);
        killed += target.killed(&paths, || random.usize(0..16));
        target.is_whole(&paths);
        rounds += 1;
    }
    eprintln!("{killed} kills in {rounds} rounds");
}

#[test]
fn kills_of_eight_writers_lose_and_double_nothing() {
    let kills = std::env::var(KILLS).map_or(KILLS_USUAL, |text| text.parse().expect(KILLS));
    let buckets = fresh_dir();
    kill_writers(kills, |round| {
        let dir = buckets.path().join(round.to_string());
        fs::create_dir(&dir).expect("it can be made");
        let place = vec![format!("file://{}", dir.display())];
        Target { dir, place, variables: Vec::new() }
    });
}
