//! The socket as hyper and tungstenite read and write it.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::hyper_socket::{HyperSocket, NO_MEMORY};
use crate::http::response::poll_send;
use crate::shared::has_gone;

impl AsyncRead for HyperSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A WebSocket: tungstenite bounds its messages, and pings take the place of deadlines.
        if self.idles {
            if self.before.is_empty() {
                return Pin::new(&mut self.io).poll_read(context, buf);
            }
            let len = self.before.len().min(buf.remaining());
            buf.put_slice(&self.before.split_to(len));
            return Poll::Ready(Ok(()));
        }
        let read = self.poll_framed(context, buf);
        if read.is_pending() {
            return self.idling(context);
        }
        self.fed = true;
        read
    }
}

impl AsyncWrite for HyperSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        // The client may have its refusal already: what hyper writes now would come behind it.
        if self.memory.refused {
            return Poll::Ready(Err(NO_MEMORY.into()));
        }
        let written = Pin::new(&mut self.io).poll_write(context, buf);
        if !self.keeps(buf.len(), &written) {
            return Poll::Ready(Err(NO_MEMORY.into()));
        }
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.memory.refused {
            return Poll::Ready(Err(NO_MEMORY.into()));
        }
        let sent = poll_send(&self.io, context, bufs);
        if !self.keeps(bufs.iter().map(|buf| buf.len()).sum(), &sent) {
            return Poll::Ready(Err(NO_MEMORY.into()));
        }
        self.written(context, sent)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes after each turn of an answer: the one moment to look for the client.
        self.quiet.look_if_asked(|| has_gone(&self.io));
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.quiet.is_parked() {
            return Poll::Ready(Ok(())); // the connection goes on in the event loop
        }
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
