//! Limits of a WebSocket, and its end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use tokio_tungstenite::tungstenite::Message;

use crate::support::corpus::APRICOT0;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::at_some_pace;
use crate::support::recorded::Recorded;
use crate::support::served::{devnet, follow};
use crate::support::ws::{End, Notification, Ws, result};

fn ended(code: u16, reason: &str) -> End {
    End::Frame(Some((code, reason.to_owned())))
}

/// The heights of heads, which must follow one another.
fn heights(texts: &[String]) -> Vec<u64> {
    let head = |text: &String| Notification::read(text).expect("a head").height("number");
    let heights: Vec<_> = texts.iter().map(head).collect();
    assert!(heights.windows(2).all(|pair| pair[1] == pair[0] + 1), "{heights:?}");
    heights
}

/// Slow readers cost the others nothing, are cut off when they read again, and can resume from their
/// place.
#[test]
fn a_subscriber_that_is_too_slow() {
    let devnet = devnet(10);
    let (_dir, neve) =
        follow(&devnet, &["--ws-lag-max", "100", "--threads", "1", "--write-timeout", "1h"]);
    let (mut slow, mut fast) = (Ws::open_narrow(&neve), Ws::open(&neve));
    slow.subscribe("[\"newHeads\"]");
    let id = fast.subscribe("[\"newHeads\"]");
    let before = neve.metric("neve_memory_anonymous_bytes").unwrap();
    for round in 0..10 {
        devnet.advance(100);
        let from = 11 + 100 * round;
        assert_eq!(fast.heads(&id, 100), (from..from + 100).collect::<Vec<_>>());
    }
    let grown = neve.metric("neve_memory_anonymous_bytes").unwrap() - before;
    assert!(grown < 32e6, "{grown} bytes");
    let (texts, end) = slow.rest();
    let heard = heights(&texts);
    assert!((10..900).contains(&heard.len()), "{}", heard.len());
    let next = heard.last().unwrap() + 1;
    assert_eq!(end, ended(1008, &format!("too slow: {} blocks behind", 1011 - next)));
    neve.wait_for_count("neve_ws_closed_connections_total{reason=\"lagging\"}", 1);
    let mut again = Ws::open(&neve);
    let id = again.subscribe(&format!("[\"newHeads\",{{\"fromBlock\":\"{next:#x}\"}}]"));
    let rest = (1011 - next) as usize;
    assert_eq!(again.heads(&id, rest), (next..=1010).collect::<Vec<_>>());
}

/// Slow, but within the bound: nothing is lost.
#[test]
fn a_subscriber_that_is_slow_enough() {
    let devnet = devnet(10);
    let (_dir, neve) = follow(&devnet, &["--ws-lag-max", "1000", "--write-timeout", "1h"]);
    let mut slow = Ws::open_narrow(&neve);
    let id = slow.subscribe("[\"newHeads\"]");
    devnet.advance(1000);
    let mut fast = Ws::open(&neve);
    let fast_id = fast.subscribe("[\"newHeads\",{\"fromBlock\":\"0xb\"}]");
    assert_eq!(fast.heads(&fast_id, 1000).len(), 1000);
    fast.is_quiet_for(Duration::from_millis(500)); // the slow one has been waited for meanwhile
    assert_eq!(slow.heads(&id, 1000), (11..=1010).collect::<Vec<_>>());
}

/// Clients that never read are cut off by the time-out of writing.
#[test]
fn a_subscriber_that_never_reads() {
    let devnet = devnet(10);
    let (_dir, neve) = follow(&devnet, &["--write-timeout", "1s"]);
    let mut slow = Ws::open_narrow(&neve);
    slow.subscribe("[\"newHeads\"]");
    devnet.advance(1000);
    neve.wait("the time-out", |_| {
        (neve.count("neve_http_connection_timeouts_total{reason=\"write\"}") == 1).then_some(())
    });
    let (texts, end) = slow.rest();
    assert!(heights(&texts[..texts.len()]).len() < 900);
    assert_eq!(end, End::Bare);
    neve.wait_for_count("neve_ws_closed_connections_total{reason=\"write_timeout\"}", 1);
}

