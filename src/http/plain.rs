//! Requests of the plainest form: a POST of JSON with its length, whole in the buffer.
//!
//! That is how nearly every client asks. Taking apart what such a request does not need costs more
//! than answering it, so these are read here, with the parser of hyper (httparse), and answered at
//! once. What has any other form, or is to be refused, is left to hyper and [`super::service`],
//! whose answers to a plain request are the same to the byte.

use std::mem::MaybeUninit;
use std::ops::Range;

use httparse::{Header, Request, Status};

use super::encoded::Accepts;
use super::media_type;
use super::route::{Route, route};
use super::service::Service;

/// Plain requests have fewer headers.
const HEADERS: usize = 32;
/// And a shorter head; it is below what `--head-bytes-max` may be set to.
const HEAD_BYTES: usize = 4 << 10;

/// What bytes are that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Perhaps the begin of a plain request.
    Begin,
    /// A plain request, and perhaps more behind it.
    Plain(Plain),
    /// Anything else.
    Other,
}

/// A plain request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    /// Where its body is. It ends with it.
    pub(super) body: Range<usize>,
    pub(super) accepts: Accepts,
    pub(super) persistence: Persistence,
}

/// What becomes of the connection behind the answer (RFC 9112, 9.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Persistence {
    /// It is kept.
    Kept,
    /// It ends, as the client asked.
    Closed,
    /// It ends, as in HTTP/1.0.
    Old,
}

/// What headers say that matters to a plain request.
#[derive(Default)]
struct Said<'h> {
    host: Option<&'h [u8]>,
    content_type: Option<&'h [u8]>,
    len: Option<usize>,
    connection: Option<&'h [u8]>,
    accepts: Accepts,
}

impl Service {
    /// Looks at what came.
    pub(super) fn look(&self, bytes: &[u8]) -> Seen {
        if bytes.is_empty() {
            return Seen::Begin;
        }
        if !self.rpc_here {
            return Seen::Other;
        }
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS];
        let mut request = Request::new(&mut []);
        match request.parse_with_uninit_headers(bytes, &mut headers) {
            Ok(Status::Complete(head)) => self.plain(&request, bytes.len(), head),
            Ok(Status::Partial) if bytes.len() < HEAD_BYTES => Seen::Begin,
            Ok(Status::Partial) | Err(_) => Seen::Other,
        }
    }

    /// A request whose head has `head` of the `came` bytes.
    fn plain(&self, request: &Request<'_, '_>, came: usize, head: usize) -> Seen {
        let said = match Said::of(request.headers) {
            Some(said) if head <= HEAD_BYTES && self.takes(request, &said) => said,
            _ => return Seen::Other,
        };
        let Some(persistence) = said.persistence(request.version) else { return Seen::Other };
        match said.len {
            Some(len) if len > self.rpc.limits.body_bytes_max => Seen::Other,
            Some(len) if len > came - head => Seen::Begin,
            Some(len) => {
                Seen::Plain(Plain { body: head..head + len, accepts: said.accepts, persistence })
            }
            None => Seen::Other,
        }
    }

    fn takes(&self, request: &Request<'_, '_>, said: &Said<'_>) -> bool {
        let path = request.path.unwrap_or_default();
        request.method == Some("POST")
            && said.host.is_some()
            && self.hosts.check(said.host).is_ok()
            && said.content_type.is_some_and(media_type::is_json)
            && matches!(route(path, &self.rpc_paths), Route::Rpc { .. })
    }
}

impl<'h> Said<'h> {
    /// `None` if one of them makes a request other than plain.
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
                said.accepts.add(value);
            } else if is("connection") {
                once(&mut said.connection, value)?;
            } else if OTHERS.iter().any(|other| is(other)) {
                return None;
            }
        }
        Some(said)
    }

    /// `None` if that is not plain, as keeping a connection of HTTP/1.0 is not.
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

/// What has one of these wants more than an answer.
const OTHERS: [&str; 5] =
    ["origin", "expect", "upgrade", "transfer-encoding", "avalanche-api-route"];

/// `None` if it was said before.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn length(digits: &[u8]) -> Option<usize> {
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
