//! Connections that say nothing for a while, and then go on.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use neve_devnet::{ChainConfig, Config, DevnetThread};

use crate::support::client::{Response, read};
use crate::support::neve::{LIMIT, Neve, fresh_dir};

/// Longer than a connection keeps its buffers when it is quiet.
const QUIET: Duration = Duration::from_millis(1500);

fn wait(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        thread::park_timeout(left);
    }
}

/// Connection of one client.
struct Line(BufReader<TcpStream>);

impl Line {
    fn open(neve: &Neve) -> Self {
        let stream = TcpStream::connect(neve.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &str) {
        self.0.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> Response {
        let answer = self.kept();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    }

    /// A response of any status that does not end the connection.
    fn kept(&mut self) -> Response {
        let answer = read(&mut self.0, false).unwrap();
        assert_eq!(answer.header("connection"), None, "{}", answer.text());
        answer
    }
}

fn request(id: u32) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_blockNumber","params":[]}}"#);
    let head = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn start(more: &[&str]) -> (DevnetThread, tempfile::TempDir, Neve) {
    let devnet = DevnetThread::start(Config::test()).unwrap();
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let neve = Neve::start(dir.path(), &[&["--upstream", &url, "--start", "0"], more].concat());
    neve.wait_for_head(devnet.latest());
    (devnet, dir, neve)
}

/// Java's client sends `h2c` with its first request. hyper must not take the socket of such a connection along.
#[test]
fn connection_with_an_upgrade_that_is_ignored_or_refused_goes_on() {
    let (_devnet, _dir, neve) = start(&[]);
    for (upgrade, status) in [("h2c", 200), ("websocket", 405), ("x", 200)] {
        let mut line = Line::open(&neve);
        let more = format!("Connection: Upgrade\r\nUpgrade: {upgrade}\r\nContent-Type");
        line.send(&request(1).replace("Content-Type", &more));
        assert_eq!(line.kept().status, status, "{upgrade}");
        wait(QUIET);
        line.send(&request(2));
        assert!(line.answer().text().contains("\"id\":2,"), "{upgrade}");
    }
}

#[test]
fn a_quiet_connection_goes_on_where_it_was() {
    let (_devnet, _dir, neve) = start(&[]);
    let (mut fresh, mut used, mut half, mut ahead) =
        (Line::open(&neve), Line::open(&neve), Line::open(&neve), Line::open(&neve));
    used.send(&request(1));
    assert!(used.answer().text().contains("\"id\":1,"));
    let (text, behind) = (request(2), request(3));
    let (first, second) = text.split_at(40);
    half.send(first);
    ahead.send(&[&text, &behind[..50]].concat());
    assert!(ahead.answer().text().contains("\"id\":2,"));
    for _ in 0..2 {
        wait(QUIET);
        used.send(&text);
        assert!(used.answer().text().contains("\"id\":2,"));
    }
    fresh.send(&text);
    assert!(fresh.answer().text().contains("\"id\":2,"));
    half.send(second);
    assert!(half.answer().text().contains("\"id\":2,"));
    ahead.send(&behind[50..]);
    assert!(ahead.answer().text().contains("\"id\":3,"), "what came before it was quiet counts");
    assert_eq!(neve.count("neve_http_connection_timeouts_total{reason=\"idle\"}"), 0);
}

#[test]
fn quiet_connections_end_when_their_time_is_over_or_all_is() {
    let (_devnet, _dir, neve) = start(&["--idle-timeout", "3s"]);
    let mut line = Line::open(&neve);
    let start = Instant::now();
    line.send(&request(1));
    line.answer();
    assert!(read(&mut line.0, false).is_err(), "the connection is closed");
    let took = start.elapsed();
    assert!(took > Duration::from_secs(2), "closed after {took:?}");
    neve.wait_for_count("neve_http_connection_timeouts_total{reason=\"idle\"}", 1);
    let mut other = Line::open(&neve);
    other.send(&request(1));
    other.answer();
    wait(QUIET);
    neve.stop_in_time();
}

/// An answer of many megabytes, more than what systems keep for a client that does not read.
fn long_request(headers: &str, version: &str) -> String {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockReceipts","params":["0x5"]}"#;
    let body = format!("[{}]", vec![call; 200].join(","));
    let head =
        format!("POST / HTTP/{version}\r\nHost: 127.0.0.1\r\nContent-Type: application/json");
    format!("{head}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn start_with_long_answers() -> (DevnetThread, tempfile::TempDir, Neve) {
    let config = Config { chain: ChainConfig::c_chain(1), ..Config::test() };
    let devnet = DevnetThread::start(config).unwrap();
    let (dir, url) = (fresh_dir(), devnet.base_url());
    let neve = Neve::start(dir.path(), &["--upstream", &url, "--start", "0"]);
    neve.wait_for_head(devnet.latest());
    (devnet, dir, neve)
}

#[test]
fn slow_reader_keeps_a_persistent_connection() {
    let (_devnet, _dir, neve) = start_with_long_answers();
    let mut line = Line::open(&neve);
    line.send(&long_request("", "1.1"));
    wait(QUIET);
    assert!(line.answer().body.len() > 8 << 20);
    line.send(&request(7));
    assert!(line.answer().text().contains("\"id\":7,"));
    line.send(&request(8));
    assert!(line.answer().text().contains("\"id\":8,"));
}

#[test]
fn slow_reader_sees_the_end_of_a_connection_that_closes() {
    let (_devnet, _dir, neve) = start_with_long_answers();
    for (headers, version) in [("Connection: close\r\n", "1.1"), ("", "1.0")] {
        let mut line = Line::open(&neve);
        line.send(&long_request(headers, version));
        wait(QUIET);
        let answer = read(&mut line.0, false).unwrap();
        assert!(answer.status == 200 && answer.body.len() > 8 << 20);
        let mut rest = Vec::new();
        line.0
            .read_to_end(&mut rest)
            .expect("the connection ends, long before it has idled enough");
        assert!(rest.is_empty(), "HTTP/{version}: {} bytes", rest.len());
    }
}
