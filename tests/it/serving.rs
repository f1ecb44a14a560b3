//! HTTP and JSON-RPC from outside: misses, refusals, limits at their edges, timeouts, draining,
//! and what an operator sees.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Client, Response, read};
use crate::support::corpus::MAIN;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::recorded::Recorded;

/// A neve that holds heights 100 to 339 of the recorded chain.
fn start(arguments: &[&str]) -> (Recorded, Neve, TempDir) {
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    let url = node.url();
    let fixed = ["--upstream", url.as_str(), "--start", "100"];
    let neve = Neve::start(dir.path(), &[&fixed, arguments].concat());
    neve.wait_for_head(MAIN.head);
    (node, neve, dir)
}

fn assert_miss(answer: &Response, status: u16, code: i64, message: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-neve-served"), Some("100-339"));
    let json = answer.json();
    assert_eq!(json["error"]["code"], code);
    assert_eq!(json["error"]["message"], message);
    assert_eq!(json["error"]["data"], json!({ "firstHeight": "0x64", "head": "0x153" }));
}

const NOT_AVAILABLE: &str = "requested data is not available here";

#[test]
fn misses_are_421_in_words_that_routers_know() {
    let (_node, neve, _dir) = start(&[]);
    let mut client = neve.client();
    let held = "(held: 0x64 to 0x153)";
    let below = client.call("eth_getBlockByNumber", "[\"0x63\",false]");
    assert_miss(
        &below,
        421,
        -32000,
        &format!("header not found: block 0x63 is not held {held}; {NOT_AVAILABLE}"),
    );
    let above = client.call("eth_getHeaderByNumber", "[\"0x154\"]");
    assert_miss(
        &above,
        421,
        -32000,
        &format!("header not found: block 0x154 is not held {held}; {NOT_AVAILABLE}"),
    );
    let earliest = client.call("eth_getBlockReceipts", "[\"earliest\"]");
    assert_miss(
        &earliest,
        421,
        -32000,
        &format!("header not found: block 0x0 is not held {held}; {NOT_AVAILABLE}"),
    );
    let hash = format!("0x{}", "ab".repeat(32));
    for method in ["eth_getTransactionReceipt", "eth_getTransactionByHash", "eth_getHeaderByHash"] {
        let unknown = client.call(method, &format!("[\"{hash}\"]"));
        assert_miss(
            &unknown,
            421,
            -32000,
            &format!("header not found: {hash} is not held {held}; {NOT_AVAILABLE}"),
        );
    }
    let state = client
        .call("eth_getBalance", "[\"0x0100000000000000000000000000000000000000\",\"latest\"]");
    assert_miss(&state, 421, -32601, "the method eth_getBalance does not exist/is not available");
}

/// The edges of the range are in it.
#[test]
fn the_served_range_is_whole() {
    let (node, neve, _dir) = start(&[]);
    let mut client = neve.client();
    for height in [100, 101, 338, 339] {
        let answer = client.call("eth_getBlockByNumber", &format!("[\"{height:#x}\",true]"));
        let expected = node.height(height).block;
        assert_eq!(
            answer.text(),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{expected}}}\n")
        );
    }
    // Inside the range the node's own null stays a 200.
    assert_eq!(
        client.result("eth_getTransactionByBlockNumberAndIndex", "[\"0x64\",\"0xffff\"]"),
        Value::Null
    );
}

#[test]
fn a_batch_with_any_miss_is_refused_whole() {
    let (_node, neve, _dir) = start(&[]);
    let mut client = neve.client();
    let good = r#"{"jsonrpc":"2.0","id":"a","method":"eth_chainId"}"#;
    let miss = r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBlockByNumber","params":["0x1",false]}"#;
    let note = r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;
    let answer = client.post(&format!("[{good},{note},{miss},{good}]"));
    assert_eq!(answer.status, 421);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let errors = answer.json();
    let ids: Vec<_> = errors.as_array().unwrap().iter().map(|error| error["id"].clone()).collect();
    assert_eq!(ids, [json!("a"), json!(7), json!("a")]);
    for error in errors.as_array().unwrap() {
        assert_eq!(error["jsonrpc"], "2.0");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("header not found: block 0x1 is not held"), "{message}");
    }
    let answer = client.post(&format!("[{good},{note},{good}]"));
    let expected = r#"[{"jsonrpc":"2.0","id":"a","result":"0xa868"},{"jsonrpc":"2.0","id":"a","result":"0xa868"}]"#;
    assert_eq!((answer.status, answer.text()), (200, format!("{expected}\n")));
}

