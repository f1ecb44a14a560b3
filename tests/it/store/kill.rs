//! `kill -9` again and again, at random moments, while heights are appended, segments rolled and
//! sealed, the oldest evicted and disproved heights withdrawn: the store is whole each time, and
//! what was served before is served after.

use std::path::Path;
use std::time::Duration;

use neve_devnet::{Config, DevnetThread, Fault, Helicon};
use serde_json::Value;

use crate::support::neve::{Neve, fresh_dir, run};

/// Names the number of kills, for more than the usual ones.
const KILLS: &str = "NEVE_KILLS";
const KILLS_USUAL: u32 = 50;
/// Names the longest life at first, for a slow processor.
const LIFE: &str = "NEVE_KILL_LIFE_MS";
/// Heights of a few segments, see `ARGUMENTS`.
const HEIGHTS_BACK_MAX: u64 = 3 * 8;
/// The longest life, at first and at most: a busy machine needs longer to append anything.
const LIFE_MS: u64 = 300;
const LIFE_MS_MAX: u64 = 10_000;
/// Few blocks a segment and few segments: every life rolls and evicts.
const ARGUMENTS: [&str; 10] = [
    "--start",
    "0",
    "--segment-blocks",
    "8",
    "--retain-blocks",
    "48",
    "--fsync-interval",
    "20ms",
    "--segment-bytes",
    "1MiB",
];

/// Blocks faster than they can be followed: there is always something to append.
fn busy_chain() -> DevnetThread {
    let config = Config::test().with_helicon(Helicon::FromGenesis).with_head(100);
    DevnetThread::start(Config { rate: 500.0, ..config }).expect("loopback has free ports")
}

/// Lives so long, and is killed. Gives the range that it served just before.
fn life(dir: &Path, url: &str, time: Duration) -> (Option<u64>, Option<u64>) {
    let neve = Neve::start(dir, &[&["--upstream", url], &ARGUMENTS[..]].concat());
    std::thread::park_timeout(time);
    let blocks = neve.health()["blocks"].take();
    neve.kill();
    (blocks["min_height"].as_u64(), blocks["head"].as_u64())
}

/// Verifies, and gives the summary.
pub(super) fn verify(dir: &Path, round: u32) -> Value {
    let store = dir.join("store").display().to_string();
    let output = run(&["verify", "--json", "--data-dir", &store]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = format!("round {round}: {text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let last = text.lines().last().expect("a summary");
    serde_json::from_str(last).unwrap_or_else(|why| panic!("{why}: {said}"))
}

#[test]
fn kills_leave_a_whole_store() {
    let kills = std::env::var(KILLS).map_or(KILLS_USUAL, |text| text.parse().expect(KILLS));
    let life_ms = std::env::var(LIFE).map_or(LIFE_MS, |text| text.parse().expect(LIFE));
    let (devnet, dir) = (busy_chain(), fresh_dir());
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut evicted, mut grown) = (0, 0);
    let (mut before, mut longest) = ((0, 0), life_ms);
    for round in 0..kills {
        let lies = round % 4 == 3;
        if lies {
            devnet.faults().inject(Fault::LyingReceipts.times(2));
        }
        let time = Duration::from_millis(random.u64(0..longest));
        let (first, head) = life(dir.path(), &devnet.base_url(), time);
        devnet.faults().clear();
        let summary = verify(dir.path(), round);
        let (stored_first, stored_head) = (summary["first"].as_u64(), summary["last"].as_u64());
        // Evicting goes on after the question, appending too; nothing that was served is lost,
        // unless it was withdrawn. Files go after readers stopped seeing them: what was evicted
        // just before the kill may be back, which is no more than a few segments.
        let back = first.unwrap_or(0).saturating_sub(stored_first.unwrap_or(0));
        assert!(back <= HEIGHTS_BACK_MAX, "round {round}: {stored_first:?}, was {first:?}");
        assert!(lies || stored_head >= head, "round {round}: {stored_head:?} < {head:?}");
        let now = (stored_first.unwrap_or(0), stored_head.unwrap_or(0));
        evicted += u32::from(now.0 > before.0);
        grown += u32::from(now.1 > before.1);
        if now.1 <= before.1 {
            longest = (longest * 5 / 4).min(LIFE_MS_MAX);
        }
        before = now;
    }
    eprintln!("{grown} lives appended, {evicted} evicted; last {before:?}");
    assert!(grown > kills / 2 && evicted > kills / 3, "{grown} appended, {evicted} evicted");
}
