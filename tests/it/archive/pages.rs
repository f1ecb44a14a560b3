//! Segments of many pages: reads of few of them, and faults of one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use neve_devnet::Helicon;

use super::bucket::{Bucket, LAST, reads};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::serves;

const PAGE: u64 = 64 << 10;

fn block(neve: &Neve, height: u64) -> (u16, String) {
    let params = format!("[\"{height:#x}\",true]");
    let answer = neve.client().call("eth_getBlockByNumber", &params);
    (answer.status, answer.text())
}

#[test]
fn height_takes_one_range_of_few_pages() {
    let bucket = Bucket::large();
    let whole = fs::metadata(&bucket.objects("segment")[1]).expect("it is there").len();
    assert!(whole > 2 * PAGE, "{whole}");
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    // A read that takes long is made twice, and its bytes count once.
    let counts = |neve: &Neve| {
        let names = ["neve_archive_read_bytes_total", "neve_archive_hedges_total"];
        let [bytes, hedges] = names.map(|name| neve.count(name));
        (reads(neve, "segment"), bytes, hedges)
    };
    assert_eq!(block(&replica, 32).0, 200); // with the front
    let (mut before, mut ranges) = (counts(&replica), 0);
    for height in (33..64).rev() {
        assert_eq!(block(&replica, height), block(&bucket.source, height), "{height}");
        let now = counts(&replica);
        let most = before.0 + 1 + now.2 - before.2;
        assert!(now.0 <= most && now.1 <= before.1 + 3 * PAGE, "{height}: {now:?}");
        ranges += now.0 - before.0;
        before = now;
    }
    assert!(ranges > 0, "{ranges} ranges of {whole} bytes");
    // All logs of a segment: what is left of it, in few ranges.
    let logs = r#"[{"fromBlock":"0x0","toBlock":"0x1f"}]"#;
    let ours = replica.client().call("eth_getLogs", logs).text();
    assert_eq!(ours, bucket.source.client().call("eth_getLogs", logs).text());
    let now = counts(&replica);
    assert!(now.0 <= before.0 + 2 + now.2 - before.2, "its front, and its frames: {now:?}");
    serves(&replica, &bucket.node, 0..=LAST);
    replica.stop_in_time();
}

