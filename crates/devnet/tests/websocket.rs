//! WebSockets: subscriptions, calls, and what is wrong with them on demand.

use std::thread;
use std::time::Duration;

use neve_devnet::{Config, DevnetThread, Fault, Helicon, Version};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::support::{self, Socket, call, quantity, result, wait_until};

fn start(config: Config) -> DevnetThread {
    DevnetThread::start(config).unwrap()
}

/// Long enough for what would come.
const A_MOMENT: Duration = Duration::from_millis(150);

#[test]
fn heads_come_in_order() {
    let devnet = start(Config::test().with_helicon(Helicon::At(14)).with_head(20));
    let mut socket = Socket::connect(&devnet);
    let first = socket.subscribe();
    let second = socket.subscribe();
    assert_ne!(first, second);
    devnet.advance(5);
    for height in 21..=25 {
        for id in [&first, &second] {
            let text = socket.text().unwrap();
            let head = devnet.block(height).unwrap().head(Version::V1_15);
            let head = String::from_utf8(head).unwrap();
            let expected = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"eth_subscription\",\"params\":{{\
                 \"subscription\":\"{id}\",\"result\":{head}}}}}\n"
            );
            assert_eq!(text, expected);
        }
    }
    assert_eq!((devnet.counters().heads(), devnet.counters().subscriptions()), (10, 2));
}

/// A head that is heard of is there.
#[test]
fn heads_are_not_ahead() {
    let config = Config {
        execution: Duration::from_millis(5),
        ..Config::test().with_helicon(Helicon::FromGenesis)
    };
    let devnet = start(config);
    let mut socket = Socket::connect(&devnet);
    socket.subscribe();
    devnet.advance(3);
    for height in 11..=13 {
        assert_eq!(socket.head().unwrap(), height);
        let latest: Value =
            serde_json::from_str(&result(&devnet, "eth_blockNumber", &json!([]))).unwrap();
        assert!(quantity(&latest) >= height);
    }
}

#[test]
fn heads_before_the_switch_have_nulls_in_v1_15_alone() {
    for (version, expected) in [(Version::V1_14, None), (Version::V1_15, Some(&Value::Null))] {
        let devnet = start(Config { version, ..Config::test() });
        let mut socket = Socket::connect(&devnet);
        socket.subscribe();
        devnet.advance(1);
        let frame: Value = serde_json::from_str(&socket.text().unwrap()).unwrap();
        assert_eq!(frame["params"]["result"].get("settledHeight"), expected);
    }
}

