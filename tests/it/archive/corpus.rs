//! The recorded exchanges, answered over an archive by a replica whose tail begins near the head.

use super::bucket::{reads, trust_in};
use crate::answers::corpus::{Tally, assert_listed, tally};
use crate::store::archive::pushed;
use crate::store::packed::wait_for_packed;
use crate::support::corpus::{ALL, Set};
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};
use crate::support::recorded::Recorded;

/// Heights behind which a range is settled and packed, and archived heights that the tail has too.
const BEHIND: u64 = 14;
const BOTH: u64 = 8;

/// Outcomes of all exchanges of a set.
fn over_an_archive(set: Set) -> Tally {
    let node = Recorded::start(set);
    let (url, [source_dir, bucket, dir]) = (node.url(), [(); 3].map(|()| fresh_dir()));
    let follow = ["--upstream", &url, "--segment-blocks", "32", "--start"];
    let source =
        Neve::start(source_dir.path(), &[&follow[..], &["0", "--unpacked-bytes", "0B"]].concat());
    source.wait_for_head(set.head);
    let end = (set.head - BEHIND) / 32 * 32;
    wait_for_packed(&source, end);
    let place = format!("file://{}", bucket.path().display());
    // Ranges are not packed in their order.
    let is_whole = || {
        let line = pushed(source_dir.path(), &[&place]);
        let is_whole = line["first"] == 0 && line["last"].as_u64() >= Some(end - 1);
        is_whole.then_some(()).ok_or(Miss::NotYet(line.to_string()))
    };
    wait_until("a push of all", LIMIT, is_whole).expect("all is packed");
    source.stop_in_time();

    let trust = trust_in(&bucket.path().join("manifest.json"));
    let (start, first) = ((end - BOTH).to_string(), end - BOTH);
    let archive = ["--archive", &place, "--archive-trust", &trust, "--backfill-to", "none"];
    let words = [&follow[..], &[&start], &archive, &["--api", "debug-raw"]].concat();
    let replica = Neve::start(dir.path(), &words);
    replica.wait_for_head(set.head);
    replica.wait("archived heights and filters", |health| {
        let answers = &health["archive"]["answers"];
        let is_here = answers["max_height"].as_u64() >= Some(first);
        (is_here && answers["hashes_from_height"] == 0).then_some(())
    });
    let tally = tally(&replica, set);
    assert_eq!(replica.health()["blocks"]["min_height"], first);
    assert!(reads(&replica, "segment") > 0 && reads(&replica, "span") > 0);
    replica.stop_in_time();
    tally
}

#[test]
fn every_recorded_call_is_answered_over_an_archive_as_the_node_did() {
    assert_listed(ALL.map(over_an_archive));
}
