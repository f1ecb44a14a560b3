//! Both engines of the server against each other. The same bytes come first on a new connection, which the
//! fast path looks at, and then behind a request that only the full path takes. Both answers are the same.

#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use neve::config::settings::Config;

/// Takes a connection to the full path, where it stays for a second.
const TO_THE_FULL_PATH: &[u8] =
    b"POST / HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
/// Longer than anything takes that the server waits for after the end of what was sent.
const LIMIT: Duration = Duration::from_secs(20);

static SERVER: LazyLock<SocketAddr> = LazyLock::new(start);

/// Begins a connection of HTTP/2, and only there: behind a request it is a malformed head.
const HTTP2: &[u8] = b"PRI * HTTP/2.0";

fuzz_target!(|input: &[u8]| {
    if input.starts_with(HTTP2) {
        return;
    }
    let (fast, first_whole) = exchange(&[], input);
    let (full, second_whole) = exchange(TO_THE_FULL_PATH, input);
    let (fast, full) = (answers(&fast), answers(&full));
    if first_whole && second_whole {
        assert_same(&fast, &full);
    } else {
        // The server reset the connection, for bytes that it did not read: what came before is the same.
        let len = fast.len().min(full.len());
        assert_same(&fast[..len], &full[..len]);
    }
});

fn assert_same(fast: &[u8], full: &[u8]) {
    assert!(fast == full, "fast: {}\nfull: {}", fast.escape_ascii(), full.escape_ascii());
}

/// Serves an empty store, so that no answer depends on the time.
fn start() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("loopback has free ports");
    let dir = tempfile::tempdir().expect("a directory can be made").keep();
    let (listen, dir) = (address.to_string(), dir.display().to_string());
    let flags = ["--config", "none", "--listen", &listen, "--data-dir", &dir, "--threads", "1"];
    let more = ["--upstream", "http://127.0.0.1:1", "--admin-listen", "127.0.0.1:0"];
    let given = Config::from_flags(&[&flags[..], &more].concat()).expect("they are settings");
    let (config, source) = given;
    thread::spawn(move || neve::commands::serve::run(config, source));
    while TcpStream::connect(address).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    address
}

/// Sends `first`, reads its answer, sends `input` and its end, and reads the rest. False beside it if the
/// connection did not end in order.
fn exchange(first: &[u8], input: &[u8]) -> (Vec<u8>, bool) {
    let mut stream = TcpStream::connect(*SERVER).expect("the server listens");
    stream.set_read_timeout(Some(LIMIT)).expect("it is not zero");
    stream.set_nodelay(true).expect("a socket has that option");
    if !first.is_empty() {
        stream.write_all(first).expect("nothing was answered yet");
        read_first(&mut stream);
    }
    let sent = stream.write_all(input).is_ok() && stream.shutdown(Shutdown::Write).is_ok();
    let mut answers = Vec::new();
    match stream.read_to_end(&mut answers) {
        Ok(_) => (answers, sent),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => (answers, false),
        Err(error) => panic!("{error} after {}", answers.escape_ascii()),
    }
}

/// Reads the answer to a request that is no call: its head has its length.
fn read_first(stream: &mut TcpStream) {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("it is answered");
        answer.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&answer).to_lowercase();
    let len = text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
    let len: usize = len.and_then(|len| len.parse().ok()).expect("its length is said");
    stream.read_exact(&mut vec![0; len]).expect("the body follows");
}

/// The answers without their dates, which may differ by a second.
fn answers(bytes: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"date: ";
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let is_date = line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
        if !is_date {
            out.extend_from_slice(line);
        }
    }
    out
}
