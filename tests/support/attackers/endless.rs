//! Attackers that ask for much by little: names that are repeated, streams that go on, bodies that wait.

use std::io::{Read, Write};
use std::thread;

use super::{Attack, PAUSE, SOME, batch, call, frame, head, post, upgrade};

/// Replays that run at once.
const REPLAYS: usize = 300;
/// Requests of a mirror: more than its share allows.
const MIRRORS: usize = 30;

/// A batch that is refused for a call whose name errors had repeated, six bytes for one.
fn named(bytes: usize) -> String {
    let long =
        call(0, &format!("eth_{}_subscribe", "<".repeat(bytes)), "[\"newPendingTransactions\"]");
    batch(std::iter::once(long).chain((1..500).map(|id| call(id, "eth_chainId", "[]"))))
}

pub(super) fn long_names(attack: &Attack) -> usize {
    let body = named(4_000_000);
    let mut open = attack.open(SOME / 4, true, &upgrade(&frame(&body, true)));
    open.extend(attack.open(SOME / 4, true, &post(&body)));
    attack.hold(&open)
}

/// Replays all heads on hundreds of sockets, again and again.
pub(super) fn replays(attack: &Attack) -> usize {
    let params =
        format!("[\"newHeads\",{{\"fromBlock\":\"{:#x}\"}}]", attack.served.1.saturating_sub(200));
    let subscribe = upgrade(&frame(&call(1, "eth_subscribe", &params), true));
    let again = frame(&call(1, "eth_subscribe", &params), true);
    let mut open = attack.open(REPLAYS, false, &subscribe);
    open.iter().for_each(|stream| drop(stream.set_nonblocking(true)));
    let (mut room, mut turn) = (vec![0; 64 << 10], 0_usize);
    while !attack.is_over() {
        turn += 1;
        for stream in &mut open {
            while stream.read(&mut room).is_ok_and(|read| read > 0) {}
            if turn.is_multiple_of(64) {
                let _ = stream.write_all(&again);
            }
        }
    }
    open.len()
}

/// Opens streams and downloads of mirrors, and reads nothing of them.
pub(super) fn mirror_streams(attack: &Attack) -> usize {
    let (first, _) = attack.served;
    let get = |path: String| format!("GET /mirror/v1/{path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut open = attack.open(MIRRORS, true, get(format!("records?from={first}")).as_bytes());
    open.extend(attack.open(MIRRORS, true, get(format!("segment/{first}")).as_bytes()));
    attack.hold(&open)
}

/// Sends bodies that no request of this form has, and a malformed request behind.
pub(super) fn unread_bodies(attack: &Attack) -> usize {
    let lines = "Host: x\r\nExpect: 100-continue\r\nContent-Length: 40000\r\n\r\n";
    let requests: Vec<Vec<u8>> = ["POST /none", "PUT /", "GET /ws", "GET /v1/block/1"]
        .iter()
        .map(|begin| {
            let request = format!("{begin} HTTP/1.1\r\n{lines}");
            [request.as_bytes(), &vec![b'x'; 40_000], b"\0 HTTP/1.1\r\n", head(7).as_bytes()]
                .concat()
        })
        .collect();
    let mut count = 0;
    while !attack.is_over() {
        for request in &requests {
            for mut stream in attack.open(4, false, request) {
                let _ = stream.read(&mut [0; 1024]);
                count += 1;
            }
        }
        thread::park_timeout(PAUSE);
    }
    count
}
