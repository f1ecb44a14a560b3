//! An answer on its way out, head and all.

use std::cell::RefCell;
use std::io::{Cursor, ErrorKind, IoSlice};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::{io, mem};

use bytes::Buf;
use hyper::Response;
use neve_store::residency;
use smallvec::SmallVec;

use super::headers;
use super::headers::Persistence;
use super::send::{send, takes_more};
use crate::body::{ResponseBody, WriteBuf};
use crate::http::admit::Cors;
use crate::shared::{Account, FREE_BYTES};

#[cfg(test)]
pub(crate) mod tests;

/// Enough for most heads, and for what is written before a stored part.
const HEAD_ROOM: usize = 256;
/// Text that begins a body goes with the head if it is no longer: the system takes longer over
/// another piece than copying so little does.
const TEXT_MAX: usize = 256;
/// Number of slices without an allocation.
const FEW: usize = 8;

/// Bytes that are probed, and sent, at once of a response that is not sent in one go. What a socket
/// takes may be more, and is gone again before it does where memory is far too short.
const WINDOW: usize = 256 << 10;

thread_local! {
    /// Buffer for stored bytes that are copied before they are sent, while memory is short.
    static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Progress of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All of it.
    All,
    /// The socket takes no more now.
    Full,
    /// The next bytes are not in memory.
    Cold,
}

/// Response that is not sent yet.
pub(crate) struct ResponseWriter {
    head: Cursor<Vec<u8>>,
    frame: WriteBuf,
    /// Body behind the frame.
    body: ResponseBody,
    body_len: usize,
    /// True if time has passed since it was made: what was in memory then may not be now.
    aged: bool,
    /// True if any was sent since that was asked.
    moved: bool,
}

impl ResponseWriter {
    /// An answer to a request that no page of another origin has made.
    pub(crate) fn new(mut response: Response<ResponseBody>, persistence: Persistence) -> Self {
        Cors::Other.mark(response.headers_mut());
        let mut head = Vec::with_capacity(HEAD_ROOM);
        headers::write(&mut head, &response, response.body().len(), persistence);
        Self::with_head(head, response.into_body())
    }

    /// Makes the writer of an uncompressed JSON response, while `newest` is served.
    pub(crate) fn plain(body: ResponseBody, persistence: Persistence, newest: Option<u64>) -> Self {
        let mut head = Vec::with_capacity(HEAD_ROOM);
        headers::write_json_ok(&mut head, body.len(), persistence, newest);
        Self::with_head(head, body)
    }

    /// A body behind these bytes.
    pub(crate) fn with_head(mut head: Vec<u8>, mut body: ResponseBody) -> Self {
        let body_len = body.len();
        let mut frame = body.frame();
        frame.give_text(&mut head, TEXT_MAX);
        Self { head: Cursor::new(head), frame, body, body_len, aged: false, moved: false }
    }

    /// Bytes of the whole body.
    pub(crate) fn body_len(&self) -> usize {
        self.body_len
    }

    /// Bytes that are not sent, head included.
    pub(crate) fn left(&self) -> usize {
        self.head.remaining() + self.frame.remaining() + self.body.len()
    }

    /// Reserves the memory of what is left, because it is kept for the client; false if too little
    /// is left.
    pub(crate) fn reserve(&mut self, account: Account<'_>) -> bool {
        let held = self.head.get_ref().capacity() + self.frame.held() + self.body.held();
        held <= FREE_BYTES || self.body.reserve(account, held)
    }

    /// Sends what is left, as far as nobody has to wait for that.
    pub(crate) fn send(&mut self, stream: &impl AsFd) -> io::Result<Sent> {
        let memory_is_short = residency::memory_is_short();
        while self.left() > 0 {
            // Before anything is copied, or read from a disk, for a client that does not read.
            if memory_is_short && self.aged && !takes_more(stream)? {
                return Ok(Sent::Full);
            }
            let took = if !self.is_next_frame_here() {
                None
            } else if memory_is_short {
                self.send_copy(stream)?
            } else if self.is_next_here() {
                Some(self.send_some(stream)?)
            } else {
                None
            };
            match took {
                Some(true) => {}
                Some(false) => return Ok(Sent::Full),
                // Nothing is read from a disk for a client that does not read.
                None => return Ok(if takes_more(stream)? { Sent::Cold } else { Sent::Full }),
            }
        }
        Ok(Sent::All)
    }

    /// Makes the next frame if it is time to, unless what is copied for it is not in memory.
    fn is_next_frame_here(&mut self) -> bool {
        if self.is_between_frames() {
            let next =
                if self.aged { self.body.frame_if_resident() } else { Ok(self.body.frame()) };
            let Ok(next) = next else { return false };
            self.frame = next;
        }
        true
    }

    /// True if what is sent next is in memory.
    fn is_next_here(&self) -> bool {
        !self.aged || residency::if_resident(|| self.frame.probe(WINDOW)).is_ok()
    }

    /// Sends some, copied: what was in memory just now may be gone when the system touches it.
    /// `None` if it is gone already.
    fn send_copy(&mut self, stream: &impl AsFd) -> io::Result<Option<bool>> {
        self.aged = true; // whatever comes of it
        COPY.with_borrow_mut(|copy| {
            copy.resize(WINDOW, 0);
            let frame = &self.frame;
            let Ok(len) = residency::if_sendable(|| frame.copy(copy)) else {
                return Ok(None);
            };
            let slices = [IoSlice::new(self.head.chunk()), IoSlice::new(&copy[..len])];
            self.sent(send(stream, &slices)).map(Some)
        })
    }

    /// Sends what is left, as far as the socket takes it, on a thread that may wait for the disk.
    /// An error of the disk ends the connection: the head of the answer may have gone.
    pub(crate) fn send_loading(&mut self, stream: &TcpStream) -> io::Result<()> {
        self.aged = true;
        while self.left() > 0 {
            if self.is_between_frames() {
                self.frame = self.body.frame_loading().map_err(io::Error::other)?;
            }
            residency::loading(|| self.frame.probe(WINDOW)).map_err(io::Error::other)?;
            self.frame.load(WINDOW);
            if !self.send_some(stream)? {
                break;
            }
        }
        Ok(())
    }

    /// True if any was sent since this was last asked.
    pub(crate) fn has_moved(&mut self) -> bool {
        mem::take(&mut self.moved)
    }

    fn is_between_frames(&self) -> bool {
        !self.head.has_remaining() && !self.frame.has_remaining()
    }

    /// Sends some; whether the system took any.
    fn send_some(&mut self, stream: &impl AsFd) -> io::Result<bool> {
        self.sent(self.give(stream))
    }

    /// Notes that so many bytes were sent. Returns whether the kernel took any.
    fn sent(&mut self, sent: io::Result<usize>) -> io::Result<bool> {
        match sent {
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

    fn give(&self, stream: &impl AsFd) -> io::Result<usize> {
        let mut slices = SmallVec::<[_; FEW]>::with_capacity(self.frame.pieces_left() + 1);
        slices.push(IoSlice::new(self.head.chunk()));
        slices.extend(self.frame.slices(if self.aged { WINDOW } else { usize::MAX }));
        send(stream, &slices)
    }
}
