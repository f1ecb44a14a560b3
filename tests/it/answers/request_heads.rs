//! Heads of requests, byte by byte: where one ends, what is refused, and what must not depend on how
//! TCP cut them.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::support::client::{Response, read};
use crate::support::corpus::MAIN;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::recorded::Recorded;

const CHUNKED_HEAD: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
    Transfer-Encoding: chunked\r\n\r\n";
const PAUSE: Duration = Duration::from_millis(1);

fn start(arguments: &[&str]) -> (Recorded, tempfile::TempDir, Neve) {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let url = node.url();
    let neve =
        Neve::start(dir.path(), &[&["--upstream", &url, "--start", "300"], arguments].concat());
    neve.wait_for_head(MAIN.head);
    (node, dir, neve)
}

fn open(neve: &Neve) -> TcpStream {
    let stream = TcpStream::connect(neve.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends bytes in pieces that end at `cuts`, and nothing more; returns all that comes back.
fn exchange(neve: &Neve, bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut stream = open(neve);
    let mut begin = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        // The server may have refused it already, and closed.
        if stream.write_all(&bytes[begin..end]).is_err() {
            break;
        }
        begin = end;
        if begin < bytes.len() {
            std::thread::park_timeout(PAUSE); // a segment of its own, mostly
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    without_dates(&answer)
}

/// Removes the time of day.
fn without_dates(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split_inclusive("\r\n").filter(|line| !line.starts_with("date: "));
    lines.collect::<String>().into_bytes()
}

fn status(answer: &[u8]) -> u16 {
    let text = String::from_utf8_lossy(answer);
    text.get(9..12)
        .and_then(|code| code.parse().ok())
        .unwrap_or_else(|| panic!("no answer: {text}"))
}

/// Reads responses until the connection ends; each must be one, from its first byte to its last.
fn responses(stream: TcpStream) -> Vec<Response> {
    let mut stream = BufReader::new(stream);
    let mut all = Vec::new();
    while let Ok(response) = read(&mut stream, false) {
        all.push(response);
    }
    all
}

/// hyper wrote the refusal of the second request into the body of the first response.
#[test]
fn response_to_an_unread_body_is_whole_before_a_refusal() {
    let (_node, _dir, neve) = start(&[]);
    let malformed = "BAD\u{1}\r\n\r\n";
    for expect in ["", "Expect: 100-continue\r\n"] {
        for (line, most) in [
            ("POST /nothing", "404 page not found\n"),
            ("PUT /ext/bc/C/rpc", "method not allowed\n"),
            ("POST /ws", "Bad Request\n"),
            ("GET /v1/header/300", ""),
            ("GET /v1/block/339", ""),
            ("OPTIONS /ready", "method not allowed, use GET\n"),
        ] {
            for _ in 0..8 {
                let mut stream = open(&neve);
                let head =
                    format!("{line} HTTP/1.1\r\nHost: x\r\n{expect}Content-Length: 5\r\n\r\n");
                stream.write_all(format!("{head}hello{malformed}").as_bytes()).unwrap();
                let found = responses(stream);
                let statuses: Vec<u16> = found.iter().map(|response| response.status).collect();
                assert!(!found.is_empty() && found.len() <= 2, "{line} {expect}{statuses:?}");
                let body = found[0].text();
                assert!(!body.contains("HTTP/1.1"), "{line} {expect}: {body}");
                assert!(most.is_empty() || body == most, "{line} {expect}: {body}");
                if expect.is_empty() {
                    assert_eq!(found.len(), 2, "{line}: a short body is read");
                    assert_eq!(found[0].header("connection"), None);
                } else {
                    assert_eq!(found.len(), 1, "{line}: an unread body ends the connection");
                    assert_eq!(found[0].header("connection"), Some("close"));
                }
                assert!(found.iter().skip(1).all(|response| response.status == 400));
            }
        }
    }
}

#[test]
fn connection_closes_behind_a_body_too_long_to_read_for_nothing() {
    let (_node, _dir, neve) = start(&[]);
    let ask = |len: usize, framed: &dyn Fn(usize) -> String| {
        let mut stream = open(&neve);
        let head = format!("POST /nothing HTTP/1.1\r\nHost: x\r\n{}", framed(len));
        let _ = stream.write_all(head.as_bytes());
        let next = "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n";
        let _ = stream.write_all(next.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let found = responses(stream);
        assert_eq!((found[0].status, found[0].text().as_str()), (404, "404 page not found\n"));
        let closes = found[0].header("connection") == Some("close");
        assert_eq!(found.len(), if closes { 1 } else { 2 });
        closes
    };
    let known = |len: usize| format!("Content-Length: {len}\r\n\r\n{}", "x".repeat(len));
    let chunked = |len: usize| {
        let chunk = format!("{len:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(len));
        format!("Transfer-Encoding: chunked\r\n\r\n{chunk}")
    };
    for framed in [&known as &dyn Fn(usize) -> String, &chunked] {
        assert!(!ask(256 << 10, framed));
        assert!(ask((256 << 10) + 1, framed));
    }
}

/// Found by the fuzz target `http_heads`: hyper ended the connection and sent nothing.
#[test]
fn refusal_reaches_a_client_that_asks_for_an_upgrade_and_sends_no_body() {
    let (_node, _dir, neve) = start(&[]);
    for length in ["Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut stream = open(&neve);
        let hosts = "Host: x\r\nUpgrade: a\r\nHost: x\r\n";
        let head = format!("POST / HTTP/1.1\r\n{hosts}{length}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let found = responses(stream);
        assert_eq!(found.len(), 1, "{length}");
        assert_eq!(found[0].status, 400, "{length}");
    }
}

/// hyper takes a 2xx to CONNECT for the begin of a tunnel: it left out the result, and closed the connection.
#[test]
fn connect_is_no_way_to_call_and_its_connection_goes_on() {
    let (_node, _dir, neve) = start(&[]);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let length = format!("Content-Length: {}\r\n\r\n{call}", call.len());
    let chunked =
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{call}\r\n0\r\n\r\n", call.len());
    for body in [&length, &chunked] {
        for (target, expected) in [
            ("/ext/bc/C/rpc", 405),
            ("/v1/block/300", 405),
            ("/ready", 405),
            ("/", 404),
            ("localhost:80", 301),
        ] {
            let mut stream = open(&neve);
            let head = format!(
                "CONNECT {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{body}"
            );
            let next = "GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(format!("{head}{next}").as_bytes()).unwrap();
            let found = responses(stream);
            let statuses: Vec<u16> = found.iter().map(|response| response.status).collect();
            assert_eq!(statuses, [expected, 200], "{target}");
        }
    }
}

/// neve waited for the body, and the node takes it for frames: a front can see another boundary than either.
#[test]
fn websocket_handshake_with_a_body_is_refused_before_the_body_comes() {
    let (_node, _dir, neve) = start(&[]);
    let next = "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n";
    let handshake = |path: &str, framing: &str, behind: &str| {
        let mut stream = open(&neve);
        let head = "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let head = format!("GET {path} HTTP/1.1\r\n{head}{framing}\r\n{behind}");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    for path in ["/ws", "/ext/bc/C/ws", "/"] {
        for (framing, body) in
            [("Content-Length: 5\r\n", "hello"), ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n")]
        {
            for behind in ["", body, &[body, next].concat()] {
                let found = responses(handshake(path, framing, behind));
                assert_eq!(found.len(), 1, "{path} {framing}{behind}");
                let (status, closes) = (found[0].status, found[0].header("connection"));
                assert_eq!((status, closes), (400, Some("close")), "{path} {framing}{behind}");
                assert_eq!(found[0].text(), "a WebSocket handshake has no body\n");
            }
        }
        let mut status = [0; 12];
        handshake(path, "Content-Length: 0\r\n", "").read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 101", "{path}");
    }
}

/// The rest of the body is never read: without a word of the close, and a moment to read on, the client loses the
/// response.
#[test]
fn response_to_malformed_chunks_says_that_the_connection_closes() {
    let (_node, _dir, neve) = start(&[]);
    for chunks in ["zz\r\n", "2\r\n[]]\r\n"] {
        let mut stream = open(&neve);
        let request = [CHUNKED_HEAD, chunks, &"x".repeat(100_000)].concat();
        stream.write_all(request.as_bytes()).unwrap();
        let found = responses(stream);
        assert_eq!(found.len(), 1, "{chunks}");
        assert_eq!((found[0].status, found[0].header("connection")), (200, Some("close")));
        assert!(found[0].text().contains("-32700"), "{}", found[0].text());
    }
}

/// hyper took the next request for trailers, and the one behind it was not judged any more.
#[test]
fn bare_lf_in_trailers_is_malformed() {
    let (_node, _dir, neve) = start(&[]);
    let next = "GET /ready HTTP/1.1\nHost: x\n\n";
    for trailers in
        ["\nX: y\r\n\r\n", "X: y\n\r\n\r\n", "X: y\n\nX: y\r\n\r\n", "X: y\r\n\nX:\r\n\r\n"]
    {
        let request = [CHUNKED_HEAD, "2\r\n[]\r\n0\r\n", trailers, next].concat();
        for cut in [request.len(), request.len() - next.len(), 1] {
            let mut stream = open(&neve);
            for piece in request.as_bytes().chunks(cut) {
                let _ = stream.write_all(piece); // it may have closed already
            }
            let found = responses(stream);
            let statuses: Vec<u16> = found.iter().map(|response| response.status).collect();
            assert_eq!(statuses, [200], "{trailers:?}");
            assert_eq!(found[0].header("connection"), Some("close"), "{trailers:?}");
            assert!(found[0].text().contains("-32700"), "{}", found[0].text());
        }
    }
}

/// A head has a limit, and TCP none of its own.
#[test]
fn head_limit_does_not_depend_on_segments() {
    let (_node, _dir, neve) = start(&[]); // 64 KiB
    let fixed = "GET /ready HTTP/1.1\r\nHost: x\r\nX: \r\n\r\n";
    let of = |len: usize| fixed.replace("X: ", &format!("X: {}", "x".repeat(len - fixed.len())));
    for cuts in [&[][..], &[1, 40_000], &[8192, 16_384, 32_768, 65_000], &[65_536], &[65_535]] {
        let answer = |len: usize| exchange(&neve, of(len).as_bytes(), cuts);
        assert_eq!(status(&answer(64 << 10)), 200, "{cuts:?}");
        for over in [(64 << 10) + 1, 70 << 10, 77 << 10] {
            assert_eq!(status(&answer(over)), 431, "{over} {cuts:?}");
        }
    }
}

/// Requests in the form of both engines, and the status of each response.
fn table() -> Vec<(Vec<u8>, u16)> {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let with = |head: &str| format!("{head}Content-Length: {}\r\n\r\n{call}", call.len());
    let json = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    let chunks = format!("{:x};a=b\r\n{call}\r\n0\r\nT: \r\n\r\n", call.len());
    let rows = [
        (with(json), 200),
        (with(&format!("\r\n{json}")), 200),
        (with(&json.replace("Host: x", "Host:x")), 200),
        (with(&json.replace("Host: x", "Host: x \t")), 200),
        (with(&json.replace("Host", "hOST")), 200),
        (with(&format!("{json}X:\r\nY: \r\nZ:  \r\n")), 200),
        (format!("{json}Transfer-Encoding: chunked\r\n\r\n{chunks}"), 200),
        (with(&json.replace("json", "json; charset=utf-8; charset=utf-8")), 200),
        // What must not be taken.
        (with(&format!("{json}Host: x\r\n")), 400),
        (with(&format!("{json}Host: y\r\n")), 400),
        (with(&json.replace("Host: x\r\n", "")), 400),
        (with(&json.replace("POST /", "POST /%zz")), 400),
        (format!("{json}Transfer-Encoding: gzip, chunked\r\n\r\n{chunks}"), 501),
        (with(&json.replace("x\r\n", "x\n")), 400),
        (with(&json.replace("1.1\r\n", "1.1\n")), 400),
        (with(json).replacen("\r\n\r\n", "\r\n\n", 1), 400),
        (with(json).replacen("\r\n\r\n", "\n\n", 1), 400),
        (with(&format!("\n{json}")), 400),
        (with(&format!("{json}X:\n")), 400),
        (with(json).replacen("\r\n\r\n", "\r\nX:\n\r\n", 1), 400),
        (with(&format!("{json}X: \n")), 400),
        (with(&json.replace("Host: x", "Host: x\ry")), 400),
        (with(&json.replace("Host: x", "Host : x")), 400),
        (with(&json.replace("Host: x\r\n", "Host: x\r\n y\r\n")), 400),
        (with(&json.replace("Host: x", "Host: a b")), 400),
        (with(&json.replace("HTTP/1.1", "HTTP/1.1 ")), 400),
        (with(&json.replace("HTTP/1.1", "HTTP/2.0")), 400),
        (with(json).replace("Content-Length: ", "Content-Length: +"), 400),
        (with(json).replace("Content-Length: ", "Content-Length: 0x"), 400),
        (with(&format!("{json}Content-Length: 1\r\n")), 400),
        (with(&json.replace("application", "text")), 415),
    ];
    rows.into_iter().map(|(text, status)| (text.into_bytes(), status)).collect()
}

/// A header that says nothing and that the fast path leaves to hyper.
const NOT_PLAIN: &[u8] = b"Connection: keep-alive, te\r\n";

/// Gives the request to hyper: with another header before the empty line.
fn for_hyper(request: &[u8]) -> Vec<u8> {
    let at = request.windows(6).position(|bytes| bytes == b"Conten").unwrap();
    [&request[..at], NOT_PLAIN, &request[at..]].concat()
}

/// Both engines, in pieces of every size: the same status, and the same bytes.
#[test]
fn heads_are_answered_alike_by_both_engines_in_fragments_of_every_size() {
    let (_node, _dir, neve) = start(&[]);
    let rows = table();
    std::thread::scope(|scope| {
        for (request, expected) in &rows {
            let neve = &neve;
            scope.spawn(move || {
                let text = String::from_utf8_lossy(request);
                let whole = exchange(neve, request, &[]);
                assert_eq!(status(&whole), *expected, "{text}");
                let hyper = for_hyper(request);
                let other = exchange(neve, &hyper, &[]);
                assert!(whole == other, "{text}\n{}\n{}", lossy(&whole), lossy(&other));
                // A cut at every place, and pieces of a few sizes.
                let cuts = (1..hyper.len()).map(|at| vec![at]);
                let pieces =
                    [1, 2, 3, 7, 16, 40].map(|len| (len..hyper.len()).step_by(len).collect());
                for cuts in cuts.chain(pieces) {
                    for bytes in [request, &hyper] {
                        let cuts: Vec<usize> =
                            cuts.iter().copied().filter(|cut| *cut < bytes.len()).collect();
                        let answer = exchange(neve, bytes, &cuts);
                        let cut = cuts.first();
                        assert!(answer == whole, "{text} cut at {cut:?}: {}", lossy(&answer));
                    }
                }
            });
        }
    });
}

/// RFC 9112, 3.2.2: a host in the request line counts, and `Host` does not.
#[test]
fn host_of_an_absolute_target_is_the_one_that_must_be_allowed_in_both_engines() {
    let (_node, _dir, neve) = start(&["--allowed-hosts", "localhost"]);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    for (target, host, expected) in [
        ("/", "localhost", 200),
        ("/", "other.example", 403),
        ("http://localhost/", "localhost", 200),
        ("http://localhost:80/", "other.example", 200),
        ("http://other.example/", "localhost", 403),
        ("http://other.example", "localhost", 403),
        ("http://other.example/ext/bc/C/rpc", "localhost", 403),
        ("http://localhost@other.example/", "localhost", 403),
        ("https://other.example/", "localhost", 403),
    ] {
        let head = format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n");
        let rest =
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        let request = [head, rest, body.to_owned()].concat().into_bytes();
        let [plain, hyper] = [&request, &for_hyper(&request)].map(|one| exchange(&neve, one, &[]));
        assert_eq!(status(&plain), expected, "{target} {host}: {}", lossy(&plain));
        assert!(plain == hyper, "{target} {host}: {} {}", lossy(&plain), lossy(&hyper));
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
