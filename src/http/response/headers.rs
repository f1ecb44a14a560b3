//! Heads of responses, with the bytes that hyper writes.

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;
use hyper::Response;

/// State of the connection behind the response (RFC 9112, 9.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// The connection stays open.
    Kept,
    /// The connection closes, as the client requested.
    Closed,
    /// The connection closes, as in HTTP/1.0.
    Old,
}

/// Writes the head of uncompressed JSON, as [`write()`] does, without a [`Response`]. Nearly all
/// responses are of this kind. `newest` is the served head.
pub(crate) fn write_json_ok(
    out: &mut Vec<u8>,
    len: usize,
    persistence: Persistence,
    newest: Option<u64>,
) {
    put(out, &[version(persistence)]);
    PLAIN.with_borrow_mut(|prepared| {
        // Only a new head changes these lines: thousands of responses share them. Without a text
        // this is the first use, in which `newest` is that of an empty store.
        if prepared.newest != newest || prepared.text.is_empty() {
            prepared.write(newest);
        }
        out.extend_from_slice(&prepared.text);
    });
    write_end(out, len, persistence);
}

/// Status and headers of such a response, which are formatted once for each served head.
struct Prepared {
    newest: Option<u64>,
    text: Vec<u8>,
}

impl Prepared {
    #[cold]
    fn write(&mut self, newest: Option<u64>) {
        let Self { text, .. } = self;
        text.clear();
        put(text, &[" 200 OK\r\ncontent-type: application/json\r\nx-neve: hit\r\n"]);
        if let Some(head) = newest {
            let _ = write!(text, "x-neve-head: {head:#x}\r\n"); // a Vec takes all
        }
        // As `Cors::mark` has it for a request without an `Origin`.
        put(text, &["vary: Origin\r\n"]);
        self.newest = newest;
    }
}

/// Writes status and headers of a response of `len` bytes.
pub(crate) fn write<B>(
    out: &mut Vec<u8>,
    response: &Response<B>,
    len: usize,
    persistence: Persistence,
) {
    let status = response.status();
    // hyper's word for a status without a phrase.
    let reason = status.canonical_reason().unwrap_or("<none>");
    put(out, &[version(persistence), " ", status.as_str(), " ", reason, "\r\n"]);
    for (name, value) in response.headers() {
        put(out, &[name.as_str(), ": "]);
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    write_end(out, len, persistence);
}

fn version(persistence: Persistence) -> &'static str {
    match persistence {
        Persistence::Kept | Persistence::Closed => "HTTP/1.1",
        Persistence::Old => "HTTP/1.0",
    }
}

fn write_end(out: &mut Vec<u8>, len: usize, persistence: Persistence) {
    if persistence == Persistence::Closed {
        put(out, &["connection: close\r\n"]);
    }
    put(out, &["content-length: ", itoa::Buffer::new().format(len), "\r\ndate: "]);
    write_date(out);
    out.extend_from_slice(b"\r\n\r\n");
}

fn put(out: &mut Vec<u8>, words: &[&str]) {
    words.iter().for_each(|word| out.extend_from_slice(word.as_bytes()));
}

/// A second, and its text.
struct Written {
    second: u64,
    text: Vec<u8>,
}

thread_local! {
    static PLAIN: RefCell<Prepared> =
        const { RefCell::new(Prepared { newest: None, text: Vec::new() }) };
    static NOW: RefCell<Written> = const { RefCell::new(Written { second: 0, text: Vec::new() }) };
}

/// Writes the time (RFC 9110, 5.6.7), which is formatted once a second.
fn write_date(out: &mut Vec<u8>) {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    NOW.with_borrow_mut(|written| {
        if written.second != second {
            written.second = second;
            written.text.clear();
            let _ = write!(written.text, "{}", HttpDate::from(now)); // a Vec takes all
        }
        out.extend_from_slice(&written.text);
    });
}
