//! Answers by rules: before Helicon, after it, between acceptance and execution, and while the node goes
//! over.

use std::{
    thread,
    time::{Duration, Instant},
};

use neve_chain::{gas_price, gas_target, next_base_fee};
use neve_devnet::{ChainConfig, Config, DevnetThread, Helicon, Older, Part, Profile, Version};
use neve_jsonrpc::Rules;
use serde_json::{Value, json};

use crate::support::{self, Socket, call, error, hex, quantity, result, wait_until};

fn start(config: Config) -> DevnetThread {
    DevnetThread::start(config).unwrap()
}

fn value(devnet: &DevnetThread, method: &str, params: &Value) -> Value {
    serde_json::from_str(&result(devnet, method, params)).unwrap()
}

const UNFINALIZED: &str = "cannot query unfinalized data";
const NO_TAG: &str = "invalid argument 0: hex string without 0x prefix";

#[test]
fn before_helicon() {
    let devnet = start(Config::test());
    assert_eq!(result(&devnet, "eth_blockNumber", &json!([])), "\"0xa\"");
    assert_eq!(result(&devnet, "eth_chainId", &json!([])), "\"0xa868\"");
    assert_eq!(result(&devnet, "net_version", &json!([])), "\"43112\"");
    assert_eq!(result(&devnet, "web3_clientVersion", &json!([])), "\"v1.14.2\"");
    let newest = devnet.block(10).unwrap();
    let expected = String::from_utf8(newest.answer(Part::Full, Rules::BeforeHelicon)).unwrap();
    for tag in ["latest", "pending", "accepted", "safe", "finalized", "0xa"] {
        assert_eq!(result(&devnet, "eth_getBlockByNumber", &json!([tag, true])), expected, "{tag}");
    }
    assert_eq!(
        value(&devnet, "eth_getBlockByNumber", &json!(["0x7", false]))["totalDifficulty"],
        "0x7"
    );
    for method in ["eth_getBlockByNumber", "eth_getHeaderByNumber"] {
        let params = if method.contains("Block") { json!(["0xb", true]) } else { json!(["0xb"]) };
        assert_eq!(error(&devnet, method, &params), (-32_000, UNFINALIZED.to_owned()));
    }
    for method in ["eth_getBlockReceipts", "eth_getBlockTransactionCountByNumber"] {
        assert_eq!(result(&devnet, method, &json!(["0xb"])), "null");
    }
}

#[test]
fn after_helicon() {
    let devnet = start(Config::test().with_helicon(Helicon::At(5)).with_head(20));
    assert_eq!(devnet.rules(), Rules::Helicon);
    let version = result(&devnet, "web3_clientVersion", &json!([]));
    assert!(version.starts_with("\"avalanchego/1.15.0 "));
    for height in [0, 3, 4, 5, 20] {
        let params = json!([hex(height), true]);
        let block = value(&devnet, "eth_getBlockByNumber", &params);
        assert_eq!(block["totalDifficulty"], "0x0", "{height}");
        assert_eq!(block.get("settledHeight").is_some(), height >= 5, "{height}");
    }
    assert_eq!(result(&devnet, "eth_getBlockByNumber", &json!(["0x15", true])), "null");
    assert_eq!(result(&devnet, "eth_getHeaderByNumber", &json!(["0x15"])), "null");
    let accepted = json!(["accepted", true]);
    assert_eq!(error(&devnet, "eth_getBlockByNumber", &accepted), (-32_602, NO_TAG.to_owned()));
    let settled = devnet.block(20).unwrap().header().settled_height.unwrap();
    for tag in ["safe", "finalized"] {
        let header = value(&devnet, "eth_getHeaderByNumber", &json!([tag]));
        assert_eq!(quantity(&header["number"]), settled);
    }
    assert_eq!(devnet.settled(), settled);
}

