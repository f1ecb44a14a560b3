//! Plain requests, which do not pass through hyper: any of them is answered as hyper answers it,
//! to the byte, in whatever pieces it comes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::support::client::read;
use crate::support::corpus::{HELICON, MAIN, Row, Set};
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::recorded::Recorded;

const PLAIN: &str = "neve_http_fast_requests_total";

fn start(set: Set, arguments: &[&str]) -> (Recorded, tempfile::TempDir, Neve) {
    let (node, dir) = (Recorded::start(set), fresh_dir());
    let url = node.url();
    let neve =
        Neve::start(dir.path(), &[&["--upstream", &url, "--start", "0"], arguments].concat());
    neve.wait_for_head(set.head);
    (node, dir, neve)
}

fn open(neve: &Neve) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(neve.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::new(stream)
}

/// A plain request but for `more`.
fn request(path: &str, more: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n");
    let head = format!("{head}Content-Type: application/json\r\n{more}");
    let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The bytes of the next answer, without the time of day.
fn next(line: &mut impl BufRead) -> Vec<u8> {
    let (mut bytes, mut len) = (Vec::new(), None::<usize>);
    loop {
        let start = bytes.len();
        assert!(line.read_until(b'\n', &mut bytes).unwrap() > 0, "the connection ended");
        let header = String::from_utf8_lossy(&bytes[start..]).into_owned();
        if header == "\r\n" {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length: ") {
            len = Some(value.trim_end().parse().unwrap());
        }
        if header.starts_with("date: ") {
            assert!(header.ends_with(" GMT\r\n") && header.len() == 37, "{header}");
            bytes.truncate(start + "date: ".len());
        }
    }
    let head = bytes.len();
    bytes.resize(head + len.expect("a length"), 0);
    line.read_exact(&mut bytes[head..]).unwrap();
    bytes
}

/// A header that says nothing new, and that plain requests do not have.
const NOT_PLAIN: &str = "Connection: keep-alive, te\r\n";

struct Both {
    plain: BufReader<TcpStream>,
    hyper: BufReader<TcpStream>,
}

impl Both {
    fn open(neve: &Neve) -> Self {
        Self { plain: open(neve), hyper: open(neve) }
    }

    fn compare(&mut self, path: &str, more: &str, body: &[u8]) -> Vec<u8> {
        self.plain.get_mut().write_all(&request(path, more, body)).unwrap();
        let other = request(path, &format!("{more}{NOT_PLAIN}"), body);
        self.hyper.get_mut().write_all(&other).unwrap();
        let (plain, hyper) = (next(&mut self.plain), next(&mut self.hyper));
        let text = String::from_utf8_lossy(body);
        assert!(plain == hyper, "{path} {more}{text}:\n{}", String::from_utf8_lossy(&plain));
        plain
    }
}

/// Recorded calls, of every kind of answer. What is new with each call, as the ids of filters, is
/// not among them.
fn calls(set: Set) -> Vec<Row> {
    let files = ["blocks", "methods", "logs", "errors", "state"];
    let rows = files.into_iter().flat_map(|file| set.rows(file));
    let rows = rows.filter(|row| {
        let text = String::from_utf8_lossy(&row.request);
        row.method == "POST" && row.request.len() < 8 << 10 && !text.contains("eth_new")
    });
    rows.collect()
}

#[test]
#[ignore = "takes many seconds of a processor: ./check"]
fn recorded_calls_are_answered_as_hyper_answers_them() {
    for set in [MAIN, HELICON] {
        let (_node, _dir, neve) = start(set, &["--api", "debug-raw", "--price-age-max", "0s"]);
        let (mut both, calls) = (Both::open(&neve), calls(set));
        let before = neve.count(PLAIN);
        for row in &calls {
            both.compare("/ext/bc/C/rpc", "", &row.request);
        }
        assert!(calls.len() > 2000, "{}", calls.len());
        assert_eq!(neve.count(PLAIN) - before, calls.len() as u64);
        neve.stop();
    }
}

#[test]
fn coded_empty_and_missing_responses_are_alike_on_both_paths() {
    let (_node, _dir, neve) = start(MAIN, &["--precompress", "gzip,zstd"]);
    let mut both = Both::open(&neve);
    let mut client = neve.client();
    let receipts = |height| {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["#;
        format!("{call}\"{height:#x}\"]}}")
    };
    let mut calls = (0..=MAIN.head).map(receipts);
    let full = calls.find(|call| client.post(call).body.len() > 10_000).expect("long receipts");
    let (before, mut coded) = (neve.count(PLAIN), 0);
    for coding in ["gzip", "zstd;q=0.5, br", "GZIP;q=0, *", "identity", ""] {
        let more = format!("Accept-Encoding: {coding}\r\nAccept-Encoding: deflate\r\n");
        let answer = both.compare("/", &more, full.as_bytes());
        coded += u32::from(String::from_utf8_lossy(&answer).contains("content-encoding"));
    }
    assert_eq!(coded, 2);
    let miss =
        br#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0xffff",true]}"#;
    let answer = both.compare("/ext/bc/evm/rpc", "Connection: Keep-Alive\r\n", miss);
    assert!(answer.starts_with(b"HTTP/1.1 421 Misdirected Request\r\n"));
    for body in [&b""[..], b"{", b"[]", b"null", b"\xff", br#"{"jsonrpc":"2.0","method":"x"}"#] {
        both.compare("/", "User-Agent: x\r\nX-Y:  z \r\n", body);
    }
    assert_eq!(neve.count(PLAIN) - before, 12);
}

/// All that comes back on a connection of its own, without the time of day.
fn all(neve: &Neve, request: &[u8]) -> Vec<u8> {
    let mut line = open(neve);
    line.get_mut().write_all(request).unwrap();
    let mut bytes = next(&mut line);
    assert_eq!(line.read_to_end(&mut bytes).unwrap(), 0, "more than an answer, or no end");
    bytes
}

#[test]
fn last_requests_are_alike_on_both_paths() {
    let (_node, _dir, neve) = start(MAIN, &["--precompress", "gzip"]);
    let receipts = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["0x14c"]}"#;
    let miss = receipts.replace("0x14c", "0xffff");
    let mut cases = 0;
    for (version, connection, not_plain) in [
        ("1.1", "Connection: Close\r\n", "Connection: close, te\r\n"),
        ("1.0", "Connection: close\r\n", "Connection: close, te\r\n"),
        ("1.0", "", "Connection: close, te\r\n"),
    ] {
        for (coding, body) in [("", receipts), ("Accept-Encoding: gzip\r\n", receipts), ("", &miss)]
        {
            let of = |more: &str| {
                let text = request("/", &format!("{more}{coding}"), body.as_bytes());
                String::from_utf8(text).unwrap().replacen("HTTP/1.1", &format!("HTTP/{version}"), 1)
            };
            let before = neve.count(PLAIN);
            let plain = all(&neve, of(connection).as_bytes());
            assert_eq!(neve.count(PLAIN), before + 1, "{version} {connection}");
            let hyper = all(&neve, of(not_plain).as_bytes());
            assert_eq!(neve.count(PLAIN), before + 1, "{not_plain}");
            assert!(plain == hyper, "{version} {connection}{coding}{body}");
            cases += 1;
        }
    }
    assert_eq!(cases, 9);
}

/// Answers of many pieces, two a block and one: also of 255 and 257, where the system is given 256 at
/// once at most.
#[test]
fn long_batches_are_alike_on_both_paths() {
    let (_node, _dir, neve) = start(MAIN, &[]);
    let mut both = Both::open(&neve);
    let before = neve.count(PLAIN);
    let call = |at: u64| {
        let params = format!("[\"{:#x}\",{}]", at % MAIN.head, at.is_multiple_of(2));
        format!(
            r#"{{"jsonrpc":"2.0","id":{at},"method":"eth_getBlockByNumber","params":{params}}}"#
        )
    };
    for count in [2, 15, 16, 127, 128, 180] {
        let calls: Vec<_> = (0..count).map(call).collect();
        let answer = both.compare("/", "", format!("[{}]", calls.join(",")).as_bytes());
        assert!(answer.len() as u64 > count * 1024, "{} bytes", answer.len());
    }
    assert_eq!(neve.count(PLAIN) - before, 6);
}

/// Requests that are almost plain: all reach hyper, none is lost or answered twice.
#[test]
fn uncommon_requests_are_left_to_hyper() {
    let (_node, _dir, neve) = start(MAIN, &["--allowed-hosts", "localhost"]);
    let before = neve.count(PLAIN);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let spaces = " ".repeat(16 << 10);
    let padding = format!("X-Padding: {}\r\n", "x".repeat(5000));
    let many = "X-Y: z\r\n".repeat(40);
    let length = format!("Content-Length: {}\r\n", call.len());
    for (status, path, more, body) in [
        (200, "/", "Origin: https://x.example\r\n", call),
        (200, "/", "Expect: 100-continue\r\n", call),
        (417, "/", "Expect: more\r\n", call),
        (200, "/", "Connection: close, te\r\n", call),
        (200, "/", "Connection: close\r\nConnection: close\r\n", call),
        (404, "/", "Avalanche-Api-Route: x\r\n", call),
        (415, "/", "Content-Type: text/plain\r\n", call),
        (200, "/", length.as_str(), call),
        (200, "/", &padding, call),
        (200, "/", &many, call),
        (200, "/", "", &format!("{call}{spaces}")),
        (200, "/ext/bc/C/rpc?x=y", "", call),
        (404, "/ext/bc/D/rpc", "", call),
        (403, "/", "Host: other.example\r\n", call),
    ] {
        let mut line = open(&neve);
        let request = request(path, more, body.as_bytes());
        // Those that say twice what may be said once say only the second.
        let text = String::from_utf8(request).unwrap();
        let text = if more.starts_with("Host") {
            text.replacen("Host: localhost\r\n", "", 1)
        } else {
            text
        };
        let first_type = "Content-Type: application/json\r\n";
        let text =
            if more.starts_with("Content-T") { text.replacen(first_type, "", 1) } else { text };
        line.get_mut().write_all(text.as_bytes()).unwrap();
        let mut answer = read(&mut line, false).unwrap();
        if answer.status == 100 {
            answer = read(&mut line, false).unwrap();
        }
        assert_eq!(answer.status, status, "{path} {more}: {}", answer.text());
    }
    assert_eq!(neve.count(PLAIN), before);
}

#[test]
fn pieces_and_heaps_of_requests_are_answered_in_order() {
    let (_node, _dir, neve) = start(MAIN, &[]);
    let before = neve.count(PLAIN);
    let of = |id: u32| {
        let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_chainId"}}"#);
        request("/", "", call.as_bytes())
    };
    let mut line = open(&neve);
    for byte in of(1) {
        line.get_mut().write_all(&[byte]).unwrap();
    }
    assert!(read(&mut line, false).unwrap().text().contains("\"id\":1,"));
    // More at once than the buffer takes, and other requests among them.
    let heap: Vec<u8> = (2..502)
        .flat_map(|id| match id % 50 {
            0 => String::from_utf8(of(id)).unwrap().replacen("Host", "Origin: x\r\nHost", 1).into(),
            _ => of(id),
        })
        .collect();
    let mut sender = line.get_ref().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        sender.write_all(&heap).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    for id in 2..502 {
        let answer = read(&mut line, false).unwrap_or_else(|error| panic!("{id}: {error:?}"));
        assert!(answer.text().contains(&format!("\"id\":{id},")), "{id}: {}", answer.text());
    }
    sending.join().unwrap();
    assert_eq!(line.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert!(neve.count(PLAIN) - before >= 49);
}

#[test]
fn half_sent_request_gets_the_response_of_hyper() {
    let (_node, _dir, neve) = start(MAIN, &[]);
    let whole = request("/", "", br#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#);
    for (len, expected) in [(30, ""), (whole.len() - 5, "\"code\":-32700,"), (0, "")] {
        let mut line = open(&neve);
        line.get_mut().write_all(&whole[..len]).unwrap();
        line.get_mut().shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        line.read_to_string(&mut text).unwrap();
        assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{len}: {text}");
    }
}
