//! `--request-ids`: ids of requests, and W3C Trace Context from a client to an upstream.

use std::net::TcpStream;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_tungstenite::tungstenite::{Message, client, client::IntoClientRequest};

use super::log::{Logged, lines};
use crate::relay::wire::Wire;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::{devnet, follow};

const BLOCK: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBlockByNumber","params":["0x5",false]}"#;
const BALANCE: &str = r#"{"jsonrpc":"2.0","id":8,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]}"#;
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn id(neve: &Neve, headers: &[(&str, &str)]) -> Option<String> {
    let headers = [&[("Content-Type", "application/json")], headers].concat();
    let answer = neve.client().request("POST", "/", &headers, BLOCK.as_bytes());
    assert_eq!(answer.status, 200);
    let ids: Vec<_> = answer.headers.iter().filter(|(name, _)| name == "x-request-id").collect();
    assert!(ids.len() < 2, "{ids:?}");
    answer.header("x-request-id").map(str::to_owned)
}

fn is_made(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())
}

#[test]
fn response_has_the_id_of_its_request_or_a_new_one() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--request-ids"]);
    assert_eq!(id(&neve, &[("X-Request-Id", "a-B_1.2")]).as_deref(), Some("a-B_1.2"));
    assert_eq!(id(&neve, &[("Origin", "http://x"), ("x-request-id", "7")]).as_deref(), Some("7"));
    let long = "x".repeat(129);
    for wrong in ["", "a b", "\u{e9}", "a\"", &long] {
        let made = id(&neve, &[("X-Request-Id", wrong)]).expect("an id");
        assert!(is_made(&made), "{wrong:?}: {made}");
    }
    let [one, two] = [(); 2].map(|()| id(&neve, &[]).expect("an id"));
    assert!(is_made(&one) && is_made(&two) && one != two, "{one} {two}");
    let refused = neve.client().get("/nothing");
    assert!(refused.status == 404 && refused.header("x-request-id").is_some_and(is_made));
    assert_eq!(neve.admin().get("/health").header("x-request-id"), None);
}

#[test]
fn id_is_ignored_unless_ids_are_on() {
    let logged = Logged::start(&[]);
    assert_eq!(id(&logged.neve, &[("X-Request-Id", "mine"), ("Traceparent", "x")]), None);
    let line = logged.lines(1).concat();
    assert!(!line.contains("request_id") && !line.contains("mine"), "{line}");
}

/// Ids of a WebSocket are those of its handshake.
#[test]
fn id_and_trace_are_in_the_line_of_each_transport() {
    let logged = Logged::start(&["--request-ids", "--log-format", "json"]);
    let (address, parent) = (logged.neve.address, format!("00-{TRACE}-{PARENT}-01"));
    id(&logged.neve, &[("X-Request-Id", "one"), ("Traceparent", &parent)]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("neve listens");
        let opened = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = opened.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let request = Request::post(format!("http://{address}/"))
            .header("content-type", "application/json")
            .header("x-request-id", "two")
            .header("traceparent", &parent)
            .body(Full::new(Bytes::from(BLOCK)));
        let response = sender.send_request(request.expect("a request")).await;
        assert_eq!(response.expect("a response").headers()["x-request-id"], "two");
    });
    let mut request = format!("ws://{address}/ws").into_client_request().expect("a request");
    request.headers_mut().insert("x-request-id", "three".parse().expect("a value"));
    request.headers_mut().insert("traceparent", parent.parse().expect("a value"));
    let stream = TcpStream::connect(address).expect("neve listens");
    let (mut ws, response) = client(request, stream).expect("a WebSocket");
    assert_eq!(response.headers()["x-request-id"], "three");
    ws.send(Message::text(BLOCK)).expect("it is sent");
    ws.read().expect("a response");
    let objects = logged.objects(4);
    let ids = ["one", "two", "three", "three"];
    let protocols = ["HTTP/1.1", "HTTP/2.0", "HTTP/1.1", "WebSocket"];
    for (at, object) in objects.iter().enumerate() {
        assert_eq!(
            (&object["request_id"], &object["protocol"]),
            (&ids[at].into(), &protocols[at].into())
        );
        assert_eq!((&object["trace_id"], &object["parent_id"]), (&TRACE.into(), &PARENT.into()));
        assert_eq!(object["span_id"].as_str().map(str::len), Some(16), "{object}");
    }
}

