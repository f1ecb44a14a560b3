//! Streams of HTTP/2: each ends in time, whatever its client does, and takes no other with it.

#![expect(clippy::big_endian_bytes, reason = "the order of RFC 9113")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::support::http2::{
    DATA, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, first, frame, head,
    header,
};
use crate::support::neve::{Neve, fresh_dir};
use crate::support::node::wait::at_some_pace;
use crate::support::served::{devnet, follow};

const BLOCK: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["0x5",true]}"#;
const LIMIT: Duration = Duration::from_mins(3);
/// Time-outs of these tests. Only what neve looks at more often than that can end in time.
const WRITE: Duration = Duration::from_secs(1);
const NEVER_IDLE: [&str; 4] = ["--idle-timeout", "1h", "--write-timeout", "1s"];
/// Error codes of RFC 9113, 7.
const REFUSED: u32 = 7;
const CANCEL: u32 = 8;
const CALM: u32 = 11;

/// A frame that came.
#[derive(Debug)]
struct Came {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Came {
    /// Error code of a reset of this stream.
    fn reset_of(&self, stream: u32) -> Option<u32> {
        let is_reset = self.kind == RST_STREAM && self.stream == stream;
        is_reset.then(|| self.code().expect("a code"))
    }

    fn code(&self) -> Option<u32> {
        self.payload.first_chunk().copied().map(u32::from_be_bytes)
    }

    /// True of the last frame of a stream that got its response.
    fn ends(&self, stream: u32) -> bool {
        matches!(self.kind, 0 | 1) && self.flags & 1 == 1 && self.stream == stream
    }
}

/// All that came on a connection, until the test had enough or the server closed it.
struct Talk {
    came: Vec<Came>,
    is_closed: bool,
    took: Duration,
}

impl Talk {
    fn reset_of(&self, stream: u32) -> Option<u32> {
        self.came.iter().find_map(|came| came.reset_of(stream))
    }

    fn has_ended(&self, stream: u32) -> bool {
        self.came.iter().any(|came| came.ends(stream))
    }

    fn has_goaway(&self) -> bool {
        self.came.iter().any(|came| came.kind == GOAWAY)
    }

    /// Asserts that the server closed the connection, and not before this time.
    fn closed_after(self, least: Duration) -> Self {
        assert!(self.is_closed, "the connection is open: {:?}", self.came);
        assert!(self.took >= least, "closed after {:?}", self.took);
        self
    }

