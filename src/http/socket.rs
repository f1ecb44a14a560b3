//! A socket that gives up on the other side.
//!
//! hyper's only timeout guards request heads, starts a timer for each, and knows nothing of a
//! client that stops reading its answer and so holds it, and the segment behind it, for ever.
//! Here one rule covers heads, bodies, idle connections and answers: bytes must be *sent* within
//! the time-out, counted from the opening or from the last that were. Bytes that come in do not
//! count, so that one byte a minute keeps nothing alive.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::tally::{Tally, add};

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
    tally: Arc<Tally>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, patience: Patience, tally: Arc<Tally>) -> Self {
        let (io, sent) = (TokioIo::new(stream), Instant::now());
        Self { io, patience, idles: false, sent, timer: None, tally }
    }

    /// Goes on as a WebSocket: one that says nothing is asked whether it is there, which is not
    /// this type's business, and the system keeps at most about `unsent_max` bytes for a client
    /// that does not read.
    pub(crate) fn turn_into_websocket(&mut self, unsent_max: u32) {
        self.idles = true;
        // A failure costs memory and nothing else.
        let _ = SockRef::from(self.io.inner()).set_tcp_notsent_lowat(unsent_max);
    }

    /// While something waits: errs once nothing was sent for `limit`.
    fn waiting<T>(&mut self, context: &mut Context<'_>, limit: Duration) -> Poll<io::Result<T>> {
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
                add(&self.tally.timeouts, 1);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            timer.as_mut().reset(until);
        }
    }

    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_pending() {
            return self.waiting(context, self.patience.write);
        }
        self.sent = Instant::now();
        written
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(context, buf);
        if read.is_pending() && !self.idles {
            let idle = self.patience.idle;
            return self.waiting(context, idle);
        }
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
        let written = Pin::new(&mut self.io).poll_write_vectored(context, bufs);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