/// A notification of a method that may have effects goes to a full node.
#[test]
fn a_notification_that_may_do_something_is_a_miss() {
    let (_node, neve, _dir) = start(&[]);
    let mut client = neve.client();
    let send =
        client.post(r#"{"jsonrpc":"2.0","method":"eth_sendRawTransaction","params":["0x0201"]}"#);
    assert_eq!(send.status, 421);
    let read = client.post(r#"{"jsonrpc":"2.0","method":"eth_blockNumber"}"#);
    assert_eq!((read.status, read.text().as_str()), (200, ""));
}

#[test]
fn another_status_for_misses_can_be_chosen() {
    for status in ["200", "404", "599"] {
        let (_node, neve, _dir) = start(&["--miss-status", status]);
        let answer = neve.client().call("eth_getBlockByNumber", "[\"0x1\",false]");
        assert_eq!(answer.status.to_string(), status);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}

#[test]
fn requests_that_carry_no_json_rpc_are_refused_in_the_nodes_words() {
    let (_node, neve, _dir) = start(&[]);
    let mut client = neve.client();
    let json = [("Content-Type", "application/json")];
    let mut refused =
        |method: &str, path: &str, headers: &[(&str, &str)], status: u16, text: &str| {
            let answer = client.request(method, path, headers, b"");
            assert_eq!((answer.status, answer.text().as_str()), (status, text), "{method} {path}");
            assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        };
    refused("PUT", "/ext/bc/C/rpc", &json, 405, "method not allowed\n");
    refused("DELETE", "/ext/bc/C/rpc", &json, 405, "method not allowed\n");
    refused("POST", "/ext/bc/C/ws2", &json, 404, "404 page not found\n");
    refused("GET", "/nothing", &[], 404, "404 page not found\n");
    refused("POST", "/health", &json, 405, "method not allowed, use GET\n");
    let wrong_type = "invalid content type, only application/json is supported\n";
    refused("POST", "/", &[("Content-Type", "text/plain")], 415, wrong_type);
    refused("POST", "/", &[], 415, wrong_type);
    refused("GET", "/", &[], 404, "404 page not found\n");
    refused("PUT", "/", &json, 404, "404 page not found\n");
    let empty = neve.client().get("/ext/bc/C/rpc");
    assert_eq!((empty.status, empty.header("content-type")), (200, None));
}

#[test]
fn body_limits_hold_at_their_edge() {
    let (_node, neve, _dir) = start(&["--body-bytes-max", "200"]);
    let mut client = neve.client();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let padded = |len: usize| format!("{call}{}", " ".repeat(len - call.len()));
    assert_eq!(client.post(&padded(200)).status, 200);
    let over = client.post(&padded(201));
    let text = "content length too large (201>200)\n";
    assert_eq!((over.status, over.text().as_str()), (413, text));
    assert_eq!(over.header("connection"), Some("close"));
    // A body of undeclared length is cut at the limit: harmless behind the JSON, fatal inside it.
    let chunked = |body: &str| {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunks: Vec<_> = body
            .as_bytes()
            .chunks(50)
            .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)))
            .collect();
        Client::new(neve.address)
            .raw(format!("{head}{}0\r\n\r\n", chunks.concat()).as_bytes())
            .unwrap()
    };
    assert_eq!(
        chunked(&padded(400)).text(),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"0xa868\"}\n"
    );
    let inside = chunked(&format!("{}{call}", " ".repeat(190)));
    assert!(inside.text().contains("parse error"), "{}", inside.text());
}

