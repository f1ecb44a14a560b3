//! HTTP/2 without TLS, by prior knowledge.

#![expect(clippy::big_endian_bytes, reason = "the order of RFC 9113")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::header::HeaderValue;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;

use crate::support::http2::{DATA, PREFACE, frame, head, header};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::node::wait::at_some_pace;
use crate::support::served::{devnet, follow};

const BALANCE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0x0000000000000000000000000000000000000001","latest"]}"#;
const BLOCK: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x5",true]}"#;
const LIMIT: Duration = Duration::from_mins(3);

type Sender = SendRequest<Full<Bytes>>;

async fn open(address: SocketAddr) -> Sender {
    let stream = tokio::net::TcpStream::connect(address).await.expect("neve listens");
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

fn post(address: SocketAddr, host: Option<&str>, body: &str) -> Request<Full<Bytes>> {
    let request =
        Request::post(format!("http://{address}/")).header("content-type", "application/json");
    let request = host.into_iter().fold(request, |request, host| request.header("host", host));
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).expect("a request")
}

async fn whole(response: Response<hyper::body::Incoming>) -> (u16, Option<String>, Bytes) {
    let source = response.headers().get("x-neve");
    let source = source.map(|value| value.to_str().expect("ASCII").to_owned());
    let status = response.status().as_u16();
    (status, source, response.into_body().collect().await.expect("a body").to_bytes())
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let test = async { tokio::time::timeout(LIMIT, test).await.expect("in time") };
    runtime.expect("a runtime").block_on(test)
}

#[test]
fn requests_of_one_connection_are_answered_as_over_http_1() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--on-miss", "relay", "--connection-streams-max", "3"]);
    let address = neve.address;
    let expected = |body: &str| {
        let answer = neve.client().post(body);
        (answer.status, answer.header("x-neve").map(str::to_owned), Bytes::from(answer.body))
    };
    let expected = [BLOCK, BALANCE].map(expected);
    run(async {
        let sender = open(address).await;
        let ask = |body: &'static str| {
            let mut sender = sender.clone();
            async move {
                sender.ready().await.expect("open");
                let response = sender.send_request(post(address, None, body)).await;
                whole(response.expect("a response")).await
            }
        };
        // The client knows the limit when the first response is there. Then more at once than streams
        // may be open wait.
        assert_eq!(ask(BLOCK).await, expected[0]);
        let all = (0..30).map(|at| ask([BLOCK, BALANCE][at % 2]));
        for (at, answer) in futures_util::future::join_all(all).await.into_iter().enumerate() {
            assert_eq!(answer, expected[at % 2]);
        }
        let mut other = open(address).await;
        let wrong = other.send_request(post(address, Some("elsewhere"), BLOCK)).await;
        assert_eq!(wrong.expect("a response").status(), 400, "Host differs from the authority");
    });
}

/// RFC 9113, 8.3.1: a front may take another part of it for the host.
#[test]
fn authority_that_names_a_user_is_refused() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &[]);
    run(async {
        let mut sender = open(neve.address).await;
        for (user, expected) in [("a@", 400), ("a:b@", 400), ("", 200)] {
            let mut request = post(neve.address, None, BLOCK);
            let uri = format!("http://{user}{}/", neve.address);
            *request.uri_mut() = uri.parse().expect("an address");
            let (status, _, body) =
                whole(sender.send_request(request).await.expect("a response")).await;
            assert_eq!(status, expected, "{user}");
            let malformed: &[u8] = b"400 Bad Request: malformed Host header";
            assert_eq!(body == malformed, status == 400, "{user}: {}", body.escape_ascii());
        }
    });
}

/// No 2xx, which would begin a tunnel (RFC 9113, 8.5).
#[test]
fn connect_is_redirected_as_at_the_node() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &[]);
    run(async {
        let mut sender = open(neve.address).await;
        let request = Request::connect("x:80").body(Full::new(Bytes::new())).expect("a request");
        let response = sender.send_request(request).await.expect("a response");
        assert_eq!(
            (response.status().as_u16(), &response.headers()["location"]),
            (301, &"/".parse().expect("a value"))
        );
        let next = sender.send_request(post(neve.address, None, BLOCK)).await;
        assert_eq!(whole(next.expect("a response")).await.0, 200);
    });
}

