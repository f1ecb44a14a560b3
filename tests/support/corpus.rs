//! Exchanges recorded from real nodes, see tests/corpus/README.md.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::Value;

/// A set of exchanges with one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Set {
    pub(crate) folder: &'static str,
    /// Newest height of the recorded chain.
    pub(crate) head: u64,
}

pub(crate) const MAIN: Set = Set { folder: "v1.14.2/main", head: 339 };
pub(crate) const FORKS: Set = Set { folder: "v1.14.2/forks", head: 271 };
pub(crate) const APRICOT0: Set = Set { folder: "v1.14.2/apricot0", head: 128 };
pub(crate) const HELICON: Set = Set { folder: "v1.15.0", head: 381 };
pub(crate) const ALL: [Set; 4] = [MAIN, FORKS, APRICOT0, HELICON];

/// A recorded exchange: a request and its response.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The JSON-RPC method; `None` where it is about transport or the whole body.
    pub(crate) rpc: Option<String>,
    /// The HTTP method.
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) request: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) answer_headers: Vec<(String, String)>,
    pub(crate) answer: Vec<u8>,
    /// Version of HTTP of the request.
    pub(crate) version: String,
}

impl Set {
    /// The rows of a file; none if the set has no such file.
    pub(crate) fn rows(self, file: &str) -> Vec<Row> {
        self.lines(file).map(|line| row(&line)).collect()
    }

    /// The lines of a file; none if the set has no such file.
    pub(crate) fn lines(self, file: &str) -> impl Iterator<Item = String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(self.folder);
        let file = File::open(folder.join(format!("{file}.jsonl.gz"))).ok();
        let lines = file.into_iter().flat_map(|file| BufReader::new(GzDecoder::new(file)).lines());
        lines.map(|line| line.expect("the file is whole"))
    }
}

fn row(line: &str) -> Row {
    let row: Value = serde_json::from_str(line).expect("a row is JSON");
    let text = |key: &str| row[key].as_str().map(str::to_owned);
    let answer_header = |name: &str| {
        let headers = row["response_headers"].as_array()?;
        let found = headers.iter().find(|header| {
            header[0].as_str().is_some_and(|found| found.eq_ignore_ascii_case(name))
        })?;
        found[1].as_str().map(str::to_owned)
    };
    let headers = |key: &str| row[key].as_array().into_iter().flatten().map(pair).collect();
    Row {
        name: text("name").expect("a row has a name"),
        rpc: text("rpc"),
        method: text("method").expect("a row has a method"),
        path: text("path").expect("a row has a path"),
        headers: headers("request_headers"),
        request: body(&row, "request_body"),
        status: row["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(0),
        content_type: answer_header("content-type"),
        answer_headers: headers("response_headers"),
        answer: body(&row, "response_body"),
        version: text("http_version").unwrap_or_else(|| "HTTP/1.1".to_owned()),
    }
}

fn pair(header: &Value) -> (String, String) {
    let text = |at: usize| header[at].as_str().unwrap_or_default().to_owned();
    (text(0), text(1))
}

/// A recorded body: text, base64, or a piece that repeats.
fn body(row: &Value, key: &str) -> Vec<u8> {
    if let Some(text) = row[key].as_str() {
        return text.as_bytes().to_vec();
    }
    if let Some(text) = row[format!("{key}_b64")].as_str() {
        return base64(text);
    }
    let repeat = &row[format!("{key}_repeat")];
    let text = |key: &str| repeat[key].as_str().unwrap_or_default();
    let count = repeat["count"].as_u64().unwrap_or(0) as usize;
    [text("prefix"), &text("unit").repeat(count), text("suffix")].concat().into_bytes()
}

/// Base64 of the standard alphabet (RFC 4648), padded.
#[expect(clippy::big_endian_bytes, reason = "the order of RFC 4648")]
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let digits = group.iter().filter(|byte| **byte != b'=');
        let bits = digits.clone().fold(0, |bits, byte| bits << 6 | digit(*byte));
        let count = digits.count();
        let bits = bits << (6 * (4 - count));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..count]);
    }
    bytes
}
