//! Packed files: every answer is the one of an unpacked neve, before and after a restart.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use neve_devnet::{ChainConfig, Config, DevnetThread};
use neve_record::packed::Codec;
use neve_record::parts::RECEIPTS;
use neve_store::residency::{self, Cold};
use neve_store::{PackedBytes, PackedCodec, PackedPages, Wanted};
use serde_json::Value;

use crate::support::client::Response;
use crate::support::neve::{Neve, command_by, run};

/// Heights of the chain: three whole ranges, and a part of another.
const HEAD: u64 = 110;
const PACKED: u64 = 96;

pub(super) fn chain() -> DevnetThread {
    DevnetThread::start(Config::test().with_head(HEAD)).expect("loopback has free ports")
}

pub(super) fn start(dir: &Path, node: &DevnetThread, unpacked: &str) -> Neve {
    start_with(dir, node, &["--unpacked-bytes", unpacked])
}

pub(super) fn start_with(dir: &Path, node: &DevnetThread, options: &[&str]) -> Neve {
    let url = node.base_url();
    let fixed =
        ["--upstream", &url, "--start", "0", "--segment-blocks", "32", "--api", "debug-raw"];
    let neve = Neve::start(dir, &[&fixed[..], options].concat());
    neve.wait_for_head(HEAD);
    neve
}

pub(super) fn wait_until_packed(neve: &Neve) {
    wait_for_packed(neve, PACKED);
}

/// Waits until so many heights are packed.
pub(crate) fn wait_for_packed(neve: &Neve, heights: u64) {
    neve.wait_for_nice("packed heights", |_| {
        (neve.count("neve_store_packed_heights") >= heights).then_some(())
    });
}

/// Packed files of the store, ascending.
pub(crate) fn packed_files(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir.join("store")).expect("the store is there");
    let files = files.map(|file| file.expect("it can be listed").path());
    let mut packed: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "pack"))
        .collect();
    packed.sort();
    packed
}

/// Sends all these calls, each time that it is called.
pub(super) fn asker<'c>(
    neve: &Neve,
    calls: &'c [(String, String)],
) -> impl FnMut() -> Vec<Response> + use<'c> {
    let mut client = neve.client();
    move || calls.iter().map(|(method, params)| client.call(method, params)).collect()
}

/// Calls of every method about stored heights.
pub(super) fn calls(neve: &Neve) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    let mut client = neve.client();
    let mut call = |method: &str, params: String| calls.push((method.to_owned(), params));
    for height in 0..=HEAD {
        let block = client.result("eth_getBlockByNumber", &format!("[\"{height:#x}\",false]"));
        let hash = block["hash"].as_str().expect("it has a hash").to_owned();
        let by = [format!("\"{height:#x}\""), format!("\"{hash}\"")];
        for full in [true, false] {
            call("eth_getBlockByNumber", format!("[{},{full}]", by[0]));
            call("eth_getBlockByHash", format!("[{},{full}]", by[1]));
        }
        call("eth_getHeaderByNumber", format!("[{}]", by[0]));
        call("eth_getHeaderByHash", format!("[{}]", by[1]));
        for at in &by {
            call("eth_getBlockReceipts", format!("[{at}]"));
            call("debug_getRawBlock", format!("[{at}]"));
            call("debug_getRawHeader", format!("[{at}]"));
            call("debug_getRawReceipts", format!("[{at}]"));
        }
        call("eth_getBlockTransactionCountByNumber", format!("[{}]", by[0]));
        call("eth_getBlockTransactionCountByHash", format!("[{}]", by[1]));
        call("eth_getUncleCountByBlockNumber", format!("[{}]", by[0]));
        call("eth_getLogs", format!("[{{\"blockHash\":{}}}]", by[1]));
        call("eth_feeHistory", format!("[\"0x5\",{},[10,50,90]]", by[0]));
        let transactions = block["transactions"].as_array().expect("it has transactions");
        for (at, transaction) in transactions.iter().enumerate() {
            call("eth_getTransactionByHash", format!("[{transaction}]"));
            call("eth_getTransactionReceipt", format!("[{transaction}]"));
            call("eth_getRawTransactionByHash", format!("[{transaction}]"));
            call("debug_getRawTransaction", format!("[{transaction}]"));
            call("eth_getTransactionByBlockNumberAndIndex", format!("[{},\"{at:#x}\"]", by[0]));
            call("eth_getTransactionByBlockHashAndIndex", format!("[{},\"{at:#x}\"]", by[1]));
        }
        let past = transactions.len();
        call("eth_getTransactionByBlockNumberAndIndex", format!("[{},\"{past:#x}\"]", by[0]));
    }
    let all = format!("\"fromBlock\":\"0x0\",\"toBlock\":\"{HEAD:#x}\"");
    call("eth_getLogs", format!("[{{{all}}}]"));
    let logs = client.result("eth_getLogs", &format!("[{{{all}}}]"));
    let logs = logs.as_array().expect("it is a list");
    assert!(!logs.is_empty(), "the chain has logs");
    for log in logs.iter().step_by(7) {
        let (address, topics) = (&log["address"], &log["topics"]);
        call("eth_getLogs", format!("[{{{all},\"address\":{address}}}]"));
        call("eth_getLogs", format!("[{{{all},\"address\":{address},\"topics\":{topics}}}]"));
        call("eth_getLogs", format!("[{{{all},\"topics\":[null,[{}]]}}]", log["topics"][1]));
    }
    calls
}

