//! Logs of archived heights: few reads for a rare address, and a bound of them.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::iter::once;

use neve_devnet::Helicon;
use serde_json::{Value, json};

use super::bucket::{Bucket, reads, trust_in};
use super::object_server::ObjectServer;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::ws::Ws;

/// Segments of a whole span, and of the tail.
const RANGES: u64 = 65;
const LAST: u64 = (RANGES - 1) * 32 - 1;

pub(super) fn all_reads(neve: &Neve) -> u64 {
    ["segment", "span", "pages", "terms"].map(|kind| reads(neve, kind)).iter().sum()
}

/// Position of a value in a log, with the address at 0 and topics behind it, and the value.
pub(super) type Place = (usize, String);

/// Heights with each address and topic.
pub(super) fn heights_of_values(logs: &Value) -> HashMap<Place, BTreeSet<u64>> {
    let mut found: HashMap<_, BTreeSet<u64>> = HashMap::new();
    for log in logs.as_array().expect("a list") {
        let topics = log["topics"].as_array().expect("topics").iter();
        for (position, value) in once(&log["address"]).chain(topics).enumerate() {
            let value = value.as_str().expect("text").to_owned();
            found.entry((position, value)).or_default().insert(height_of(log));
        }
    }
    found
}

fn filter_of((position, value): &Place) -> Value {
    if *position == 0 {
        return json!({ "address": value });
    }
    let mut topics = vec![Value::Null; position - 1];
    topics.push(json!(value));
    json!({ "topics": topics })
}

/// Number of segments with these heights.
fn segments_of(heights: &BTreeSet<u64>) -> usize {
    heights.iter().map(|height| height / 32).collect::<BTreeSet<_>>().len()
}

/// A filter by the topic or address that the fewest segments have, and their number.
fn rarest(logs: &Value) -> (Value, usize) {
    let found = heights_of_values(logs).into_iter();
    let found = found.map(|(place, heights)| (segments_of(&heights), place));
    let (segments, place) = found.min().expect("there are logs");
    (filter_of(&place), segments)
}

pub(super) fn params(mut filter: Value, last: u64) -> String {
    filter["fromBlock"] = json!("0x0");
    filter["toBlock"] = json!(format!("{last:#x}"));
    json!([filter]).to_string()
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn spans_say_which_segments_have_a_term_and_a_call_has_a_bound_of_reads() {
    let bucket = Bucket::of_ranges(RANGES);
    let all = params(json!({}), LAST);
    let logs = bucket.source.client().result("eth_getLogs", &all);
    let (filter, segments) = rarest(&logs);
    let rare = params(filter, LAST);
    let theirs = bucket.source.client().call("eth_getLogs", &rare).text();
    assert!(segments <= 3 && theirs.contains("blockHash"), "{segments}: {rare}");
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &[]);
    let ours = replica.client().call("eth_getLogs", &rare);
    assert_eq!((ours.status, ours.text()), (200, theirs.clone()));
    let with_terms = all_reads(&replica);
    assert!(with_terms <= 12, "{with_terms} reads of {segments} segments");
    let unknown = params(json!({ "address": format!("0x{}", "12".repeat(20)) }), LAST);
    assert_eq!(replica.client().result("eth_getLogs", &unknown), json!([]));
    assert!(all_reads(&replica) <= with_terms + 1, "the terms alone");
    // What is known of one filter is not taken for another one's, in one batch.
    let call = |id: u64, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getLogs","params":{params}}}"#)
    };
    let topic = params(json!({ "topics": [logs[0]["topics"][0]] }), LAST);
    let batch = format!("[{},{},{}]", call(1, &unknown), call(2, &topic), call(3, &rare));
    let theirs_of_all = bucket.source.client().post(&batch).text();
    assert_eq!(replica.client().post(&batch).text(), theirs_of_all);
    println!("{with_terms} reads over {} heights", LAST + 1);
    replica.stop_in_time();

    // An archive of an earlier writer has no terms: more reads, the same bytes.
    let path = bucket.dir.path().join("manifest.json");
    let kept = fs::read(&path).expect("it is there");
    let mut manifest: Value = serde_json::from_slice(&kept).expect("JSON");
    for span in manifest["spans"].as_array_mut().expect("a list") {
        span.as_object_mut().expect("an object").remove("terms").expect("it has them");
    }
    fs::write(&path, manifest.to_string()).expect("it is ours");
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &["--archive-trust", &trust_in(&path)]);
    let ours = replica.client().call("eth_getLogs", &rare);
    assert_eq!((ours.status, ours.text()), (200, theirs));
    assert!(all_reads(&replica) >= RANGES - 1, "each segment is read");
    replica.stop_in_time();
    fs::write(&path, kept).expect("it is ours");

    names_what_passes(&bucket, &all);
}

