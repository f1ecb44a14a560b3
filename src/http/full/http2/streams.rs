//! The streams of a connection of HTTP/2: each has a deadline that its client cannot move.
//!
//! hyper polls no body for which the client gives no window, and no request that waits for a body. So a stream
//! runs in a task of its own beside a clock, and the end of the task resets the stream.

use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::line_time::LineTime;
use super::send_memory::StreamPieces;
use crate::config::settings::Deadlines;
use crate::http::socket::IdleState;
use crate::http::{ClientWait, look_every};
use crate::shared::lock::lock;

/// Bytes that a client takes of a stream before it says so, unless its SETTINGS say otherwise (RFC 9113, 6.9.2).
const WINDOW: u32 = 65_535;

tokio::task_local! {
    /// Stream of a task.
    static STREAM: Arc<Http2Stream>;
}

/// Open streams of a connection.
#[derive(Debug)]
pub(super) struct OpenStreams {
    open: AtomicUsize,
    /// Streams that ever opened.
    opened: AtomicU64,
    /// Streams that are open and not begun: their memory is not counted.
    waiting: AtomicUsize,
    /// Least window that the client ever gave new streams: the default, or less.
    window: AtomicU32,
    /// Reader that waits until there is none.
    reader: Mutex<Option<Waker>>,
    /// Time when a stream last opened or ended.
    moved: Mutex<Instant>,
}

impl Default for OpenStreams {
    fn default() -> Self {
        let moved = Mutex::new(Instant::now());
        let (open, opened, waiting) = <(AtomicUsize, AtomicU64, AtomicUsize)>::default();
        let window = AtomicU32::new(WINDOW);
        Self { open, opened, waiting, window, reader: Mutex::default(), moved }
    }
}

