//! Requests of the plainest form: a POST of JSON with its length, whole in the buffer.
//!
//! Nearly every client sends such requests. A full parse of their headers would cost more than the
//! answer. They are read here by hyper's parser (httparse) and answered at once. A request of another
//! form, or one to refuse, goes to hyper and [`crate::http::full`], which answers a plain request with
//! the same bytes.

use std::mem::MaybeUninit;
use std::ops::Range;

use httparse::{Header, Request, Status};
use hyper::Method;
use memchr::memchr_iter;

use super::service::FastService;
use crate::body::AcceptEncoding;
use crate::http::HTTP2_PREFACE;
use crate::http::admit::{Route, check_json, route};
use crate::http::response::Persistence;
use crate::shared::ClientAddress;

/// Maximum number of headers of a plain request.
const HEADERS: usize = 32;
/// Maximum bytes of its head, below the smallest value of `--header-bytes-max`.
const HEAD_BYTES: usize = 4 << 10;

/// Kind of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Perhaps the beginning of a plain request.
    Begin,
    /// A plain request, and perhaps more behind it.
    FastRequest(FastRequest),
    /// Any other request: it goes to the full path.
    Other,
}

/// A plain request, by its place in the read buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FastRequest {
    /// Range of its body, which ends the request.
    pub(crate) body: Range<usize>,
    pub(crate) accepts: AcceptEncoding,
    pub(crate) persistence: Persistence,
    /// The client, if a trusted proxy names one.
    pub(crate) client: Option<ClientAddress>,
}

/// Headers that matter to the fast path.
#[derive(Default)]
struct Said<'h> {
    host: Option<&'h [u8]>,
    content_type: Option<&'h [u8]>,
    len: Option<usize>,
    connection: Option<&'h [u8]>,
    accepts: AcceptEncoding,
}

impl FastService {
    /// Classifies received bytes; `proxied` if a trusted proxy sent them, whose requests name their clients.
    pub(crate) fn parse_fast(&self, bytes: &[u8], proxied: bool) -> Seen {
        // hyper would take a part of the preface for HTTP/1.
        if bytes.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(bytes) {
            return Seen::Begin;
        }
        // Keys are checked, and access lines written, on the full path only.
        if !self.policy.fast_here {
            return Seen::Other;
        }
        // Uninitialized: 32 headers of zeros cost more than the parse of a usual head.
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS];
        let mut request = Request::new(&mut []);
        match request.parse_with_uninit_headers(bytes, &mut headers) {
            Ok(Status::Complete(head)) if ends_lines_with_crlf(&request, &bytes[..head]) => {
                self.plain(&request, bytes.len(), head, proxied)
            }
            Ok(Status::Partial) if bytes.len() < HEAD_BYTES => Seen::Begin,
            Ok(_) | Err(_) => Seen::Other,
        }
    }

    /// Returns the request whose head is the first `head` of `came` bytes.
    fn plain(&self, request: &Request<'_, '_>, came: usize, head: usize, proxied: bool) -> Seen {
        let said = match Said::of(request.headers) {
            Some(said) if head <= HEAD_BYTES && self.takes(request, &said) => said,
            _ => return Seen::Other,
        };
        let Some(persistence) = said.persistence(request.version) else { return Seen::Other };
        match said.len {
            // Not answered before it is whole: a client may still break off.
            Some(len) if len > came - head => Seen::Begin,
            Some(len) => {
                let client =
                    if proxied { self.policy.proxies.client_of(request.headers) } else { None };
                let (body, accepts) = (head..head + len, said.accepts);
                Seen::FastRequest(FastRequest { body, accepts, persistence, client })
            }
            None => Seen::Other,
        }
    }

    fn takes(&self, request: &Request<'_, '_>, said: &Said<'_>) -> bool {
        let path = request.path.unwrap_or_default();
        let limit = self.responder.rpc.limits.body_bytes_max;
        let (len, content_type) = (said.len.map(|len| len as u64), said.content_type);
        request.method == Some("POST")
            // The full path refuses HTTP/1.1 without it, and answers HTTP/1.0.
            && said.host.is_some()
            && self.policy.check_host(said.host).is_ok()
            && content_type.is_some_and(|content_type| {
                check_json(&Method::POST, len, limit, content_type).is_ok()
            })
            && matches!(route(path, &self.policy.rpc_paths), Route::Rpc { .. })
    }
}

impl<'h> Said<'h> {
    /// Returns `None` if one of them makes the request other than plain.
    fn of(headers: &[Header<'h>]) -> Option<Self> {
        let mut said = Self::default();
        for header in headers {
            let Header { name, value } = *header;
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is("content-length") {
                once(&mut said.len, length(value)?)?;
            } else if is("content-type") {
                once(&mut said.content_type, value)?;
            } else if is("host") {
                once(&mut said.host, value)?;
            } else if is("accept-encoding") {
                // All lines of this name are one list, so several are allowed.
                said.accepts.add(value);
            } else if is("connection") {
                once(&mut said.connection, value)?;
            } else if OTHERS.iter().any(|other| is(other)) {
                return None;
            }
        }
        Some(said)
    }

    /// Returns `None` if that is not plain, such as a kept connection of HTTP/1.0.
    fn persistence(&self, version: Option<u8>) -> Option<Persistence> {
        let is =
            |known: &[u8]| self.connection.is_some_and(|said| said.eq_ignore_ascii_case(known));
        match version {
            Some(1) if self.connection.is_none() || is(b"keep-alive") => Some(Persistence::Kept),
            Some(1) if is(b"close") => Some(Persistence::Closed),
            Some(0) if self.connection.is_none() || is(b"close") => Some(Persistence::Old),
            _ => None,
        }
    }
}

/// Bytes between the path of a request line and its end.
const VERSION: usize = " HTTP/1.1".len();

/// Returns false if a line ends with LF alone: httparse accepts that, and a front may read it otherwise.
fn ends_lines_with_crlf(request: &Request<'_, '_>, head: &[u8]) -> bool {
    is_tidy(request, head) || memchr_iter(b'\n', head).all(|at| at > 0 && head[at - 1] == b'\r')
}

/// Returns true if each line ends with CR and LF, and no value is empty or has spaces behind it. It
/// looks behind each value. A search for each LF would cost more than the rest of the parse.
fn is_tidy(request: &Request<'_, '_>, head: &[u8]) -> bool {
    let is_cr = |at: usize| head.get(at) == Some(&b'\r');
    // httparse returns slices of `head`, so an address is a place in it. The arithmetic wraps
    // because an absent path lies elsewhere; no place fits then.
    let start = head.as_ptr().addr();
    let end = |piece: &[u8]| piece.as_ptr().addr().wrapping_sub(start).wrapping_add(piece.len());
    let path = request.path.unwrap_or_default().as_bytes();
    !head.starts_with(b"\r")
        && !head.starts_with(b"\n")
        && is_cr(end(path).wrapping_add(VERSION))
        && request.headers.iter().all(|header| !header.value.is_empty() && is_cr(end(header.value)))
        && is_cr(head.len().wrapping_sub(2))
}

/// Headers of requests that want more than a response.
const OTHERS: [&str; 5] =
    ["origin", "expect", "upgrade", "transfer-encoding", "avalanche-api-route"];

/// Returns `None` if a value was there before: two headers of one name are for hyper to judge.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn length(digits: &[u8]) -> Option<usize> {
    // `parse` takes a plus sign, which RFC 9110 does not.
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
