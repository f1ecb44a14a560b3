//! An answer on its way out, head and all.

use std::io::{self, Cursor, ErrorKind, IoSlice};
use std::mem;
use std::net::TcpStream;

use bytes::Buf;
use hyper::Response;
use neve_store::residency;
use smallvec::{SmallVec, smallvec};

use super::cors::Cors;
use super::head;
use super::plain::Persistence;
use super::reply::{ReplyBody, ReplyBuf};
use super::socket::send;

#[cfg(test)]
mod tests;

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

/// How far sending came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// All of it.
    All,
    /// As much as the system takes now.
    Some,
    /// What is next is not in memory.
    Cold,
}

/// What is not sent yet.
pub(super) struct Out {
    head: Cursor<Vec<u8>>,
    frame: ReplyBuf,
    /// What comes behind the frame.
    body: ReplyBody,
    body_len: usize,
    /// Whether time has passed since it was made: what was in memory then may not be now.
    aged: bool,
    /// Whether any was sent since that was asked.
    moved: bool,
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
        Self { head: Cursor::new(head), frame, body, body_len, aged: false, moved: false }
    }

    /// Bytes of the whole body.
    pub(super) fn body_len(&self) -> usize {
        self.body_len
    }

    /// Bytes that are not sent, head included.
    pub(super) fn left(&self) -> usize {
        self.head.remaining() + self.frame.remaining() + self.body.len()
    }

    /// Sends what is left, as far as nobody has to wait for that.
    pub(super) fn send(&mut self, stream: &TcpStream) -> io::Result<Sent> {
        if self.aged && residency::if_resident(|| self.frame.look()).is_none() {
            return Ok(Sent::Cold);
        }
        while self.left() > 0 {
            if self.is_between_frames() {
                let body = &self.body;
                if self.aged && residency::if_resident(|| body.look(FRAME_PIECES)).is_none() {
                    return Ok(Sent::Cold);
                }
                self.frame = self.body.frame(FRAME_PIECES);
            }
            if !self.send_some(stream)? {
                return Ok(Sent::Some);
            }
        }
        Ok(Sent::All)
    }

    /// The same on a thread that may wait for the disk.
    pub(super) fn send_waiting(&mut self, stream: &TcpStream) -> io::Result<()> {
        self.aged = true;
        loop {
            residency::loading(|| self.frame.look());
            self.frame.load();
            while !self.is_between_frames() {
                if !self.send_some(stream)? {
                    return Ok(());
                }
            }
            if self.body.len() == 0 {
                return Ok(());
            }
            self.frame = self.body.frame(FRAME_PIECES);
        }
    }

    /// Whether any was sent since this was last asked.
    pub(super) fn has_moved(&mut self) -> bool {
        mem::take(&mut self.moved)
    }

    fn is_between_frames(&self) -> bool {
        !self.head.has_remaining() && !self.frame.has_remaining()
    }

    /// Sends some; whether the system took any.
    fn send_some(&mut self, stream: &TcpStream) -> io::Result<bool> {
        match self.give(stream) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(sent) => {
                (&mut self.head).chain(&mut self.frame).advance(sent);
                self.moved = true;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.aged = true;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn give(&self, stream: &TcpStream) -> io::Result<usize> {
        let head = IoSlice::new(self.head.chunk());
        let mut slices: SmallVec<[_; FEW]> = smallvec![head; self.frame.pieces_left() + 1];
        self.frame.chunks_vectored(&mut slices[1..]);
        send(stream, &slices)
    }
}

/// Sends what goes at once, on a thread that may wait for the disk; returns what is left, or nothing
/// if that failed.
pub(super) fn send_waiting(out: Out, stream: Option<&TcpStream>) -> Option<Box<Out>> {
    let mut out = Box::new(out);
    match stream {
        Some(stream) => out.send_waiting(stream).is_ok().then_some(out),
        None => Some(out),
    }
}