/// Replayed heights may be evicted before the client has read so far.
#[test]
fn a_range_that_goes_while_it_is_replayed() {
    let devnet = devnet(1000);
    let bounds = ["--retain-blocks", "200", "--segment-blocks", "100", "--write-timeout", "1h"];
    let (_dir, neve) = follow(&devnet, &[]);
    drop(neve);
    let (_dir, neve) = {
        let (dir, url) = (fresh_dir(), devnet.base_url());
        let arguments = [&["--upstream", &url, "--start", "800"][..], &bounds].concat();
        let neve = Neve::start(dir.path(), &arguments);
        neve.wait_for_head(1000);
        (dir, neve)
    };
    let mut slow = Ws::open_narrow(&neve);
    slow.subscribe("[\"newHeads\",{\"fromBlock\":\"0x320\"}]");
    devnet.advance(1000);
    neve.wait_for_head(2000);
    neve.wait("the eviction", |health| {
        (health["blocks"]["min_height"].as_u64()? > 1600).then_some(())
    });
    let (texts, end) = slow.rest();
    let heard = heights(&texts);
    assert_eq!(heard[0], 800);
    let next = heard.last().unwrap() + 1;
    assert_eq!(end, ended(1008, &format!("block {next:#x} is not served any more")));
}

/// Silent clients are pinged, and left when they do not respond.
#[test]
fn pings() {
    at_some_pace(silent_ones_are_asked);
}

fn silent_ones_are_asked(every: Duration) {
    let (node, dir, millis) =
        (Recorded::start_at(APRICOT0, 10, false), fresh_dir(), every.as_millis());
    let (every_ms, idle_ms) = (format!("{millis}ms"), format!("{}ms", millis / 2));
    // A WebSocket is not HTTP: that it idles ends nothing.
    let arguments = ["--ws-ping-interval", &every_ms, "--idle-timeout", &idle_ms, "--start", "0"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &["--upstream", &node.url()]].concat());
    neve.wait_for_head(10);
    let mut silent = raw(&neve);
    let mut ws = Ws::open(&neve);
    let id = ws.subscribe("[\"newHeads\"]");
    // While neve sends to a client it does not ping it, however long the client is silent.
    let mut last = Instant::now();
    for height in 11..=30 {
        ws.is_quiet_for(every / 5);
        last = Instant::now();
        node.grow(height);
        assert_eq!(ws.heads(&id, 1), [height]);
    }
    assert_eq!(ws.pings, 0);
    while ws.pings < 3 {
        ws.is_quiet_for(every / 5);
        assert!(last.elapsed() < LIMIT, "{} pings", ws.pings);
    }
    assert!(last.elapsed() >= 3 * every, "{} pings after {:?}", ws.pings, last.elapsed());
    assert!(ws.call("eth_blockNumber", "[]").contains("0x1e"));
    // A ping, and the end without a word.
    let mut frames = Vec::new();
    silent.read_to_end(&mut frames).unwrap();
    assert_eq!(frames, [0x89, 0x00]);
    neve.wait_for_count("neve_ws_closed_connections_total{reason=\"ping_timeout\"}", 1);
}

/// A WebSocket whose client does nothing by itself.
fn raw(neve: &Neve) -> TcpStream {
    let mut stream = TcpStream::connect(neve.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let lines = [
        "GET /ws HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "\r\n",
    ];
    stream.write_all(lines.join("\r\n").as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    // The key and the answer to it are of RFC 6455, 1.3.
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    stream
}

/// A frame under 126 bytes, whose mask changes nothing.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let lead = [first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    [&lead, payload].concat()
}

/// Makes a frame of any length.
#[expect(clippy::big_endian_bytes, reason = "the order of RFC 6455")]
fn masked_long(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, 0xff], &payload.len().to_be_bytes()[..], &[0; 4], payload].concat()
}

/// Frames that no client should send, and the result of each.
#[test]
fn frames_against_the_protocol() {
    let (node, dir) = (Recorded::start_at(APRICOT0, 10, false), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "0"]);
    neve.wait_for_head(10);
    for (what, frame, code, reason) in [
        ("text that is not UTF-8", masked(0x81, b"{\"id\":\"\xff\"}"), 1007_u16, ""),
        ("no mask", vec![0x81, 0x02, b'{', b'}'], 1002, "bad MASK"),
        ("the first reserved bit", masked(0xc1, b"{}"), 1002, "reserved bits set"),
        ("the second reserved bit", masked(0xa1, b"{}"), 1002, "reserved bits set"),
        ("the third reserved bit", masked(0x91, b"{}"), 1002, "reserved bits set"),
        ("an opcode that is none", masked(0x83, b"{}"), 1002, "bad opcode 3"),
        ("a continuation of nothing", masked(0x80, b"{}"), 1002, "continuation after FIN"),
        ("a close code that none may send", masked(0x88, &[0, 0]), 1002, ""),
        ("a reason that is not UTF-8", masked(0x88, b"\x03\xe8\xff"), 1007, ""),
        (
            "a long ping",
            masked(0x89, &[b' '; 120])[..2].iter().copied().chain([0; 4]).collect(),
            0,
            "",
        ),
    ] {
        let mut stream = raw(&neve);
        stream.write_all(&frame).unwrap();
        if code == 0 {
            continue; // half a frame, and gone
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[0], 0x88, "{what}: {answer:?}");
        let found = u16::from(answer[2]) << 8 | u16::from(answer[3]);
        assert_eq!((found, &answer[4..]), (code, reason.as_bytes()), "{what}");
    }
    neve.wait("no connections", |_| {
        (neve.metric("neve_http_connections").unwrap() < 2.0).then_some(())
    });
}

