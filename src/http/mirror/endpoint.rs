//! For mirrors: sealed segments and packed files, records as a stream. See docs/RPC.md, "Mirrors".
//!
//! Each download and each stream has a task of its own, which reads at most one chunk ahead of its client. It ends
//! with its connection, which is cut if the client does not read. neve notices a client that has gone when it sends:
//! a stream sends every five seconds, and the second of these writes fails. The number of tasks is bounded.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE, RETRY_AFTER,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use metrics::counter;
use neve_record::packed::Codec;
use neve_store::SealedFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinError;
use tracing::warn;

use super::record_stream::RecordStream;
use crate::body::ResponseBody;
use crate::http::admit::ErrorResponse;
use crate::http::clients::{Seat, Seats};
use crate::http::draining;
use crate::http::keys::ClientKey;
use crate::http::response::{
    BYTES, HttpBody, JSON, PLAIN_TEXT, StreamBody, not_stored, on_disk_thread, typed, whole,
};
use crate::mirror::{Form, Listing, PACKED, RECORDS, ROOT, SEGMENT, SEGMENTS};
use crate::shared::{ClientAddress, Serving};

/// Bytes of a file that are read at once.
const PIECE: u64 = 256 << 10;
/// Chunks that wait for the client.
const AHEAD: usize = 1;

/// A download or a stream that is open, as long as it lives.
struct Permit {
    _room: OwnedSemaphorePermit,
    _seat: Seat,
    /// The key that the mirror named, if it needs one.
    key: Option<ClientKey>,
}

impl Permit {
    /// False once a reload has removed the mirror's key.
    fn is_valid(&self) -> bool {
        self.key.as_ref().is_none_or(ClientKey::is_known)
    }
}

/// A mirror's address, and the key that it named.
type Mirror = (ClientAddress, Option<ClientKey>);

/// Endpoint for mirrors, below `/mirror/v1/`.
#[derive(Clone)]
pub(crate) struct MirrorEndpoint {
    pub(crate) serving: Arc<Serving>,
    /// Directory of the segments.
    pub(crate) dir: PathBuf,
    /// Downloads and streams that may be open.
    pub(crate) room: Arc<Semaphore>,
    /// The share of each address in them.
    pub(crate) seats: Arc<Seats>,
    pub(crate) drain: watch::Receiver<bool>,
}

impl MirrorEndpoint {
    /// True if `path` is one of ours.
    pub(crate) fn knows(path: &str) -> bool {
        path.starts_with(ROOT)
    }

    /// The most that one address may have open of so many: a quarter, and two at least. A mirror
    /// needs that, for a stream and a download.
    pub(crate) fn share(all: usize) -> usize {
        (all / 4).max(2).min(all)
    }

    pub(crate) async fn respond(
        &self,
        request: &Parts,
        client: ClientAddress,
        key: Option<ClientKey>,
    ) -> Response<HttpBody> {
        if request.method != Method::GET {
            return whole(ErrorResponse::USE_GET.response());
        }
        let path = request.uri.path();
        match path {
            SEGMENTS => whole(self.list()),
            RECORDS => self.records(request.uri.query(), (client, key)),
            _ => match file_of(path) {
                Some(file) => self.file(file, &request.headers, (client, key)).await,
                None => whole(ErrorResponse::NOT_FOUND.response()),
            },
        }
    }

