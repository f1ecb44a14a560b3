//! The connection to an upstream below its frames: memory of its client is reserved for the message
//! that comes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::Stream;
use crate::shared::Reservation;

/// Memory is reserved in steps.
const STEP: usize = 16 << 10;
/// Error if the client may not make neve hold more.
pub(super) const NO_MEMORY: io::ErrorKind = io::ErrorKind::OutOfMemory;

/// A connection whose longest message stays reserved: tungstenite keeps its buffer.
pub(super) struct Metered {
    io: Box<dyn Stream>,
    held: Reservation,
    /// Bytes reserved for everything but the message that comes.
    base: usize,
    coming: Coming,
}

/// Bytes of the message that comes, from the end of the one before.
#[derive(Clone, Default)]
pub(super) struct Coming(Arc<AtomicUsize>);

impl Coming {
    /// The message has come.
    pub(super) fn ends(&self) {
        // Relaxed, here and below: the socket and its session are one task.
        self.0.store(0, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) -> usize {
        self.0.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

impl Metered {
    /// A connection for which `base` bytes are reserved.
    pub(super) fn new(io: Box<dyn Stream>, held: Reservation, base: usize, coming: Coming) -> Self {
        Self { io, held, base, coming }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buf))?;
        let coming = self.coming.add(buf.filled().len() - before);
        let wanted = self.base + coming.next_multiple_of(STEP);
        Poll::Ready(if self.held.grow_to(wanted) { Ok(()) } else { Err(NO_MEMORY.into()) })
    }
}

impl AsyncWrite for Metered {
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
