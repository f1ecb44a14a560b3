//! Memory for what a connection of HTTP/2 sends, and the pieces that hold it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::Body;
use tokio::time::Instant;

use super::line_time::LineTime;
use crate::http::response::HttpBody;
use crate::shared::lock::lock;
use crate::shared::{ClientAddress, Holder, MemoryBudget, Reservation};

/// Bytes of the longest piece that neve expects. Those of mirrors and of upstreams may be longer.
const PIECE_LEN_MAX: usize = 64 << 10;
/// Memory of the first piece besides its bytes: what hyper notes of the stream goes with it. 9 KiB were seen.
pub(super) const FIRST_PIECE_BYTES: usize = 12 << 10;
/// Memory that a connection reserves when it opens: enough for the first piece of
/// any response that neve makes.
pub(super) const OWN_BYTES: usize = PIECE_LEN_MAX + FIRST_PIECE_BYTES;

/// Bytes that the next piece of a body may have.
pub(super) fn piece_bytes(body: &HttpBody) -> usize {
    let left = body.size_hint().upper().and_then(|left| usize::try_from(left).ok());
    left.map_or(PIECE_LEN_MAX, |left| left.min(PIECE_LEN_MAX))
}

/// Memory for what a connection sends.
#[derive(Debug)]
pub(super) struct SendMemory {
    memory: Arc<MemoryBudget>,
    /// Bytes that the connection reserved when it opened, and that no piece has.
    free: AtomicUsize,
    /// Pieces in hyper's hands.
    pieces: AtomicUsize,
    /// Time when the last of them went.
    moved: Mutex<Instant>,
    line: Arc<LineTime>,
    /// Ends of responses that the client has not taken, by number: since this time of the line. Their streams
    /// have no clock.
    tails: Mutex<BTreeMap<u64, Instant>>,
    /// Streams that wait for memory.
    waiting: Mutex<Vec<Waker>>,
}

