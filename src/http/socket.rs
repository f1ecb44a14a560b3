//! A socket that gives up on the other side.
//!
//! hyper's only timeout guards request heads, starts a timer for each, and knows nothing of a
//! client that stops reading its answer and so holds it, and the segment behind it, for ever.
//! Here one rule covers heads, bodies, idle connections and answers (and in `lanes` the same one, with
//! one look for all instead of a timer each): bytes must be *sent* within
//! the time-out, counted from the opening or from the last that were. Bytes that come in do not
//! count, so that one byte a minute keeps nothing alive.

use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::connection::Quiet;
use super::door::{Counted, Moved};
use crate::tally::{Tally, add};

/// After so long without a byte a connection does without buffers.
const PARK_AFTER: Duration = Duration::from_secs(1);

/// How long nothing may be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// While the server waits for a request.
    pub(crate) idle: Duration,
    /// While an answer waits for the client to read.
    pub(crate) write: Duration,
}

/// A connection that ends when nothing is sent for too long.
pub(crate) struct Socket {
    io: TokioIo<TcpStream>,
    patience: Patience,
    /// Whether nothing may come for any time.
    idles: bool,
    /// When bytes were last sent.
    sent: Instant,
    /// Looks at `sent` when it fires, and is set again if that was not long ago: it costs nothing
    /// a request. Made when first needed.
    timer: Option<Pin<Box<Sleep>>>,
    /// Told when nothing goes on.
    quiet: Arc<Quiet>,
    /// Whether bytes came since bytes were sent.
    fed: bool,
    /// Whether bytes wait for the client to read.
    unsent: bool,
    /// What was read before, and is to be read first.
    before: Bytes,
    tally: Arc<Tally>,
}

impl Socket {
    /// A connection that last had bytes sent at that time.
    pub(super) fn new(
        stream: TcpStream,
        sent: Instant,
        patience: Patience,
        tally: Arc<Tally>,
    ) -> Self {
        let io = TokioIo::new(stream);
        let (quiet, before) = (Arc::default(), Bytes::new());
        let (timer, idles, fed, unsent) = (None, false, false, false);
        Self { io, patience, idles, sent, timer, quiet, fed, unsent, before, tally }
    }

    /// Whom to tell when nothing goes on.
    pub(super) fn tell(&mut self, quiet: Arc<Quiet>) {
        self.quiet = quiet;
    }

    /// Takes it back from this runtime.
    pub(super) fn leave(self, counted: Counted) -> io::Result<Moved> {
        let stream = self.io.into_inner().into_std()?;
        Ok(Moved { stream, read: self.before, sent: self.sent.into_std(), counted })
    }

    /// The same with what was read and not used.
    pub(super) fn with_read(mut self, read: Bytes) -> Self {
        self.before = read;
        self
    }

    /// Goes on as a WebSocket: one that says nothing is asked whether it is there, which is not
    /// this type's business, and the system keeps at most about `unsent_max` bytes for a client
    /// that does not read.
    pub(crate) fn turn_into_websocket(&mut self, unsent_max: u32) {
        self.idles = true;
        // A failure costs memory and nothing else.
        let _ = SockRef::from(self.io.inner()).set_tcp_notsent_lowat(unsent_max);
    }

    /// While a request is waited for: says so when nothing goes on for a while.
    fn idling<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let idle = self.patience.idle;
        if self.fed || self.unsent || self.quiet.is_parked() || PARK_AFTER >= idle {
            return self.waiting(context, idle);
        }
        if self.poll_unsent(context, PARK_AFTER).is_pending() {
            return Poll::Pending;
        }
        self.quiet.park();
        self.waiting(context, idle)
    }

    /// While something waits: errs once nothing was sent for `limit`.
    fn waiting<T>(&mut self, context: &mut Context<'_>, limit: Duration) -> Poll<io::Result<T>> {
        if self.poll_unsent(context, limit).is_pending() {
            return Poll::Pending;
        }
        add(&self.tally.timeouts, 1);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready once nothing was sent for `limit`.
    fn poll_unsent(&mut self, context: &mut Context<'_>, limit: Duration) -> Poll<()> {
        loop {
            let until = self.sent + limit;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() > until {
                timer.as_mut().reset(until); // what waits now is less patient
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }

    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.unsent = written.is_pending();
        if self.unsent {
            return self.waiting(context, self.patience.write);
        }
        (self.sent, self.fed) = (Instant::now(), false);
        written
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let len = self.before.len().min(buf.remaining());
            buf.put_slice(&self.before.split_to(len));
            self.fed = true;
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.io).poll_read(context, buf);
        if read.is_pending() && !self.idles {
            return self.idling(context);
        }
        self.fed = true;
        read
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, buf);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = poll_send(self.io.inner(), context, bufs);
        self.written(context, sent)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.quiet.is_parked() {
            return Poll::Ready(Ok(())); // it goes on later
        }
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

fn poll_send(
    stream: &TcpStream,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_io(Interest::WRITABLE, || send(stream, slices)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return Poll::Ready(sent),
        }
    }
}

/// Sends with `sendmsg`. The usual way is `writev`, which goes through what all files have in common
/// and so looks at memory of each socket that nothing else touches (docs/DECISIONS.md).
pub(super) fn send(stream: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut nothing_besides = SendAncillaryBuffer::default();
    loop {
        match sendmsg(&stream, slices, &mut nothing_besides, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map_err(io::Error::from),
        }
    }
}

/// Whether it takes bytes now. If not, it is told of when it does (`tcp_poll` sees to that).
pub(super) fn takes_more(stream: impl AsFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(&stream, PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec::default()))?;
    Ok(!asked[0].revents().is_empty())
}