/// Prices are those that follow from the head.
#[test]
fn prices_fit_the_head() {
    for helicon in [Helicon::Never, Helicon::FromGenesis] {
        let devnet = start(Config::test().with_helicon(helicon).with_head(60));
        let price = |method| quantity(&value(&devnet, method, &json!([])));
        let base_fee = price("eth_baseFee");
        let tip = price("eth_maxPriorityFeePerGas");
        assert_eq!(price("eth_gasPrice"), base_fee + tip);
        let options = value(&devnet, "eth_suggestPriceOptions", &json!([]));
        assert_eq!(quantity(&options["normal"]["maxPriorityFeePerGas"]), tip);
        assert_eq!(quantity(&options["normal"]["maxFeePerGas"]), 2 * base_fee + tip);
        let headers: Vec<_> =
            (0..=60).map(|height| devnet.block(height).unwrap().header().clone()).collect();
        if helicon == Helicon::Never {
            // By the excess in the head's extra data over a target of 2.4 million.
            let word = |at| {
                let bytes = &headers[60].extra_data[at..at + 8];
                bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
            };
            assert_eq!(base_fee, gas_price(word(8), gas_target(word(16))));
            assert!((1..=150_000_000_000).contains(&tip) && tip > 150, "{tip}");
        } else {
            assert_eq!(Some(base_fee), next_base_fee(&headers).map(|fee| fee.to()));
            assert_eq!(tip, 150, "the most that a node suggests");
        }
    }
}

#[test]
fn pending_is_not_decided() {
    let devnet = start(Config::test().with_helicon(Helicon::FromGenesis));
    for full in [true, false] {
        let latest = value(&devnet, "eth_getBlockByNumber", &json!(["latest", full]));
        let pending = value(&devnet, "eth_getBlockByNumber", &json!(["pending", full]));
        for (key, value) in latest.as_object().unwrap() {
            let open = ["hash", "miner", "nonce"].contains(&key.as_str());
            assert_eq!(&pending[key], if open { &Value::Null } else { value }, "{key}");
        }
    }
    let header = value(&devnet, "eth_getHeaderByNumber", &json!(["pending"]));
    assert_eq!((&header["hash"], header.get("size")), (&Value::Null, None));
}

/// Everything about one block agrees, whatever way it is asked for.
#[test]
fn all_ways_lead_to_a_block() {
    let devnet = start(Config::test());
    let mut blocks = (1..=10).map(|height| devnet.block(height).unwrap());
    let block = blocks.find(|block| block.transactions().len() > 1).unwrap();
    let (number, hash) = (hex(block.number()), block.hash().to_string());
    let full = result(&devnet, "eth_getBlockByHash", &json!([hash, true]));
    assert_eq!(full.as_bytes(), block.answer(Part::Full, Rules::BeforeHelicon));
    let header = result(&devnet, "eth_getHeaderByHash", &json!([hash]));
    assert_eq!(header.as_bytes(), block.answer(Part::Header, Rules::BeforeHelicon));
    let receipts = block.receipts();
    for reference in [json!(number), json!(hash), json!({"blockHash": hash})] {
        let answer = result(&devnet, "eth_getBlockReceipts", &json!([reference]));
        assert_eq!(answer.as_bytes(), receipts);
    }
    let count = result(&devnet, "eth_getBlockTransactionCountByHash", &json!([hash]));
    assert_eq!(count, format!("\"{:#x}\"", block.transactions().len()));
    for (index, transaction) in block.transactions().iter().enumerate() {
        let expected = block.transaction(index).unwrap();
        let id = transaction.to_string();
        let at = json!([number, hex(index as u64)]);
        for (method, params) in [
            ("eth_getTransactionByHash", json!([id])),
            ("eth_getTransactionByBlockNumberAndIndex", at),
            ("eth_getTransactionByBlockHashAndIndex", json!([hash, hex(index as u64)])),
        ] {
            assert_eq!(result(&devnet, method, &params).as_bytes(), expected, "{method}");
        }
        let receipt = result(&devnet, "eth_getTransactionReceipt", &json!([id]));
        assert_eq!(receipt.as_bytes(), block.receipt(index).unwrap());
    }
    let unknown = json!(["0x".to_owned() + &"de".repeat(32)]);
    for method in ["eth_getTransactionByHash", "eth_getTransactionReceipt", "eth_getHeaderByHash"] {
        assert_eq!(result(&devnet, method, &unknown), "null");
    }
    let beyond = json!([number, "0xffff"]);
    let method = "eth_getTransactionByBlockNumberAndIndex";
    assert_eq!(result(&devnet, method, &beyond), "null");
}