#[test]
fn head_limits_hold_at_their_edge() {
    let (_node, neve, _dir) = start(&["--head-bytes-max", "8KiB"]);
    let fixed = "GET /health HTTP/1.1\r\nX: \r\n\r\n";
    let request = |bytes: usize| fixed.replace("X: ", &format!("X: {}", "x".repeat(bytes)));
    let status = |request: &str| neve.client().raw(request.as_bytes()).unwrap().status;
    let most = (8 << 10) - fixed.len();
    assert_eq!(status(&request(most)), 200);
    assert_eq!(status(&request(most + 1)), 431);
    let many = |count: usize| fixed.replace("X: \r\n", &"X: y\r\n".repeat(count));
    assert_eq!(status(&many(100)), 200);
    assert_eq!(status(&many(101)), 431);
}

#[test]
fn batch_limits_hold_at_their_edge() {
    let (_node, neve, _dir) =
        start(&["--batch-items-max", "3", "--batch-response-bytes-max", "3000"]);
    let mut client = neve.client();
    let chain = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId"}}"#);
    let batch = |count: u32| format!("[{}]", (1..=count).map(chain).collect::<Vec<_>>().join(","));
    assert_eq!(client.post(&batch(3)).json().as_array().unwrap().len(), 3);
    let over = client.post(&batch(4));
    let text = r#"[{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"batch too large"}}]"#;
    assert_eq!((over.status, over.text().as_str()), (200, text));
    // A header has about 2,000 bytes: the second crosses the limit and stands, the third is told.
    let header = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getHeaderByNumber","params":["0x64"]}}"#
        )
    };
    let answer = client.post(&format!("[{},{},{}]", header(1), header(2), header(3)));
    let text = answer.text();
    assert!(
        text.ends_with(
            r#",{"jsonrpc":"2.0","id":3,"error":{"code":-32003,"message":"response too large"}}]"#
        ),
        "{text}"
    );
    assert_eq!(answer.json()[1]["result"]["number"], "0x64");
    let answer = client.post(&format!("[{},{}]", header(1), header(2))).text();
    assert!(answer.ends_with("}]"), "crossing the limit costs the newline: {answer}");
    assert!(client.post(&format!("[{}]", header(1))).text().ends_with("}]\n"));
}

