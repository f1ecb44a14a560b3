//! Logs by filter, against a naive scan of the receipts' JSON and against recorded nodes.

#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::Path;

use flate2::read::GzDecoder;
use neve_chain::{AdmittedKeys, Checks};
use neve_devnet::{Chain, ChainConfig, Helicon, Part};
use neve_jsonrpc::{LogFilter, Rules};
use neve_record::assemble::assemble;
use neve_record::log_matcher::{LogMatcher, LogText, logs};
use neve_record::parts::{RECEIPTS, SPANS};
use neve_store::{Hash, Identity, Opened, Options, Reader, Record, SearchError};
use serde_json::Value;
use serde_json::value::RawValue;

/// Nothing but small segments: some sealed, one active.
fn open(dir: &Path, span: u32) -> Opened {
    let options = Options {
        segment_blocks: span,
        segment_bytes: 4 << 20,
        disk_reserve_bytes: 0,
        expected: None,
    };
    let mut opened = neve_store::open(dir, options).unwrap();
    opened.writer.bind(Identity { chain_id: 43112, genesis: Hash([1; 32]) }, 0).unwrap();
    opened
}

fn record(block: &[u8], receipts: &[u8]) -> Record {
    let checks = Checks { chain_id: 43112, senders: false, admitted: AdmittedKeys::NONE };
    assemble(block, receipts, &checks).unwrap_or_else(|refusal| panic!("{refusal}")).record
}

fn devnet(config: ChainConfig, blocks: usize) -> Vec<Record> {
    let of = |block: neve_devnet::Block| {
        record(&block.answer(Part::Full, Rules::BeforeHelicon), block.receipts())
    };
    Chain::new(config).take(blocks).map(of).collect()
}

/// A log as its JSON says.
struct Plain {
    height: u64,
    text: String,
    address: [u8; 20],
    topics: Vec<[u8; 32]>,
}

fn bytes<const N: usize>(value: &Value) -> [u8; N] {
    let digits = value.as_str().unwrap().strip_prefix("0x").unwrap();
    std::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
}

fn plain(record: &Record) -> Vec<Plain> {
    #[derive(serde::Deserialize)]
    struct Receipt {
        logs: Vec<Box<RawValue>>,
    }
    let receipts: Vec<Receipt> = serde_json::from_slice(&record.parts[RECEIPTS].bytes).unwrap();
    let of = |log: Box<RawValue>| {
        let value: Value = serde_json::from_str(log.get()).unwrap();
        let topics = value["topics"].as_array().unwrap().iter().map(bytes).collect();
        let (height, text) = (record.height, log.get().to_owned());
        Plain { height, text, address: bytes(&value["address"]), topics }
    };
    receipts.into_iter().flat_map(|receipt| receipt.logs).map(of).collect()
}

/// Word for word what the node's documentation of filters says.
fn meets(log: &Plain, filter: &LogFilter) -> bool {
    let address = filter.addresses.is_empty() || filter.addresses.contains(&log.address);
    let topics = filter.topics.iter().enumerate().all(|(position, wanted)| {
        log.topics.get(position).is_some_and(|topic| wanted.is_empty() || wanted.contains(topic))
    });
    address && topics
}

fn found(reader: &Reader, filter: &LogFilter, heights: RangeInclusive<u64>) -> Vec<String> {
    let text = |log: Result<LogText, SearchError>| {
        String::from_utf8(log.unwrap().as_ref().to_vec()).unwrap()
    };
    logs(reader, LogMatcher::new(&filter.addresses, &filter.topics), heights).map(text).collect()
}

fn pick<'a, T>(random: &mut fastrand::Rng, all: &'a [T]) -> &'a T {
    &all[random.usize(..all.len())]
}

