//! Faults of HTTP and below, on demand.

use std::{
    io::ErrorKind,
    thread,
    time::{Duration, Instant, SystemTime},
};

use neve_devnet::{ChainConfig, Config, Counted, DevnetThread, Fault, RateLimit, RetryAfter};
use serde_json::json;

use crate::support::{Client, Socket, call, result, wait_until};

fn start() -> DevnetThread {
    DevnetThread::start(Config::test()).unwrap()
}

const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;
const ANSWER: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"0xa\"}\n";

#[test]
fn latency() {
    let devnet = start();
    let latency = Duration::from_millis(80);
    let fault = devnet.faults().inject(Fault::Latency(latency).times(2));
    let mut client = Client::connect(devnet.address());
    let mut timed = || {
        let start = Instant::now();
        assert_eq!(client.post(CALL).unwrap().text(), ANSWER);
        start.elapsed()
    };
    assert!(timed() >= latency && timed() >= latency);
    timed();
    assert_eq!(fault.hits(), 2, "the third is not delayed");
}

#[test]
fn bandwidth() {
    let chain = ChainConfig::c_chain(1);
    let devnet = DevnetThread::start(Config { chain, ..Config::test() }).unwrap();
    let params = json!(["0x5", true]);
    let whole = call(&devnet, "eth_getBlockByNumber", &params).body;
    let rate = whole.len() as u64 * 5;
    devnet.faults().inject(Fault::Bandwidth(rate));
    let start = Instant::now();
    assert_eq!(call(&devnet, "eth_getBlockByNumber", &params).body, whole);
    let elapsed = start.elapsed();
    assert!(elapsed > Duration::from_millis(150), "{elapsed:?}");
}

#[test]
fn calls_beyond_the_limit_get_429() {
    let limit = RateLimit { per_second: 1.0, counts: Counted::Calls };
    let devnet = DevnetThread::start(Config { rate_limit: Some(limit), ..Config::test() }).unwrap();
    let batch = [b"[", CALL, &[b",", CALL].concat().repeat(999)[..], b"]"].concat();
    let mut client = Client::connect(devnet.address());
    assert_eq!(client.post(&batch).unwrap().status, 200);
    let refused = client.post(CALL).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
}

#[test]
fn statuses() {
    let devnet = start();
    let inject = |status, retry_after| {
        devnet.faults().clear();
        devnet.faults().inject(Fault::Status(status, retry_after).times(1));
        let answer = call(&devnet, "eth_blockNumber", &json!([]));
        assert_eq!(answer.status, status);
        answer.header("retry-after").map(str::to_owned)
    };
    assert_eq!(inject(429, RetryAfter::Seconds(7)).as_deref(), Some("7"));
    assert_eq!(inject(503, RetryAfter::Absent), None);
    let date = inject(503, RetryAfter::Date(Duration::from_secs(30))).unwrap();
    let date = httpdate::parse_http_date(&date).unwrap();
    let from_now = date.duration_since(SystemTime::now()).unwrap();
    assert!((25..=30).contains(&from_now.as_secs()), "{from_now:?}");
    assert!(inject(503, RetryAfter::Date(Duration::MAX)).is_none());
    assert!(inject(503, RetryAfter::Date(Duration::from_secs(1 << 40))).is_some());
    assert_eq!(call(&devnet, "eth_blockNumber", &json!([])).text(), ANSWER);
}

#[test]
fn stalled_until_cleared() {
    let devnet = start();
    let fault = devnet.faults().inject(Fault::Stall.on("eth_blockNumber").times(1));
    let mut client = Client::connect(devnet.address());
    client.set_patience(Duration::from_millis(120));
    let error = client.post(CALL).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    assert_eq!(result(&devnet, "eth_chainId", &json!([])), "\"0xa868\"");
    thread::scope(|scope| {
        fault.clear();
        let fault = devnet.faults().inject(Fault::Stall.times(1));
        let waiting = scope.spawn(|| call(&devnet, "eth_blockNumber", &json!([])).text());
        wait_until("it stalls", || fault.hits() == 1);
        fault.clear();
        assert_eq!(waiting.join().unwrap(), ANSWER);
    });
}

