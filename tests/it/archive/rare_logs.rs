//! Logs of rare values in several segments of many pages: at most 12 reads.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::bucket::Bucket;
use super::logs::{all_reads, heights_of_values, params};
use super::object_server::ObjectServer;
use crate::support::neve::fresh_dir;

const RANGE: u64 = 32;
/// Ranges of a span.
const SPAN: u64 = 64;

/// Positions of values that few blocks have: accounts and numbers of tokens, rather than contracts.
const POSITIONS: [usize; 4] = [3, 2, 4, 0];

/// A value, and its heights.
type Placed = (String, Vec<u64>);

/// A bucket, and the values that one segment of it has alone.
struct Found {
    bucket: Bucket,
    server: ObjectServer,
    /// Values with their heights, by their position in a log, 0 of the address, and by the segment.
    values: BTreeMap<(usize, u64), Vec<Placed>>,
    /// Pages of each segment.
    pages: Vec<u64>,
    last: u64,
}

/// Values at one position of logs.
type Values<'f> = (usize, Vec<&'f str>);

impl Found {
    /// Looks at the logs of a bucket up to a height.
    fn new(bucket: Bucket, last: u64) -> Self {
        let mut client = bucket.source.client();
        let mut logs = Vec::new();
        for first in (0..=last).step_by(RANGE as usize) {
            let end = last.min(first + RANGE - 1);
            let part =
                json!([{ "fromBlock": format!("{first:#x}"), "toBlock": format!("{end:#x}") }]);
            let part = client.result("eth_getLogs", &part.to_string());
            logs.extend(part.as_array().expect("a list").iter().cloned());
        }
        let mut values: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((position, value), heights) in heights_of_values(&Value::from(logs)) {
            let heights: Vec<_> = heights.into_iter().collect();
            let segment = heights[0] / RANGE;
            if heights.iter().all(|height| height / RANGE == segment) {
                values.entry((position, segment)).or_default().push((value, heights));
            }
        }
        let bytes = bucket.objects("segment").into_iter();
        let bytes = bytes.map(|path| fs::metadata(path).expect("it is there").len());
        let pages: Vec<_> = bytes.map(|bytes| bytes.div_ceil(65_536)).collect();
        let server = ObjectServer::start(bucket.dir.path());
        println!("segments of {pages:?} pages");
        Self { bucket, server, values, pages, last }
    }

    /// A value that a segment has in these blocks alone.
    fn value(&self, at: (usize, u64), blocks: &RangeInclusive<u64>) -> Option<&str> {
        let is_wanted = |heights: &[u64]| heights.iter().all(|at| blocks.contains(&(at % RANGE)));
        let found = self.values.get(&at)?.iter().find(|(_, heights)| is_wanted(heights));
        found.map(|(value, _)| value.as_str())
    }

    /// A value of each of these segments, at a position that all have.
    fn values(&self, segments: &[u64], blocks: &RangeInclusive<u64>) -> Values<'_> {
        let all = |position| -> Option<Vec<_>> {
            segments.iter().map(|segment| self.value((position, *segment), blocks)).collect()
        };
        let found = POSITIONS.into_iter().find_map(|at| Some((at, all(at)?)));
        found.unwrap_or_else(|| panic!("{segments:?} have no such values in blocks {blocks:?}"))
    }

    /// Two values of each of so many segments, in early and in late blocks.
    fn pairs(
        &self,
        segments: usize,
        early: &RangeInclusive<u64>,
        late: &RangeInclusive<u64>,
    ) -> Values<'_> {
        let pairs = |position| {
            let all = (0..self.pages.len() as u64).filter_map(move |segment| {
                let at = (position, segment);
                Some([self.value(at, early)?, self.value(at, late)?])
            });
            (position, all.take(segments).flatten().collect::<Vec<_>>())
        };
        let found = POSITIONS.into_iter().map(pairs);
        found.max_by_key(|(_, values)| values.len()).expect("there are positions")
    }

    /// Reads of a call for values by a fresh replica, and their bytes. The response must be that of the source.
    fn reads_of(&self, position: usize, values: &[&str], more: &[&str]) -> (u64, u64) {
        let filter = if position == 0 {
            json!({ "address": values })
        } else {
            let mut topics = vec![Value::Null; position - 1];
            topics.push(json!(values));
            json!({ "topics": topics })
        };
        let wanted = params(filter, self.last);
        let theirs = self.bucket.source.client().call("eth_getLogs", &wanted).text();
        assert!(theirs.contains("blockHash"), "{theirs}");
        let dir = fresh_dir();
        let replica = self.bucket.replica_of(dir.path(), &self.server, more);
        let bytes = || replica.count("neve_archive_read_bytes_total");
        let (gets, reads, before) = (self.server.gets(), all_reads(&replica), bytes());
        let ours = replica.client().call("eth_getLogs", &wanted);
        assert_eq!((ours.status, ours.text()), (200, theirs));
        let (gets, reads) = (self.server.gets() - gets, all_reads(&replica) - reads);
        let bytes = bytes() - before;
        // Slow reads may be made twice, and the manifest may be looked at meanwhile.
        let hedges = replica.count("neve_archive_hedges_total");
        println!("{} values: {reads} reads, {hedges} hedges, {bytes} bytes", values.len());
        assert!(gets as u64 <= reads + 2, "{gets} requests at the store, {reads} reads");
        replica.stop_in_time();
        (reads.saturating_sub(hedges), bytes)
    }
}