/// The span of neve, as the last request on the wire names it.
fn span(wire: &Wire) -> String {
    let sent = wire.sent().to_lowercase();
    let begin = format!("traceparent: 00-{TRACE}-");
    let (_, rest) = sent.rsplit_once(&begin).unwrap_or_else(|| panic!("no trace in {sent}"));
    let (span, rest) = rest.split_once('-').expect("a span");
    assert!(rest.starts_with("01\r\n"), "{rest}");
    span.to_owned()
}

#[test]
fn upstream_goes_on_with_the_trace_under_the_span_of_the_line() {
    let (node, dir) = (devnet(5), fresh_dir());
    let (wire, file) = (Wire::start(node.address()), dir.path().join("access.log"));
    let place = file.display().to_string();
    let neve = Neve::start(
        dir.path(),
        &[
            &["--upstream", &wire.url(), "--start", "0", "--on-miss", "relay"][..],
            &["--relay-paths", "/ext/info", "--request-ids", "--access-log", &place],
            &["--batch-miss", "split", "--relay-broadcast"],
        ]
        .concat(),
    );
    neve.wait_for_head(5);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let info = r#"{"jsonrpc":"2.0","id":1,"method":"info.getNodeID"}"#;
    let raw = format!("0x02{}", "0".repeat(62));
    let send = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["{raw}"]}}"#
    );
    let split = format!("[{BLOCK},{BALANCE}]");
    let headers = [
        ("Content-Type", "application/json"),
        ("Traceparent", parent.as_str()),
        ("Tracestate", "rojo=1"),
        ("X-Request-Id", "client-id"),
    ];
    for (at, (path, body)) in
        [("/", BALANCE), ("/", &*split), ("/ext/info", info), ("/", &*send)].into_iter().enumerate()
    {
        neve.client().request("POST", path, &headers, body.as_bytes());
        let line = lines(&file, at + 1).pop().expect("a line");
        let ids = format!("trace_id={TRACE} parent_id={PARENT} span_id={}", span(&wire));
        assert!(line.ends_with(&ids), "{body}: {ids} is not in {line}");
    }
    assert_eq!(wire.sent().to_lowercase().matches("tracestate: rojo=1\r\n").count(), 4);
    let mut request = format!("ws://{}/ws", neve.address).into_client_request().expect("a request");
    request.headers_mut().insert("traceparent", parent.parse().expect("a value"));
    let stream = TcpStream::connect(neve.address).expect("neve listens");
    let (mut ws, _) = client(request, stream).expect("a WebSocket");
    ws.send(Message::text(BALANCE)).expect("it is sent");
    ws.read().expect("a response");
    let line = lines(&file, 6).pop().expect("a line");
    assert!(line.ends_with(&format!("span_id={}", span(&wire))), "{line}");
    let wrong =
        [("Content-Type", "application/json"), ("Traceparent", "00-x"), ("Tracestate", "a=1")];
    let before = wire.sent().to_lowercase().matches("traceparent").count();
    neve.client().request("POST", "/", &wrong, BALANCE.as_bytes());
    assert_eq!(wire.sent().to_lowercase().matches("traceparent").count(), before);
    assert!(!wire.sent().contains("client-id") && !wire.sent().contains(PARENT));
}

#[test]
fn trace_does_not_go_on_unless_ids_are_on() {
    let (node, dir) = (devnet(5), fresh_dir());
    let wire = Wire::start(node.address());
    let fixed = ["--start", "0", "--on-miss", "relay", "--upstream", &wire.url()];
    let neve = Neve::start(dir.path(), &fixed);
    neve.wait_for_head(5);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("Content-Type", "application/json"), ("Traceparent", &*parent)];
    let answer = neve.client().request("POST", "/", &headers, BALANCE.as_bytes());
    assert_eq!(answer.header("x-neve"), Some("relay"));
    assert!(!wire.sent().contains(TRACE));
}