/// What one connection too many is told.
fn refused(neve: &Neve) -> String {
    let mut over = TcpStream::connect(neve.address).unwrap();
    over.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut text = String::new();
    over.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn connections_have_a_limit_that_says_so() {
    let (_node, neve, _dir) = start(&["--connections-max", "3"]);
    let open = || {
        let mut client = neve.client();
        let status = client.get("/health").status;
        (client, status)
    };
    let mut kept: Vec<_> = (0..3).map(|_| open()).collect();
    assert!(kept.iter().all(|(_, status)| *status == 200));
    let text = refused(&neve);
    assert!(
        text.starts_with("HTTP/1.1 503 ") && text.ends_with("too many connections\n"),
        "{text}"
    );
    kept.pop();
    let look = || {
        let mut client = neve.client();
        client
            .raw(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
            .ok()
            .filter(|answer| answer.status == 200)
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while look().is_none() {
        assert!(Instant::now() < deadline, "a closed connection does not make room");
    }
}

/// Neither silence, nor a byte now and then, nor an answer that is not read keeps a connection.
#[test]
fn connections_that_do_nothing_are_closed() {
    let (_node, neve, _dir) = start(&["--idle-timeout", "1s", "--write-timeout", "1s"]);
    let mut silent = TcpStream::connect(neve.address).unwrap();
    let mut trickle = TcpStream::connect(neve.address).unwrap();
    let mut deaf = TcpStream::connect(neve.address).unwrap();
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x14c",true]}"#;
    let batch = format!("[{}]", [call; 200].join(",")); // about 40 MiB of answers: over every buffer
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    write!(deaf, "{head}Content-Length: {}\r\n\r\n{batch}", batch.len()).unwrap();
    let start = Instant::now();
    for stream in [&mut silent, &mut trickle] {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    }
    let closed = |stream: &mut TcpStream| matches!(stream.read(&mut [0; 1]), Ok(0));
    let (mut ends, mut at) = ([None, None], 0);
    while ends.iter().any(Option::is_none) {
        assert!(start.elapsed() < Duration::from_secs(20), "still open: {ends:?}");
        let _ = trickle.write(&[b"POST / HTTP/1.1\r\n"[at % 17]]);
        at += 1;
        for (end, stream) in ends.iter_mut().zip([&mut silent, &mut trickle]) {
            if end.is_none() && closed(stream) {
                *end = Some(start.elapsed());
            }
        }
    }
    assert!(ends.iter().flatten().all(|end| *end >= Duration::from_millis(900)), "{ends:?}");
    let look = || neve.metric("neve_http_timeouts_total").unwrap_or(0.0);
    while look() < 3.0 {
        assert!(start.elapsed() < Duration::from_secs(30), "the deaf one still holds its answer");
    }
}

#[test]
fn answers_under_way_are_finished_on_sigterm() {
    let (node, neve, _dir) = start(&[]);
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x14c",true]}"#;
    let batch = format!("[{}]", [call; 100].join(","));
    let mut slow = TcpStream::connect(neve.address).unwrap();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    write!(slow, "{head}Content-Length: {}\r\n\r\n{batch}", batch.len()).unwrap();
    let mut idle = neve.client();
    assert_eq!(idle.get("/health").status, 200);
    slow.peek(&mut [0; 1]).unwrap(); // the answer has begun
    neve.signal(Signal::TERM);
    neve.wait_for_log("draining");
    let answer = read(&mut BufReader::new(slow), false).unwrap();
    let expected = node.height(0x14c).block.len();
    assert!(answer.body.len() > 100 * expected, "{} bytes", answer.body.len());
    assert_eq!(answer.json().as_array().unwrap().len(), 100);
    let (status, took) = neve.stop();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(9), "draining took {took:?}");
}

#[test]
fn a_client_that_never_reads_does_not_hold_up_the_end() {
    let (_node, neve, _dir) = start(&["--drain-timeout", "1s"]);
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x14c",true]}"#;
    let batch = format!("[{}]", [call; 200].join(","));
    let mut deaf = TcpStream::connect(neve.address).unwrap();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    write!(deaf, "{head}Content-Length: {}\r\n\r\n{batch}", batch.len()).unwrap();
    deaf.peek(&mut [0; 1]).unwrap();
    neve.signal(Signal::TERM);
    neve.wait_for_log("connections did not end in time and are cut");
    let (status, took) = neve.stop();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn health_readiness_and_metrics_tell_how_things_are() {
    let (_node, neve, dir) = start(&[]);
    let mut client = neve.client();
    let health = client.get("/health").json();
    assert_eq!(health["status"], "ok");
    assert_eq!(health["chain_id"], 43112);
    assert_eq!(health["blocks"]["min_height"], 100);
    assert_eq!(health["blocks"]["max_contiguous_height"], 339);
    assert_eq!(health["blocks"]["head"], 339);
    assert_eq!(health["blocks"]["lag"], 0);
    assert_eq!(health["blocks"]["unverified"], 0);
    assert_eq!(health["upstream"]["state"], "following");
    assert_eq!(health["upstream"]["rules"], "before_helicon");
    assert_eq!(health["storage"]["data_dir"], dir.path().join("store").display().to_string());
    assert!(health["storage"]["bytes"].as_u64().unwrap() > 1 << 20);
    assert!(health["memory"]["anonymous_bytes"].as_u64().unwrap() > 1 << 20);
    let ready = client.get("/ready");
    assert_eq!((ready.status, ready.json()), (200, json!({ "ready": true })));
    for _ in 0..3 {
        client.call("eth_chainId", "[]");
    }
    client.call("eth_getBlockByNumber", "[\"0x1\",false]");
    client.call("eth_getBlockByNumber", "[\"one\",false]");
    client.post(r#"[{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}]"#);
    let page = client.get("/metrics");
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4"));
    let page = page.text();
    for line in [
        "neve_rpc_calls_total{method=\"eth_chainId\",outcome=\"hit\"} 4",
        "neve_rpc_calls_total{method=\"eth_getBlockByNumber\",outcome=\"miss\"} 1",
        "neve_rpc_calls_total{method=\"eth_getBlockByNumber\",outcome=\"error\"} 1",
        "neve_head_height 339",
        "neve_first_height 100",
        "neve_lag_heights 0",
        "neve_blocks_stored_total 240",
        "neve_blocks_withdrawn_total 0",
        "neve_evidence_files_total 0",
        "neve_mirror_segments_total{outcome=\"refused\"} 0",
        "# TYPE neve_http_connections gauge",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

/// Whoever takes all connections of one address must not have a healthy server taken for a dead one.
#[test]
fn each_address_has_connections_of_its_own() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let bounds = ["--connections-max", "1", "--admin-listen", "127.0.0.1:0"];
    let url = node.url();
    let neve =
        Neve::start(dir.path(), &[&["--upstream", &url, "--start", "300"][..], &bounds].concat());
    neve.wait_for_log("following");
    let mut only = neve.client();
    assert_eq!(only.call("eth_chainId", "[]").status, 200);
    let text = refused(&neve);
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    let admin = neve.greeting.split("http://").find_map(|rest| rest.split_once("/health"));
    let (admin, _) = admin.expect("it says where /health is");
    assert_eq!(Client::new(admin.parse().expect("an address")).get("/health").status, 200);
    assert_eq!(only.call("eth_chainId", "[]").status, 200);
}

/// Whoever sends bodies and does not end them must not have the server take memory without end.
#[test]
fn bodies_on_their_way_have_a_limit_together() {
    let (_node, neve, _dir) = start(&["--body-bytes-max", "1MB", "--bodies-bytes-max", "1MB"]);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let (small, large) =
        (call.to_owned() + &" ".repeat(400_000), call.to_owned() + &" ".repeat(900_000));
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let head = format!("{head}Content-Length: {}\r\n\r\n", large.len());
    let (begin, end) = large.as_bytes().split_at(large.len() - 1);
    // Whichever comes first has the room, so each try stalls anew.
    let (mut stalled, refused) = neve.wait("the limit", |_| {
        let mut stalled = TcpStream::connect(neve.address).unwrap();
        stalled.write_all(&[head.as_bytes(), begin].concat()).unwrap();
        std::thread::park_timeout(Duration::from_millis(100));
        let answer = neve.client().post(&small);
        (answer.status != 200).then_some((stalled, answer))
    });
    let text = "request bodies take all the memory that they may; try again later\n";
    assert_eq!((refused.status, refused.text().as_str()), (503, text));
    let short = neve.client().call("eth_chainId", "[]");
    assert_eq!(short.status, 200, "what comes at once needs no room");
    stalled.write_all(end).unwrap();
    assert_eq!(read(&mut BufReader::new(stalled), false).unwrap().status, 200);
    neve.wait("room again", |_| (neve.client().post(&small).status == 200).then_some(()));
}

/// Neither a search of little that is long nor many calls that are short keep a serving thread.
#[test]
fn what_takes_long_is_answered_where_it_holds_up_nobody() {
    let (_node, neve, _dir) = start(&[]);
    let mut client = neve.client();
    let handed_over = || neve.count("neve_http_handed_over_total");
    let search = |topics: usize| {
        let topics: Vec<_> = (0..topics).map(|at| format!("\"0x{at:064x}\"")).collect();
        format!(r#"[{{"fromBlock":"0x64","toBlock":"0x153","topics":[[{}]]}}]"#, topics.join(","))
    };
    // 240 heights.
    assert_eq!(client.result("eth_getLogs", &search(41)), json!([]));
    assert_eq!(handed_over(), 0);
    assert_eq!(client.result("eth_getLogs", &search(42)), json!([]));
    assert_eq!(handed_over(), 1);
    let call =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":{}}}"#, search(41));
    let answer = client.post(&format!("[{}]", vec![call; 400].join(",")));
    assert_eq!((answer.status, answer.json()[399]["result"].clone()), (200, json!([])));
    assert_eq!(handed_over(), 2);
}

#[test]
fn the_administrators_paths_can_have_their_own_address() {
    let node = Recorded::start(MAIN);
    let dir = fresh_dir();
    let neve = Neve::start(
        dir.path(),
        &["--upstream", &node.url(), "--start", "300", "--admin-listen", "127.0.0.1:0"],
    );
    let mut client = neve.client();
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    neve.wait_for_log("following");
    assert_eq!(client.call("eth_chainId", "[]").status, 200);
}