    /// Asserts that a stream was reset, not before this time, and that the connection goes on.
    fn reset_after(self, stream: u32, least: Duration) -> Self {
        assert!(!self.is_closed && !self.has_goaway(), "{:?}", self.came);
        assert_eq!(self.reset_of(stream), Some(CANCEL), "{:?}", self.came);
        assert!(self.took >= least, "reset after {:?}", self.took);
        self
    }
}

/// Talks to a neve: answers each PING, and sends what `turn` returns each half second, until it breaks or the
/// connection ends. Turn 0 looks at frames at once, and sends nothing: neve may close before the next half second.
fn talk(
    neve: &Neve,
    begin: &[u8],
    mut turn: impl FnMut(u32, &[Came]) -> ControlFlow<(), Vec<u8>>,
) -> Talk {
    let start = Instant::now();
    let mut stream = TcpStream::connect(neve.address).expect("neve listens");
    stream.set_read_timeout(Some(Duration::from_millis(500))).expect("not zero");
    stream.write_all(begin).expect("it is read");
    let (mut bytes, mut room, mut came, mut turns) = (Vec::new(), [0; 4096], Vec::new(), 0);
    let is_closed = loop {
        assert!(start.elapsed() < LIMIT, "it goes on: {came:?}");
        match stream.read(&mut room) {
            Ok(0) => break true,
            Ok(len) => bytes.extend_from_slice(&room[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                turns += 1;
                match turn(turns, &came) {
                    ControlFlow::Continue(more) => drop(stream.write_all(&more)),
                    ControlFlow::Break(()) => break false,
                }
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break true,
            Err(error) => panic!("{error}"),
        }
        while let Some((kind, flags, of, len)) = first(&bytes) {
            let payload: Vec<u8> = bytes.drain(..len).skip(9).collect();
            if kind == PING && flags & 1 == 0 {
                let _ = stream.write_all(&frame(PING, 1, 0, &payload));
            }
            came.push(Came { kind, flags, stream: of, payload });
        }
        if turn(0, &came).is_break() {
            break false;
        }
    };
    Talk { came, is_closed, took: start.elapsed() }
}

/// Sends nothing more until the server closes.
fn until_closed(_: u32, _: &[Came]) -> ControlFlow<(), Vec<u8>> {
    ControlFlow::Continue(Vec::new())
}

/// Sends the same each time until stream 1 is reset.
fn until_reset(
    mut more: impl FnMut(u32) -> Vec<u8>,
) -> impl FnMut(u32, &[Came]) -> ControlFlow<(), Vec<u8>> {
    move |turn, came| {
        let is_reset = came.iter().any(|came| came.reset_of(1).is_some());
        if is_reset { ControlFlow::Break(()) } else { ControlFlow::Continue(more(turn)) }
    }
}

/// Sends nothing more until each of these streams has its response or is reset.
fn until_over(streams: Vec<u32>) -> impl FnMut(u32, &[Came]) -> ControlFlow<(), Vec<u8>> {
    let ends = |came: &Came, of| came.ends(of) || came.reset_of(of).is_some();
    move |turn, came| {
        let is_over = |of: &u32| came.iter().any(|came| ends(came, *of));
        if streams.iter().all(is_over) { ControlFlow::Break(()) } else { until_closed(turn, came) }
    }
}

/// Begin of a connection whose streams have this window, and its first frames.
fn begin(window: u32, frames: &[u8]) -> Vec<u8> {
    let settings = frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
    [PREFACE, &settings, frames].concat()
}

fn ask_for(stream: u32, body: &str) -> Vec<u8> {
    [head(stream, &[]), frame(DATA, 1, stream, body.as_bytes())].concat()
}

fn ask(stream: u32) -> Vec<u8> {
    ask_for(stream, BLOCK)
}

/// Asks, and makes room for all of the response.
fn ask_openly(stream: u32) -> Vec<u8> {
    [ask(stream), frame(WINDOW_UPDATE, 0, stream, &(1_u32 << 24).to_be_bytes())].concat()
}

fn window_of_connection() -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes())
}

#[test]
fn stream_ends_in_time_whatever_else_its_client_does() {
    at_some_pace(|pace| stream_ends_in_time(2 * pace));
}

fn stream_ends_in_time(write: Duration) {
    let (node, idle) = (devnet(5), 2 * write);
    let [idle_ms, write_ms] = [idle, write].map(|time| format!("{}ms", time.as_millis()));
    let timeouts = ["--idle-timeout", &idle_ms, "--write-timeout", &write_ms];
    let (_dir, neve) = follow(&node, &timeouts);
    // Some of the preface.
    talk(&neve, &PREFACE[..20], until_closed).closed_after(idle);
    // No body, and one that comes byte by byte.
    let unfinished = begin(255, &head(1, &[]));
    talk(&neve, &unfinished, until_reset(|_| Vec::new())).reset_after(1, idle);
    talk(&neve, &unfinished, until_reset(|_| frame(DATA, 0, 1, b" "))).reset_after(1, idle);
    // A response that is not read, or by one byte, while other streams go on.
    let others = || until_reset(|turn| ask(2 * turn + 1));
    talk(&neve, &begin(0, &ask(1)), others()).reset_after(1, write);
    talk(&neve, &begin(1, &ask(1)), others()).reset_after(1, write);
}

#[test]
fn response_that_is_left_ends_its_stream_and_no_other() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &NEVER_IDLE);
    let long = format!("[{}]", [BLOCK; 40].join(","));
    let len = neve.client().post(&long).body.len();
    assert!(len > 65_535, "{len} bytes are no long response");
    // The last pieces of a response, and pieces in the middle of one.
    for (window, body) in
        [(1, BLOCK), (65_535, &long), (u32::try_from(len).expect("short") - 1, &long)]
    {
        let first = [window_of_connection(), ask_for(1, body)].concat();
        let mut behind = None;
        let done = talk(&neve, &begin(window, &first), |turn, came| {
            let is_reset = came.iter().any(|came| came.reset_of(1).is_some());
            if turn > 0 && is_reset && behind.is_none() {
                behind = Some(2 * turn + 1);
            }
            let has_ended = |stream| came.iter().any(|came| came.ends(stream));
            if behind.is_some_and(|behind| (3..=behind).step_by(2).all(has_ended)) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(ask_openly(2 * turn + 1))
        });
        done.reset_after(1, WRITE);
    }
}