/// Asks two servers the same.
fn compare(one: &Neve, other: &Neve) {
    let (mut client, mut other_client) = (one.client(), other.client());
    let calls = calls(one);
    for (method, params) in &calls {
        let (wanted, found) = (client.call(method, params), other_client.call(method, params));
        assert_eq!(found.status, wanted.status, "{method} {params}");
        assert!(
            found.body == wanted.body,
            "{method} {params}:\n{}\n{}",
            found.text(),
            wanted.text()
        );
    }
    let batch = |calls: &[(String, String)]| {
        let calls: Vec<_> = calls
            .iter()
            .map(|(method, params)| {
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
            })
            .collect();
        format!("[{}]", calls.join(","))
    };
    for calls in calls.chunks(50) {
        let body = batch(calls);
        assert!(client.post(&body).body == other_client.post(&body).body, "{body}");
    }
    for height in 0..=HEAD {
        for path in ["", "?transactions=full", "/receipts", "/header"] {
            let path = format!("/v1/blocks/{height}{path}");
            let (wanted, found) = (client.get(&path), other_client.get(&path));
            assert_eq!((found.status, found.body), (wanted.status, wanted.body), "{path}");
        }
    }
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn packed_heights_give_the_answers_of_unpacked_ones() {
    let node = chain();
    let dir = tempfile::tempdir().expect("a directory can be made");
    let (plain, packing) = (dir.path().join("plain"), dir.path().join("packing"));
    let unpacked = start(&plain, &node, "none");
    let packed = start(&packing, &node, "0B");
    wait_until_packed(&packed);
    assert_eq!(packed_files(&packing).len() as u64, PACKED / 32);
    assert_eq!(packed_files(&plain), Vec::<PathBuf>::new());
    compare(&unpacked, &packed);
    packed.stop_in_time();
    let packed = start(&packing, &node, "0B");
    wait_until_packed(&packed);
    compare(&unpacked, &packed);
    packed.stop_in_time();
    unpacked.stop_in_time();
    assert_eq!(verified(&packing), verified(&plain), "the content is the same");
}

/// A neve with longer ranges wrote them.
#[test]
fn segments_across_ranges_are_split_and_packed() {
    let (node, dir) = (chain(), tempfile::tempdir().expect("a directory can be made"));
    let url = node.base_url();
    let start = |blocks: &str, unpacked: &str| {
        let fixed = ["--upstream", &url, "--start", "0", "--api", "debug-raw"];
        let sizes = ["--segment-blocks", blocks, "--unpacked-bytes", unpacked];
        let neve = Neve::start(dir.path(), &[fixed.as_slice(), &sizes].concat());
        neve.wait_for_head(HEAD);
        neve
    };
    let answers = |neve: &Neve, calls: &[(String, String)]| -> Vec<_> {
        asker(neve, calls)().into_iter().map(|response| (response.status, response.body)).collect()
    };
    let longer = start("64", "none");
    let calls = calls(&longer);
    let before = answers(&longer, &calls);
    longer.stop_in_time();
    let (code, digest) = verified(dir.path());
    assert_eq!(code, Some(0), "{digest}");
    let split = start("32", "0B");
    // The active segment goes on from 64.
    wait_for_packed(&split, 64);
    assert!(answers(&split, &calls) == before, "other answers");
    split.stop_in_time();
    assert_eq!(verified(dir.path()), (code, digest), "the content is the same");
}

#[test]
fn packed_heights_are_sent_uncompressed_to_a_client_that_takes_codings() {
    let (node, dir) = (chain(), tempfile::tempdir().expect("a directory can be made"));
    let options = ["--unpacked-bytes", "0B", "--precompress", "gzip,zstd"];
    let neve = start_with(dir.path(), &node, &options);
    wait_until_packed(&neve);
    let mut client = neve.client();
    for height in (0..PACKED).step_by(5) {
        for (method, params) in [
            ("eth_getBlockByNumber", format!("[\"{height:#x}\",true]")),
            ("eth_getBlockReceipts", format!("[\"{height:#x}\"]")),
        ] {
            let right = client.call(method, &params);
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            for coding in ["gzip", "zstd"] {
                let headers = [("Content-Type", "application/json"), ("Accept-Encoding", coding)];
                let found = client.request("POST", "/", &headers, body.as_bytes());
                assert_eq!((found.status, found.header("content-encoding")), (200, None));
                assert!(found.body == right.body, "{coding} {body}");
            }
        }
    }
    neve.stop_in_time();
}

#[test]
fn a_read_of_a_packed_height_unpacks_only_what_it_needs() {
    let (node, dir) = (chain(), tempfile::tempdir().expect("a directory can be made"));
    // The scrubber unpacks what it reads, and begins five seconds after the start.
    let options = ["--unpacked-bytes", "0B", "--scrub-bytes-per-second", "none"];
    let neve = start_with(dir.path(), &node, &options);
    wait_until_packed(&neve);
    let mut client = neve.client();
    let mut unpacked = |method: &str, params: &str| {
        let before = neve.count("neve_store_unpacked_bytes_total");
        let result = client.result(method, params);
        (neve.count("neve_store_unpacked_bytes_total") - before, result)
    };
    let all = format!("\"fromBlock\":\"0x0\",\"toBlock\":\"{:#x}\"", PACKED - 1);
    let (_, logs) = unpacked("eth_getLogs", &format!("[{{{all}}}]"));
    let (log, hash) = (&logs[0], &logs[0]["transactionHash"]);
    for method in ["eth_getTransactionByHash", "eth_getTransactionReceipt"] {
        let (bytes, _) = unpacked(method, &format!("[{hash}]"));
        assert!((1..=64 << 10).contains(&bytes), "{method} unpacks {bytes}");
    }
    let (whole, _) = unpacked("eth_getBlockReceipts", &format!("[{}]", log["blockNumber"]));
    let (bytes, _) = unpacked("eth_getBlockByNumber", &format!("[{},true]", log["blockNumber"]));
    assert_eq!((whole > 0, bytes), (true, whole), "no height is unpacked twice");
    let (bytes, _) =
        unpacked("eth_getUncleByBlockNumberAndIndex", &format!("[{},\"0x0\"]", log["blockNumber"]));
    assert_eq!(bytes, 0);
    // What the index of the file excludes is not unpacked.
    let nobody = format!("\"address\":\"0x{:040}\"", 9);
    let one = format!("\"fromBlock\":{0},\"toBlock\":{0}", log["blockNumber"]);
    let by_hash = format!("\"blockHash\":{}", log["blockHash"]);
    for heights in [&all, &one, &by_hash] {
        let (bytes, found) = unpacked("eth_getLogs", &format!("[{{{heights},{nobody}}}]"));
        assert_eq!((bytes, found), (0, serde_json::json!([])), "{heights}");
        let of = format!("\"address\":{},\"topics\":{}", log["address"], log["topics"]);
        let (bytes, found) = unpacked("eth_getLogs", &format!("[{{{heights},{of}}}]"));
        assert!(bytes > 0 && !found.as_array().expect("a list").is_empty(), "{heights}");
    }
    neve.stop_in_time();
}

/// A chain with blocks of mainnet's size.
fn large_chain() -> DevnetThread {
    let config = Config { chain: ChainConfig::c_chain(1), ..Config::test() };
    DevnetThread::start(config.with_head(HEAD)).expect("loopback has free ports")
}

#[test]
fn other_connections_have_a_packed_block_unpacked_by_another_thread() {
    let (node, dir) = (large_chain(), tempfile::tempdir().expect("a directory can be made"));
    let neve = start_with(dir.path(), &node, &["--unpacked-bytes", "0B", "--threads", "1"]);
    wait_until_packed(&neve);
    let mut client = neve.client();
    // The largest ones are never unpacked by a serving thread.
    let blocks = (0..PACKED)
        .map(|height| client.result("eth_getBlockByNumber", &format!("[\"{height:#x}\",false]")));
    let transactions = |block: &Value| block["transactions"].as_array().expect("a list").len();
    let usual = blocks.filter(|block| transactions(block) < 100).max_by_key(transactions);
    let usual = usual.expect("there is one");
    let (number, hash) = (&usual["number"], &usual["hash"]);
    let calls = [
        ("eth_getBlockReceipts", format!("[{number}]"), 1),
        ("eth_getBlockByNumber", format!("[{number},true]"), 1),
        ("eth_getLogs", format!("[{{\"blockHash\":{hash}}}]"), 1),
        ("eth_getBlockTransactionCountByNumber", format!("[{number}]"), 0),
        ("eth_getTransactionReceipt", format!("[{}]", usual["transactions"][0]), 0),
    ];
    let mut answers = || {
        calls.each_ref().map(|(method, params, _)| {
            let before = neve.count("neve_http_offloaded_requests_total");
            let result = client.result(method, params);
            (neve.count("neve_http_offloaded_requests_total") - before, result)
        })
    };
    let alone = answers();
    let mut other = neve.client();
    other.result("eth_chainId", "[]");
    for (((method, _, expected), alone), beside) in calls.iter().zip(alone).zip(answers()) {
        assert_eq!((alone.0, beside.0), (0, *expected), "{method}");
        assert!(alone.1 == beside.1 && !alone.1.is_null(), "{method}");
    }
    neve.stop_in_time();
}

/// Pages of a packed file that count the reads behind an offset.
struct Counting {
    file: Vec<u8>,
    from: u64,
    reads: AtomicUsize,
}

impl PackedPages for Counting {
    fn bytes(&self) -> u64 {
        self.file.len() as u64
    }

    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        self.reads.fetch_add(usize::from(offset >= self.from), Ordering::Relaxed);
        let offset = usize::try_from(offset).ok()?;
        Some(self.file.get(offset..offset + len)?.to_vec())
    }
}

