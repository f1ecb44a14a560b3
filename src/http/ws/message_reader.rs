//! The bytes below the frames of a WebSocket: memory is reserved for incoming messages, and
//! responses go out as slices.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;

use super::kept_bytes::KeptBytes;
use crate::http::response::{ResponseWriter, Sent, on_disk_thread};
use crate::http::socket::{HyperSocket, NO_MEMORY};
use crate::shared::{FREE_BYTES, Holder, Reservation};

/// Memory is reserved in steps.
const STEP: usize = 16 << 10;

/// A WebSocket over such a reader.
pub(crate) type Socket = WebSocketStream<MessageReader>;

/// A connection whose messages take memory.
///
/// The memory of the longest frame stays reserved until the connection ends: tungstenite keeps the
/// buffer into which it read the frame.
pub(crate) struct MessageReader {
    io: HyperSocket,
    kept: KeptBytes,
    held: Option<Reservation>,
    sending: Sending,
}

/// Response that is not sent whole.
enum Sending {
    /// No response is left to send.
    Nothing,
    Here(Box<ResponseWriter>),
    /// A thread that may wait for the disk has it.
    Away(JoinHandle<(Box<ResponseWriter>, io::Result<()>)>),
    /// The connection ended inside a frame.
    Broken,
}

impl MessageReader {
    /// Makes one of a connection from which these bytes were read already.
    pub(crate) fn new(tcp: HyperSocket, read: &[u8]) -> Self {
        let mut kept = KeptBytes::default();
        kept.add(read);
        Self { io: tcp, kept, held: None, sending: Sending::Nothing }
    }

    /// Notes that a message was answered: only the buffers that tungstenite keeps still take memory.
    pub(crate) fn message_ends(&mut self) {
        let kept = self.kept.longest_frame().next_multiple_of(STEP);
        self.held.iter_mut().for_each(|held| held.shrink_to(kept));
    }

    /// Returns the connection, for bytes that tungstenite does not keep.
    pub(crate) fn io(&mut self) -> &mut HyperSocket {
        &mut self.io
    }

    /// True if the client has gone.
    pub(crate) fn has_gone(&self) -> bool {
        self.io.has_gone()
    }

    /// Begins to send a response. No other one may be in flight.
    pub(crate) fn begin(&mut self, out: ResponseWriter) {
        self.sending = Sending::Here(Box::new(out));
    }

    /// Ready once the response is sent whole. Frames of tungstenite come after it.
    pub(crate) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !matches!(self.sending, Sending::Nothing) {
            match ready!(self.poll_step(context)) {
                Ok(next) => self.sending = next,
                Err(error) => {
                    self.sending = Sending::Broken;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends on, here or on a thread that may wait for the disk, and returns what is left then.
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Sending>> {
        Poll::Ready(match &mut self.sending {
            Sending::Nothing => Ok(Sending::Nothing),
            Sending::Broken => Err(io::ErrorKind::BrokenPipe.into()),
            Sending::Here(out) => match ready!(self.io.poll_out(context, out)) {
                Ok(Sent::All) => Ok(Sending::Nothing),
                // `poll_out` waits while the socket is full, so only cold bytes come here.
                Ok(Sent::Full | Sent::Cold) => self.load(),
                Err(error) => Err(error),
            },
            Sending::Away(away) => match ready!(Pin::new(away).poll(context)) {
                Ok((out, Ok(()))) => Ok(Sending::Here(out)),
                Ok((_, Err(error))) => Err(error),
                // The pool takes no more work when the server is about to end.
                Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
            },
        })
    }

    /// Hands the rest of a response to a thread that may wait for the disk.
    fn load(&mut self) -> io::Result<Sending> {
        // `Broken` stays if anything below fails: half a frame cannot be mended.
        let Sending::Here(mut out) = std::mem::replace(&mut self.sending, Sending::Broken) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let tcp = &self.io;
        if !out.reserve(tcp.account()) {
            return Err(NO_MEMORY.into());
        }
        let stream = tcp.try_clone()?;
        Ok(Sending::Away(on_disk_thread(move || {
            let sent = out.send_loading(&stream);
            (out, sent)
        })))
    }

    /// Returns true if there is memory for the received bytes.
    fn fits(&mut self) -> bool {
        let kept = self.kept.bytes();
        kept <= FREE_BYTES || {
            let account = self.io.account();
            account.hold(&mut self.held, Holder::Message, kept.next_multiple_of(STEP))
        }
    }
}

impl AsyncRead for MessageReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buf))?;
        self.kept.add(&buf.filled()[before..]);
        Poll::Ready(if self.fits() { Ok(()) } else { Err(NO_MEMORY.into()) })
    }
}

impl AsyncWrite for MessageReader {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