#[test]
fn connection_whose_client_leaves_all_is_told_and_then_cut() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &NEVER_IDLE);
    let len = neve.client().post(BLOCK).body.len();
    // The connection has room for 65,535 bytes.
    let streams = u32::try_from(65_535 / len + 10).expect("few");
    let all: Vec<_> = (0..streams).flat_map(|at| ask(2 * at + 1)).collect();
    let done = talk(&neve, &begin(65_535, &all), until_closed).closed_after(4 * WRITE);
    assert!(done.has_goaway(), "{:?}", done.came);
    let ended = (0..streams).filter(|at| done.has_ended(2 * at + 1)).count();
    assert!(ended > 0 && ended < streams as usize, "{ended} of {streams}");
    neve.wait_for_count("neve_http_connection_timeouts_total{reason=\"write\"}", 1);
}

/// Bytes of memory of a client for a connection, and so many more.
fn share(more: usize) -> [String; 2] {
    ["--client-bytes-address-max".to_owned(), format!("{}KiB", 256 + 76 + more)]
}

#[test]
fn refused_streams_of_a_client_that_takes_nothing_end_in_time() {
    let node = devnet(5);
    let share = share(70);
    let (_dir, neve) = follow(&node, &[&NEVER_IDLE[..], &[&share[0], &share[1]]].concat());
    let streams = || (0..100).map(|at| 2 * at + 1);
    let all: Vec<_> = streams().flat_map(ask).collect();
    let done = talk(&neve, &begin(0, &all), until_over(streams().collect()));
    assert!(!done.is_closed, "{:?}", done.came);
    let count = |code| streams().filter(|stream| done.reset_of(*stream) == Some(code)).count();
    let refusals = done.came.iter().filter(|came| came.kind == 1).count();
    // A few responses and refusals fit the memory of the client. The streams of all others are reset at once.
    assert!((2..100).contains(&refusals), "{refusals}");
    assert_eq!((count(CANCEL), count(CALM)), (refusals, 100 - refusals));
    assert!(done.took >= WRITE, "{:?}", done.took);
    assert_eq!(neve.client().post(BLOCK).status, 200, "all memory is free again");
}

#[test]
fn long_response_is_served_though_the_client_has_no_more_memory() {
    let node = devnet(5);
    let (share, dir) = (share(68), fresh_dir());
    let log = dir.path().join("access.log").display().to_string();
    // With a log, the length of a body is known by its size hint only.
    let flags = [&NEVER_IDLE[..], &[&share[0], &share[1], "--access-log", &log]].concat();
    let (_dir, neve) = follow(&node, &flags);
    let long = format!("[{}]", [BLOCK; 40].join(","));
    let expected = neve.client().post(&long).body;
    let first = [window_of_connection(), ask_for(1, &long)].concat();
    let done = talk(&neve, &begin(1 << 24, &first), until_over(vec![1]));
    let data = done.came.iter().filter(|came| came.kind == DATA);
    let body: Vec<u8> = data.flat_map(|came| came.payload.clone()).collect();
    assert!(body == expected, "{} bytes of {}: {:?}", body.len(), expected.len(), done.reset_of(1));
}

#[test]
fn stream_that_waits_for_memory_ends_in_time_if_its_client_leaves_a_piece() {
    let node = devnet(5);
    let share = share(78);
    let (_dir, neve) = follow(&node, &[&NEVER_IDLE[..], &[&share[0], &share[1]]].concat());
    let long = format!("[{}]", [BLOCK; 80].join(","));
    let first = [window_of_connection(), ask_for(1, &long)].concat();
    // Room for three parts of the first piece and a byte, so neve hands on four and wants memory for the next.
    let done = talk(&neve, &begin(3 * (16 << 10) + 1, &first), until_reset(|_| Vec::new()));
    done.reset_after(1, 4 * WRITE);
}