#[test]
fn messages_have_a_bound() {
    let (node, dir) = (Recorded::start_at(APRICOT0, 10, false), fresh_dir());
    let arguments = ["--upstream", &node.url(), "--start", "0", "--ws-message-bytes-max", "200"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(10);
    let mut ws = Ws::open(&neve);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;
    let padded = |len: usize| format!("{call}{}", " ".repeat(len - call.len()));
    ws.send(&padded(200));
    assert!(ws.text().contains("\"0xa\""));
    ws.send(&padded(201));
    assert_eq!(ws.end(), ended(1009, ""));
}

/// A client that sends messages and does not end them must not have the server take memory without end.
#[test]
fn messages_on_their_way_have_a_limit_together() {
    let (_node, _dir, neve) = with_room("1MB", "2100kB");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;
    let padded = |len: usize| format!("{call}{}", " ".repeat(len - call.len()));
    let send_by = |mut ws: Ws, len: usize| {
        ws.send(&padded(len));
        ws.send_message(Message::Close(None));
        ws.rest()
    };
    let send = |len: usize| send_by(Ws::open(&neve), len);
    let mut stalled = raw(&neve);
    // All but the end, and a ping, whose answer says that the rest was read.
    stalled.write_all(&masked_long(0x01, padded(990_000).as_bytes())).unwrap();
    stalled.write_all(&masked(0x89, b"")).unwrap();
    assert_eq!(begin(&mut stalled), [0x8a, 0]);
    let refused = || {
        let (texts, end) = send(150_000);
        let reason = "memory for clients is used up; try again later";
        assert_eq!((texts, end), (Vec::new(), ended(1013, reason)));
    };
    refused();
    neve.wait_for_count("neve_ws_closed_connections_total{reason=\"memory\"}", 1);
    assert_eq!(send(4000).0.len(), 1, "short ones need no room");
    // Another address has a share of its own.
    assert_eq!(send_by(Ws::open_from(&neve, [127, 0, 0, 2]), 990_000).0.len(), 1);
    stalled.write_all(&masked(0x80, b" ")).unwrap();
    assert_eq!(begin(&mut stalled)[0], 0x81);
    let kept = neve.metric("neve_client_reserved_bytes").unwrap();
    assert!((990e3..1010e3).contains(&kept), "{kept}: it keeps what it was read into");
    drop(stalled);
    neve.wait("room again", |_| (send(10_000).0.len() == 1).then_some(()));
    assert_eq!(send(990_000).0.len(), 1);
}

/// Pings take none: not even those between the parts of a message.
#[test]
fn pings_take_no_memory() {
    let (_node, _dir, neve) = with_room("20kB", "20kB");
    let (mut other, mut pinging) = (raw(&neve), raw(&neve));
    other.write_all(&masked_long(0x01, &[b' '; 5000])).unwrap();
    other.write_all(&masked(0x89, b"")).unwrap();
    assert_eq!(begin(&mut other), [0x8a, 0]);
    pinging.write_all(&masked(0x01, br#"{"jsonrpc":"2.0","id":1,"#)).unwrap();
    for _ in 0..100 {
        pinging.write_all(&masked(0x89, &[b' '; 120])).unwrap();
        let mut pong = [0; 122];
        pinging.read_exact(&mut pong).unwrap();
        assert_eq!(pong[..2], [0x8a, 120]);
    }
    pinging.write_all(&masked(0x80, br#""method":"eth_chainId"}"#)).unwrap();
    assert_eq!(begin(&mut pinging)[0], 0x81);
}

/// Answers to pings do not take memory without end if the client reads none of them.
#[test]
fn pings_are_not_read_before_the_last_is_answered() {
    let (_node, _dir, neve) = with_room("20kB", "20kB");
    let mut stream = raw(&neve);
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let pings = masked(0x89, &[b' '; 120]).repeat(10_000);
    // Far more than the system keeps for a connection.
    let sent = (0..50).take_while(|_| stream.write_all(&pings).is_ok()).count();
    assert!(sent < 50, "{} bytes were taken and none read", sent * pings.len());
}

/// A server whose messages may be so long, and of which an address may use so much memory.
fn with_room(bytes: &str, memory: &str) -> (Recorded, tempfile::TempDir, Neve) {
    let (node, dir) = (Recorded::start_at(APRICOT0, 10, false), fresh_dir());
    let bounds = ["--ws-message-bytes-max", bytes, "--client-bytes-address-max", memory];
    let upstream = ["--upstream", &node.url(), "--start", "0"];
    let neve = Neve::start(dir.path(), &[&upstream[..], &bounds].concat());
    neve.wait_for_head(10);
    (node, dir, neve)
}

/// The first bytes of the next frame.
fn begin(stream: &mut TcpStream) -> [u8; 2] {
    let mut begin = [0; 2];
    stream.read_exact(&mut begin).unwrap();
    begin
}

#[test]
fn subscriptions_have_bounds() {
    let (node, dir) = (Recorded::start_at(APRICOT0, 10, false), fresh_dir());
    let url = node.url();
    let arguments = ["--upstream", &url, "--start", "0", "--ws-subscriptions-max", "2"];
    let bounds = ["--client-bytes-address-max", "2kB", "--filters-max", "1"];
    let neve = Neve::start(dir.path(), &[&arguments[..], &bounds].concat());
    neve.wait_for_head(10);
    let mut ws = Ws::open(&neve);
    let first = ws.subscribe("[\"newHeads\"]");
    ws.subscribe("[\"logs\",{}]");
    let refused = ws.call("eth_subscribe", "[\"newHeads\"]");
    let message = "too many subscriptions on this connection, allowed are 2";
    assert!(refused.contains(&format!("\"code\":-32000,\"message\":\"{message}\"")), "{refused}");
    ws.call("eth_unsubscribe", &format!("[\"{first}\"]"));
    ws.subscribe("[\"newHeads\"]");
    // In bytes too, over all connections, filters over HTTP included.
    let long = format!("{{\"address\":[{}]}}", vec![format!("\"0x{:040x}\"", 7); 60].join(","));
    let mut other = Ws::open(&neve);
    for refused in [
        other.call("eth_subscribe", &format!("[\"logs\",{long}]")),
        neve.client().call("eth_newFilter", &format!("[{long}]")).text(),
    ] {
        assert!(refused.contains("-32005") && refused.contains("memory"), "{refused}");
    }
    assert!(result(&neve.client().call("eth_newBlockFilter", "[]").text()).is_some());
    let refused = neve.client().call("eth_newBlockFilter", "[]").text();
    assert!(refused.contains("too many filters, allowed are 1"), "{refused}");
}

/// Clients are told of the stop, and no client can hold it up.
#[test]
fn stopping() {
    let devnet = devnet(10);
    let (_dir, neve) = follow(&devnet, &[]);
    let (mut idle, mut live, mut stuck) =
        (Ws::open(&neve), Ws::open(&neve), Ws::open_narrow(&neve));
    let id = live.subscribe("[\"newHeads\"]");
    stuck.subscribe("[\"newHeads\"]");
    devnet.advance(800);
    assert_eq!(live.heads(&id, 800).last(), Some(&810));
    let stopped = thread::spawn(move || neve.stop_in_time());
    assert_eq!(idle.end(), ended(1001, "the server stops"));
    assert_eq!(live.end(), ended(1001, "the server stops"));
    drop((idle, live));
    stopped.join().unwrap();
}

/// A name of half a megabyte, which each item of a batch had repeated in its error, six bytes for one.
#[test]
fn refused_batch_repeats_little_of_a_long_method_name() {
    let devnet = devnet(1);
    let (_dir, neve) = follow(&devnet, &[]);
    let before = neve.metric("neve_memory_anonymous_bytes").unwrap();
    let name = format!("eth_{}_subscribe", "<".repeat(500 << 10));
    let items: Vec<String> = (1..500).map(|id| call(id, "eth_chainId", "[]")).collect();
    let named = call(0, &name, "[\"newPendingTransactions\"]");
    let mut ws = Ws::open(&neve);
    ws.send(&format!("[{named},{}]", items.join(",")));
    let refused = ws.text();
    let errors: Vec<serde_json::Value> = serde_json::from_str(&refused).expect("JSON");
    assert_eq!(errors.len(), 500);
    assert!(refused.len() < 500 * 1024, "{} bytes", refused.len());
    ws.send(&named);
    let alone = ws.text();
    assert!(alone.len() < 1024, "{} bytes", alone.len());
    let grown = neve.metric("neve_memory_anonymous_bytes").unwrap() - before;
    assert!(grown < 32e6, "{grown} bytes");
}

fn call(id: u32, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}