#[test]
fn heavy_packed_height_is_handed_over_before_it_is_read() {
    let (node, dir) = (large_chain(), tempfile::tempdir().expect("a directory can be made"));
    let neve = start_with(dir.path(), &node, &["--unpacked-bytes", "0B"]);
    wait_until_packed(&neve);
    neve.stop_in_time();
    let file = fs::read(&packed_files(dir.path())[1]).expect("it is there");
    let open = |pages: &Arc<Counting>| {
        let pages: Arc<dyn PackedPages> = pages.clone();
        Codec::default().open(PackedBytes::paged(pages)).expect("it is intact")
    };
    let counting = |from| Arc::new(Counting { file: file.clone(), from, reads: 0.into() });
    let range = open(&counting(0));
    let heights = range.header().first..range.header().end();
    let extents: Vec<_> =
        heights.clone().map(|at| range.extent(at).expect("it is there")).collect();
    let pages = counting(extents.iter().map(|extent| extent.0).min().expect("there are some"));
    let range = open(&pages);
    let wanted = Wanted::Part { part: RECEIPTS, flags: 0 };
    let mut heavy = 0;
    for (height, (_, stored)) in heights.zip(extents) {
        let before = pages.reads.load(Ordering::Relaxed);
        let read = residency::if_resident(|| {
            range.read(height, wanted, &mut Vec::new()).map_err(|_| Cold)
        });
        let reads = pages.reads.load(Ordering::Relaxed) - before;
        if stored / 2 > 2 << 10 {
            assert_eq!((read.is_err(), residency::was_too_heavy(), reads), (true, true, 0));
            heavy += 1;
        } else {
            assert_eq!(reads, 1);
        }
    }
    assert!(heavy > 0, "blocks of mainnet's size");
}