/// After a start neve knows no page, and reads ahead of none that it needs.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn logs_whose_pages_are_on_the_disk_need_no_store_after_a_restart() {
    let bucket = Bucket::of_long_inputs(2);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let all =
        bucket.source.client().result("eth_getLogs", r#"[{"fromBlock":"0x0","toBlock":"0x1f"}]"#);
    let log = &all.as_array().expect("a list")[0];
    let at = log["blockNumber"].as_str().expect("a number");
    let height = u64::from_str_radix(at.trim_start_matches("0x"), 16).expect("a number");
    // The block alone brings the front without the pages behind it.
    assert_eq!(block(&replica, height).0, 200);
    let logs = format!(r#"[{{"fromBlock":"{at}","toBlock":"{at}","address":{}}}]"#, log["address"]);
    let theirs = bucket.source.client().call("eth_getLogs", &logs).text();
    let ask = |replica: &Neve| {
        let answer = replica.client().call("eth_getLogs", &logs);
        (answer.status, answer.text())
    };
    assert_eq!(ask(&replica), (200, theirs.clone()));
    replica.stop_in_time();
    let segment = &bucket.objects("segment")[0];
    fs::rename(segment, segment.with_extension("away")).expect("it is ours");
    let replica = bucket.replica(dir.path(), &[]);
    assert_eq!(ask(&replica), (200, theirs));
    assert_eq!(reads(&replica, "segment"), 0);
    assert_eq!(block(&replica, (height + 16) % 32).0, 421, "the store lacks the others");
    replica.stop_in_time();
}

#[test]
fn reader_in_order_gets_the_segment_and_the_next() {
    let bucket = Bucket::large();
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    (0..4).for_each(|height| assert_eq!(block(&replica, height).0, 200));
    replica.wait_for_count("neve_archive_prefetched_segments_total", 2);
    let before = reads(&replica, "segment");
    for height in (4..64).rev() {
        assert_eq!(block(&replica, height), block(&bucket.source, height), "{height}");
    }
    assert_eq!(reads(&replica, "segment"), before, "all of both is here");
    replica.stop_in_time();
}

#[test]
fn flipped_byte_costs_the_heights_of_its_page_only() {
    let bucket = Bucket::large();
    let path = &bucket.objects("segment")[1];
    let mut bytes = fs::read(path).expect("it can be read");
    let at = bytes.len() * 3 / 4;
    bytes[at] ^= 4;
    fs::write(path, bytes).expect("it is ours");
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let mut refused = 0;
    for height in 32..64 {
        let (status, text) = block(&replica, height);
        assert!(status == 421 || text == block(&bucket.source, height).1, "{height}");
        refused += u32::from(status == 421);
    }
    assert!((1..16).contains(&refused), "{refused} of 32");
    // All or nothing.
    let logs = r#"[{"fromBlock":"0x20","toBlock":"0x3f"}]"#;
    assert_eq!(replica.client().call("eth_getLogs", logs).status, 421);
    replica.stop_in_time();
}

#[test]
fn segment_that_many_requests_read_from_is_brought_whole() {
    let bucket = Bucket::of_many_logs();
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    // Downwards, each from pages of its own.
    for height in (11..32).rev().step_by(6) {
        assert_eq!(block(&replica, height).0, 200, "{height}");
    }
    replica.wait_for_count("neve_archive_prefetched_segments_total", 1);
    let before = reads(&replica, "segment");
    for height in (0..32).rev() {
        assert_eq!(block(&replica, height), block(&bucket.source, height), "{height}");
    }
    assert_eq!(reads(&replica, "segment"), before, "all of it is here");
    replica.stop_in_time();
}

/// Flips all bytes of the pages that a replica has of objects of a kind.
fn rot(dir: &Path, kind: &str) {
    let mut files = 0;
    for entry in fs::read_dir(dir.join("store/archive")).expect("it has pages") {
        let path = entry.expect("it can be read").path();
        if !path.to_string_lossy().contains(kind) {
            continue;
        }
        let mut bytes = fs::read(&path).expect("it can be read");
        bytes.iter_mut().filter(|byte| **byte != 0).for_each(|byte| *byte = !*byte | 1);
        let file = File::options().write(true).open(&path).expect("it is ours");
        file.write_all_at(&bytes, 0).expect("the disk takes it");
        files += 1;
    }
    assert!(files > 0, "{kind}");
}

/// A page is compared with its digest when it comes. The disk may change it while neve runs.
#[test]
fn pages_that_rot_while_neve_runs_give_no_false_answer_and_come_again() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let block = bucket.node.block(7).expect("it is there");
    let calls = [
        ("eth_getBlockByNumber", r#"["0x7",true]"#.to_owned()),
        ("eth_getBlockByHash", format!("[\"{:#x}\",true]", block.hash())),
        ("eth_getLogs", logs_of_an_address(&bucket)),
    ];
    let ask = |neve: &Neve, call: usize| {
        let answer = neve.client().call(calls[call].0, &calls[call].1);
        (answer.status, answer.text())
    };
    let comes = |call: usize| {
        let right = ask(&bucket.source, call);
        replica.wait(calls[call].0, |_| {
            let answer = ask(&replica, call);
            assert!(answer.0 == 421 || answer == right, "{:?}: {}", calls[call], answer.1);
            (answer == right).then_some(())
        });
    };
    (0..3).for_each(comes);
    for (kind, call) in [("segment", 0), ("span", 1), ("terms", 2), ("segment", 2)] {
        rot(dir.path(), kind);
        comes(call);
    }
    replica.stop_in_time();
}

/// Parameters of `eth_getLogs` for logs of two segments.
fn logs_of_an_address(bucket: &Bucket) -> String {
    let all = r#"[{"fromBlock":"0x0","toBlock":"0x3f"}]"#;
    let all = bucket.source.client().result("eth_getLogs", all);
    let address = &all.as_array().expect("a list")[0]["address"];
    format!(r#"[{{"fromBlock":"0x0","toBlock":"0x3f","address":{address}}}]"#)
}
