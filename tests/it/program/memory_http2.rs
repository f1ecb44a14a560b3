//! Memory that a client makes neve hold over HTTP/2: many streams on few connections.

#![expect(clippy::big_endian_bytes, reason = "the order of RFC 9113")]

use super::memory::{call, withstands};
use super::memory_full::stays_below_the_ceiling;
use crate::support::http2::{DATA, PREFACE, SETTINGS, frame, head, header};

/// Streams that a connection may have open by default.
const STREAMS: u32 = 100;

/// The beginning of a connection whose client has room for all.
fn begin() -> Vec<u8> {
    let windows = [&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat();
    let more = (0x7fff_ffff_u32 - 0xffff).to_be_bytes();
    [PREFACE, &frame(SETTINGS, 0, 0, &windows)[..], &frame(8, 0, 0, &more)[..]].concat()
}

/// A connection whose streams all have this request.
fn streams(request: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let all: Vec<_> = (0..STREAMS).map(|at| request(2 * at + 1)).collect();
    [begin(), all.concat()].concat()
}

/// Responses of 140 kB each on all streams.
fn unread_receipts() -> Vec<u8> {
    let body = call("eth_getBlockReceipts", r#"["0x5"]"#);
    streams(|stream| [head(stream, &[]), frame(DATA, 1, stream, body.as_bytes())].concat())
}

/// Requests whose bodies do not come, each with the headers that it may have.
fn heads_without_bodies() -> Vec<u8> {
    let headers: Vec<_> = (0..90).map(|at| header(&format!("x-{at}"), &"v".repeat(120))).collect();
    streams(|stream| head(stream, &headers.concat()))
}

/// Requests whose bodies do not come, with more headers than they may have.
fn too_many_headers() -> Vec<u8> {
    let headers: Vec<_> = (0..1700).map(|at| header(&format!("{at}"), "")).collect();
    streams(|stream| head(stream, &headers.concat()))
}

#[test]
fn responses_that_are_not_read_take_bounded_memory() {
    withstands(|attack| attack.send(60, &unread_receipts()));
}

/// Requests whose responses the client has no room for. The memory of the client is that of its connections.
fn closed_windows() -> Vec<u8> {
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let requests: Vec<_> = (0..STREAMS).map(|at| head(2 * at + 1, &[])).collect();
    [PREFACE, &settings, &requests.concat()].concat()
}

#[test]
fn refusals_that_are_not_read_take_bounded_memory() {
    withstands(|attack| attack.send(250, &closed_windows()));
}

#[test]
fn heads_of_streams_take_bounded_memory() {
    withstands(|attack| {
        attack.send(60, &heads_without_bodies());
        attack.send(20, &too_many_headers());
    });
}

/// The attacks as they were found, with default flags.
#[test]
#[ignore = "takes minutes: ./check attacks"]
fn attacks_at_their_full_size_over_http_2_stay_below_the_ceiling() {
    for (name, bytes) in [
        ("unread receipts", unread_receipts()),
        ("heads without bodies", heads_without_bodies()),
        ("too many headers", too_many_headers()),
        ("closed windows", closed_windows()),
    ] {
        let name = format!("{name} over HTTP/2");
        stays_below_the_ceiling(&name, &|attack| attack.send(900, &bytes));
    }
}
