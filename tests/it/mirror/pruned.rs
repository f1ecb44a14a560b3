//! Sources that have no old heights: they were evicted, or never fetched.

use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Helicon};
use tempfile::TempDir;

use super::between::Between;
use super::sources::{HEAD, devnet, digest, mirror_in, wait_for_first};
use crate::store::packed::wait_for_packed;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

/// The lowest height of the source.
const FIRST: u64 = 192;

/// A source of packed files from [`FIRST`] on.
fn pruned(devnet: &DevnetThread) -> (TempDir, Neve) {
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let first = FIRST.to_string();
    let from = ["--upstream", &url, "--start", &first, "--backfill-to", "none"];
    let files = ["--serve-mirrors", "--segment-blocks", "64", "--unpacked-bytes", "0B"];
    let senders = ["--recover-senders", "never"];
    let source = Neve::start(dir.path(), &[&from[..], &files, &senders].concat());
    source.wait_for_head(devnet.latest());
    devnet.advance(30); // which settle the ranges
    wait_for_packed(&source, HEAD / 64 * 64 - FIRST);
    (dir, source)
}

#[test]
fn mirror_that_takes_no_files_of_its_source_has_all_of_its_heights() {
    for helicon in [Helicon::Never, Helicon::FromGenesis] {
        let devnet = devnet(helicon);
        let ((_source_dir, source), dir) = (pruned(&devnet), fresh_dir());
        let url = format!("http://{}", source.address);
        let from = ["--mirror-from", &url, "--recover-senders", "never"];
        let mirror = Neve::start(dir.path(), &[&from[..], &["--segment-blocks", "128"]].concat());
        mirror.wait_for_head(HEAD + 30);
        devnet.advance(10); // which settle what is served
        wait_for_first(&mirror, FIRST);
        mirror.wait_for_head(HEAD + 40);
        serves(&mirror, &devnet, FIRST..=HEAD + 40);
        assert!(!mirror.log().contains("backfill failed"), "nothing more is wanted");
        mirror.stop();
        assert_eq!(digest(dir.path()).1, FIRST, "{helicon:?}");
    }
}

/// The source evicted the heights below it since the mirror read the list.
#[test]
fn segment_is_taken_without_the_heights_below_it() {
    for helicon in [Helicon::Never, Helicon::FromGenesis] {
        let devnet = devnet(helicon);
        let ((_source_dir, source), dir) = (pruned(&devnet), fresh_dir());
        let stale = Between::with_first(source.address, 0);
        let mirror = mirror_in(dir.path(), stale.address, &[]);
        mirror.wait_for_head(HEAD + 30);
        devnet.advance(10);
        wait_for_first(&mirror, FIRST);
        mirror.wait_for_head(HEAD + 40);
        serves(&mirror, &devnet, FIRST..=HEAD + 40);
        // What the list promises is tried again, and told once.
        mirror.wait_for_log("no upstream gives height 191");
        mirror.stop();
        assert_eq!(digest(dir.path()).1, FIRST, "{helicon:?}");
    }
}

/// The stream of such a source begins, and ends at once.
#[test]
fn mirror_far_behind_its_source_says_so_and_asks_seldom() {
    let dir = fresh_dir();
    let early = DevnetThread::start(Config::test().with_head(50)).expect("loopback has free ports");
    let neve = Neve::start(dir.path(), &["--upstream", &early.base_url(), "--start", "0"]);
    neve.wait_for_head(50);
    neve.stop();
    let devnet = devnet(Helicon::Never);
    let (_source_dir, source) = pruned(&devnet);
    let mirror = mirror_in(dir.path(), source.address, &[]);
    mirror.wait_for_log("it no longer has height 51: use an empty --data-dir");
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let lines = mirror.log().matches("records as a stream").count();
    assert!(lines <= 4, "{lines} lines about the stream");
}

/// Neither the genesis block nor a list tells which chain it is.
#[test]
fn mirror_that_cannot_know_the_chain_says_what_helps() {
    let devnet = devnet(Helicon::Never);
    let (source_dir, url, dir) = (fresh_dir(), devnet.base_url(), fresh_dir());
    let source = Neve::start(source_dir.path(), &["--upstream", &url, "--start", "350"]);
    source.wait_for_head(HEAD);
    let url = format!("http://{}", source.address);
    let mirror = Neve::start(dir.path(), &["--mirror-from", &url]);
    mirror.wait_for_log("set --network, or run the source with --serve-mirrors");
}