    fn list(&self) -> Response<ResponseBody> {
        let Some(identity) = self.serving.identity() else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "the chain is not known yet");
        };
        let listing = Listing::of(&self.serving.reader, identity);
        let text = serde_json::to_vec(&listing).unwrap_or_default(); // numbers and a hash
        not_stored(typed(StatusCode::OK, JSON, ResponseBody::from(text)))
    }

    fn enter(&self, (client, key): Mirror) -> Option<Permit> {
        let seat = self.seats.take(client)?;
        Some(Permit { _room: Arc::clone(&self.room).try_acquire_owned().ok()?, _seat: seat, key })
    }

    async fn file(
        &self,
        (form, base): (Form, u64),
        headers: &HeaderMap,
        mirror: Mirror,
    ) -> Response<HttpBody> {
        let Some(permit) = self.enter(mirror) else { return full() };
        let file = match self.open(form, base).await {
            Ok(file) => file,
            Err(refusal) => return whole(refusal),
        };
        let tag = format!("\"{}\"", file.page.tag);
        match range(headers, &tag, file.page.bytes) {
            Ok(range) => file_response(file, tag, range, permit),
            Err(()) => whole(not_satisfiable(file.page.bytes)),
        }
    }

    /// Opens a file that is served, or says why a mirror does not get it.
    async fn open(&self, form: Form, base: u64) -> Result<SealedFile, Response<ResponseBody>> {
        // What is stored and no longer served, or not yet, is not given.
        let reader = &self.serving.reader;
        let served = match form {
            Form::Sealed => reader.unpacked(),
            Form::Packed => reader.packed(),
        };
        let served = served.iter().any(|(first, _)| *first == base);
        let dir = self.dir.clone();
        let open = move || match form {
            Form::Sealed => SealedFile::open(&dir, base),
            Form::Packed => SealedFile::open_packed(&dir, base, &Codec::default()),
        };
        match came(base, on_disk_thread(open).await) {
            Some(Some(file)) if served => Ok(file),
            Some(_) => Err(plain(StatusCode::NOT_FOUND, "no such file begins there")),
            None => Err(plain(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read")),
        }
    }

    fn records(&self, query: Option<&str>, mirror: Mirror) -> Response<HttpBody> {
        let from = query.and_then(|query| query.strip_prefix("from=")?.parse().ok());
        let Some(from) = from else {
            let why = "write ?from= and the height to begin with, in decimal digits";
            return whole(plain(StatusCode::BAD_REQUEST, why));
        };
        let Some(permit) = self.enter(mirror) else { return full() };
        let (out, pieces) = mpsc::channel(AHEAD);
        let (serving, mut drain) = (Arc::clone(&self.serving), self.drain.clone());
        tokio::spawn(async move {
            // Held in the task: the place is taken until the stream ends.
            let is_valid = || permit.is_valid();
            // A stream has no end of its own: without the signal neve would wait for it until the
            // drain runs out.
            tokio::select! {
                () = RecordStream::new(&serving, from, out, &is_valid).run() => {}
                () = draining(&mut drain) => {}
            }
        });
        stream(HttpBody::Stream(StreamBody { pieces, left: None }))
    }
}

/// Form and first height of the file that a path names.
fn file_of(path: &str) -> Option<(Form, u64)> {
    let (form, base) = match path.strip_prefix(PACKED) {
        Some(base) => (Form::Packed, base),
        None => (Form::Sealed, path.strip_prefix(SEGMENT)?),
    };
    Some((form, base.parse().ok()?))
}

/// Result of a read of the file that begins at a height. If it failed, the source's own operator must learn it.
fn came<T>(segment: u64, read: Result<Result<T, impl Display>, JoinError>) -> Option<T> {
    let read = read.map_err(|ended| ended.to_string());
    let read = read.and_then(|read| read.map_err(|error| error.to_string()));
    read.inspect_err(|error| warn!(segment, error, "file for a mirror unreadable")).ok()
}

/// Makes the response with a file, or with a range of it. A task sends the bytes.
fn file_response(
    file: SealedFile,
    tag: String,
    range: Option<(u64, u64)>,
    permit: Permit,
) -> Response<HttpBody> {
    let len = file.page.bytes;
    let (from, to) = range.unwrap_or((0, len));
    let (out, pieces) = mpsc::channel(AHEAD);
    tokio::spawn(send_file(file, from, to, out, permit));
    let body = HttpBody::Stream(StreamBody { pieces, left: Some(to - from) });
    let mut response = stream(body);
    set(response.headers_mut(), ETAG, tag);
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if range.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let text = format!("bytes {from}-{}/{len}", to - 1);
        set(response.headers_mut(), CONTENT_RANGE, text);
    }
    response
}

