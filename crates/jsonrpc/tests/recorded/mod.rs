//! Reads the recorded exchanges with nodes.

#![allow(dead_code, reason = "each file of tests reads recordings of its own kinds")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;

/// The lines of a file, whose path starts at this crate.
pub(crate) fn lines(file: &str) -> impl Iterator<Item = Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let lines = BufReader::new(GzDecoder::new(File::open(&path).unwrap())).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

/// A call and its answer.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) request: String,
    /// Empty if it is a result too long to be kept.
    pub(crate) answer: String,
}

fn text(row: &Value, key: &str) -> Option<String> {
    row[key].as_str().map(str::to_owned)
}

/// The rows of a file of `tests/corpus` that are JSON-RPC over POST and were answered as such.
pub(crate) fn corpus(file: &str) -> Vec<Row> {
    lines(&format!("../../tests/corpus/{file}.jsonl.gz"))
        .filter(|row| row["method"] == "POST" && row["status"] == 200)
        .filter(|row| row["path"] == "/ext/bc/C/rpc")
        // Of these the recorded body is not what the server read.
        .filter(|row| !row["name"].as_str().is_some_and(|name| name.starts_with("http/length")))
        .filter_map(|row| {
            let request = text(&row, "request_body")?;
            Some(Row { name: text(&row, "name")?, request, answer: text(&row, "response_body")? })
        })
        .collect()
}

/// The rows of a file beside these tests.
pub(crate) fn data(file: &str) -> Vec<Row> {
    lines(&format!("tests/data/{file}.jsonl.gz"))
        .map(|row| Row {
            name: text(&row, "name").unwrap(),
            request: text(&row, "request").unwrap(),
            answer: text(&row, "answer").unwrap_or_default(),
        })
        .collect()
}