/// Beyond the reads of a call, and beyond its blocks, the error is the node's kind.
fn names_what_passes(bucket: &Bucket, all: &str) {
    let dir = fresh_dir();
    let limits = ["--archive-logs-reads-max", "12", "--logs-blocks-max", "2048"];
    let replica = bucket.replica(dir.path(), &limits);
    let error = replica.client().call("eth_getLogs", all);
    assert_eq!(error.status, 200, "{}", error.text());
    assert!(all_reads(&replica) <= 12, "{}", all_reads(&replica));
    let error = error.json()["error"].clone();
    assert_eq!(error["code"], -32000, "{error}");
    let message = error["message"].as_str().expect("text");
    let start = format!(
        "requested logs from 0 to {LAST} need too many reads, maximum is set to 12; blocks from 0 to "
    );
    let last = message.strip_prefix(&start).and_then(|rest| rest.strip_suffix(" pass"));
    let last: u64 = last.and_then(|last| last.parse().ok()).unwrap_or_else(|| panic!("{message}"));
    assert!((31..LAST).contains(&last), "{message}");
    let passes = params(json!({}), last);
    let ours = replica.client().call("eth_getLogs", &passes);
    let theirs = bucket.source.client().call("eth_getLogs", &passes).text();
    assert_eq!((ours.status, ours.text()), (200, theirs));
    replica.stop_in_time();
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &["--logs-blocks-max", "100"]);
    let error = replica.client().call("eth_getLogs", all).json()["error"]["message"].clone();
    let expected = format!("requested too many blocks from 0 to {LAST}, maximum is set to 100");
    assert_eq!(error, expected);
    replica.stop_in_time();
}

/// The error of the one call, and the block of the other: a batch is not a miss for a call that is refused.
#[test]
fn batch_of_too_long_logs_and_an_archived_block_has_both_answers() {
    let bucket = Bucket::new(Helicon::Never);
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &["--logs-blocks-max", "10"]);
    let logs = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":[{"fromBlock":"0x0","toBlock":"0x3f"}]}"#;
    let block = r#"{"jsonrpc":"2.0","id":2,"method":"eth_getBlockByNumber","params":["0x3",true]}"#;
    let error = replica.client().post(logs);
    let block_alone = bucket.source.client().post(block).text();
    let expected = format!("[{},{}]\n", error.text().trim_end(), block_alone.trim_end());
    assert!(expected.contains("requested too many blocks from 0 to 63, maximum is set to 10"));
    let batch = format!("[{logs},{block}]");
    let both = replica.client().post(&batch);
    assert_eq!((both.status, both.text()), (200, expected.clone()));
    let mut socket = Ws::open(&replica);
    socket.send(&batch);
    assert_eq!(socket.text().trim_end(), expected.trim_end());
    replica.stop_in_time();
}

/// A filter by the topic or address that exactly so many segments have, in the fewest blocks.
fn in_segments(logs: &Value, segments: usize) -> Option<Value> {
    let found = heights_of_values(logs).into_iter();
    let found = found.filter(|(_, heights)| segments_of(heights) == segments);
    let (place, heights) = found.min_by_key(|(place, heights)| (heights.len(), place.clone()))?;
    println!("{place:?} in blocks {heights:?}");
    Some(filter_of(&place))
}