/// Code and last line of `neve verify`.
pub(super) fn verified(dir: &Path) -> (Option<i32>, String) {
    let store = dir.join("store").display().to_string();
    let output = run(&["verify", "--digest", "--data-dir", &store]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn a_flipped_byte_of_a_packed_file_is_found() {
    let (node, dir) = (chain(), tempfile::tempdir().expect("a directory can be made"));
    let neve = start(dir.path(), &node, "0B");
    wait_until_packed(&neve);
    neve.stop_in_time();
    assert_eq!(verified(dir.path()).0, Some(0));
    let file = packed_files(dir.path()).remove(1);
    let good = fs::read(&file).expect("it can be read");
    for part in 0..40 {
        let mut bad = good.clone();
        bad[part * good.len() / 40] ^= 1;
        fs::write(&file, &bad).expect("it can be written");
        assert_eq!(verified(dir.path()).0, Some(1), "byte {}", part * good.len() / 40);
    }
}

#[test]
fn packed_file_that_is_longer_than_its_header_says_is_found_without_reading_it() {
    let (node, dir) = (chain(), tempfile::tempdir().expect("a directory can be made"));
    let neve = start(dir.path(), &node, "0B");
    wait_until_packed(&neve);
    neve.stop_in_time();
    let path = packed_files(dir.path()).remove(1);
    let file = fs::File::options().write(true).open(path).expect("it is ours");
    file.set_len(1 << 40).expect("it has no more blocks than before");
    let store = dir.path().join("store").display().to_string();
    // Without the bound it would take all memory: so it has little.
    let limited = command_by(&["sh", "-c", "ulimit -v 4194304; exec \"$0\" \"$@\""])
        .args(["verify", "--data-dir", &store])
        .output()
        .expect("a shell is there");
    let text = String::from_utf8_lossy(&limited.stdout).into_owned();
    assert_eq!(limited.status.code(), Some(1), "{text} {limited:?}");
    assert!(text.contains("the file has 1099511627776 bytes, its header says"), "{text}");
    let bucket = tempfile::tempdir().expect("a directory can be made");
    let place = format!("file://{}", bucket.path().display());
    let push = run(&["archive", "push", "--data-dir", &store, &place]);
    let text = String::from_utf8_lossy(&push.stderr).into_owned();
    assert!(push.status.code() == Some(1) && text.contains("its header says"), "{text}");
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn packed_file_that_is_cut_while_neve_runs_is_a_miss_and_repaired() {
    let (node, dir) = (chain(), tempfile::tempdir().expect("a directory can be made"));
    let neve = start(dir.path(), &node, "0B");
    wait_until_packed(&neve);
    let calls = calls(&neve);
    let mut ask = asker(&neve, &calls);
    let whole = ask();
    let mut paths = packed_files(dir.path());
    let open = |path: &PathBuf| fs::File::options().write(true).open(path).expect("it is ours");
    // Nothing is left of the first one; the repair knows its newest hash all the same.
    open(&paths.remove(0)).set_len(0).expect("it is ours");
    let file = open(&paths.remove(0));
    let length = file.metadata().expect("it is there").len();
    for length in [length / 2, 700, 0] {
        file.set_len(length).expect("it is ours");
        // Pages that were read a moment ago count as being in memory.
        for (found, right) in ask().iter().zip(&whole) {
            assert!(found.status == 421 || found.body == right.body, "{}", found.text());
        }
    }
    neve.wait("repair", |_| {
        ask().iter().zip(&whole).all(|(found, right)| found.body == right.body).then_some(())
    });
    neve.stop_in_time();
}
