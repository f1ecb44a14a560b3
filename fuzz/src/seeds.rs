//! Makes seeds from the recorded data of this repository: `seeds ROOT CORPUS` reads below `ROOT` and writes
//! `CORPUS/TARGET/*`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use neve_packed::{B256, HeightTexts, Identity, pack};
use serde_json::Value;
use serde_json::value::RawValue;

/// Longer ones slow the fuzzer down more than they teach it.
const REQUEST_BYTES_MAX: usize = 2 << 10;
/// Of the recorded requests: they take a second to read.
const REQUESTS_MAX: usize = 5_000;
const BLOCK_BYTES_MAX: usize = 12 << 10;
/// Neighboring heights of a packed file: enough for a dictionary. Longer files than the fuzzer takes are no seeds.
const NEIGHBORS: usize = 32;
const FILE_BYTES_MAX: usize = 64 << 10;
const CORPORA: [&str; 4] = ["v1.14.2/main", "v1.14.2/forks", "v1.14.2/apricot0", "v1.15.0"];

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(root), Some(corpus)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: seeds ROOT CORPUS");
        std::process::exit(64);
    };
    let heights: Vec<_> = CORPORA.iter().flat_map(|set| heights(&root, set)).collect();
    write(&corpus, "requests", requests(&root));
    write(
        &corpus,
        "assembly",
        heights.iter().map(|(block, receipts)| join(block, receipts)).collect(),
    );
    write(&corpus, "mirror_frames", frames(&heights));
    write(&corpus, "packed", packed(&heights, &all(&root, "v1.15.0")));
    write(&corpus, "http_heads", heads(&root));
    write(&corpus, "segments", (0..64_u8).map(|seed| edits(seed)).collect());
}

fn write(corpus: &Path, target: &str, mut seeds: Vec<Vec<u8>>) {
    seeds.sort();
    seeds.dedup();
    let dir = corpus.join(target);
    fs::create_dir_all(&dir).expect("the corpus can be written");
    for seed in &seeds {
        let name = format!("seed-{:08x}-{}", crc32fast::hash(seed), seed.len());
        fs::write(dir.join(name), seed).expect("the corpus can be written");
    }
    println!("{target}: {} seeds", seeds.len());
}

fn rows(path: &Path) -> Vec<Value> {
    let bytes = fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let mut text = String::new();
    MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("a recording is text");
    text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

/// The recorded files of a folder.
fn recordings(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|why| panic!("{}: {why}", dir.display()));
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ext| ext == "gz")).collect();
    paths.sort();
    paths
}

fn requests(root: &Path) -> Vec<Vec<u8>> {
    let corpora = CORPORA.map(|set| root.join("tests/corpus").join(set));
    let data = ["v1.14.2", "v1.15.0"].map(|set| root.join("crates/jsonrpc/tests/data").join(set));
    let rows =
        corpora.iter().chain(&data).flat_map(|dir| recordings(dir)).flat_map(|path| rows(&path));
    let body = |row: Value| {
        let body = ["request_body", "request", "text"].iter().find_map(|key| row[*key].as_str());
        body.map(|body| body.as_bytes().to_vec())
    };
    let mut all: Vec<_> =
        rows.filter_map(body).filter(|body| body.len() <= REQUEST_BYTES_MAX).collect();
    all.sort();
    all.dedup();
    let step = all.len().div_ceil(REQUESTS_MAX).max(1);
    all.into_iter().step_by(step).collect()
}

/// Some small blocks with their receipts, of a set.
fn heights(root: &Path, set: &str) -> Vec<(String, String)> {
    let small = |(block, receipts): &(String, String)| {
        !block.is_empty() && !receipts.is_empty() && block.len() + receipts.len() <= BLOCK_BYTES_MAX
    };
    all(root, set).into_iter().filter(small).step_by(3).collect()
}

/// Blocks with their receipts, of a set, ascending.
fn all(root: &Path, set: &str) -> Vec<(String, String)> {
    let mut heights: BTreeMap<u64, (String, String)> = BTreeMap::new();
    for row in rows(&root.join("tests/corpus").join(set).join("blocks.jsonl.gz")) {
        let (Some(name), Some(body)) = (row["name"].as_str(), row["response_body"].as_str()) else {
            continue;
        };
        let mut parts = name.split('/').skip(1);
        let Some(number) = parts.next().and_then(|number| number.parse().ok()) else { continue };
        let height = heights.entry(number).or_default();
        let result = serde_json::from_str::<BTreeMap<&str, &RawValue>>(body).ok();
        let result = result.and_then(|answer| Some(answer.get("result")?.get().to_owned()));
        match (parts.next(), result) {
            (Some("full"), Some(result)) => height.0 = result,
            (Some("receipts"), Some(result)) => height.1 = result,
            _ => {}
        }
    }
    heights.into_values().collect()
}

