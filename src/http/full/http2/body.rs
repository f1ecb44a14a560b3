//! The body of a response over HTTP/2.
//!
//! hyper takes a piece whole as soon as the client has room for a byte of it, and keeps it until the client
//! has taken all. So each piece holds its memory until hyper drops it.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::streams::{OpenStream, Stream};
use crate::http::response::{HttpBody, Streamed};
use crate::shared::lock::lock;
use crate::shared::{ClientAddress, Holder, MemoryBudget, Reservation};

/// Bytes that hyper gets at once. The clock of a stream sees how the client takes them.
const PIECE: usize = 16 << 10;
/// Bytes of the longest piece that a body has.
const PIECE_LEN_MAX: usize = 64 << 10;
/// Memory of a piece besides its bytes, in hyper's hands.
const PIECE_BYTES: usize = 512;
/// Memory of the first piece besides its bytes: what hyper notes of the stream goes with it. 9 KiB were seen.
const FIRST_PIECE_BYTES: usize = 12 << 10;

/// Memory for what a connection sends.
#[derive(Debug)]
pub(super) struct SendMemory {
    memory: Arc<MemoryBudget>,
    /// Bytes that the connection reserved when it opened, and that no piece has.
    free: AtomicUsize,
    /// Pieces in hyper's hands: since when, by number.
    pieces: Mutex<BTreeMap<u64, Instant>>,
    /// Streams that wait for memory.
    waiting: Mutex<Vec<Waker>>,
}

impl SendMemory {
    pub(super) fn new(memory: &Arc<MemoryBudget>, reserved: usize) -> Arc<Self> {
        let (free, memory) = (AtomicUsize::new(reserved), Arc::clone(memory));
        Arc::new(Self { memory, free, pieces: Mutex::default(), waiting: Mutex::default() })
    }

    /// Time since which hyper has the oldest piece that the client did not take.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        lock(&self.pieces).first_key_value().map(|(_, since)| *since)
    }

    /// Takes memory for a piece: of the connection if there is enough, else of the client's share.
    fn take(self: &Arc<Self>, address: ClientAddress, bytes: usize) -> Option<Taken> {
        // Relaxed, here and below: all is on one thread.
        let free = self.free.load(Ordering::Relaxed).checked_sub(bytes);
        if let Some(free) = free {
            self.free.store(free, Ordering::Relaxed);
            return Some(Taken::OfConnection(Arc::clone(self), bytes));
        }
        self.memory.account(address).reserve(Holder::Unread, bytes).map(Taken::OfShare)
    }

    /// True if there is memory for the first piece of a response of this length.
    pub(super) fn has_room(self: &Arc<Self>, address: ClientAddress, len: usize) -> bool {
        self.take(address, len.min(PIECE_LEN_MAX) + FIRST_PIECE_BYTES).is_some()
    }

    /// Takes memory for the next piece, when a piece of this connection has gone if there is none now. Fails if
    /// it has no piece.
    fn poll_next(
        self: &Arc<Self>,
        address: ClientAddress,
        bytes: usize,
        context: &Context<'_>,
    ) -> Poll<io::Result<Taken>> {
        match self.take(address, bytes) {
            Some(taken) => Poll::Ready(Ok(taken)),
            None if self.waits_since().is_none() => {
                Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()))
            }
            None => {
                lock(&self.waiting).push(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Has a piece hold its memory.
    fn hold(self: &Arc<Self>, piece: Bytes, taken: Taken) -> Bytes {
        let mut pieces = lock(&self.pieces);
        let number = pieces.last_key_value().map_or(0, |(last, _)| last + 1);
        pieces.insert(number, Instant::now());
        let memory = Arc::clone(self);
        Bytes::from_owner(HeldPiece { piece, number, memory, _taken: taken })
    }
}

/// Memory of a piece, until dropped.
#[derive(Debug)]
enum Taken {
    OfConnection(Arc<SendMemory>, usize),
    OfShare(Reservation),
}

impl Taken {
    /// Gives back what is more than `bytes`.
    fn shrink_to(&mut self, bytes: usize) {
        match self {
            Self::OfConnection(memory, held) if *held > bytes => {
                memory.free.fetch_add(*held - bytes, Ordering::Relaxed);
                *held = bytes;
            }
            Self::OfConnection(..) => {}
            Self::OfShare(reservation) => reservation.shrink_to(bytes),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Self::OfConnection(memory, bytes) = self {
            memory.free.fetch_add(*bytes, Ordering::Relaxed);
        }
    }
}

/// A piece in hyper's hands.
struct HeldPiece {
    piece: Bytes,
    number: u64,
    memory: Arc<SendMemory>,
    _taken: Taken,
}

impl Drop for HeldPiece {
    fn drop(&mut self) {
        lock(&self.memory.pieces).remove(&self.number);
        let waiting = std::mem::take(&mut *lock(&self.memory.waiting));
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl AsRef<[u8]> for HeldPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// The body of a stream's response.
pub(super) struct StreamBody {
    body: HttpBody,
    /// Bytes that hyper gets next.
    rest: Bytes,
    /// Memory of the next piece besides its bytes.
    besides: usize,
    stream: Arc<Stream>,
    memory: Arc<SendMemory>,
    address: ClientAddress,
    _memory_of_stream: Reservation,
    _open: OpenStream,
}

impl StreamBody {
    /// Wraps the body of a response to a client at `address`. The rest ends with it.
    pub(super) fn wrap(
        body: HttpBody,
        stream: Arc<Stream>,
        memory: Arc<SendMemory>,
        address: ClientAddress,
        (reservation, open): (Reservation, OpenStream),
    ) -> HttpBody {
        stream.sends(true);
        let wrapped = Self {
            body,
            rest: Bytes::new(),
            besides: FIRST_PIECE_BYTES,
            stream,
            memory,
            address,
            _memory_of_stream: reservation,
            _open: open,
        };
        HttpBody::Streamed(Streamed(Box::pin(wrapped)))
    }

    /// Takes the next bytes of the body; returns what is no data.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        while self.rest.is_empty() {
            let left = self.body.size_hint().upper().and_then(|left| usize::try_from(left).ok());
            let most = left.map_or(PIECE_LEN_MAX, |left| left.min(PIECE_LEN_MAX)) + self.besides;
            let mut taken = ready!(self.memory.poll_next(self.address, most, context))?;
            let polled = Pin::new(&mut self.body).poll_frame(context);
            if polled.is_pending() {
                self.stream.sends(false); // a part that is not there yet does not wait for the client
            }
            let Some(frame) = ready!(polled) else { return Poll::Ready(None) };
            match frame?.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    taken.shrink_to(data.len() + self.besides);
                    self.besides = PIECE_BYTES;
                    self.rest = self.memory.hold(data, taken);
                }
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let len = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = self.poll_body(context);
        if polled.is_ready() {
            self.stream.sends(true);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
