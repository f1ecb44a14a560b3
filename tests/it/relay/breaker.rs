//! Failures that one client causes, and the calls of others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tempfile::TempDir;

use super::odd::Odd;
use crate::support::client::Response;
use crate::support::neve::{Neve, fresh_dir};
use crate::support::served::devnet;

const CODE: &str = "eth_getCode";
const BALANCE: &str = "eth_getBalance";
const PARAMS: &str = r#"["0x0000000000000000000000000000000000000001","latest"]"#;
const BUSY: &[u8] = b"HTTP/1.1 500 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// A neve with this upstream alone.
fn start(odd: &Odd) -> (TempDir, Neve) {
    let (dir, url) = (fresh_dir(), odd.url());
    let fixed = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let neve = Neve::start(dir.path(), &fixed);
    neve.wait_for_head(5);
    (dir, neve)
}

fn balance(neve: &Neve) -> Response {
    neve.client().call(BALANCE, PARAMS)
}

#[test]
fn calls_that_fail_keep_no_upstream_from_the_calls_of_others() {
    let node = devnet(5);
    let odd = Odd::start(node.address());
    odd.answer_with(BALANCE, r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#);
    let (_dir, neve) = start(&odd);
    let late = b"HTTP/1.1 504 x\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\nx";
    for (bytes, delay) in [(&late[..], 0), (BUSY, 0), (b"", 0), (b"", 300)] {
        odd.answer_as(CODE, bytes);
        odd.delay(CODE, Duration::from_millis(delay));
        // Each is tried twice, and none is answered between them.
        for _ in 0..6 {
            let failed = neve.client().call(CODE, PARAMS);
            assert_eq!(failed.status, 502, "{}", failed.text());
        }
        for _ in 0..20 {
            let other = balance(&neve);
            assert_eq!(other.status, 200, "{bytes:?} after {delay} ms: {}", other.text());
        }
    }
}

#[test]
fn upstream_that_fails_at_all_is_left_alone_and_then_asked_by_all_at_once() {
    let node = devnet(5);
    let odd = Odd::start(node.address());
    let (_dir, neve) = start(&odd);
    [BALANCE, "eth_chainId"].iter().for_each(|method| odd.answer_as(method, BUSY));
    neve.wait("an upstream that is left alone", |_| (balance(&neve).status == 503).then_some(()));
    assert!(odd.asked("eth_chainId") > 0, "neve asked it itself");
    odd.answer_with(BALANCE, r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#);
    odd.answer_with("eth_chainId", r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#);
    odd.hold(CODE);
    // Clients whose calls have no outcome take no right from others.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    if odd.asked(BALANCE) > 0 {
                        break;
                    }
                    let mut client = TcpStream::connect(neve.address).expect("it listens");
                    let body = format!(
                        r#"{{"jsonrpc":"2.0","id":1,"method":"{CODE}","params":{PARAMS}}}"#
                    );
                    let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
                    let length = body.len();
                    let request = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
                    client.write_all(request.as_bytes()).expect("it reads");
                    client.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
                    let _ = client.read(&mut [0]); // it leaves, or was refused
                }
            });
        }
        neve.wait("the call of another client", |_| (balance(&neve).status == 200).then_some(()));
    });
}
