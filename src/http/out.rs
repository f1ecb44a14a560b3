//! An answer on its way out, head and all.

use std::io::{self, Cursor, IoSlice};
use std::net::TcpStream;

use bytes::Buf;
use hyper::Response;
use smallvec::{SmallVec, smallvec};

use super::cors::Cors;
use super::head;
use super::plain::Persistence;
use super::reply::{ReplyBody, ReplyBuf};
use super::socket::send;

/// Enough for most heads, and for what is written before a stored part.
const HEAD_ROOM: usize = 256;
/// Pieces that the system is given at once: enough for a batch of a hundred, and no more than it
/// takes (`IOV_MAX`, 1,024). Each further call wakes the client for a part of the answer.
const FRAME_PIECES: usize = 256;
/// Text that begins a body goes with the head if it is no longer: the system takes longer over
/// another piece than copying so little does.
const TEXT_MAX: usize = 256;
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
    pub(super) fn new(mut response: Response<ReplyBody>, persistence: Persistence) -> Self {
        Cors::Other.mark(response.headers_mut());
        let mut head = Vec::with_capacity(HEAD_ROOM);
        head::write(&mut head, &response, response.body().len(), persistence);
        Self::with_head(head, response.into_body())
    }

    /// The same for an answer of JSON that is not compressed.
    pub(super) fn plain(body: ReplyBody, persistence: Persistence) -> Self {
        let mut head = Vec::with_capacity(HEAD_ROOM);
        head::write_plain(&mut head, body.len(), persistence);
        Self::with_head(head, body)
    }

    fn with_head(mut head: Vec<u8>, mut body: ReplyBody) -> Self {
        let body_len = body.len();
        let mut frame = body.frame(FRAME_PIECES);
        frame.give_text(&mut head, TEXT_MAX);
        Self { head: Cursor::new(head), frame, body, body_len }
    }

    /// Bytes of the whole body.
    pub(super) fn body_len(&self) -> usize {
        self.body_len
    }

    /// Bytes that are not sent, head included.
    pub(super) fn left(&self) -> usize {
        self.head.remaining() + self.frame.remaining() + self.body.len()
    }

    /// Sends what is left.
    pub(super) fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.left() > 0 {
            if !self.head.has_remaining() && !self.frame.has_remaining() {
                self.frame = self.body.frame(FRAME_PIECES);
            }
            let sent = self.send_some(stream)?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            (&mut self.head).chain(&mut self.frame).advance(sent);
        }
        Ok(())
    }

    fn send_some(&self, stream: &TcpStream) -> io::Result<usize> {
        let head = IoSlice::new(self.head.chunk());
        let mut slices: SmallVec<[_; FEW]> = smallvec![head; self.frame.pieces_left() + 1];
        self.frame.chunks_vectored(&mut slices[1..]);
        send(stream, &slices)
    }
}