#[test]
fn upgrade_to_http_2_is_ignored() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &[]);
    let headers = [
        ("Content-Type", "application/json"),
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
    ];
    let answer = neve.client().request("POST", "/", &headers, BLOCK.as_bytes());
    assert_eq!((answer.status, answer.header("upgrade")), (200, None), "{}", answer.text());
}

/// Only a connection may begin with the preface (RFC 9113, 3.4). Behind a request it is a request of no
/// known version, whichever path answered the one before.
#[test]
fn preface_behind_a_request_is_a_bad_request() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &[]);
    for more in ["", "Origin: http://x\r\n"] {
        let length = BLOCK.len();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n"
        );
        let bytes = [head.as_bytes(), BLOCK.as_bytes(), PREFACE, &frame(4, 0, 0, &[])].concat();
        let came = answered(&neve, &bytes);
        let text = String::from_utf8_lossy(&came);
        let (first, rest) = text.split_once("\"uncles\":[]}}\n").expect("the block");
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400 "), "{more}: {rest:?}");
    }
}

/// TCP may cut it anywhere.
#[test]
fn preface_is_known_in_whatever_pieces_it_comes() {
    let node = devnet(5);
    let log = fresh_dir();
    let log = log.path().join("access.log").display().to_string();
    let settings = frame(4, 0, 0, &[]);
    for more in [&[][..], &["--access-log", &log]] {
        let (_dir, neve) = follow(&node, more);
        for cut in [1, 3, 4, 11, 12, 13, 14, 20] {
            let mut stream = TcpStream::connect(neve.address).expect("neve listens");
            stream.set_nodelay(true).expect("a socket");
            stream.set_read_timeout(Some(LIMIT)).expect("not zero");
            stream.write_all(&PREFACE[..cut]).expect("it listens");
            std::thread::park_timeout(Duration::from_millis(20)); // a segment of its own
            let rest = [&PREFACE[cut..], &settings].concat();
            stream.write_all(&rest).expect("it waits");
            let mut came = [0; 9];
            let read = stream.read_exact(&mut came);
            assert!(read.is_ok() && came[3] == 4, "{cut} {more:?}: {}", came.escape_ascii());
        }
    }
}

/// Sends frames on a new connection, and reads until it ends.
fn ends_after(neve: &Neve, settings: &[u8], frames: &[Vec<u8>]) -> Vec<u8> {
    let begin = [PREFACE, &frame(4, 0, 0, settings)[..]].concat();
    answered(neve, &[begin, frames.concat()].concat())
}

/// Sends bytes on a new connection, and reads until it ends.
fn answered(neve: &Neve, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(neve.address).expect("neve listens");
    stream.set_read_timeout(Some(LIMIT)).expect("not zero");
    // The server may have closed before all is sent.
    let _ = stream.write_all(bytes);
    let mut came = Vec::new();
    let mut room = [0; 4096];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return came,
            Ok(len) => came.extend_from_slice(&room[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return came,
            Err(error) => panic!("it does not end: {error}"),
        }
    }
}

#[test]
fn connection_without_memory_is_told_to_calm_down() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &["--client-bytes-address-max", "64KiB"]);
    let came = answered(&neve, &[PREFACE, &frame(4, 0, 0, &[])].concat());
    let text = b"memory for clients is used up; try again later";
    let goaway = frame(7, 0, 0, &[&[0, 0, 0, 0, 0, 0, 0, 11], &text[..]].concat());
    assert_eq!(came, [frame(4, 0, 0, &[]), goaway].concat());
}

#[test]
fn floods_of_frames_end_their_connection() {
    let node = devnet(5);
    // Without a flood, nothing here ends.
    let (_dir, neve) = follow(&node, &["--idle-timeout", "1h"]);
    let resets = (0..2000).flat_map(|at| {
        let stream = 2 * at + 1;
        [head(stream, &[]), frame(3, 0, stream, &8_u32.to_be_bytes())]
    });
    for (what, frames) in [
        ("PING", vec![frame(6, 0, 0, &[0; 8]); 2000]),
        ("SETTINGS", vec![frame(4, 0, 0, &[]); 2000]),
        ("PRIORITY", vec![frame(2, 0, 1, &[0, 0, 0, 3, 1]); 2000]),
        ("HEADERS and RST_STREAM", resets.collect()),
    ] {
        let came = ends_after(&neve, &[], &frames);
        assert!(came.starts_with(&[0, 0]), "{what}: it spoke HTTP/2 before: {came:?}");
        let block = neve.client().post(BLOCK);
        assert_eq!(block.status, 200, "{what}");
    }
}