#[test]
fn response_whose_end_is_left_is_cut_in_the_log() {
    let node = devnet(5);
    let dir = fresh_dir();
    let log = dir.path().join("access.log");
    let path = log.display().to_string();
    let (_dir, neve) = follow(&node, &[&NEVER_IDLE[..], &["--access-log", &path]].concat());
    let long = format!("[{}]", [BLOCK; 40].join(","));
    let len = u32::try_from(neve.client().post(&long).body.len()).expect("short");
    let lines = |count| {
        let text = || fs::read_to_string(&log).unwrap_or_default();
        neve.wait("a line", |_| (text().lines().count() == count).then(text))
    };
    assert!(!lines(1).contains("cut"), "{}", lines(1));
    let first = [window_of_connection(), ask_for(1, &long)].concat();
    talk(&neve, &begin(len - 1, &first), until_reset(|_| Vec::new())).reset_after(1, WRITE);
    let last = lines(2).lines().nth(1).expect("a line").to_owned();
    assert!(last.contains(" cut=true"), "{last}");
}

#[test]
fn client_that_does_not_know_the_limit_of_streams_keeps_its_connection() {
    let node = devnet(5);
    let flags = [&NEVER_IDLE[..], &["--connection-streams-max", "1"]].concat();
    let (_dir, neve) = follow(&node, &flags);
    let streams = || (0..100).map(|at| 2 * at + 1);
    let all: Vec<_> = streams().flat_map(ask).collect();
    let all = [window_of_connection(), all].concat();
    let done = talk(&neve, &begin(1 << 24, &all), until_over(streams().collect()));
    assert!(!done.is_closed && !done.has_goaway() && done.has_ended(1), "{:?}", done.came);
    let wrong = streams().find(|of| done.reset_of(*of).is_some_and(|code| code != REFUSED));
    assert_eq!(wrong, None);
}

#[test]
fn refusal_of_a_head_is_logged_and_counted() {
    let node = devnet(5);
    let headers: Vec<_> = (0..101).map(|at| header(&format!("x-{at}"), "")).collect();
    let many = head(1, &headers.concat());
    for (more, request, status, reason) in
        [(1, ask(1), " 503 ", "busy"), (200, many, " 431 ", "headers")]
    {
        let (share, dir) = (share(more), fresh_dir());
        let log = dir.path().join("access.log");
        let path = log.display().to_string();
        let (_dir, neve) = follow(&node, &["--access-log", &path, &share[0], &share[1]]);
        let done = talk(&neve, &begin(1 << 24, &request), until_over(vec![1]));
        assert!(done.has_ended(1), "{:?}", done.came);
        let count = format!("neve_http_refused_requests_total{{reason=\"{reason}\"}}");
        neve.wait_for_count(&count, 1);
        let line = || fs::read_to_string(&log).unwrap_or_default();
        neve.wait("a line", |_| line().contains(status).then_some(()));
        assert_eq!(line().lines().count(), 1, "{}", line());
    }
}

/// The head of a CONNECT, whose body is a tunnel (RFC 9113, 8.5).
fn connect(stream: u32, more: &[u8]) -> Vec<u8> {
    let block = [&[2, 7][..], b"CONNECT", &[0x41, 1, b'x'], more].concat();
    frame(HEADERS, 4, stream, &block)
}

#[test]
fn tunnel_is_refused_and_holds_no_stream() {
    let node = devnet(5);
    let (_dir, neve) = follow(&node, &NEVER_IDLE);
    let frames = [connect(1, &[]), frame(DATA, 0, 1, b"hello"), ask(3)].concat();
    let talk_to = |frames: &[u8]| {
        talk(&neve, &begin(1 << 20, frames), |turn, came| {
            // NO_ERROR: the response is whole, and the rest of the request is not wanted.
            let is_reset = came.iter().any(|came| came.reset_of(1) == Some(0));
            let is_over = is_reset && came.iter().any(|came| came.ends(3));
            if is_over { ControlFlow::Break(()) } else { until_closed(turn, came) }
        })
    };
    let refused = talk_to(&frames);
    assert!(refused.has_ended(1) && !refused.is_closed, "{:?}", refused.came);
    // hyper drops the connection of a tunnel with a length.
    let length = header("content-length", "5");
    let dropped = talk_to(&[connect(1, &length), frame(DATA, 1, 1, b"hello")].concat());
    assert!(dropped.is_closed && !dropped.has_ended(1), "{:?}", dropped.came);
    assert_eq!(neve.client().post(BLOCK).status, 200);
}