/// Counted at the store. The segments have three or four pages: the read of the front brings the log index and frames. Unit
/// tests of `page_file` have reads through gaps.
#[test]
fn rare_topic_in_six_segments_takes_at_most_twelve_reads() {
    const LAST: u64 = 8 * 32 - 1;
    let bucket = Bucket::large_of_ranges(9);
    let logs = bucket.source.client().result("eth_getLogs", &params(json!({}), LAST));
    let filter = in_segments(&logs, 6).expect("the chain has one");
    let sizes =
        bucket.objects("segment").into_iter().map(|path| path.metadata().map_or(0, |m| m.len()));
    println!("segments of {:?} bytes", sizes.collect::<Vec<_>>());
    let (server, dir) = (ObjectServer::start(bucket.dir.path()), fresh_dir());
    let replica = bucket.replica_of(dir.path(), &server, &[]);
    let (gets, before) = (server.gets(), all_reads(&replica));
    let wanted = params(filter, LAST);
    let ours = replica.client().call("eth_getLogs", &wanted);
    let theirs = bucket.source.client().call("eth_getLogs", &wanted).text();
    assert_eq!((ours.status, ours.text()), (200, theirs));
    let (gets, counted) = (server.gets() - gets, all_reads(&replica) - before);
    println!("{gets} requests at the store, {counted} reads");
    assert!(counted <= 12, "{counted}");
    // The manifest may be looked at meanwhile, and slow reads may be made twice.
    let more = 2 + replica.count("neve_archive_hedges_total") as usize;
    assert!(gets <= 12 + more, "{gets}");
    replica.stop_in_time();
}

/// Heights whose frames have so many pages between them that no read goes through.
const APART: u64 = 5;

/// A filter by the value that is in the most heights that are apart from the next one.
fn scattered(logs: &Value) -> (Value, Vec<u64>) {
    let runs = |found: &BTreeSet<u64>| {
        let is_last = |height: &&u64| found.range(**height + 1..=**height + APART).next().is_none();
        found.iter().filter(is_last).count()
    };
    let found = heights_of_values(logs).into_iter();
    let most = found.max_by_key(|(place, found)| (runs(found), place.clone()));
    let (place, found) = most.expect("there are logs");
    (filter_of(&place), found.into_iter().collect())
}

fn height_of(log: &Value) -> u64 {
    let digits = log["blockNumber"].as_str().expect("a number").trim_start_matches("0x");
    u64::from_str_radix(digits, 16).expect("a number")
}

/// Also a replica that has none of the pages answers the blocks that the error names.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn error_names_the_part_of_a_segment_that_passes() {
    const END: u64 = 31;
    let bucket = Bucket::of_long_inputs(2);
    let logs = bucket.source.client().result("eth_getLogs", &params(json!({}), END));
    let (filter, heights) = scattered(&logs);
    // At this rate reads go through gaps of four pages at most.
    let limits = ["--archive-logs-reads-max", "4", "--archive-read-bytes-per-second", "4MiB"];
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &limits);
    let ask = |replica: &Neve, last| {
        replica.client().call("eth_getLogs", &params(filter.clone(), last)).text()
    };
    let error = ask(&replica, END);
    let bytes = fs::metadata(&bucket.objects("segment")[0]).expect("it is there").len();
    println!("{heights:?} of 32 blocks in {bytes} bytes");
    let passes = error.split("blocks from 0 to ").nth(1).and_then(|rest| rest.split(' ').next());
    let last: u64 = passes.and_then(|last| last.parse().ok()).unwrap_or_else(|| panic!("{error}"));
    assert!(heights[0] <= last && last < END, "{error}, of {heights:?}");
    let theirs = ask(&bucket.source, last);
    assert!(theirs.contains("blockHash"), "{theirs}");
    assert_eq!(ask(&replica, last), theirs);
    replica.stop_in_time();
    let dir = fresh_dir();
    let replica = bucket.replica(dir.path(), &limits);
    assert_eq!(ask(&replica, last), theirs);
    assert!(all_reads(&replica) <= 4, "{}", all_reads(&replica));
    let next = heights.iter().find(|height| **height > last).expect("they are scattered");
    println!("{heights:?} in 32 blocks: blocks to {last} pass, {next} is beyond");
    replica.stop_in_time();
}
