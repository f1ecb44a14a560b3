//! Bodies: of requests, bounded; of answers, whole or in the ways that faults want them.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hyper::{
    Response, StatusCode,
    body::{Body, Frame, Incoming, SizeHint},
    header::{CONTENT_TYPE, HeaderName, HeaderValue, VARY},
};
use tokio::time::{Sleep, sleep};

/// Chunks of a slow body come so far apart.
const PACE: Duration = Duration::from_millis(20);

/// Reads a body. What is longer than `limit` is cut there, as avalanchego does it with a body whose
/// length was not declared.
pub(crate) async fn read(mut body: Incoming, limit: usize) -> Result<Bytes, hyper::Error> {
    let mut all = BytesMut::new();
    while let Some(frame) =
        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        if let Ok(data) = frame?.into_data() {
            all.extend_from_slice(&data);
        }
        if all.len() >= limit {
            all.truncate(limit);
            break;
        }
    }
    Ok(all.freeze())
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    left: Bytes,
    /// True if its length is said before.
    sized: bool,
    /// Bytes that come before the connection ends.
    until_cut: Option<usize>,
    /// Bytes that come at a time.
    piece: Option<usize>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl ReplyBody {
    pub(crate) fn new(bytes: Bytes, sized: bool) -> Self {
        Self { left: bytes, sized, until_cut: None, piece: None, pause: None }
    }

    /// Half of it comes, then the connection ends.
    pub(crate) fn truncate(&mut self) {
        (self.until_cut, self.sized) = (Some(self.left.len() / 2), true);
    }

    /// Limits the bytes that come in a second.
    pub(crate) fn slow_down(&mut self, bytes_per_second: u64) {
        let paces = 1_000 / PACE.as_millis() as u64;
        let piece = usize::try_from(bytes_per_second / paces).unwrap_or(usize::MAX);
        self.piece = Some(piece.max(1));
    }

    fn next_piece(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        let allowed = self.until_cut.unwrap_or(usize::MAX).min(self.piece.unwrap_or(usize::MAX));
        if self.left.is_empty() {
            return None;
        }
        if allowed == 0 {
            return Some(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let piece = self.left.split_to(allowed.min(self.left.len()));
        if let Some(until_cut) = &mut self.until_cut {
            *until_cut -= piece.len();
        }
        Some(Ok(Frame::data(piece)))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.piece.is_some() {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PACE)));
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        Poll::Ready(self.next_piece())
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.sized { SizeHint::with_exact(self.left.len() as u64) } else { SizeHint::default() }
    }
}

/// Any id will do.
const NODE_ID: &str = "NodeID-7Xhw2mDxuDS44j42TCB6U5579esbSt3Lg";

pub(crate) type HttpResponse = Response<ReplyBody>;

/// A refusal as Go's `http.Error` writes it.
pub(crate) fn text(status: StatusCode, message: impl Into<String>) -> HttpResponse {
    let body = ReplyBody::new(Bytes::from(message.into()), true);
    let mut answer = with_headers(
        body,
        &[
            (CONTENT_TYPE, "text/plain; charset=utf-8"),
            (HeaderName::from_static("x-content-type-options"), "nosniff"),
        ],
    );
    *answer.status_mut() = status;
    answer
}

pub(crate) fn with_headers(
    body: ReplyBody,
    headers: &[(HeaderName, &'static str)],
) -> HttpResponse {
    let mut answer = Response::new(body);
    let every = [(HeaderName::from_static("node-id"), NODE_ID), (VARY, "Origin")];
    for (name, value) in headers.iter().chain(&every) {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