/// A filter made from what is there, and now and then from what is not.
fn filter(random: &mut fastrand::Rng, all: &[Plain]) -> LogFilter {
    let mut filter = LogFilter::default();
    for _ in 0..[0, 0, 1, 1, 5][random.usize(..5)] {
        let strange = random.u8(..6) == 0;
        filter.addresses.push(if strange { [7; 20] } else { pick(random, all).address });
    }
    let model = pick(random, all); // so that more than one position can be met
    for position in 0..[0, 0, 1, 1, 2, 3, 4, 5][random.usize(..8)] {
        let mut wanted = Vec::new();
        for _ in 0..random.usize(..4) {
            let source = if random.bool() { model } else { pick(random, all) };
            wanted.push(source.topics.get(position).copied().unwrap_or([7; 32]));
        }
        filter.topics.push(wanted);
    }
    filter
}

fn compare(config: ChainConfig, blocks: usize, span: u32, rounds: usize) {
    let dir = tempfile::tempdir().unwrap();
    let records = devnet(config, blocks);
    let all: Vec<Plain> = records.iter().flat_map(plain).collect();
    let mut opened = open(dir.path(), span);
    records.iter().for_each(|record| opened.writer.append(record).unwrap());
    let reader = opened.reader;
    assert!(reader.usage().segments > 2);
    let (mut random, mut matched, mut some) = (fastrand::Rng::with_seed(7), 0, 0);
    for round in 0..rounds {
        let filter = filter(&mut random, &all);
        let (a, b) = (random.u64(..blocks as u64), random.u64(..blocks as u64));
        let heights = if round % 3 == 0 { 0..=blocks as u64 - 1 } else { a.min(b)..=a.max(b) };
        let expected: Vec<_> = all
            .iter()
            .filter(|log| heights.contains(&log.height) && meets(log, &filter))
            .map(|log| log.text.clone())
            .collect();
        assert_eq!(found(&reader, &filter, heights.clone()), expected, "{heights:?} {filter:?}");
        matched += expected.len();
        some += usize::from(!expected.is_empty());
    }
    assert!(some > rounds / 4 && matched > rounds, "{some} filters matched {matched} logs");
}

#[test]
fn small_blocks_before_and_after_helicon() {
    let config = ChainConfig { helicon: Helicon::At(90), ..ChainConfig::small(3) };
    compare(config, 200, 16, 600);
}

#[test]
fn blocks_of_mainnets_size() {
    compare(ChainConfig::c_chain(5), 60, 24, 150);
}

fn rows(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(file);
    let lines = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

/// The `result` of a recorded answer, as it stands there.
fn result(row: &Value) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Answer {
        result: Option<Box<RawValue>>,
    }
    let answer: Answer = serde_json::from_str(row["response_body"].as_str()?).ok()?;
    Some(answer.result?.get().to_owned())
}

fn call(row: &Value) -> Option<(String, Vec<Value>)> {
    let request: Value = serde_json::from_str(row["request_body"].as_str()?).ok()?;
    let method = request["method"].as_str()?.to_owned();
    Some((method, request["params"].as_array()?.clone()))
}

/// The blocks of a recorded node, as they were at the time of the recording.
fn recorded(folder: &str) -> Vec<Record> {
    let (mut blocks, mut receipts) = (Vec::new(), Vec::new());
    for row in rows(&format!("{folder}/blocks.jsonl.gz")) {
        let Some(((method, params), result)) = call(&row).zip(result(&row)) else { continue };
        match method.as_str() {
            "eth_getBlockByNumber" if params[1] == true => blocks.push(result),
            "eth_getBlockReceipts" => receipts.push(result),
            _ => {}
        }
    }
    assert_eq!(blocks.len(), receipts.len());
    let pairs = blocks.iter().zip(&receipts);
    pairs.map(|(block, receipts)| record(block.as_bytes(), receipts.as_bytes())).collect()
}

fn list<T>(value: &Value, one: impl Fn(&Value) -> T) -> Vec<T> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(all) if all.iter().any(Value::is_null) => Vec::new(), // takes anything
        Value::Array(all) => all.iter().map(one).collect(),
        value => vec![one(value)],
    }
}

