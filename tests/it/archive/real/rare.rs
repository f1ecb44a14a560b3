//! Logs of a rare topic over a whole span of usual ranges: 65,536 archived heights.

use std::collections::BTreeSet;
use std::fs;

use neve_devnet::{Config, DevnetThread, Helicon};
use serde_json::{Value, json};

use crate::archive::bucket::{reads, trust_in};
use crate::store::archive::pushed;
use crate::support::neve::{Neve, fresh_dir};

const RANGE: u64 = 1024;
const ARCHIVED: u64 = 65_536;
/// End of the heights: the last range is the tail.
const END: u64 = ARCHIVED + RANGE;

/// Waits while a number of /health grows.
fn wait_for(neve: &Neve, part: &str, name: &str, wanted: u64) {
    let mut seen = None;
    while seen < Some(wanted) {
        seen = neve.wait(&format!("{name} {wanted}, beyond {seen:?}"), |health| {
            let now = health[part][name].as_u64();
            (now > seen).then_some(now)
        });
    }
}

fn params(mut filter: Value) -> String {
    filter["fromBlock"] = json!("0x0");
    filter["toBlock"] = json!(format!("{:#x}", ARCHIVED - 1));
    json!([filter]).to_string()
}

/// A call with the fourth topic that has the fewest logs, of those of some blocks.
fn rarest(source: &Neve) -> String {
    let mut client = source.client();
    // Logs, and the call.
    let mut best: Option<(usize, String)> = None;
    for height in (7..ARCHIVED).step_by(257) {
        let block =
            json!([{ "fromBlock": format!("{height:#x}"), "toBlock": format!("{height:#x}") }]);
        if best.as_ref().is_some_and(|(fewest, _)| *fewest <= 2) {
            break;
        }
        let logs = client.result("eth_getLogs", &block.to_string());
        for log in logs.as_array().expect("a list") {
            let topics = log["topics"].as_array().expect("topics").iter().enumerate().skip(3);
            let filters = topics.map(|(position, topic)| {
                let mut topics = vec![Value::Null; position];
                topics.push(topic.clone());
                json!({ "topics": topics })
            });
            for filter in filters {
                let wanted = params(filter);
                let answer = client.call("eth_getLogs", &wanted);
                if answer.status != 200 {
                    continue; // more logs than a response may have
                }
                let Some(count) = answer.json()["result"].as_array().map(Vec::len) else {
                    continue;
                };
                if best.as_ref().is_none_or(|(fewest, _)| count < *fewest) {
                    best = Some((count, wanted));
                }
                if count <= 2 {
                    break;
                }
            }
        }
    }
    let (logs, wanted) = best.expect("there are logs");
    println!("{logs} logs: {wanted}");
    wanted
}

#[test]
#[ignore = "makes 66,574 blocks: ./check archive"]
fn rare_topic_over_65_536_heights_takes_at_most_twelve_reads() {
    let config = Config::test().with_head(END + 14).with_helicon(Helicon::Never);
    let node = DevnetThread::start(config).expect("loopback has free ports");
    let (dir, bucket, own, url) = (fresh_dir(), fresh_dir(), fresh_dir(), node.base_url());
    let follow = ["--upstream", &url, "--start", "0", "--unpacked-bytes", "0B"];
    let source = Neve::start(dir.path(), &follow);
    wait_for(&source, "blocks", "head", END + 14);
    wait_for(&source, "storage", "packed_heights", END);
    let place = format!("file://{}", bucket.path().display());
    assert_eq!(pushed(dir.path(), &[&place])["last"], END - 1);
    let wanted = rarest(&source);
    let theirs = source.client().call("eth_getLogs", &wanted).text();
    let heights = theirs
        .split("\"blockNumber\":\"0x")
        .skip(1)
        .filter_map(|rest| u64::from_str_radix(rest.split('"').next()?, 16).ok());
    let segments = heights.map(|height| height / RANGE).collect::<BTreeSet<_>>().len() as u64;
    assert!(segments > 0, "{theirs}");

    let anchor = format!("{}:{:#x}", END - 1, node.block(END - 1).expect("it is there").hash());
    let manifest = bucket.path().join("manifest.json");
    let (trust, tail) = (trust_in(&manifest), ARCHIVED.to_string());
    let from = ["--archive", &place, "--archive-trust", &trust, "--archive-anchor", &anchor];
    let replica = Neve::start(own.path(), &[&from[..], &["--backfill-to", &tail]].concat());
    replica.wait("the tail", |health| {
        let blocks = &health["blocks"];
        (blocks["min_height"] == ARCHIVED && blocks["head"] == END - 1).then_some(())
    });
    replica.wait("archived heights", |health| {
        (health["archive"]["answers"]["max_height"] == END - 1).then_some(())
    });
    let ours = replica.client().call("eth_getLogs", &wanted);
    assert_eq!((ours.status, ours.text()), (200, theirs));
    let kinds = ["segment", "span", "pages", "terms"].map(|kind| reads(&replica, kind));
    let bytes = fs::metadata(&manifest).expect("it is there").len();
    println!(
        "{segments} segments: {kinds:?} reads of segment, span, pages, terms; manifest of {bytes} bytes"
    );
    // Of more segments, one read each would be too many.
    let planned = if segments <= 10 { 12 } else { 2 + 2 * segments };
    let most = planned + replica.count("neve_archive_hedges_total");
    assert!(kinds.iter().sum::<u64>() <= most, "{kinds:?}, at most {most} with second reads");
    replica.stop_in_time();
    source.stop_in_time();
}
