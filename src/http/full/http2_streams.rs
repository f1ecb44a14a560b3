//! The streams of a connection of HTTP/2, as far as its deadlines need to know them.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::http::response::{HttpBody, Streamed};
use crate::shared::lock::lock;

/// Open streams of a connection.
#[derive(Debug)]
pub(super) struct OpenStreams {
    open: AtomicUsize,
    /// Streams whose response waits for the client.
    sending: AtomicUsize,
    /// Time when a stream last opened, ended, or gave a part of its response.
    moved: Mutex<Instant>,
}

impl Default for OpenStreams {
    fn default() -> Self {
        let moved = Mutex::new(Instant::now());
        Self { open: AtomicUsize::new(0), sending: AtomicUsize::new(0), moved }
    }
}

impl OpenStreams {
    /// Time since which no stream is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        // Relaxed, here and below: all is on one thread.
        (self.open.load(Ordering::Relaxed) == 0).then(|| *lock(&self.moved))
    }

    /// True if responses wait for the client, which takes nothing of them for as long as `limit`.
    pub(super) fn are_stuck(&self, limit: Duration) -> bool {
        self.sending.load(Ordering::Relaxed) > 0 && lock(&self.moved).elapsed() >= limit
    }

    fn moves(&self) {
        *lock(&self.moved) = Instant::now();
    }
}

/// An open stream.
pub(super) struct StreamBodyGuard {
    streams: Arc<OpenStreams>,
    /// True if it is among the streams that wait for the client.
    sending: bool,
}

impl StreamBodyGuard {
    pub(super) fn new(streams: &Arc<OpenStreams>) -> Self {
        streams.open.fetch_add(1, Ordering::Relaxed);
        streams.moves();
        Self { streams: Arc::clone(streams), sending: false }
    }

    /// The body of its response, which ends the stream.
    pub(super) fn watching(self, body: HttpBody) -> HttpBody {
        let mut watched = WatchedBody { body, guard: self };
        watched.guard.sends(true);
        HttpBody::Streamed(Streamed(Box::pin(watched)))
    }

    fn sends(&mut self, sending: bool) {
        match (self.sending, sending) {
            (false, true) => _ = self.streams.sending.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.streams.sending.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        self.sending = sending;
        self.streams.moves();
    }
}

impl Drop for StreamBodyGuard {
    fn drop(&mut self) {
        self.sends(false);
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body of a stream.
struct WatchedBody {
    body: HttpBody,
    guard: StreamBodyGuard,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        // A part that is not there yet does not wait for the client.
        self.guard.sends(polled.is_ready());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