/// All clients of a front share its connection, and one of them breaks off each request.
#[test]
fn trusted_front_may_reset_each_of_its_requests() {
    let node = devnet(5);
    let resets = (0..150).flat_map(|at| {
        let stream = 2 * at + 1;
        [head(stream, &[]), frame(3, 0, stream, &8_u32.to_be_bytes())]
    });
    let [ping, answer] = [0, 1].map(|flags| frame(6, flags, 0, b"is there"));
    let frames = [resets.collect::<Vec<_>>().concat(), ping].concat();
    let bytes = [PREFACE, &frame(4, 0, 0, &[]), &frames].concat();
    for (more, goes_on) in [(&["--trusted-proxies", "127.0.0.1"][..], true), (&[], false)] {
        let (_dir, neve) = follow(&node, more);
        let mut stream = TcpStream::connect(neve.address).expect("neve listens");
        stream.set_read_timeout(Some(LIMIT)).expect("not zero");
        let _ = stream.write_all(&bytes); // it may have closed already
        let (mut came, mut room) = (Vec::new(), [0; 4096]);
        let is_answered = loop {
            if came.windows(answer.len()).any(|bytes| bytes == answer) {
                break true;
            }
            match stream.read(&mut room) {
                Ok(len) if len > 0 => came.extend_from_slice(&room[..len]),
                _ => break false,
            }
        };
        assert_eq!(is_answered, goes_on, "{more:?}");
    }
}

/// The library warns of a connection whose streams it reset too often.
#[test]
fn client_whose_streams_are_reset_writes_no_log() {
    let node = devnet(5);
    let streams = || (0..90).map(|at| 2 * at + 1);
    let heads = streams().map(|stream| head(stream, &header("content-length", "1")));
    let resets = streams().map(|stream| frame(DATA, 0, stream, b"ab")); // more than was said
    let data_of_no_stream = frame(0, 0, 0, &[]);
    let flood: Vec<_> = heads.chain(resets).chain([data_of_no_stream]).collect();
    let (warning, end) = ("locally-reset streams", "no settings file at the start");
    let (_dir, neve) = follow(&node, &["--log-filter", "info,h2=warn"]);
    ends_after(&neve, &[], &flood);
    neve.wait_for_log(warning);
    let (_dir, neve) = follow(&node, &[]);
    ends_after(&neve, &[], &flood);
    neve.signal(Signal::HUP);
    neve.wait_for_log(end); // it comes behind all lines of the flood
    assert!(!neve.log().contains(warning), "{}", neve.log());
}

#[test]
fn connection_of_a_client_that_reads_nothing_ends_and_so_does_an_idle_one() {
    at_some_pace(|pace| idle_connection_ends(2 * pace));
}

fn idle_connection_ends(write: Duration) {
    let node = devnet(5);
    let [idle_ms, write_ms] = [2 * write, write].map(|time| format!("{}ms", time.as_millis()));
    let (_dir, neve) = follow(&node, &["--idle-timeout", &idle_ms, "--write-timeout", &write_ms]);
    let ask = |stream: u32| [head(stream, &[]), frame(0, 1, stream, BLOCK.as_bytes())].concat();
    // SETTINGS_INITIAL_WINDOW_SIZE of 0: no byte of a response may be sent.
    let came = ends_after(&neve, &[0, 4, 0, 0, 0, 0], &[ask(1)]);
    assert!(!String::from_utf8_lossy(&came).contains("jsonrpc"));
    let came = ends_after(&neve, &[], &[ask(1)]);
    assert!(String::from_utf8_lossy(&came).contains("\"result\":{"), "an answer, and then the end");
    let goaway = came.windows(9).any(|head| head[3] == 7 && head[..2] == [0, 0]);
    assert!(goaway, "{came:?}");
    neve.wait_for_count("neve_http_connection_timeouts_total{reason=\"idle\"}", 2);
}