fn join(block: &str, receipts: &str) -> Vec<u8> {
    [block.as_bytes(), b"\0", receipts.as_bytes()].concat()
}

/// Texts of heights, and packed files: of one height, without tables and dictionary, and of many with both.
fn packed(heights: &[(String, String)], neighbors: &[(String, String)]) -> Vec<Vec<u8>> {
    let identity = Identity { chain_id: 43_112, genesis: B256::ZERO };
    let file = |heights: &[(String, String)]| {
        let texts: Vec<_> = heights
            .iter()
            .map(|(block, receipts)| HeightTexts {
                block: block.as_bytes(),
                receipts: receipts.as_bytes(),
            })
            .collect();
        let range = texts.len().next_power_of_two() as u32;
        let packing = pack(identity, range, &texts, &mut || ControlFlow::Continue(()));
        packing.expect("recorded heights can be packed").bytes
    };
    let alone = heights.chunks(1).step_by(4).map(file);
    let many = neighbors.chunks(NEIGHBORS).map(file).filter(|file| file.len() <= FILE_BYTES_MAX);
    let files = alone.chain(many);
    let texts = heights.iter().step_by(8).map(|(block, receipts)| join(block, receipts));
    files.chain(texts).collect()
}

/// Frames in the form of the target: a kind, a length and a payload each.
fn frames(heights: &[(String, String)]) -> Vec<Vec<u8>> {
    let framed = |kind: u8, payload: &[u8]| {
        [&[kind][..], &(payload.len() as u16).to_le_bytes(), payload].concat()
    };
    let mut seeds: Vec<Vec<u8>> = vec![
        [vec![0], framed(3, &[]), framed(2, &7_u64.to_le_bytes()), framed(4, &[])].concat(),
        [vec![0], framed(9, b"later"), framed(3, &[])].concat(),
        br#"{"format":1,"chain_id":1,"genesis":"0x00","first":0,"head":70,"segments":[{"base":0,"records":32}]}"#
            .to_vec(),
    ];
    for (height, (block, receipts)) in heights.iter().enumerate().step_by(20) {
        let (height, len) = (height as u64, block.len() as u32);
        let head = [&height.to_le_bytes()[..], &len.to_le_bytes()].concat();
        let payload = [&head[..], block.as_bytes(), receipts.as_bytes()].concat();
        seeds.push([vec![0], framed(1, &payload), framed(3, &[])].concat());
    }
    seeds
}

/// Requests as they went over the wire, and some in the plainest form.
fn heads(root: &Path) -> Vec<Vec<u8>> {
    let files = CORPORA.map(|set| root.join("tests/corpus").join(set).join("errors.jsonl.gz"));
    let rows = files.iter().filter(|path| path.exists()).flat_map(|path| rows(path));
    let recorded =
        rows.filter(|row| row["name"].as_str().is_some_and(|name| name.starts_with("http/")));
    let mut seeds: Vec<_> =
        recorded.map(|row| wire(&row)).filter(|wire| wire.len() <= 2048).collect();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"web3_sha3","params":["0x61"]}"#;
    for version in ["1.1", "1.0"] {
        for more in [
            "",
            "Connection: close\r\n",
            "Connection: keep-alive\r\n",
            "Accept-Encoding: gzip\r\n",
            "Expect: 100-continue\r\n",
        ] {
            let head = format!(
                "POST / HTTP/{version}\r\nHost: x\r\nContent-Type: application/json\r\n{more}"
            );
            let request = format!("{head}Content-Length: {}\r\n\r\n{call}", call.len());
            seeds.push(request.clone().into_bytes());
            seeds.push(request.repeat(2).into_bytes());
            let chunked = format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{call}\r\n0\r\n\r\n",
                call.len()
            );
            seeds.push(chunked.into_bytes());
        }
    }
    seeds
}

fn wire(row: &Value) -> Vec<u8> {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let version = if row["http_version"].is_string() { text("http_version") } else { "HTTP/1.1" };
    let mut out = format!("{} {} {version}\r\n", text("method"), text("path"));
    let headers = row["request_headers"].as_array().cloned().unwrap_or_default();
    for header in &headers {
        let part = |at: usize| header[at].as_str().unwrap_or_default().to_owned();
        out.push_str(&format!("{}: {}\r\n", part(0), part(1)));
    }
    [out.as_bytes(), b"\r\n", text("request_body").as_bytes()].concat()
}

/// Bytes from which `arbitrary` makes edits of a store.
fn edits(seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed).wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..16 + u32::from(seed) * 3).map(|_| next()).collect()
}
