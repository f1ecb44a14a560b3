//! Connections that go on behind a long head: nothing of it stays.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::memory::{CONNECTION, attacker, connect, memory, start};
use crate::support::neve::LIMIT;

const COUNT: usize = 600;
const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const READY: &str = "GET /ready HTTP/1.1\r\nHost: x\r\n";

/// Opens connections that begin with this head and go on, and waits until they take little.
fn takes_little(head: &str, answer: &str) {
    let (_devnet, _dir, neve) = start(&["--connections-address-max", "10000"]);
    let before = memory(neve.pid()).expect("it runs");
    let request = format!("{head}x: {}\r\n\r\n", "a".repeat(60_000));
    let open: Vec<TcpStream> = (0..COUNT)
        .map(|at| {
            let mut stream = connect(&neve, attacker(at));
            stream.write_all(request.as_bytes()).expect("it is read");
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).expect("an answer");
            assert_eq!(String::from_utf8_lossy(&begin), answer);
            stream
        })
        .collect();
    let bound = CONNECTION * COUNT as u64;
    let start = Instant::now();
    loop {
        let takes = memory(neve.pid()).expect("it runs").saturating_sub(before);
        if takes < bound {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{takes} bytes, allowed are {bound}");
        thread::park_timeout(Duration::from_millis(100));
    }
    drop(open);
}

#[test]
fn websockets_keep_nothing_of_their_heads() {
    takes_little(UPGRADE, "HTTP/1.1 101");
}

#[test]
fn connections_that_wait_keep_nothing_of_their_heads() {
    takes_little(READY, "HTTP/1.1 200");
}