/// An accepted block is there at once; `latest` and receipts wait for its execution.
#[test]
fn between_acceptance_and_execution() {
    let devnet = start(Config::test().with_helicon(Helicon::FromGenesis));
    devnet.hold_execution(true);
    assert_eq!((devnet.advance(1), devnet.latest()), (11, 10));
    let block = devnet.block(11).unwrap();
    assert_eq!(result(&devnet, "eth_blockNumber", &json!([])), "\"0xa\"");
    let answer = result(&devnet, "eth_getBlockByNumber", &json!(["0xb", true]));
    assert_eq!(answer.as_bytes(), block.answer(Part::Full, Rules::Helicon));
    let start = Instant::now();
    thread::scope(|scope| {
        let receipts = scope.spawn(|| {
            let answer = result(&devnet, "eth_getBlockReceipts", &json!(["0xb"]));
            (answer, start.elapsed())
        });
        let executed = scope.spawn(|| {
            thread::park_timeout(Duration::from_millis(120));
            devnet.execute()
        });
        let (answer, waited) = receipts.join().unwrap();
        assert_eq!(answer.as_bytes(), block.receipts());
        assert!(waited > Duration::from_millis(100), "{waited:?}");
        assert_eq!(executed.join().unwrap(), 11);
    });
    assert_eq!(result(&devnet, "eth_blockNumber", &json!([])), "\"0xb\"");
    assert_eq!(result(&devnet, "eth_getBlockReceipts", &json!(["0xc"])), "null");
}

#[test]
fn execution_takes_its_time() {
    let execution = Duration::from_secs(2);
    let config = Config { execution, ..Config::test().with_helicon(Helicon::FromGenesis) };
    let devnet = start(config);
    let start = Instant::now();
    devnet.advance(2);
    assert_eq!((devnet.accepted(), devnet.latest()), (12, 10));
    wait_until("it is executed", || devnet.latest() == 12);
    assert!(start.elapsed() >= execution);
}

/// Goes over as at the transition block: sockets are cut, requests wait, then answers are others.
#[test]
fn going_over() {
    let hold = Duration::from_millis(150);
    let config = Config {
        version: Version::V1_15,
        switch_hold: hold,
        ..Config::test().with_helicon(Helicon::At(13))
    };
    let devnet = start(config);
    assert_eq!(result(&devnet, "web3_clientVersion", &json!([])), "\"v1.15.0\"");
    let mut socket = Socket::connect(&devnet);
    socket.subscribe();
    devnet.advance(1);
    assert_eq!(socket.head().unwrap(), 11);
    let start = Instant::now();
    assert_eq!(devnet.advance(1), 12); // the transition block
    while let Ok(height) = socket.head() {
        assert_eq!(height, 12);
    }
    let block = value(&devnet, "eth_getBlockByNumber", &json!(["0xc", true]));
    assert!(start.elapsed() >= hold);
    assert_eq!((&block["totalDifficulty"], block.get("settledHeight")), (&json!("0x0"), None));
    devnet.advance(1);
    let block = value(&devnet, "eth_getBlockByNumber", &json!(["latest", true]));
    assert_eq!(block["settledHeight"], "0xc");
    let mut socket = Socket::connect(&devnet);
    socket.subscribe();
    devnet.advance(1);
    assert_eq!(socket.head().unwrap(), 14);
}

#[test]
fn going_over_on_demand() {
    let devnet = start(Config::test());
    devnet.go_over(Duration::ZERO);
    assert_eq!(devnet.rules(), Rules::Helicon);
    devnet.go_over(Duration::from_hours(1)); // not twice
    let old = value(&devnet, "eth_getBlockByNumber", &json!(["latest", false]));
    assert_eq!((&old["totalDifficulty"], &old["number"]), (&json!("0x0"), &json!("0xa")));
    devnet.advance(1);
    let new = value(&devnet, "eth_getBlockByNumber", &json!(["latest", false]));
    assert_eq!(new["settledHeight"], "0xa");
    assert_eq!(new["parentHash"], old["hash"]);
}

/// Blocks that left memory are made again, or gone; memory is bounded either way.
#[test]
fn old_blocks() {
    let config = Config { keep_heights: 5, ..Config::test().with_head(60) };
    let kept = start(Config { keep_heights: 100, ..config.clone() });
    let again = start(config.clone());
    for height in [0, 1, 30, 55, 56, 60] {
        let (block, receipts) = (json!([hex(height), true]), json!([hex(height)]));
        let both = [&kept, &again].map(|devnet| {
            let block = result(devnet, "eth_getBlockByNumber", &block);
            block + &result(devnet, "eth_getBlockReceipts", &receipts)
        });
        assert_eq!(both[0], both[1], "{height}");
        let hash = kept.block(height).unwrap().hash().to_string();
        assert_ne!(result(&again, "eth_getHeaderByHash", &json!([hash])), "null");
    }
    let absent = start(Config { older: Older::Absent, ..config });
    assert_eq!(result(&absent, "eth_getBlockByNumber", &json!(["0x37", true])), "null");
    assert_eq!(result(&absent, "eth_getBlockReceipts", &json!(["0x37"])), "null");
    assert_ne!(result(&absent, "eth_getBlockByNumber", &json!(["0x38", true])), "null");
    assert_ne!(result(&absent, "eth_getBlockByNumber", &json!(["earliest", true])), "null");
}

