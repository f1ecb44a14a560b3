//! An upstream's response on its way to a client: streamed, never held whole.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderValue;
use metrics::{counter, gauge};
use tokio::time::Sleep;

use super::failure::Failure;

/// Response of an upstream.
pub(crate) struct Answer {
    /// Status: 200, unless it is of another path than JSON-RPC's.
    pub(crate) status: StatusCode,
    /// Media type, which is JSON for JSON-RPC.
    pub(crate) content_type: Option<HeaderValue>,
    /// True if the upstream lacks the newest height that the client may have seen.
    pub(crate) lacks: bool,
    pub(crate) body: AnswerBody,
}

/// Body of a response. It ends with an error if it is too long or too slow, and then the client's
/// connection is cut: no client takes a part for the whole.
pub(crate) struct AnswerBody {
    body: Source,
    /// Bytes that may still come.
    left: usize,
    max: usize,
    deadline: Pin<Box<Sleep>>,
    counted: Counted,
}

/// Place where a body comes from.
enum Source {
    Upstream(Incoming),
    /// A response that was read whole.
    Memory(Full<Bytes>),
}

impl Source {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let polled = match self {
            Self::Upstream(body) => ready!(Pin::new(body).poll_frame(context)).map(Result::ok),
            Self::Memory(body) => ready!(Pin::new(body).poll_frame(context)).map(Result::ok),
        };
        Poll::Ready(polled.map(|frame| frame.ok_or(Failure::Unreachable)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Upstream(body) => body.is_end_stream(),
            Self::Memory(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Upstream(body) => body.size_hint(),
            Self::Memory(body) => body.size_hint(),
        }
    }
}

impl AnswerBody {
    /// A response that was read whole.
    pub(super) fn whole(bytes: Bytes, deadline: tokio::time::Instant, counted: Counted) -> Self {
        let max = bytes.len();
        Self::from(Source::Memory(Full::new(bytes)), max, deadline, counted)
    }

    /// A response that is read as it is sent on.
    pub(super) fn new(
        body: Incoming,
        max: usize,
        deadline: tokio::time::Instant,
        counted: Counted,
    ) -> Self {
        Self::from(Source::Upstream(body), max, deadline, counted)
    }

    fn from(body: Source, max: usize, deadline: tokio::time::Instant, counted: Counted) -> Self {
        let deadline = Box::pin(tokio::time::sleep_until(deadline));
        Self { body, left: max, max, deadline, counted }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            if self.deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Some(Err(Failure::TimedOut)));
            }
            let frame = match ready!(self.body.poll(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                None => return Poll::Ready(None),
            };
            let Ok(data) = frame.into_data() else { continue }; // trailers are not relayed
            let Some(left) = self.left.checked_sub(data.len()) else {
                return Poll::Ready(Some(Err(Failure::TooLong(self.max))));
            };
            self.left = left;
            counter!("neve_relay_response_bytes_total").increment(data.len() as u64);
            return Poll::Ready(Some(Ok(data)));
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let polled = ready!(self.poll(context));
        match &polled {
            Some(Ok(_)) if !self.body.is_end_stream() => {}
            Some(Ok(_)) | None => self.counted.outcome = "ok",
            Some(Err(failure)) => self.counted.outcome = failure.label(),
        }
        Poll::Ready(polled.map(|frame| frame.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        Self::other(failure)
    }
}

/// A relayed request: in flight until it is dropped, and counted then by its outcome.
pub(crate) struct Counted {
    pub(super) outcome: &'static str,
    began: Instant,
}

impl Counted {
    pub(super) fn new() -> Self {
        gauge!("neve_relay_in_flight_requests").increment(1.0);
        Self { outcome: "abandoned", began: Instant::now() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        gauge!("neve_relay_in_flight_requests").decrement(1.0);
        counter!("neve_relay_requests_total", "outcome" => self.outcome).increment(1);
        metrics::histogram!("neve_relay_duration_seconds").record(self.began.elapsed());
    }
}
