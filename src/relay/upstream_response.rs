//! An upstream's response on its way to a client: streamed, never held whole.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderValue;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;
use tracing::warn;

use super::failure::Failure;
use crate::body::poll_part;
use crate::client::{KeySearch, STREAM_READ_BYTES, Tick};
use crate::rpc::Transactions;

/// Metrics of each call, looked up once.
static IN_FLIGHT: LazyLock<Gauge> = LazyLock::new(|| gauge!("neve_relay_in_flight_requests"));
static OK: LazyLock<Counter> =
    LazyLock::new(|| counter!("neve_relay_requests_total", "outcome" => "ok"));
static DURATION: LazyLock<Histogram> = LazyLock::new(|| histogram!("neve_relay_duration_seconds"));
static BYTES: LazyLock<Counter> = LazyLock::new(|| counter!("neve_relay_response_bytes_total"));

/// Response of an upstream.
pub(crate) struct UpstreamResponse {
    /// Status: 200, unless it is of another path than JSON-RPC's.
    pub(crate) status: StatusCode,
    /// Media type, which is JSON for JSON-RPC.
    pub(crate) content_type: Option<HeaderValue>,
    /// True if the upstream lacks the newest height that the client may have seen.
    pub(crate) behind: bool,
    pub(crate) body: UpstreamBody,
}

/// Body of a response. It ends with an error if it is too long or too slow, and then the client's
/// connection is cut: no client takes a part for the whole.
pub(crate) struct UpstreamBody {
    body: BegunBody,
    /// Search for the keys of the upstream, if it has any and the body is long.
    veil: Option<Box<Veil>>,
    /// Bytes that may still come.
    left: usize,
    max: usize,
    deadline: Instant,
    /// Next look at the clock, while an upstream is waited for.
    look: Tick,
    counted: Counted,
}

impl UpstreamBody {
    pub(super) fn new(
        (body, veil): (BegunBody, Option<Box<Veil>>),
        max: usize,
        deadline: Instant,
        look: Tick,
        counted: Counted,
    ) -> Self {
        Self { body, veil, left: max, max, deadline, look, counted }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let next = ready!(self.poll_body(context));
            let Some(veil) = &mut self.veil else { return Poll::Ready(next) };
            let passed = match next {
                Some(Ok(data)) => veil.pass(&data),
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                None if veil.held.is_empty() => return Poll::Ready(None),
                None => std::mem::take(&mut veil.held).freeze(),
            };
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(passed)));
            }
        }
    }

    /// Bytes that wait for the next ones.
    fn held(&self) -> usize {
        self.veil.as_ref().map_or(0, |veil| veil.held.len())
    }

    fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let is_late = || Instant::now() >= self.deadline;
        // What is here already is not late, and nearly all responses are here.
        if !self.body.is_here() && is_late() {
            return Poll::Ready(Some(Err(Failure::TimedOut)));
        }
        let Poll::Ready(next) = self.body.poll(context) else {
            ready!(self.look.poll_until(context, is_late));
            return Poll::Ready(Some(Err(Failure::TimedOut)));
        };
        let Some(Ok(data)) = next else { return Poll::Ready(next) };
        let Some(left) = self.left.checked_sub(data.len()) else {
            return Poll::Ready(Some(Err(Failure::TooLong(self.max))));
        };
        self.left = left;
        BYTES.increment(data.len() as u64);
        Poll::Ready(Some(Ok(data)))
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let polled = ready!(self.poll(context));
        match &polled {
            // The last data is noted as the end: hyper need not poll behind it.
            Some(Ok(_)) if !self.is_end_stream() => {}
            Some(Ok(_)) | None => self.counted.outcome = "ok",
            Some(Err(failure)) => self.counted.outcome = failure.label(),
        }
        Poll::Ready(polled.map(|frame| frame.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end() && self.held() == 0
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint(self.held())
    }
}

/// Keys of an upstream in a long response of it: each is written over, to the same length. A key may come in
/// two parts, so the last bytes wait for the next ones.
pub(super) struct Veil {
    keys: Arc<KeySearch>,
    held: BytesMut,
    /// True if a key was found.
    found: bool,
}

impl Veil {
    /// A veil for a body of an upstream with these keys. `None` if nothing need be searched: a short body was
    /// searched whole.
    pub(super) fn of(keys: &Arc<KeySearch>, body: &BegunBody) -> Option<Box<Self>> {
        let is_needed = body.short().is_none() && keys.longest() > 0;
        let veil = || Self { keys: Arc::clone(keys), held: BytesMut::new(), found: false };
        is_needed.then(|| Box::new(veil()))
    }