#[test]
fn bodies_that_are_none() {
    let devnet = start();
    devnet.faults().inject(Fault::Truncate.times(1));
    let mut client = Client::connect(devnet.address());
    assert_eq!(client.post(CALL).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    devnet.faults().inject(Fault::Garbage.times(1));
    let garbage = call(&devnet, "eth_blockNumber", &json!([]));
    assert_eq!((garbage.status, garbage.header("content-type")), (200, Some("application/json")));
    serde_json::from_slice::<serde_json::Value>(&garbage.body).unwrap_err();
    std::str::from_utf8(&garbage.body).unwrap_err();
    assert_eq!(call(&devnet, "eth_blockNumber", &json!([])).text(), ANSWER);
}

#[test]
fn resets() {
    let devnet = start();
    let mut client = Client::connect(devnet.address());
    assert_eq!(client.post(CALL).unwrap().text(), ANSWER);
    // An open connection, when a request comes.
    let fault = devnet.faults().inject(Fault::Reset.on("eth_blockNumber").times(1));
    assert_eq!(client.post(CALL).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(fault.hits(), 1);
    // A new one at once.
    let fault = devnet.faults().inject(Fault::Reset.times(1));
    // The kernel may tell of it at connecting.
    let answer = Client::try_connect(devnet.address()).and_then(|mut client| client.post(CALL));
    let error = answer.unwrap_err().kind();
    assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    assert_eq!(fault.hits(), 1);
    assert_eq!(call(&devnet, "eth_blockNumber", &json!([])).text(), ANSWER);
}

/// The node does not listen: new connections are refused, open ones are gone, and it comes back where it was.
#[test]
fn refused() {
    let devnet = start();
    let mut client = Client::connect(devnet.address());
    client.post(CALL).unwrap();
    let mut socket = Socket::connect(&devnet);
    socket.subscribe();
    let fault = devnet.faults().inject(Fault::Refuse);
    wait_until("nobody listens", || Client::try_connect(devnet.address()).is_err());
    let refused = Client::try_connect(devnet.address()).err().unwrap();
    // One that was waiting to be accepted is reset.
    let kinds = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&refused.kind()), "{refused}");
    client.post(CALL).unwrap_err();
    socket.any().unwrap_err();
    fault.clear();
    wait_until("it listens again", || Client::try_connect(devnet.address()).is_ok());
    assert_eq!(call(&devnet, "eth_blockNumber", &json!([])).text(), ANSWER);
}

/// A fault for a height also strikes a batch in which it is one of many.
#[test]
fn batches_are_struck_by_height() {
    let devnet = start();
    let fault = devnet.faults().inject(Fault::Status(503, RetryAfter::Absent).at(7));
    let batch = |height: &str| {
        let calls = json!([
            {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"},
            {"jsonrpc": "2.0", "id": 2, "method": "eth_getBlockReceipts", "params": [height]},
        ]);
        let mut client = Client::connect(devnet.address());
        client.post(calls.to_string().as_bytes()).unwrap().status
    };
    assert_eq!((batch("0x6"), batch("0x7"), fault.hits()), (200, 503, 1));
    let hash = devnet.block(7).unwrap().hash().to_string();
    assert_eq!(batch(&hash), 503);
}

/// Checks that a dropped node listens no more and leaves nothing open.
#[test]
fn devnet_ends_when_dropped() {
    let devnet = start();
    let address = devnet.address();
    let mut client = Client::connect(address);
    let mut socket = Socket::connect(&devnet);
    client.post(CALL).unwrap();
    drop(devnet);
    client.post(CALL).unwrap_err();
    socket.any().unwrap_err();
    assert!(Client::try_connect(address).is_err());
}
