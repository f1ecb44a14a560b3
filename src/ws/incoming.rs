//! What comes in: a message takes room, so that all who send one at once bring no server down.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::Socket as Tcp;
use crate::room::{Room, Taken};

/// What a message may have without, its frames' heads and what was read behind it included: nearly all are
/// shorter, and touch nothing that threads share.
const WITHOUT_ROOM: usize = 4 << 10;
/// Room is taken in steps.
const STEP: usize = 16 << 10;
/// Around what a control frame says: its first two bytes and the mask (RFC 6455, 5.2).
const CONTROL_FRAME: usize = 2 + 4;
/// What reading fails with if there is no room; no system call does, of a socket.
pub(super) const NO_ROOM: io::ErrorKind = io::ErrorKind::QuotaExceeded;

/// A connection whose messages take room.
///
/// The room of the longest stays taken until the connection ends: tungstenite keeps the buffer into which it
/// read the longest frame as long.
pub(crate) struct Incoming {
    io: TokioIo<Tcp>,
    /// Bytes that have come of the next message.
    came: usize,
    /// More of it is not kept, whatever comes.
    message_bytes_max: usize,
    taken: Taken,
}

impl Incoming {
    /// A connection of which so many bytes have been read.
    pub(super) fn new(tcp: Tcp, came: usize, message_bytes_max: usize, room: &Arc<Room>) -> Self {
        let (io, taken) = (TokioIo::new(tcp), Taken::nothing(room));
        Self { io, came, message_bytes_max, taken }
    }

    /// The message is whole: what comes now is of the next.
    pub(super) fn message(&mut self) {
        self.came = 0;
    }

    /// What came last was a control frame, which may stand between two parts of a message.
    pub(super) fn control(&mut self, said: &[u8]) {
        self.came = self.came.saturating_sub(CONTROL_FRAME + said.len());
    }

    /// The connection itself, for what is not kept.
    pub(super) fn io(&mut self) -> &mut TokioIo<Tcp> {
        &mut self.io
    }

    /// Whether there is room for what has come.
    fn fits(&mut self) -> bool {
        let kept = self.came.min(self.message_bytes_max);
        let steps = kept.next_multiple_of(STEP).min(self.message_bytes_max);
        kept <= WITHOUT_ROOM || self.taken.grow_to(steps)
    }
}

impl AsyncRead for Incoming {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buf))?;
        self.came += buf.filled().len() - before;
        Poll::Ready(if self.fits() { Ok(()) } else { Err(NO_ROOM.into()) })
    }
}

impl AsyncWrite for Incoming {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