#[test]
fn a_node_without_the_first_blocks() {
    let chain = ChainConfig { first_height: 1_000_000, ..ChainConfig::small(1) };
    let devnet = start(Config { chain, ..Config::test().with_head(1_000_003) });
    assert_eq!(devnet.latest(), 1_000_003);
    assert_eq!(result(&devnet, "eth_getBlockByNumber", &json!([hex(999_999), true])), "null");
    assert_ne!(result(&devnet, "eth_getBlockByNumber", &json!([hex(1_000_000), true])), "null");
    assert_ne!(result(&devnet, "eth_getBlockByNumber", &json!(["0x0", true])), "null");
}

#[test]
fn blocks_come_by_the_clock() {
    let profile = Profile::empty();
    let chain = ChainConfig { profile, ..ChainConfig::small(1) };
    let begun = Instant::now();
    let devnet = start(Config { chain, rate: 200.0, ..Config::test() });
    wait_until("it grows", || devnet.latest() >= 60);
    let elapsed = begun.elapsed();
    assert!(elapsed > Duration::from_millis(200), "{elapsed:?}");
    devnet.set_rate(0.0);
    let stopped = devnet.accepted();
    thread::park_timeout(Duration::from_millis(200));
    assert_eq!(devnet.latest(), stopped);
}

/// `serve --dev`: the newest block is of now.
#[test]
fn a_chain_for_development() {
    let now = 1_800_000_000_000;
    for (rate, interval_ms) in [(0.5, 2_000), (1.0, 1_000), (40.0, 25)] {
        let config = Config { rate: 0.0, ..Config::dev(rate, now) };
        let devnet = start(config);
        let time = devnet.block(devnet.latest()).unwrap().header().timestamp_milliseconds.unwrap();
        assert!(time.abs_diff(now) < interval_ms, "{time}");
        assert_eq!(devnet.rules(), Rules::Helicon);
    }
}

#[test]
fn another_chain_from_a_height_on() {
    let devnet = start(Config::test().with_helicon(Helicon::At(4)));
    let hashes = |devnet: &DevnetThread| -> Vec<_> {
        (0..=devnet.latest()).map(|height| devnet.block(height).unwrap().hash()).collect()
    };
    let before = hashes(&devnet);
    devnet.branch(7, 99);
    let after = hashes(&devnet);
    assert_eq!(before[..7], after[..7]);
    assert!(before[7..].iter().zip(&after[7..]).all(|(before, after)| before != after));
    devnet.branch(9, 100);
    devnet.branch(15, 101); // not reached yet
    devnet.advance(10);
    let last = hashes(&devnet);
    assert_eq!((&last[..9], last.len()), (&after[..9], 21));
    for height in 1..=20 {
        let block = devnet.block(height).unwrap();
        assert_eq!(block.header().parent_hash, last[height as usize - 1]);
    }
    let old = json!([before[8].to_string(), true]);
    assert_eq!(result(&devnet, "eth_getBlockByHash", &old), "null");
}

#[test]
fn batches() {
    let devnet = start(Config::test());
    let batch = concat!(
        r#"[{"jsonrpc":"2.0","id":"a","method":"eth_blockNumber"},"#,
        r#"{"jsonrpc":"2.0","method":"eth_chainId"},5,"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"eth_nope"}]"#,
    );
    let mut client = support::Client::connect(devnet.address());
    let expected = concat!(
        r#"[{"jsonrpc":"2.0","id":"a","result":"0xa"},"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}},"#,
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"#,
        r#""message":"the method eth_nope does not exist/is not available"}}]"#,
    );
    assert_eq!(client.post(batch.as_bytes()).unwrap().text(), format!("{expected}\n"));
    let counters = devnet.counters();
    assert_eq!((counters.calls("eth_blockNumber"), counters.calls("eth_chainId")), (1, 1));
    assert_eq!((counters.calls("eth_nope"), counters.http_requests()), (1, 1));
    assert_eq!(call(&devnet, "eth_syncing", &json!([])).json()["result"], json!(false));
}