/// Headers besides those of the connection and the time.
fn headers_of(response: &Response<hyper::body::Incoming>) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.to_str().expect("ASCII").to_owned();
    let all = response.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
    sorted(all.collect())
}

fn sorted(mut headers: Vec<(String, String)>) -> Vec<(String, String)> {
    headers.retain(|(name, _)| name != "date" && name != "connection");
    headers.sort();
    headers
}

#[test]
fn head_has_the_headers_of_http_1_and_no_body() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &[]);
    let address = neve.address;
    for (path, tags) in
        [("/ready", ""), ("/nothing", ""), ("/", ""), ("/v1/block/5", ""), ("/v1/block/5", "*")]
    {
        let expected = neve.client().request("HEAD", path, &[("If-None-Match", tags)], b"");
        let sent = neve.count("neve_http_response_bytes_total");
        let (status, headers) = run(async {
            let request = Request::head(format!("http://{address}{path}"));
            let request = request.header("if-none-match", tags);
            let request = request.body(Full::new(Bytes::new())).expect("a request");
            let mut sender = open(address).await;
            let response = sender.send_request(request).await.expect("a response");
            let (status, headers) = (response.status().as_u16(), headers_of(&response));
            let body = response.into_body().collect().await.expect("no error of the stream");
            assert!(body.to_bytes().is_empty());
            (status, headers)
        });
        assert_eq!(status == 304, !tags.is_empty(), "{path} {tags}");
        assert_eq!((status, headers), (expected.status, sorted(expected.headers)), "{path} {tags}");
        assert_eq!(neve.count("neve_http_response_bytes_total"), sent, "{path}: no body is sent");
    }
}

#[test]
fn key_of_a_client_holds_over_http_2() {
    let (node, dir) = (devnet(5), fresh_dir());
    let (file, key) = (dir.path().join("keys.toml"), "0123456789abcdef");
    let hash = "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
    std::fs::write(&file, format!("[[key]]\nname = \"x\"\nsha256 = \"{hash}\"\n")).expect("a file");
    let (_store, neve) = follow(&node, &["--keys", &file.display().to_string()]);
    run(async {
        let mut sender = open(neve.address).await;
        let refused =
            sender.send_request(post(neve.address, None, BLOCK)).await.expect("a response");
        assert_eq!(refused.status(), 401);
        let mut named = post(neve.address, None, BLOCK);
        named.headers_mut().insert("x-api-key", key.parse().expect("a value"));
        assert_eq!(sender.send_request(named).await.expect("a response").status(), 200);
        let mut in_path = post(neve.address, None, BLOCK);
        *in_path.uri_mut() =
            format!("http://{}/k/{key}", neve.address).parse().expect("an address");
        assert_eq!(sender.send_request(in_path).await.expect("a response").status(), 200);
    });
}

#[test]
fn connection_has_the_upstreams_of_a_reload() {
    let ([first, second], dir) = ([devnet(5), devnet(5)], fresh_dir());
    let path = dir.path().join("neve.toml");
    let settings = |upstream: &str| {
        let text = format!("upstream = \"{upstream}\"\nstart = 0\non-miss = \"relay\"\n");
        std::fs::write(&path, text).expect("a file");
    };
    settings(&first.base_url());
    let neve = Neve::start(dir.path(), &["--config", &path.display().to_string()]);
    let is_up = || {
        neve.wait("an upstream", |health| (health["upstreams"][0]["state"] == "up").then_some(()));
    };
    is_up();
    let address = neve.address;
    run(async {
        let mut sender = open(address).await;
        let mut ask = async || {
            sender.ready().await.expect("open");
            let response = sender.send_request(post(address, None, BALANCE)).await;
            whole(response.expect("a response")).await.0
        };
        assert_eq!((ask().await, second.counters().calls("eth_getBalance")), (200, 0));
        settings(&second.base_url());
        neve.signal(Signal::HUP);
        // The earlier one answers until the other one is admitted.
        while second.counters().calls("eth_getBalance") == 0 {
            assert_eq!(ask().await, 200);
        }
    });
}
