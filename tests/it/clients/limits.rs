//! HTTP and JSON-RPC from outside: refusals, limits at their edges, timeouts, draining,
//! and what an operator sees.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::client::{Client, read};
use crate::support::corpus::MAIN;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::recorded::Recorded;
use crate::support::served::recorded_from_100;

#[test]
fn requests_that_carry_no_json_rpc_are_refused_in_the_nodes_words() {
    let (_node, neve, _dir) = recorded_from_100(&[]);
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
    let (_node, neve, _dir) = recorded_from_100(&["--body-bytes-max", "200"]);
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
    let (_node, neve, _dir) = recorded_from_100(&["--header-bytes-max", "8KiB"]);
    let fixed = "GET /health HTTP/1.1\r\nHost: x\r\nX: \r\n\r\n";
    let request = |bytes: usize| fixed.replace("X: ", &format!("X: {}", "x".repeat(bytes)));
    let status = |request: &str| neve.client().raw(request.as_bytes()).unwrap().status;
    let most = (8 << 10) - fixed.len();
    assert_eq!(status(&request(most)), 200);
    assert_eq!(status(&request(most + 1)), 431);
    // `Host` is one more.
    let many = |count: usize| fixed.replace("X: \r\n", &"X: y\r\n".repeat(count));
    assert_eq!(status(&many(99)), 200);
    assert_eq!(status(&many(100)), 431);
}

