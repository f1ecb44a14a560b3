//! A connection that can be made to end with a reset.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Once blown, the connection that it is of ends with a reset and not with an end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fuse(Arc<AtomicBool>);

impl Fuse {
    pub(crate) fn blow(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A TCP connection with a fuse.
#[derive(Debug)]
pub(crate) struct Socket {
    io: TokioIo<TcpStream>,
    fuse: Fuse,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, fuse: Fuse) -> Self {
        Self { io: TokioIo::new(stream), fuse }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.fuse.0.load(Ordering::Acquire) {
            reset(self.io.inner());
        }
    }
}

/// Lets a connection end with a reset when it is dropped. Where that fails it ends all the same.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fuse.0.load(Ordering::Acquire) {
            // A shutdown would end it in good order.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
