//! Reading a request's body, bounded in length, and together with others; the socket bounds the
//! time.

use std::future::poll_fn;
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::header::EXPECT;

use crate::body::poll_part;
use crate::http::socket::IdleState;
use crate::shared::{Account, FREE_BYTES, Holder, Reservation};

/// Memory is reserved in steps.
const STEP: usize = 16 << 10;

/// A body, and the memory that it takes if it did not come at once.
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    /// True if nothing of it was left unread.
    pub(crate) ended: bool,
    _reservation: Option<Reservation>,
}

impl Whole {
    /// Stands for a body that was cut or has malformed chunks. It is no JSON, and the connection closes.
    pub(crate) fn broken() -> Self {
        Self { ended: false, ..Bytes::from_static(b"{").into() }
    }
}

impl From<Bytes> for Whole {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, ended: true, _reservation: None }
    }
}

/// Reason why the body of a request is not there to be answered.
pub(crate) enum Unread {
    /// The client left, or sent no body.
    Broken,
    /// Clients use too much memory.
    NoMemory,
}

/// Reads a body of at most `limit` bytes; what is longer is cut there, as the node does with a body
/// whose length was not declared. Only one that does not come at once is copied, and reserves
/// memory: a buffer of the declared length fills as it comes; one that grows is counted with all
/// that it has.
pub(crate) async fn read(
    mut body: Incoming,
    limit: usize,
    account: Account<'_>,
) -> Result<Whole, Unread> {
    let declared = body.size_hint().exact().and_then(|len| usize::try_from(len).ok());
    let declared = declared.filter(|len| *len <= limit);
    let mut grown = GrowingBody { declared, ..GrowingBody::default() };
    let mut ended = true;
    while let Some(frame) = poll_fn(|context| poll_part(&mut body, context)).await {
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        if grown.len == 0 && body.is_end_stream() {
            return Ok(Whole::from(cut(data, limit))); // nearly always, and not copied
        }
        grown.add(&data, account);
        if grown.len >= limit || body.is_end_stream() {
            ended = body.is_end_stream();
            break;
        }
    }
    let whole = Whole { bytes: cut(grown.all.freeze(), limit), ended, _reservation: grown.taken };
    if grown.refused { Err(Unread::NoMemory) } else { Ok(whole) }
}

/// A body that does not come at once.
#[derive(Default)]
struct GrowingBody {
    /// Length that the client declared, unless it is over the limit.
    declared: Option<usize>,
    /// Bytes that came. Without memory for them there are none.
    all: BytesMut,
    /// Number of bytes that came.
    len: usize,
    taken: Option<Reservation>,
    /// True if there was no memory.
    refused: bool,
}

impl GrowingBody {
    /// Adds bytes that came, if there is memory for them.
    fn add(&mut self, data: &[u8], account: Account<'_>) {
        self.len += data.len();
        let held = self.held();
        let is_free = held <= FREE_BYTES;
        if !self.refused && (is_free || account.hold(&mut self.taken, Holder::Body, held)) {
            let capacity = self.declared.map_or(held, |declared| declared.max(self.len));
            self.all.reserve(capacity - self.all.len());
            self.all.extend_from_slice(data);
        } else {
            // The rest is read and dropped: a client hears why only when it has sent all.
            (self.all, self.taken, self.refused) = (BytesMut::new(), None, true);
        }
    }

    /// Memory that the bytes need.
    fn held(&self) -> usize {
        match self.declared {
            Some(_) => self.len.next_multiple_of(STEP),
            None if self.len <= self.all.capacity() => self.all.capacity(),
            None => 2 * self.len.max(STEP),
        }
    }
}

fn cut(mut bytes: Bytes, limit: usize) -> Bytes {
    bytes.truncate(limit);
    bytes
}

/// Bytes of an unwanted body which are read all the same, so that the connection can go on;
/// Go's server reads as many (`net/http`, `maxPostHandlerReadBytes`).
const UNWANTED_MAX: u64 = 256 << 10;

/// Reads an unwanted body if it is short; true if none of it is left. From then on `state` waits
/// for no more of it. A client that waits for `100 Continue` is not asked for it.
pub(crate) async fn read_unwanted(request: &mut Request<Incoming>, state: &IdleState) -> bool {
    let ended = read_short(request).await;
    state.note_read();
    ended
}

async fn read_short(request: &mut Request<Incoming>) -> bool {
    let expects = request.headers().contains_key(EXPECT);
    let mut body = pin!(request.body_mut());
    if body.is_end_stream() {
        return true; // nearly always
    }
    let mut left = UNWANTED_MAX;
    if expects || body.size_hint().lower() > left {
        return false;
    }
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(frame) = frame else { return false };
        let len = frame.data_ref().map_or(0, Bytes::len) as u64;
        let Some(less) = left.checked_sub(len) else { return false };
        left = less;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Full;
    use hyper::Response;
    use hyper::server::conn::http1::Builder;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Bytes of the response to a request with an unwanted body of this length: whether it was read to
    /// the end, and whether more of it is waited for.
    async fn answer(len: u64) -> String {
        let (mut client, server) = duplex(4096);
        let respond = service_fn(|mut request: Request<Incoming>| async move {
            let state = IdleState::default();
            let ended = read_unwanted(&mut request, &state).await;
            let text = format!("ended: {ended}, waits: {}", !state.has_read());
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
        });
        let serve =
            Builder::new().keep_alive(false).serve_connection(TokioIo::new(server), respond);
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length:{len}\r\n\r\n");
        client.write_all(head.as_bytes()).await.expect("room for a head");
        client.write_all(&[b' '; 100]).await.expect("room for some of the body");
        let mut response = String::new();
        let (_, read) = tokio::join!(serve, client.read_to_string(&mut response));
        read.expect("text");
        response.split("\r\n\r\n").nth(1).expect("a body").to_owned()
    }

    #[tokio::test]
    async fn unwanted_body_is_waited_for_no_more() {
        assert_eq!(answer(100).await, "ended: true, waits: false");
        assert_eq!(answer(UNWANTED_MAX + 1).await, "ended: false, waits: false");
    }
}