/// Returns filter and heights of a recorded call; `None` if its heights are not plain numbers or a block's.
fn asked(reader: &Reader, params: &Value) -> Option<(LogFilter, RangeInclusive<u64>)> {
    let number =
        |key: &str| u64::from_str_radix(params[key].as_str()?.strip_prefix("0x")?, 16).ok();
    let heights = match &params["blockHash"] {
        // Ranges that end above the head end there: the caller has seen to that.
        Value::Null => number("fromBlock")?..=number("toBlock")?.min(*reader.range()?.end()),
        hash => {
            let height = reader.block(&Hash(bytes(hash)))?.height();
            height..=height
        }
    };
    let topics = params["topics"].as_array().into_iter().flatten();
    let filter = LogFilter {
        addresses: list(&params["address"], bytes),
        topics: topics.map(|topics| list(topics, bytes)).collect(),
    };
    Some((filter, heights))
}

fn answers_like_the_node(folder: &str, rows_min: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), 32);
    recorded(folder).iter().for_each(|record| opened.writer.append(record).unwrap());
    let (mut found_some, mut found_none) = (0, 0);
    for row in rows(&format!("{folder}/logs.jsonl.gz")) {
        let Some(((method, params), result)) = call(&row).zip(result(&row)) else { continue };
        let Some(params) = params.first().filter(|_| method == "eth_getLogs") else { continue };
        let Some((filter, heights)) = asked(&opened.reader, params) else { continue };
        let found = format!("[{}]", found(&opened.reader, &filter, heights).join(","));
        assert_eq!(found, result, "{params}");
        *(if result == "[]" { &mut found_none } else { &mut found_some }) += 1;
    }
    let (some, none) = (found_some, found_none);
    assert!(some >= rows_min && none >= rows_min, "{some} rows have logs, {none} have none");
}

#[test]
fn recorded_answers_before_helicon() {
    answers_like_the_node("v1.14.2/apricot0", 60);
}

#[test]
fn recorded_answers_across_helicon() {
    answers_like_the_node("v1.15.0", 60);
}

/// An answer that lacks a log is wrong; none at all is not.
#[test]
fn unreadable_part_is_an_error() {
    let records = devnet(ChainConfig::small(3), 30);
    let all: Vec<Plain> = records.iter().flat_map(plain).collect();
    let from = all[all.len() / 2].height;
    for forge in [
        (|record| record.parts[SPANS].bytes.clear()) as fn(&mut Record),
        |record| {
            let len = record.parts[RECEIPTS].bytes.len();
            record.parts[RECEIPTS].bytes = vec![b' '; len].into();
        },
        |record| record.parts[RECEIPTS].encoding = neve_store::Encoding::Other(9),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = open(dir.path(), 100);
        for record in &records {
            let mut record = record.clone();
            if record.height == from {
                forge(&mut record);
            }
            opened.writer.append(&record).unwrap();
        }
        let mut found = logs(&opened.reader, LogMatcher::new(&[], &[]), 0..=29);
        let good = found.by_ref().take_while(Result::is_ok).count();
        assert_eq!(good, all.iter().filter(|log| log.height < from).count());
        assert!(found.next().is_none());
        let last = logs(&opened.reader, LogMatcher::new(&[], &[]), from..=29).next();
        assert_eq!(last.unwrap().unwrap_err(), SearchError::Unreadable { height: from });
    }
}

#[test]
fn heights_that_are_not_there_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut opened = open(dir.path(), 8);
    let records = devnet(ChainConfig::small(3), 30);
    records[10..20].iter().for_each(|record| opened.writer.append(record).unwrap());
    let last = |heights| logs(&opened.reader, LogMatcher::new(&[], &[]), heights).last();
    assert_eq!(last(9..=15).unwrap().unwrap_err(), SearchError::Unreadable { height: 9 });
    assert_eq!(last(15..=20).unwrap().unwrap_err(), SearchError::Unreadable { height: 20 });
    assert_eq!(
        last(u64::MAX..=u64::MAX).unwrap().unwrap_err(),
        SearchError::Unreadable { height: u64::MAX }
    );
    assert!(last(10..=19).is_none_or(|last| last.is_ok()));
    #[allow(clippy::reversed_empty_ranges, reason = "the caller's range may be empty")]
    let backwards = last(15..=14);
    assert!(backwards.is_none());
}
