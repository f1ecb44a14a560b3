//! Requests whose end two parties could see in two places.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use neve_devnet::Fault;

use super::wire::Wire;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::served::devnet;

const HEAD: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";

fn exchange(neve: &Neve, request: &str) -> String {
    let mut stream = TcpStream::connect(neve.address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends");
    String::from_utf8_lossy(&answer).into_owned()
}

fn call(id: u8, method: &str) -> String {
    let address = "0x0000000000000000000000000000000000000001";
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":["{address}","latest"]}}"#)
}

/// RFC 9112, 6.1 and 6.3: the chunks are the body, and the connection ends behind the response. So
/// what a front took for a body is never a request of its own.
#[test]
fn request_with_two_lengths_is_the_last_of_its_connection() {
    let (node, dir) = (devnet(5), fresh_dir());
    let wire = Wire::start(node.address());
    let arguments = ["--upstream", &wire.url(), "--start", "0", "--on-miss", "relay"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(5);
    let smuggled = call(66, "eth_getTransactionCount");
    let close = "Connection: close\r\n";
    let smuggled = format!("{HEAD}{close}Content-Length: {}\r\n\r\n{smuggled}", smuggled.len());
    let plain = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    let plain = format!("{HEAD}Content-Length: {}\r\n\r\n{plain}", plain.len());
    let hit = r#"{"jsonrpc":"2.0","id":7,"method":"eth_blockNumber","params":[]}"#.to_owned();
    for body in [hit, call(7, "eth_getBalance")] {
        let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let lengths = [3, chunks.len(), chunks.len() + smuggled.len()];
        for length in lengths.map(|length| format!("Content-Length: {length}\r\n")) {
            let coding = "Transfer-Encoding: chunked\r\n";
            for both in [format!("{length}{coding}"), format!("{coding}{length}")] {
                let request = format!("{HEAD}{both}\r\n{chunks}{smuggled}");
                for before in ["", &plain, &request.replace(&both, coding)] {
                    // Requests behind one without two lengths are answered; this one is the last.
                    let before = before.trim_end_matches(&smuggled);
                    let answer = exchange(&neve, &format!("{before}{request}"));
                    let count = usize::from(!before.is_empty()) + 1;
                    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), count, "{answer}");
                    assert_eq!(answer.matches("connection: close").count(), 1, "{answer}");
                    assert!(answer.contains(r#""id":7,"result":"#), "{both}: {answer}");
                    assert!(!answer.contains(r#""id":66"#), "{both}: {answer}");
                }
            }
        }
    }
    assert!(!wire.sent().contains("eth_getTransactionCount"));
    let other = exchange(&neve, &format!("{plain}{smuggled}"));
    assert!(other.contains(r#""id":66"#), "a request that stands alone is answered: {other}");
}

/// A client that half-closes may still read. neve must not send it a success then.
#[test]
fn client_that_half_closes_before_a_response_is_told_so() {
    let (node, dir) = (devnet(5), fresh_dir());
    let url = format!("http://{}", node.address());
    let arguments = ["--upstream", &url, "--start", "0", "--on-miss", "relay"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(5);
    let _stall = node.faults().inject(Fault::Stall.on("eth_getBalance"));
    let balance = call(7, "eth_getBalance");
    let mut stream = TcpStream::connect(neve.address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time");
    let request = format!("{HEAD}Content-Length: {}\r\n\r\n{balance}", balance.len());
    stream.write_all(request.as_bytes()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it ends");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.ends_with("closed its side before the response was ready\n"), "{answer}");
}