    /// Takes the next bytes, and returns those that no key of which the rest may come has a part of.
    fn pass(&mut self, data: &[u8]) -> Bytes {
        self.held.extend_from_slice(data);
        if self.keys.hide(&mut self.held) && !self.found {
            self.found = true;
            let upstream = self.keys.upstream();
            warn!(upstream, next = "check the key", "key hidden in a response");
        }
        let waiting = self.keys.longest().saturating_sub(1);
        self.held.split_to(self.held.len().saturating_sub(waiting)).freeze()
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
    pub(super) fn new(began: Instant) -> Self {
        // The outcome stands if nothing else is noted: the client left before an end.
        IN_FLIGHT.increment(1.0);
        Self { outcome: "abandoned", began }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        match self.outcome {
            "ok" => OK.increment(1),
            outcome => counter!("neve_relay_requests_total", "outcome" => outcome).increment(1),
        }
        DURATION.record(self.began.elapsed());
        // Last: who sees that none is in flight finds each counted.
        IN_FLIGHT.decrement(1.0);
    }
}

/// Bytes of a response that is read whole before it goes on: all errors of nodes are shorter.
pub(super) const SHORT_BYTES: usize = 16 << 10;

/// Bytes of a response that each further transaction of a batch may have: a hash has about 110 with its
/// envelope, an error of a node about 200.
const FURTHER_BYTES: usize = 256;

/// Bytes of a response to transactions. A longer one is none.
pub(super) fn transactions_bytes_max(sent: Transactions) -> usize {
    SHORT_BYTES + FURTHER_BYTES * sent.count.saturating_sub(1)
}

/// Memory of a response to transactions while it is read, and put together with those of other upstreams.
pub(super) fn transactions_bytes_held(sent: Transactions) -> usize {
    STREAM_READ_BYTES + 4 * (transactions_bytes_max(sent) - SHORT_BYTES)
}

/// A body of which the begin has been read.
pub(super) struct BegunBody {
    begin: Bytes,
    rest: Option<Incoming>,
}

/// Bytes of a body that have come. The bytes of a single frame are not copied.
#[derive(Default)]
struct FrameBytes {
    first: Bytes,
    /// All bytes, if there is a second frame.
    all: BytesMut,
}

impl FrameBytes {
    fn push(&mut self, data: Bytes) {
        if self.first.is_empty() {
            self.first = data;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&data);
    }

    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

impl BegunBody {
    /// A body that was read whole.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self { begin: bytes, rest: None }
    }

    /// Reads a short body whole. Of a long one nothing is read if its length is declared, else as
    /// much as a short one has.
    pub(super) async fn read(body: Incoming) -> Result<Self, Failure> {
        Self::read_up_to(body, SHORT_BYTES).await
    }

    /// Reads a body of up to `max` bytes whole.
    pub(super) async fn read_up_to(mut body: Incoming, max: usize) -> Result<Self, Failure> {
        if body.size_hint().exact().is_some_and(|len| len > max as u64) {
            return Ok(Self { begin: Bytes::new(), rest: Some(body) });
        }
        let mut begin = FrameBytes::default();
        while let Some(frame) = poll_fn(|context| poll_part(&mut body, context)).await {
            let frame = frame.map_err(|_| Failure::Unreachable)?;
            let Ok(data) = frame.into_data() else { continue }; // trailers are not relayed
            if begin.len() == 0 && body.is_end_stream() && data.len() <= max {
                return Ok(Self::whole(data)); // nearly always
            }
            begin.push(data);
            if begin.len() > max {
                return Ok(Self { begin: begin.into_bytes(), rest: Some(body) });
            }
            if body.is_end_stream() {
                break;
            }
        }
        Ok(Self::whole(begin.into_bytes()))
    }

    /// False if it is short and no response of JSON-RPC, whatever its head says: empty, the page of a balancer, or a
    /// part. It looks at both ends alone, so that a response costs no parsing.
    pub(super) fn may_be_response(&self) -> bool {
        let Some(all) = self.short().map(|all| all.trim_ascii()) else { return true };
        matches!((all.first(), all.last()), (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')))
    }

    /// The body, if it is short.
    pub(super) fn short(&self) -> Option<&Bytes> {
        self.rest.is_none().then_some(&self.begin)
    }

    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        if !self.begin.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.begin))));
        }
        loop {
            let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
            match ready!(Pin::new(rest).poll_frame(context)) {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    return Poll::Ready(Some(Ok(data)));
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(Failure::Unreachable))),
                None => return Poll::Ready(None),
            }
        }
    }

    /// True if something can be taken without a look at the upstream.
    fn is_here(&self) -> bool {
        !self.begin.is_empty() || self.rest.is_none()
    }

    pub(super) fn is_end(&self) -> bool {
        self.begin.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Bytes that come, and `more` besides.
    pub(super) fn size_hint(&self, more: usize) -> SizeHint {
        let read = (self.begin.len() + more) as u64;
        let Some(rest) = &self.rest else { return SizeHint::with_exact(read) };
        let (mut all, hint) = (SizeHint::new(), rest.size_hint());
        all.set_lower(hint.lower() + read);
        hint.upper().into_iter().for_each(|upper| all.set_upper(upper + read));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_body_is_a_response_only_if_both_its_ends_are() {
        let may_be = |text: &'static str| {
            BegunBody::whole(Bytes::from_static(text.as_bytes())).may_be_response()
        };
        for text in ["{}", "[]", " {\"id\":1}\r\n", "\t[{}]\n"] {
            assert!(may_be(text), "{text}");
        }
        for text in
            ["", " \n", "{", "}", "[}", "{]", "null", "\"{}\"", "<html>", "{\"result\":\"0x"]
        {
            assert!(!may_be(text), "{text}");
        }
    }
}