impl SendMemory {
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::clone(memory),
            free: AtomicUsize::new(OWN_BYTES),
            pieces: AtomicUsize::default(),
            moved: Mutex::new(Instant::now()),
            line: Arc::default(),
            tails: Mutex::default(),
            waiting: Mutex::default(),
        })
    }

    /// Time of the connection's line.
    pub(super) fn line(&self) -> &Arc<LineTime> {
        &self.line
    }

    /// Time since which hyper has nothing that the client did not take.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        // Relaxed, here and below: all is on one thread.
        (self.pieces.load(Ordering::Relaxed) == 0).then(|| *lock(&self.moved))
    }

    /// Times of the line since which the client leaves the end of a response: the oldest and the newest one.
    pub(super) fn tails_since(&self) -> Option<(Instant, Instant)> {
        let tails = lock(&self.tails);
        Some((*tails.first_key_value()?.1, *tails.last_key_value()?.1))
    }

    /// Takes memory for a piece: of the connection if there is enough, else of the client's share.
    pub(super) fn take(self: &Arc<Self>, address: ClientAddress, bytes: usize) -> Option<Taken> {
        // The connection's own first: no count that threads share is touched.
        if self.take_own(bytes) {
            return Some(Taken::OfConnection(Arc::clone(self), bytes));
        }
        self.memory.account(address).reserve(Holder::Unread, bytes).map(Taken::OfShare)
    }

    fn take_own(&self, bytes: usize) -> bool {
        // A load and a store, and no exchange: no other thread comes between.
        let free = self.free.load(Ordering::Relaxed).checked_sub(bytes);
        if let Some(free) = free {
            self.free.store(free, Ordering::Relaxed);
        }
        free.is_some()
    }

    /// Takes memory for the first piece of a response.
    pub(super) fn take_first(
        self: &Arc<Self>,
        address: ClientAddress,
        body: &HttpBody,
    ) -> Option<Taken> {
        self.take(address, piece_bytes(body) + FIRST_PIECE_BYTES)
    }

    /// Takes memory for the next piece, when a piece of this connection has gone if there is none now. Fails if
    /// it has no piece. Memory that other connections give back wakes no stream: each asks again whenever its
    /// clock looks.
    pub(super) fn poll_next(
        self: &Arc<Self>,
        address: ClientAddress,
        bytes: usize,
        context: &Context<'_>,
    ) -> Poll<io::Result<Taken>> {
        match self.take(address, bytes) {
            Some(taken) => Poll::Ready(Ok(taken)),
            // No piece is left whose end would wake the stream soon.
            None if self.pieces.load(Ordering::Relaxed) == 0 => {
                Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()))
            }
            None => {
                let (mut waiting, waker) = (lock(&self.waiting), context.waker());
                // A stream is polled for other reasons too: its waker is kept once.
                if !waiting.iter().any(|known| known.will_wake(waker)) {
                    waiting.push(waker.clone());
                }
                Poll::Pending
            }
        }
    }

    fn piece_goes(&self) {
        self.pieces.fetch_sub(1, Ordering::Relaxed);
        *lock(&self.moved) = Instant::now();
        // All wake, because the memory may suit any of them; the others wait again.
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Memory of a piece, until dropped.
#[derive(Debug)]
pub(super) enum Taken {
    OfConnection(Arc<SendMemory>, usize),
    OfShare(Reservation),
}

impl Taken {
    /// Takes or gives back the difference to `bytes`. False, and as before, if there are too few.
    pub(super) fn resize(&mut self, bytes: usize) -> bool {
        match self {
            Self::OfConnection(memory, held) => {
                // One of the two differences is zero.
                let fits = memory.take_own(bytes.saturating_sub(*held));
                if fits {
                    memory.free.fetch_add(held.saturating_sub(bytes), Ordering::Relaxed);
                    *held = bytes;
                }
                fits
            }
            Self::OfShare(reservation) => {
                reservation.shrink_to(bytes);
                reservation.grow_to(bytes)
            }
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

/// Pieces of one stream in hyper's hands.
#[derive(Debug)]
pub(super) struct StreamPieces {
    memory: Arc<SendMemory>,
    state: Mutex<PiecesState>,
}

#[derive(Debug, Default)]
struct PiecesState {
    held: usize,
    /// Task of the stream, if it waits until there is none.
    waker: Option<Waker>,
    /// Number of the tail, once the stream has left.
    tail: Option<u64>,
}

impl StreamPieces {
    pub(super) fn new(memory: Arc<SendMemory>) -> Arc<Self> {
        Arc::new(Self { memory, state: Mutex::default() })
    }

    pub(super) fn memory(&self) -> &Arc<SendMemory> {
        &self.memory
    }

    /// Has a piece hold its memory.
    pub(super) fn hold(self: &Arc<Self>, piece: Bytes, taken: Taken) -> Bytes {
        lock(&self.state).held += 1;
        self.memory.pieces.fetch_add(1, Ordering::Relaxed);
        Bytes::from_owner(HeldPiece { piece, pieces: Arc::clone(self), _taken: taken })
    }

    /// True if the client has not taken all pieces.
    pub(super) fn are_held(&self) -> bool {
        lock(&self.state).held > 0
    }

    /// Waits until the client has taken all pieces.
    pub(super) fn poll_taken(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.held == 0 {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()), // as it is, if it wakes the same task
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Notes that the stream ended. If pieces are left, they are a tail from now on.
    pub(super) fn leave(&self) {
        let mut state = lock(&self.state);
        if state.held > 0 {
            let mut tails = lock(&self.memory.tails);
            // Numbers ascend, so the first and the last key are the oldest and the newest tail.
            let number = tails.last_key_value().map_or(0, |(last, _)| last + 1);
            tails.insert(number, self.memory.line.now());
            state.tail = Some(number);
        }
    }

    fn piece_goes(&self) {
        let mut state = lock(&self.state);
        state.held -= 1;
        if state.held == 0 {
            if let Some(number) = state.tail.take() {
                lock(&self.memory.tails).remove(&number);
            }
            state.waker.take().into_iter().for_each(Waker::wake);
        }
        drop(state);
        self.memory.piece_goes();
    }
}

/// A piece in hyper's hands.
struct HeldPiece {
    piece: Bytes,
    pieces: Arc<StreamPieces>,
    _taken: Taken,
}

impl Drop for HeldPiece {
    fn drop(&mut self) {
        self.pieces.piece_goes();
    }
}

impl AsRef<[u8]> for HeldPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn memory_of_a_piece_follows_its_length() {
        let budget = MemoryBudget::new(1 << 20, 1 << 20);
        let (memory, address) =
            (SendMemory::new(&budget), ClientAddress::from(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let free = |memory: &SendMemory| memory.free.load(Ordering::Relaxed);
        let mut own = memory.take(address, 70 << 10).expect("of the connection");
        assert_eq!(free(&memory), OWN_BYTES - (70 << 10));
        assert!(own.resize(1000) && own.resize(OWN_BYTES) && free(&memory) == 0);
        assert!(!own.resize(OWN_BYTES + 1), "a mirror's piece is longer");
        let mut shared = memory.take(address, 1000).expect("of the share");
        assert!(shared.resize(256 << 10) && !shared.resize(2 << 20));
        assert_eq!(budget.used(), 256 << 10);
        drop((own, shared));
        assert_eq!((free(&memory), budget.used()), (OWN_BYTES, 0));
    }
}