/// Error as recorded from v1.14.2 and v1.15.0 alike.
#[test]
fn calls_and_errors() {
    let devnet = start(Config::test());
    let mut socket = Socket::connect(&devnet);
    let mut ask = |request: &str| {
        socket.send(request);
        socket.text().unwrap()
    };
    let error = |code: i32, message: &str| {
        let message = message.replace('"', "\\\"");
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}\n"
        )
    };
    for (method, params, code, message) in [
        ("eth_subscribe", r#"["newHeads",1]"#, -32_602, "too many arguments, want at most 1"),
        ("eth_subscribe", r#"["nope"]"#, -32_601, "no \"nope\" subscription in eth namespace"),
        (
            "foo_subscribe",
            r#"["newHeads"]"#,
            -32_601,
            "no \"newHeads\" subscription in foo namespace",
        ),
        ("eth_subscribe", "[]", -32_602, "expected subscription name as first argument"),
        ("eth_subscribe", "[5]", -32_602, "expected subscription name as first argument"),
        ("eth_subscribe", "{}", -32_602, "non-array args"),
        ("eth_subscribe", "null", -32_602, "non-array args"),
        ("eth_unsubscribe", r#"["0x1"]"#, -32_000, "subscription not found"),
        ("foo_unsubscribe", r#"["0x1"]"#, -32_000, "subscription not found"),
        ("eth_unsubscribe", "[]", -32_602, "missing value for required argument 0"),
        (
            "eth_unsubscribe",
            "[5]",
            -32_602,
            "invalid argument 0: json: cannot unmarshal number into Go value of type rpc.ID",
        ),
        ("eth_nope", "[]", -32_601, "the method eth_nope does not exist/is not available"),
    ] {
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        assert_eq!(ask(&request), error(code, message), "{request}");
    }
    assert_eq!(
        ask(r#"{"jsonrpc":"2.0","id":"x","method":"eth_blockNumber","params":[]} x"#),
        "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":\"0xa\"}\n"
    );
    assert_eq!(
        ask("[]"),
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"empty batch\"}}\n"
    );
}

#[test]
fn a_batch_may_subscribe() {
    let devnet = start(Config::test());
    let mut socket = Socket::connect(&devnet);
    socket.send(r#"[{"jsonrpc":"2.0","id":7,"method":"eth_subscribe","params":["newHeads"]},{"jsonrpc":"2.0","id":8,"method":"eth_chainId"}]"#);
    let answers: Value = serde_json::from_str(&socket.text().unwrap()).unwrap();
    let id = answers[0]["result"].as_str().unwrap().to_owned();
    assert_eq!((answers[0]["id"].as_u64(), &answers[1]["result"]), (Some(7), &json!("0xa868")));
    devnet.advance(1);
    assert_eq!(socket.head().unwrap(), 11);
    let unsubscribe =
        json!({"jsonrpc": "2.0", "id": 1, "method": "eth_unsubscribe", "params": [id]});
    socket.send(&unsubscribe.to_string());
    let answer: Value = serde_json::from_str(&socket.text().unwrap()).unwrap();
    assert_eq!(answer["result"], json!(true));
    devnet.advance(1);
    socket.send(r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#);
    assert!(socket.text().unwrap().contains("0xa868"), "no head comes before");
}

/// Answers overtake one another: one that waits holds no other up.
#[test]
fn calls_run_side_by_side() {
    let devnet = start(Config::test().with_helicon(Helicon::FromGenesis));
    devnet.hold_execution(true);
    devnet.advance(1);
    let mut socket = Socket::connect(&devnet);
    socket.send(r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["0xb"]}"#);
    socket.send(r#"{"jsonrpc":"2.0","id":2,"method":"eth_blockNumber"}"#);
    assert_eq!(socket.text().unwrap(), "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"0xa\"}\n");
    devnet.execute();
    assert!(socket.text().unwrap().starts_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":["));
}

#[test]
fn frames_that_are_no_json_end_it() {
    let devnet = start(Config::test());
    for frame in ["{bad", "", " "] {
        let mut socket = Socket::connect(&devnet);
        socket.send(frame);
        socket.text().unwrap_err();
    }
    wait_until("all are gone", || devnet.counters().open_websockets() == 0);
}

#[test]
fn node_may_have_no_websocket() {
    let devnet = start(Config::test());
    let none = devnet.faults().inject(Fault::NoWebSocket.times(2));
    for _ in 0..2 {
        let error = Socket::try_connect(&devnet).err().expect("no WebSocket");
        assert!(error.contains("404"), "{error}");
    }
    Socket::connect(&devnet);
    assert_eq!(none.hits(), 2);
}

#[test]
fn connections_are_cut_without_a_close_frame() {
    let devnet = start(Config::test());
    let mut sockets: Vec<Socket> = (0..3).map(|_| Socket::connect(&devnet)).collect();
    sockets.iter_mut().for_each(|socket| drop(socket.subscribe()));
    assert_eq!(devnet.counters().open_websockets(), 3);
    devnet.cut_websockets();
    for socket in &mut sockets {
        let error = socket.any().unwrap_err().to_string();
        assert!(error.contains("without closing handshake"), "{error}");
    }
    Socket::connect(&devnet).subscribe();
}

#[test]
fn connections_fall_silent() {
    let devnet = start(Config::test());
    let mut socket = Socket::connect(&devnet);
    socket.subscribe();
    socket.ping();
    assert!(matches!(socket.any().unwrap(), Message::Pong(_)));
    let silent = devnet.faults().inject(Fault::SilentWebSocket);
    wait_until("it is silent", || silent.hits() == 1);
    devnet.advance(2);
    socket.ping();
    socket.send(r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#);
    socket.set_patience(A_MOMENT);
    socket.any().unwrap_err();
    assert_eq!(call(&devnet, "eth_blockNumber", &json!([])).json()["result"], json!("0xc"));
    silent.clear();
    socket.set_patience(support::PATIENCE);
    assert_eq!(socket.head().unwrap(), 11);
}

/// For a moment only subscribers know a head.
#[test]
fn heads_ahead_of_http() {
    // Side by side, as each waits for seconds.
    thread::scope(|scope| {
        for helicon in [Helicon::Never, Helicon::FromGenesis] {
            scope.spawn(move || heads_come_ahead_of_http(helicon));
        }
    });
}

fn heads_come_ahead_of_http(helicon: Helicon) {
    let ahead = Duration::from_secs(10); // more than five requests take on a busy machine
    let devnet = start(Config::test().with_helicon(helicon));
    let fault = devnet.faults().inject(Fault::HeadsAhead(ahead).times(1));
    let mut socket = Socket::connect(&devnet);
    socket.subscribe();
    devnet.advance(1);
    assert_eq!(socket.head().unwrap(), 11);
    assert_eq!(result(&devnet, "eth_blockNumber", &json!([])), "\"0xa\"");
    let block = call(&devnet, "eth_getBlockByNumber", &json!(["0xb", true])).json();
    assert!(!block["result"].is_object());
    let hash = json!(["0x".to_owned() + &"00".repeat(32)]);
    assert_eq!(result(&devnet, "eth_getHeaderByHash", &hash), "null");
    wait_until("it is there", || devnet.latest() == 11);
    assert_ne!(result(&devnet, "eth_getBlockByNumber", &json!(["0xb", true])), "null");
    devnet.advance(1);
    assert_eq!((socket.head().unwrap(), devnet.latest(), fault.hits()), (12, 12, 1));
}