/// The first read has 16 pages behind the front. Without segments that are read whole, six take 14 reads.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn rare_values_in_up_to_eight_segments_of_many_pages_take_at_most_twelve_reads() {
    const SEGMENTS: u64 = 8;
    let found = Found::new(Bucket::of_long_inputs(SEGMENTS + 1), SEGMENTS * RANGE - 1);
    assert!(found.pages.iter().all(|pages| (36..=64).contains(pages)), "{:?}", found.pages);
    let segments: Vec<_> = (0..SEGMENTS).collect();
    // Frames far behind the first read.
    let (position, late) = found.values(&segments, &(26..=31));
    let mut failed = Vec::new();
    for segments in [4, 5, 6, 8] {
        let (reads, bytes) = found.reads_of(position, &late[..segments], &[]);
        println!("{segments} segments: {reads} reads, {bytes} bytes");
        failed.extend((reads > 12).then_some((segments, reads)));
    }
    // Two frames in each of five segments, with more than 1 MiB between them.
    let (position, both) = found.pairs(5, &(13..=17), &(30..=31));
    assert_eq!(both.len(), 10, "two values each");
    let (reads, bytes) = found.reads_of(position, &both, &[]);
    println!("five segments with two frames each: {reads} reads, {bytes} bytes");
    failed.extend((reads > 12).then_some((5, reads)));
    assert!(failed.is_empty(), "segments and reads: {failed:?}");

    // The six segments have more pages than half of the rate, so that there is no plan.
    let slow = ["--archive-read-bytes-per-second", "24MiB"];
    let (position, late) = found.values(&segments, &(26..=31));
    let (reads, bytes) = found.reads_of(position, &late[..6], &slow);
    println!("six segments at 24 MiB/s: {reads} reads, {bytes} bytes");
    assert!(reads > 12, "{reads} reads of {bytes} bytes");
}

/// Each span has page lists and terms of its own: four reads. At this rate a read has two pages behind the front.
#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn rare_values_in_five_segments_of_two_spans_take_at_most_twelve_reads() {
    const RANGES: u64 = 78;
    let mut found = Found::new(Bucket::of_few_long_blocks(RANGES), (RANGES - 1) * RANGE - 1);
    let is_long = |at: &u64| found.pages[*at as usize] == 4;
    let (older, newer): (Vec<u64>, Vec<u64>) =
        (0..RANGES - 1).filter(is_long).partition(|at| *at < SPAN);
    println!("{older:?} and {newer:?} have four pages");
    let segments = [&older[..4], &newer[..1]].concat();
    let (position, values) = found.values(&segments, &(0..=31));
    let rate = ["--archive-read-bytes-per-second", "2816KiB"];
    for values in [&values[1..], &values] {
        let (reads, bytes) = found.reads_of(position, values, &rate);
        println!("{} segments of two spans: {reads} reads, {bytes} bytes", values.len());
        assert!(reads <= 12, "{reads} reads of {} segments", values.len());
    }
    // No terms are read for one segment of a span, which may have the logs. Its page lists are a read all the same.
    found.last = (SPAN + 1) * RANGE - 1;
    let (position, values) = found.values(&older[..5], &(0..=31));
    let (reads, bytes) = found.reads_of(position, &values, &rate);
    println!("5 segments and one of the next span: {reads} reads, {bytes} bytes");
    assert!(reads <= 12, "{reads} reads of 5 segments and one of the next span");
}