/// Refuses a range that begins behind the end of a file of `len` bytes.
fn not_satisfiable(len: u64) -> Response<ResponseBody> {
    let mut response =
        plain(StatusCode::RANGE_NOT_SATISFIABLE, "the file is shorter than this range");
    set(response.headers_mut(), CONTENT_RANGE, format!("bytes */{len}"));
    response
}

/// Sends the bytes `from..to`, as long as the mirror takes them.
async fn send_file(file: SealedFile, from: u64, to: u64, out: mpsc::Sender<Bytes>, permit: Permit) {
    let (file, mut at) = (Arc::new(file), from);
    while at < to && permit.is_valid() {
        let (reading, len) = (Arc::clone(&file), PIECE.min(to - at));
        let read = on_disk_thread(move || reading.read(at, len as usize)).await;
        let Some(bytes) = came(file.page.base, read) else { return }; // the connection is cut: too little came
        at += len;
        counter!("neve_mirror_sent_bytes_total").increment(len);
        if out.send(bytes.into()).await.is_err() {
            return;
        }
    }
}

/// The part that is asked for: all if it is not asked for in the one form that is known, or is that
/// of another file (RFC 9110, 13.1.5 and 14.2).
fn range(headers: &HeaderMap, tag: &str, len: u64) -> Result<Option<(u64, u64)>, ()> {
    // A mirror goes on with a download only if the tag is the same: a file of this name may have
    // been written again.
    let other = headers.get(IF_RANGE).is_some_and(|wanted| wanted.as_bytes() != tag.as_bytes());
    let text = headers.get(RANGE).filter(|_| !other).and_then(|range| range.to_str().ok());
    let Some((from, to)) = text.and_then(|text| text.strip_prefix("bytes=")?.split_once('-'))
    else {
        return Ok(None);
    };
    let to = if to.is_empty() { Ok(u64::MAX) } else { to.parse::<u64>() };
    let (Ok(from), Ok(to)) = (from.parse::<u64>(), to) else { return Ok(None) };
    // A range may go beyond the end (RFC 9110, 14.1.2).
    let to = to.saturating_add(1).min(len);
    if from < to { Ok(Some((from, to))) } else { Err(()) }
}

fn stream(body: HttpBody) -> Response<HttpBody> {
    not_stored(typed(StatusCode::OK, BYTES, body))
}

fn full() -> Response<HttpBody> {
    let why = "too many mirrors, in total or of this address (--mirrors-max)";
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    whole(response)
}

fn plain(status: StatusCode, why: &'static str) -> Response<ResponseBody> {
    typed(status, PLAIN_TEXT, ResponseBody::from(format!("{why}\n").into_bytes()))
}

fn set(headers: &mut HeaderMap, name: hyper::header::HeaderName, text: String) {
    headers.extend(HeaderValue::try_from(text).ok().map(|value| (name, value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_given_of_the_same_file_only() {
        let of = |asked: &'static str, tag: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static(asked));
            headers.extend(tag.map(|tag| (IF_RANGE, HeaderValue::from_static(tag))));
            range(&headers, "\"a\"", 100)
        };
        assert_eq!(of("bytes=7-", None), Ok(Some((7, 100))));
        assert_eq!(of("bytes=7-9", Some("\"a\"")), Ok(Some((7, 10))));
        assert_eq!(of("bytes=7-1000", None), Ok(Some((7, 100))));
        assert_eq!(of("bytes=7-", Some("\"b\"")), Ok(None), "another file");
        for all in ["bytes=-5", "bytes=0-1,5-6", "lines=1-", "bytes=x-", "bytes"] {
            assert_eq!(of(all, None), Ok(None), "{all}");
        }
        assert_eq!(of("bytes=100-", None), Err(()));
        assert_eq!(of("bytes=9-7", None), Err(()));
    }
}
