//! A whole response on its way to the socket.

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

/// Bytes of most heads with the text before the first stored part.
const HEAD_ROOM: usize = 256;
/// Longest text at the beginning of a body that is copied to the head: one more slice costs the
/// kernel more than such a copy.
const TEXT_MAX: usize = 256;
/// Number of slices without an allocation.
const FEW: usize = 8;

/// Bytes that are probed and sent at once of a response that the socket did not take whole. With
/// larger windows pages leave memory again before the socket takes them, if memory is very short.
const WINDOW: usize = 256 << 10;

thread_local! {
    /// Buffer for stored bytes that are copied before they are sent, while memory is short.
    static COPY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Progress of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The whole response is sent.
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
    /// True if time has passed since it was made: pages may have left memory.
    aged: bool,
    /// True if bytes were sent since [`Self::has_moved`] was last called.
    moved: bool,
}

impl ResponseWriter {
    /// Makes the writer of a response to a request without an `Origin`.
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

    /// Makes the writer of a body after these bytes.
    pub(crate) fn with_head(mut head: Vec<u8>, mut body: ResponseBody) -> Self {
        let body_len = body.len();
        let mut frame = body.next_write();
        frame.give_text(&mut head, TEXT_MAX);
        Self { head: Cursor::new(head), frame, body, body_len, aged: false, moved: false }
    }

    /// Returns the bytes of the whole body.
    pub(crate) fn body_len(&self) -> usize {
        self.body_len
    }

    /// Returns the bytes that are not sent, head included.
    pub(crate) fn left(&self) -> usize {
        self.head.remaining() + self.frame.remaining() + self.body.len()
    }

    /// Reserves memory for the unsent rest, which waits for the client. Returns false if there is too
    /// little.
    pub(crate) fn reserve(&mut self, account: Account<'_>) -> bool {
        let held = self.head.get_ref().capacity() + self.frame.held() + self.body.held();
        held <= FREE_BYTES || self.body.reserve(account, held)
    }

    /// Sends the rest, as far as no thread has to wait for that.
    pub(crate) fn send(&mut self, stream: &impl AsFd) -> io::Result<Sent> {
        let memory_is_short = residency::memory_is_short();
        while self.left() > 0 {
            // For a client that does not read, no byte is copied, or read from a disk.
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
                // A full socket hides that the next bytes are cold: see above.
                None => return Ok(if takes_more(stream)? { Sent::Cold } else { Sent::Full }),
            }
        }
        Ok(Sent::All)
    }

    /// Makes the next frame if the last one is sent. Returns false if bytes that it copies are not in
    /// memory.
    fn is_next_frame_here(&mut self) -> bool {
        if self.is_between_frames() {
            let next = if self.aged {
                self.body.next_write_if_resident()
            } else {
                Ok(self.body.next_write())
            };
            let Ok(next) = next else { return false };
            self.frame = next;
        }
        true
    }

    /// Returns true if the next bytes are in memory.
    fn is_next_here(&self) -> bool {
        !self.aged || residency::if_resident(|| self.frame.probe(WINDOW)).is_ok()
    }

    /// Sends some bytes from a copy: pages that are in memory now may be gone when the kernel reads
    /// them. Returns `None` if they are gone already.
    fn send_copy(&mut self, stream: &impl AsFd) -> io::Result<Option<bool>> {
        self.aged = true; // the next frame needs a look, also if this one goes out whole
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

    /// Sends the rest, as far as the socket takes it, on a thread that may wait for the disk. An error
    /// of the disk ends the connection, because the head may be sent already.
    pub(crate) fn send_loading(&mut self, stream: &TcpStream) -> io::Result<()> {
        self.aged = true;
        while self.left() > 0 {
            if self.is_between_frames() {
                self.frame = self.body.next_write_loading().map_err(io::Error::other)?;
            }
            residency::loading(|| self.frame.probe(WINDOW)).map_err(io::Error::other)?;
            self.frame.load(WINDOW);
            if !self.send_some(stream)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns true if bytes were sent since the last call.
    pub(crate) fn has_moved(&mut self) -> bool {
        mem::take(&mut self.moved)
    }

    fn is_between_frames(&self) -> bool {
        !self.head.has_remaining() && !self.frame.has_remaining()
    }

    /// Sends some bytes. Returns whether the kernel took any.
    fn send_some(&mut self, stream: &impl AsFd) -> io::Result<bool> {
        self.sent(self.give(stream))
    }

    /// Notes that so many bytes were sent. Returns whether the kernel took any.
    fn sent(&mut self, sent: io::Result<usize>) -> io::Result<bool> {
        match sent {
            // Something is left to send: without progress the caller would ask for ever.
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(sent) => {
                (&mut self.head).chain(&mut self.frame).advance(sent);
                self.moved = true;
                Ok(true)
            }
            // The client decides when it reads on: pages may have left memory by then.
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
        // A fresh response was looked at as a whole, so all of it may go in one call.
        slices.extend(self.frame.slices(if self.aged { WINDOW } else { usize::MAX }));
        send(stream, &slices)
    }
}