impl OpenStreams {
    /// Time since which no stream is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        // Relaxed, here and below: all is on one thread.
        (self.open.load(Ordering::Relaxed) == 0).then(|| *lock(&self.moved))
    }

    /// Number of streams that ever opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Notes the window that the client gives a new stream.
    pub(super) fn gives_window(&self, bytes: u32) {
        self.window.fetch_min(bytes, Ordering::Relaxed);
    }

    /// Notes a stream until the guard is dropped.
    pub(super) fn open(self: &Arc<Self>) -> OpenStream {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        OpenStream { streams: Arc::clone(self), begun: false }
    }

    /// Waits until each open stream has begun.
    pub(super) fn poll_begun(&self, context: &Context<'_>) -> Poll<()> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return Poll::Ready(());
        }
        match &mut *lock(&self.reader) {
            Some(waker) => waker.clone_from(context.waker()), // as it is, if it wakes the same task
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// A stream among those of its connection.
#[derive(Debug)]
pub(super) struct OpenStream {
    streams: Arc<OpenStreams>,
    begun: bool,
}

impl OpenStream {
    /// Least bytes of a response that the client's window takes.
    pub(super) fn window(&self) -> u32 {
        self.streams.window.load(Ordering::Relaxed)
    }

    /// Notes that its memory is counted.
    pub(super) fn begin(&mut self) {
        let was_begun = std::mem::replace(&mut self.begun, true);
        if was_begun || self.streams.waiting.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        if let Some(reader) = lock(&self.streams.reader).take() {
            reader.wake();
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        // A stream that is dropped before it begins must not stop the reader for ever.
        self.begin();
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
        *lock(&self.streams.moved) = Instant::now();
    }
}

/// State of one stream, for its clock.
#[derive(Debug)]
pub(super) struct Http2Stream {
    phase: Mutex<StreamPhase>,
    line: Arc<LineTime>,
}

#[derive(Debug)]
enum StreamPhase {
    /// Request of which some is not here, since this time.
    Reading(Instant, Arc<IdleState>),
    /// Response in progress, which ends by itself.
    Answering,
    /// Response that waits for the client, since this time of the line.
    Sending(Instant),
    /// Response whose next part or end waits for the client to take these pieces, or for something else, since
    /// this time of the line.
    Waiting(Instant, Arc<StreamPieces>),
}

impl Http2Stream {
    /// A stream that waits for nothing of its client.
    pub(super) fn new(line: Arc<LineTime>) -> Arc<Self> {
        Arc::new(Self { phase: Mutex::new(StreamPhase::Answering), line })
    }

    /// Stream of this task.
    pub(super) fn current() -> Arc<Self> {
        STREAM.with(Arc::clone)
    }

    /// Notes that some of its request is not here. `state` learns when it is.
    pub(super) fn reads(&self, state: &Arc<IdleState>) {
        *lock(&self.phase) = StreamPhase::Reading(Instant::now(), Arc::clone(state));
    }

    /// Notes that hyper got a part of its response, and the next one waits for the client.
    pub(super) fn sends(&self) {
        *lock(&self.phase) = StreamPhase::Sending(self.line.now());
    }

    /// Notes that the next part or the end of its response is not there yet. Its client has time from the first
    /// such note on, while it leaves any of these pieces.
    pub(super) fn waits(&self, pieces: &Arc<StreamPieces>) {
        let mut phase = lock(&self.phase);
        // A later note must not give the client more time.
        if !matches!(*phase, StreamPhase::Waiting(..)) {
            *phase = StreamPhase::Waiting(self.line.now(), Arc::clone(pieces));
        }
    }

    /// Time at which it is late, if nothing happens until then.
    pub(super) fn late_at(&self, deadlines: Deadlines) -> Option<Instant> {
        let behind = self.line.behind(Instant::now());
        let (wait, since) = match &*lock(&self.phase) {
            StreamPhase::Reading(since, state) if !state.has_read() => {
                (ClientWait::Request, *since)
            }
            StreamPhase::Sending(since) => (ClientWait::Response, *since + behind),
            StreamPhase::Waiting(since, pieces) if pieces.are_held() => {
                (ClientWait::LastSlices, *since + behind)
            }
            StreamPhase::Reading(..) | StreamPhase::Answering | StreamPhase::Waiting(..) => {
                return None;
            }
        };
        Some(wait.late_at(since, deadlines))
    }

    /// Returns when it is late.
    async fn late(&self, deadlines: Deadlines) {
        loop {
            let look = Instant::now() + look_every(deadlines);
            let late = self.late_at(deadlines);
            if late.is_some_and(|late| late <= Instant::now()) {
                return;
            }
            sleep_until(late.map_or(look, |late| late.min(look))).await;
        }
    }
}

/// Runs each stream of a connection until it ends or is late.
#[derive(Debug, Clone)]
pub(super) struct StreamExecutor(pub(super) Deadlines, pub(super) Arc<LineTime>);

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let stream = Http2Stream::new(Arc::clone(&self.1));
        let (clock, deadlines) = (Arc::clone(&stream), self.0);
        tokio::spawn(STREAM.scope(stream, async move {
            tokio::select! {
                biased; // a look of the clock polls both: a stream that waits for memory asks again
                () = future => {}
                () = clock.late(deadlines) => debug!("HTTP/2 stream reset as late"),
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::time::Duration;

    use super::*;

    /// Seconds until a stream is late whose client did this.
    fn late_after(did: impl Fn(&Http2Stream)) -> Option<u64> {
        let (idle, write) = (Duration::from_secs(8), Duration::from_secs(4));
        loop {
            let (begin, stream) = (Instant::now(), Http2Stream::new(Arc::default()));
            did(&stream);
            let late = stream.late_at(Deadlines { idle, write })?;
            // A try that a busy machine held up says nothing.
            if begin.elapsed() < Duration::from_millis(500) {
                return Some((late - begin).as_secs());
            }
        }
    }

    #[test]
    fn stream_is_late_while_it_waits_for_its_client_only() {
        assert_eq!(late_after(|_| {}), None, "work has an end of its own");
        let state = Arc::new(IdleState::default());
        assert_eq!(late_after(|stream| stream.reads(&state)), Some(8));
        state.note_read();
        assert_eq!(late_after(|stream| stream.reads(&state)), None, "all was read");
        assert_eq!(late_after(Http2Stream::sends), Some(4));
    }

    #[test]
    fn stream_behind_a_full_line_is_not_late() {
        let long_ago = || Instant::now() - Duration::from_secs(100);
        let after = late_after(|stream| {
            stream.sends();
            stream.line.runs(false, long_ago());
        });
        assert_eq!(after, Some(104), "it is full since a while ago");
        let after = late_after(|stream| {
            stream.line.runs(false, long_ago());
            stream.line.runs(true, Instant::now());
            stream.sends();
        });
        assert_eq!(after, Some(4), "it was full before");
    }

    #[tokio::test]
    async fn stream_asks_again_at_each_look() {
        let (sender, polled) = tokio::sync::oneshot::channel();
        let (mut sender, mut polls) = (Some(sender), 0);
        let (idle, write) = (Duration::from_millis(2), Duration::from_millis(2));
        StreamExecutor(Deadlines { idle, write }, Arc::default()).execute(poll_fn(move |_| {
            polls += 1;
            if polls < 3 {
                return Poll::Pending; // and has no waker
            }
            if let Some(sender) = sender.take() {
                let _ = sender.send(()); // the test waits for it
            }
            Poll::Ready(())
        }));
        assert_eq!(polled.await, Ok(()));
    }

    #[tokio::test]
    async fn late_stream_ends_and_its_work_is_dropped() {
        let (sender, dropped) = tokio::sync::oneshot::channel::<()>();
        let (idle, write) = (Duration::from_secs(1), Duration::from_millis(20));
        StreamExecutor(Deadlines { idle, write }, Arc::default()).execute(async move {
            let _sender = sender;
            Http2Stream::current().sends();
            pending::<()>().await;
        });
        assert!(dropped.await.is_err());
    }
}
