//! An answer on its way out, head and all.

use std::io::{self, Cursor, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use hyper::Response;
use hyper::rt::Write;
use smallvec::{SmallVec, smallvec};

use super::cors::Cors;
use super::head;
use super::reply::{ReplyBody, ReplyBuf};
use super::socket::Socket;

/// Enough for most heads.
const HEAD_ROOM: usize = 192;
/// Pieces that the system is given at once: enough for a batch of a hundred, and no more than it
/// takes (`IOV_MAX`, 1,024). Each further call wakes the client for a part of the answer.
const FRAME_PIECES: usize = 256;
/// So many cost no allocation.
const FEW: usize = 8;

/// What is not sent yet.
pub(super) struct Out {
    head: Cursor<Vec<u8>>,
    frame: ReplyBuf,
    /// What comes behind the frame.
    body: ReplyBody,
    body_len: usize,
}

impl Out {
    /// An answer to a request that no page of another origin has made.
    pub(super) fn new(mut response: Response<ReplyBody>) -> Self {
        Cors::Other.mark(response.headers_mut());
        let mut head = Vec::with_capacity(HEAD_ROOM);
        head::write(&mut head, &response, response.body().len());
        Self::with_head(head, response.into_body())
    }

    /// The same for an answer of JSON that is not compressed.
    pub(super) fn plain(body: ReplyBody) -> Self {
        let mut head = Vec::with_capacity(HEAD_ROOM);
        head::write_plain(&mut head, body.len());
        Self::with_head(head, body)
    }

    fn with_head(head: Vec<u8>, mut body: ReplyBody) -> Self {
        let body_len = body.len();
        Self { head: Cursor::new(head), frame: body.frame(FRAME_PIECES), body, body_len }
    }

    /// Bytes of the whole body.
    pub(super) fn body_len(&self) -> usize {
        self.body_len
    }

    /// Sends what is left.
    pub(super) fn poll_send(
        &mut self,
        socket: &mut Socket,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.head.has_remaining() || self.frame.has_remaining() {
                match ready!(self.poll_write(socket, context))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    sent => (&mut self.head).chain(&mut self.frame).advance(sent),
                }
            }
            if self.body.len() == 0 {
                return Poll::Ready(Ok(()));
            }
            self.frame = self.body.frame(FRAME_PIECES);
        }
    }

    fn poll_write(
        &self,
        socket: &mut Socket,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let head = IoSlice::new(self.head.chunk());
        let mut slices: SmallVec<[_; FEW]> = smallvec![head; self.frame.pieces_left() + 1];
        self.frame.chunks_vectored(&mut slices[1..]);
        Pin::new(socket).poll_write_vectored(context, &slices)
    }
}