#[test]
fn batch_limits_hold_at_their_edge() {
    let (_node, neve, _dir) =
        recorded_from_100(&["--batch-items-max", "3", "--batch-response-bytes-max", "3000"]);
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
    // What is no call has no id there, or the one that it came with.
    for (no_call, id) in [("5", ""), (r#"{"id":[ 1 ]}"#, r#""id":[1],"#)] {
        let answer = client.post(&format!("[{},{},{no_call}]", header(1), header(2))).text();
        let error = r#""error":{"code":-32003,"message":"response too large"}}]"#;
        let unread = format!(r#",{{"jsonrpc":"2.0",{id}{error}"#);
        assert!(answer.ends_with(&unread), "{answer}");
    }
    let answer = client.post(&format!("[{},{}]", header(1), header(2))).text();
    assert!(answer.ends_with("}]"), "crossing the limit costs the newline: {answer}");
    assert!(client.post(&format!("[{}]", header(1))).text().ends_with("}]\n"));
}

/// Returns the response to one connection too many.
fn refused(neve: &Neve) -> String {
    let mut over = TcpStream::connect(neve.address).unwrap();
    over.set_read_timeout(Some(LIMIT)).unwrap();
    let mut text = String::new();
    over.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn connections_have_a_limit_that_says_so() {
    let (_node, neve, _dir) =
        recorded_from_100(&["--connections-max", "3", "--connections-address-max", "3"]);
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
    let deadline = Instant::now() + LIMIT;
    while look().is_none() {
        assert!(Instant::now() < deadline, "a closed connection does not make room");
    }
}

/// Neither silence, nor a byte now and then, nor an answer that is not read keeps a connection.
#[test]
fn connections_that_do_nothing_are_closed() {
    let (_node, neve, _dir) = recorded_from_100(&["--idle-timeout", "1s", "--write-timeout", "1s"]);
    let start = Instant::now();
    let mut silent = TcpStream::connect(neve.address).unwrap();
    let mut trickle = TcpStream::connect(neve.address).unwrap();
    let mut deaf = TcpStream::connect(neve.address).unwrap();
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x14c",true]}"#;
    let batch = format!("[{}]", [call; 200].join(",")); // about 40 MiB of answers: over every buffer
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    write!(deaf, "{head}Content-Length: {}\r\n\r\n{batch}", batch.len()).unwrap();
    for stream in [&mut silent, &mut trickle] {
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    }
    let closed = |stream: &mut TcpStream| matches!(stream.read(&mut [0; 1]), Ok(0));
    let (mut ends, mut at) = ([None, None], 0);
    while ends.iter().any(Option::is_none) {
        assert!(start.elapsed() < LIMIT, "still open: {ends:?}");
        let _ = trickle.write(&[b"POST / HTTP/1.1\r\n"[at % 17]]);
        at += 1;
        for (end, stream) in ends.iter_mut().zip([&mut silent, &mut trickle]) {
            if end.is_none() && closed(stream) {
                *end = Some(start.elapsed());
            }
        }
    }
    assert!(ends.iter().flatten().all(|end| *end >= Duration::from_millis(900)), "{ends:?}");
    let closed = |reason: &str| {
        neve.count(&format!("neve_http_connection_timeouts_total{{reason=\"{reason}\"}}"))
    };
    // A request of this test that the machine holds up may be one more.
    while closed("idle") < 2 || closed("write") < 1 {
        assert!(start.elapsed() < 2 * LIMIT, "the deaf one still holds its answer");
    }
}

#[test]
fn answers_under_way_are_finished_on_sigterm() {
    let (node, neve, _dir) = recorded_from_100(&["--drain-timeout", "45s"]);
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
    neve.stop_in_time();
}

#[test]
fn a_client_that_never_reads_does_not_hold_up_the_end() {
    let (_node, neve, _dir) = recorded_from_100(&["--drain-timeout", "1s"]);
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x14c",true]}"#;
    let batch = format!("[{}]", [call; 200].join(","));
    let mut deaf = TcpStream::connect(neve.address).unwrap();
    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    write!(deaf, "{head}Content-Length: {}\r\n\r\n{batch}", batch.len()).unwrap();
    deaf.peek(&mut [0; 1]).unwrap();
    neve.signal(Signal::TERM);
    neve.wait_for_log("connections cut after drain");
    let (status, _) = neve.stop();
    assert!(status.success(), "{status}");
}

#[test]
fn health_readiness_and_metrics_tell_how_things_are() {
    let (_node, neve, dir) = recorded_from_100(&[]);
    let mut client = neve.client();
    let health = neve.wait("all heights settled", |health| {
        let is_settled = health["blocks"]["unsettled"] == 0;
        (is_settled && health["upstream"]["state"] == "following").then(|| health.clone())
    });
    assert_eq!(health["status"], "ok");
    assert_eq!(health["chain_id"], 43112);
    assert_eq!(health["blocks"]["min_height"], 100);
    assert_eq!(health["blocks"]["max_contiguous_height"], 339);
    assert_eq!(health["blocks"]["head"], 339);
    assert_eq!(health["blocks"]["lag"], 0);
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
    let page = neve.admin().get("/metrics");
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
        "neve_mirror_received_segments_total{outcome=\"rejected\"} 0",
        "# TYPE neve_http_connections gauge",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

/// A client that takes all connections of one address must not have a healthy server taken for a dead one.
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
    assert_eq!(neve.admin().get("/health").status, 200);
    assert_eq!(only.call("eth_chainId", "[]").status, 200);
}

/// A client that sends bodies and does not end them must not have the server take memory without end.
#[test]
fn bodies_on_their_way_have_a_limit_together() {
    let (_node, neve, _dir) = recorded_from_100(&[
        "--body-bytes-max",
        "1MB",
        "--client-bytes-total-max",
        "4MB",
        "--client-bytes-address-max",
        "1200kB",
    ]);
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
    let text = "memory for clients is used up; try again later\n";
    assert_eq!((refused.status, refused.text().as_str()), (503, text));
    let short = neve.client().call("eth_chainId", "[]");
    assert_eq!(short.status, 200, "what comes at once needs no room");
    stalled.write_all(end).unwrap();
    assert_eq!(read(&mut BufReader::new(stalled), false).unwrap().status, 200);
    neve.wait("room again", |_| (neve.client().post(&small).status == 200).then_some(()));
}

/// The thread that reads a head first has memory for it, and the next one has not.
#[test]
fn head_without_memory_is_refused_with_503_whichever_thread_reads_it() {
    let (_node, neve, _dir) = recorded_from_100(&["--client-bytes-address-max", "12000"]);
    for bytes in [10_000, 13_000, 20_000, 60_000] {
        for _ in 0..5 {
            let mut stream = TcpStream::connect(neve.address).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\nX: {}", "a".repeat(bytes));
            let _ = stream.write_all(head.as_bytes());
            let refused = read(&mut BufReader::new(stream), false).unwrap();
            let text = "memory for clients is used up; try again later\n";
            assert_eq!((refused.status, refused.text().as_str()), (503, text), "{bytes}");
        }
    }
}

/// hyper reads the first bytes of a body before neve's part of the request runs for the first time.
#[test]
fn body_without_memory_is_refused_with_503_before_its_request_runs() {
    let (_node, neve, _dir) = recorded_from_100(&["--client-bytes-address-max", "16000"]);
    let mut stream = TcpStream::connect(neve.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut send = |head_bytes: usize, body: &str| {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nX: ",
            body.len()
        );
        let padding = "a".repeat(head_bytes.saturating_sub(head.len() + 4));
        stream.write_all(format!("{head}{padding}\r\n\r\n{body}").as_bytes()).unwrap();
        read(&mut BufReader::new(&stream), false).unwrap()
    };
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    assert_eq!(send(0, call).status, 200, "now it is on the full path");
    // The first read ends with the head, for which there is memory.
    let refused = send(8192, &(call.to_owned() + &" ".repeat(20_000)));
    let text = "memory for clients is used up; try again later\n";
    assert_eq!((refused.status, refused.text().as_str()), (503, text));
}

/// Neither a search of little that is long nor many calls that are short keep a serving thread.
#[test]
fn long_searches_and_long_batches_are_offloaded() {
    let (_node, neve, _dir) = recorded_from_100(&[]);
    let mut client = neve.client();
    let handed_over = || neve.count("neve_http_offloaded_requests_total");
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
