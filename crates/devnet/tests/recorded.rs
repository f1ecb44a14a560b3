//! Answers of real nodes, wherever they do not depend on the nodes' blocks: errors to the byte, and the
//! HTTP around them.

use std::collections::BTreeSet;

use neve_devnet::{Config, DevnetThread, Helicon};
use serde_json::Value;

use crate::support::{Client, Response, rows};

/// A recorded exchange that can be repeated.
struct Exchange {
    name: String,
    method: String,
    path: String,
    headers: String,
    request: String,
    status: u64,
    answer: String,
    recorded_headers: Vec<(String, String)>,
}

fn exchanges(file: &str) -> Vec<Exchange> {
    rows(file).iter().filter_map(exchange).collect()
}

fn exchange(row: &Value) -> Option<Exchange> {
    let text = |key: &str| row[key].as_str().map(str::to_owned);
    let pairs = |key: &str| -> Vec<(String, String)> {
        serde_json::from_value(row[key].clone()).expect("pairs")
    };
    let own = ["host", "content-length", "user-agent"];
    let request_headers = pairs("request_headers");
    let special = ["transfer-encoding", "avalanche-api-route", "origin", "expect"];
    if request_headers.iter().any(|(name, _)| special.contains(&name.to_lowercase().as_str())) {
        return None;
    }
    let headers = request_headers.iter().filter(|(name, _)| !own.contains(&&*name.to_lowercase()));
    let exchange = Exchange {
        name: text("name")?,
        method: text("method")?,
        path: text("path")?,
        headers: headers
            .fold(String::new(), |all, (name, value)| all + name + ": " + value + "\r\n"),
        request: text("request_body")?,
        status: row["status"].as_u64()?,
        answer: text("response_body")?,
        recorded_headers: pairs("response_headers"),
    };
    // Not emulated: hosts, other names of the chain, odd framing, malformed media types.
    let skipped = [
        "http/host",
        "http/path",
        "http/length",
        "http/cors",
        "http/size",
        "http/ct/application/json;;",
        "http/ct/application/json; charset",
        "http/ct/application/json; a=b; a=c",
    ];
    let plain = row.get("http_version").is_none() && exchange.method != "HEAD";
    let skip = skipped.iter().any(|skipped| {
        let malformed = skipped.starts_with("http/ct") && exchange.name == *skipped;
        malformed || (!skipped.starts_with("http/ct") && exchange.name.starts_with(skipped))
    });
    (plain && !skip).then_some(exchange)
}

/// Repeats all of a file; returns how many came out alike, and the names of the methods that are
/// not emulated.
fn replay(devnet: &DevnetThread, file: &str) -> (usize, BTreeSet<String>) {
    let (mut alike, mut beyond) = (0, BTreeSet::new());
    for exchange in exchanges(file) {
        let mut client = Client::connect(devnet.address());
        let request = exchange.request.as_bytes();
        let response = client.request(&exchange.method, &exchange.path, &exchange.headers, request);
        let response = response.unwrap_or_else(|error| panic!("{}: {error}", exchange.name));
        if let Some(method) = not_emulated(&exchange, &response) {
            beyond.insert(method);
            continue;
        }
        assert_eq!(u64::from(response.status), exchange.status, "{}", exchange.name);
        assert_eq!(response.text(), exchange.answer, "{} > {}", exchange.name, exchange.request);
        compare_headers(&exchange, &response);
        alike += 1;
    }
    (alike, beyond)
}

/// The method that the devnet does not have or whose answer depends on blocks.
fn not_emulated(exchange: &Exchange, response: &Response) -> Option<String> {
    let text = response.text();
    let unknown = |text: &str| {
        let start = text.find("the method ")? + "the method ".len();
        text[start..].split(' ').next().map(str::to_owned)
    };
    if text == exchange.answer {
        return None;
    }
    let depends = text.contains("\"result\":") && exchange.answer.contains("\"result\":");
    // Every account and call has the same state, at every block.
    let state = STATE.iter().find(|name| exchange.request.contains(&format!("\"{name}\"")));
    let state = state.filter(|_| text.contains("\"result\":")).map(|name| (*name).to_owned());
    unknown(&text).or_else(|| depends.then(|| "result".to_owned())).or(state)
}

/// Methods about state, of which the devnet has none.
const STATE: [&str; 7] = [
    "eth_getBalance",
    "eth_getTransactionCount",
    "eth_getCode",
    "eth_getStorageAt",
    "eth_call",
    "eth_estimateGas",
    "eth_sendRawTransaction",
];

fn compare_headers(exchange: &Exchange, response: &Response) {
    for name in ["content-type", "content-length", "vary", "x-content-type-options"] {
        let recorded = exchange.recorded_headers.iter();
        let recorded = recorded.filter(|(key, _)| key.to_lowercase() == name);
        let recorded = recorded.map(|(_, value)| value.as_str()).next();
        assert_eq!(response.header(name), recorded, "{}: {name}", exchange.name);
    }
    assert!(response.header("date").is_some() && response.header("node-id").is_some());
}

#[test]
fn errors_of_v1_14() {
    let devnet = DevnetThread::start(Config::test().with_head(339)).unwrap();
    let (alike, beyond) = replay(&devnet, "v1.14.2/main/errors.jsonl.gz");
    println!("{alike} alike, not emulated: {beyond:?}");
    assert!(alike > 480, "{alike}");
}

#[test]
fn errors_of_v1_15() {
    let config = Config::test().with_helicon(Helicon::At(202)).with_head(381);
    let devnet = DevnetThread::start(config).unwrap();
    let (alike, beyond) = replay(&devnet, "v1.15.0/errors.jsonl.gz");
    println!("{alike} alike, not emulated: {beyond:?}");
    assert!(alike > 480, "{alike}");
}
