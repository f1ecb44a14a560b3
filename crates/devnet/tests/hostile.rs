//! Whatever is sent, the node stays up and answers the next one.

use std::{io::Write, net::TcpStream, thread};

use neve_devnet::{Config, DevnetThread, Fault, Helicon};
use serde_json::json;

use crate::support::{self, Client, Socket, call};

/// Methods and parameters to be combined.
const METHODS: [&str; 8] = [
    "eth_getBlockByNumber",
    "eth_getBlockByHash",
    "eth_getBlockReceipts",
    "eth_getTransactionByBlockNumberAndIndex",
    "eth_getTransactionReceipt",
    "eth_subscribe",
    "eth_unsubscribe",
    "\u{0}\u{fffd}",
];
const PARAMS: [&str; 16] = [
    "null",
    "[]",
    "{}",
    "[null]",
    "[{}]",
    r#"["0xffffffffffffffff",true]"#,
    r#"["0x7fffffffffffffff",true]"#,
    r#"["0x7fffffffffffffff"]"#,
    r#"["pending","0xffffffffffffffff"]"#,
    r#"["latest","0xffffffffffffffff"]"#,
    r#"["safe",true]"#,
    r#"["newHeads"]"#,
    r#"["0xdededededededededededededededededededededededededededededededede",true]"#,
    r#"[{"blockHash":"0xdededededededededededededededededededededededededededededededede"}]"#,
    r#"["\ud800"]"#,
    "[[[[[[[]]]]]]]",
];

fn bodies() -> Vec<String> {
    let calls = METHODS.iter().flat_map(|method| {
        PARAMS.iter().map(move |params| {
            let method = json!(method);
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method},"params":{params}}}"#)
        })
    });
    let nested = "[".repeat(20_000);
    let notifications = format!("[{}]", vec![r#"{"jsonrpc":"2.0","method":"x"}"#; 900].join(","));
    calls.chain([nested, notifications, "{".to_owned(), "\u{feff}{}".to_owned()]).collect()
}

#[test]
fn any_body_over_http_and_websocket() {
    for helicon in [Helicon::Never, Helicon::At(5), Helicon::FromGenesis] {
        let devnet = DevnetThread::start(Config::test().with_helicon(helicon)).unwrap();
        let mut client = Client::connect(devnet.address());
        let mut socket = Socket::connect(&devnet);
        for body in bodies() {
            assert_eq!(client.post(body.as_bytes()).unwrap().status, 200, "{body}");
            // Calls in a batch go another way.
            let batch = format!("[{body},{body}]");
            assert_eq!(client.post(batch.as_bytes()).unwrap().status, 200, "{body}");
            socket.send(&body);
            if !lives(&mut socket) {
                socket = Socket::connect(&devnet);
            }
        }
        assert_eq!(call(&devnet, "eth_blockNumber", &json!([])).json()["result"], json!("0xa"));
    }
}

/// True if a WebSocket still answers; answers to what was sent before are passed over.
fn lives(socket: &mut Socket) -> bool {
    if !socket.try_send(r#"{"jsonrpc":"2.0","id":"end","method":"eth_chainId"}"#) {
        return false;
    }
    while let Ok(text) = socket.text() {
        if text.contains("\"end\"") {
            return true;
        }
    }
    false
}

/// Checks answers while every fault of a result is on.
#[test]
fn any_body_with_any_fault() {
    let config = Config::test().with_helicon(Helicon::At(5));
    let devnet = DevnetThread::start(config).unwrap();
    for fault in [
        Fault::Whitespace,
        Fault::KeyOrder,
        Fault::MissingReceipt,
        Fault::LyingReceipts,
        Fault::WrongTransaction,
        Fault::WrongHash,
        Fault::WrongParent,
        Fault::WrongGenesis,
        Fault::WrongChainId,
        Fault::NullBlock,
    ] {
        devnet.faults().inject(fault);
    }
    let mut client = Client::connect(devnet.address());
    for body in bodies() {
        assert_eq!(client.post(body.as_bytes()).unwrap().status, 200, "{body}");
    }
    for height in 0..=10 {
        let number = support::hex(height);
        for (method, params) in [
            ("eth_getBlockByNumber", json!([number, true])),
            ("eth_getBlockByNumber", json!([number, false])),
            ("eth_getHeaderByNumber", json!([number])),
            ("eth_getBlockReceipts", json!([number])),
            ("eth_getTransactionByBlockNumberAndIndex", json!([number, "0x0"])),
        ] {
            assert_eq!(call(&devnet, method, &params).status, 200);
        }
    }
}

#[test]
fn bytes_that_are_no_http() {
    let devnet = DevnetThread::start(Config::test()).unwrap();
    let long = vec![0xff; 70_000];
    for bytes in [&b"\x16\x03\x01\x02\x00"[..], b"GET\r\n\r\n", &long, b"\r\n\r\n"] {
        let mut stream = TcpStream::connect(devnet.address()).unwrap();
        // It may be closed while we write.
        let _ = stream.write_all(bytes);
    }
    let mut client = Client::connect(devnet.address());
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    assert_eq!(client.request("GET", "/ext/bc/C/ws", upgrade, b"").unwrap().status, 400);
    assert_eq!(call(&devnet, "eth_blockNumber", &json!([])).status, 200);
}

/// Many threads that ask, advance and inject at once.
#[test]
fn calls_heads_and_faults_at_once_harm_nothing() {
    let config = Config { keep_heights: 8, ..Config::test().with_helicon(Helicon::At(30)) };
    let devnet = DevnetThread::start(config).unwrap();
    let asking = |height: u64| {
        for step in 0..40 {
            let number = support::hex((height * 7 + step) % 60);
            assert_eq!(call(&devnet, "eth_getBlockByNumber", &json!([number, true])).status, 200);
            assert_eq!(call(&devnet, "eth_getBlockReceipts", &json!([number])).status, 200);
        }
    };
    thread::scope(|scope| {
        (0..3).for_each(|height| drop(scope.spawn(move || asking(height))));
        scope.spawn(|| (0..40).for_each(|_| assert!(devnet.advance(1) > 10)));
        scope.spawn(|| {
            for seed in 0..5 {
                devnet.faults().inject(Fault::LyingReceipts.times(3)).clear();
                devnet.branch(5 + seed, seed);
            }
        });
    });
    assert_eq!(devnet.latest(), 50);
    for height in 1..=50 {
        let parent = devnet.block(height - 1).unwrap().hash();
        assert_eq!(devnet.block(height).unwrap().header().parent_hash, parent);
    }
}
