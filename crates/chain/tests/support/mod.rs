//! Reading the recorded data.

use std::{collections::BTreeMap, fs, io::Read, path::PathBuf};

use serde_json::{Value, value::RawValue};

/// A row of a recorded corpus.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) rpc: String,
    pub(crate) request: String,
    pub(crate) response: String,
}

/// A file beside the crate's tests.
pub(crate) fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/mainnet").join(path)
}

/// A plain text file.
pub(crate) fn text(path: &str) -> String {
    fs::read_to_string(data(path)).expect(path)
}

/// The lines of a file compressed with zstd.
pub(crate) fn zstd_lines(path: &str) -> Vec<String> {
    let bytes = fs::read(data(path)).expect(path);
    let text = zstd::decode_all(&bytes[..]).expect(path);
    String::from_utf8(text).expect(path).lines().map(str::to_owned).collect()
}

/// The rows of a file of `data/recorded`, see the README there.
pub(crate) fn recorded(file: &str) -> Vec<Value> {
    let lines = zstd_lines(&format!("../recorded/{file}"));
    lines.iter().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

/// The recorded corpora, by their folders.
pub(crate) const CORPORA: [&str; 4] =
    ["v1.14.2/main", "v1.14.2/forks", "v1.14.2/apricot0", "v1.15.0"];

/// The rows of a recorded file. Rows whose bodies are no text are left out.
pub(crate) fn rows(corpus: &str, file: &str) -> Vec<Row> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let bytes = fs::read(root.join(corpus).join(file)).expect(corpus);
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).expect(corpus);
    text.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let row: Value = serde_json::from_str(line).expect("a row is JSON");
    let field = |name: &str| row[name].as_str().map(str::to_owned);
    Some(Row {
        name: field("name")?,
        rpc: field("rpc").unwrap_or_default(),
        request: field("request_body")?,
        response: field("response_body")?,
    })
}

/// The exact text of `result`.
pub(crate) fn result(response: &str) -> Option<&str> {
    let members: BTreeMap<&str, &RawValue> = serde_json::from_str(response).ok()?;
    members.get("result").map(|raw| raw.get())
}

/// The answers about one height of a corpus.
#[derive(Clone, Debug, Default)]
pub(crate) struct Height {
    pub(crate) full: String,
    pub(crate) hashes: String,
    pub(crate) receipts: String,
    pub(crate) raw: String,
    pub(crate) raw_receipts: Vec<String>,
}

/// All heights of a corpus, in order from 0.
pub(crate) fn chain(corpus: &str) -> Vec<Height> {
    let mut heights: BTreeMap<u64, Height> = BTreeMap::new();
    for row in rows(corpus, "blocks.jsonl.gz") {
        let mut parts = row.name.split('/').skip(1);
        let height = parts.next().and_then(|number| number.parse().ok()).expect("a height");
        let height = heights.entry(height).or_default();
        let result = result(&row.response).expect("a result").to_owned();
        match parts.next().expect("a kind") {
            "full" => height.full = result,
            "hashes" => height.hashes = result,
            "receipts" => height.receipts = result,
            "raw" => height.raw = serde_json::from_str(&result).expect("a string"),
            "rawreceipts" => height.raw_receipts = serde_json::from_str(&result).expect("strings"),
            _ => {}
        }
    }
    assert!(heights.keys().copied().eq(0..heights.len() as u64), "heights without a gap");
    heights.into_values().collect()
}
