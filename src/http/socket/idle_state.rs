//! The state that a connection on the full path shares with its socket.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::framing::Length;
use crate::shared::ClientAddress;
use crate::shared::lock::lock;

/// State of a connection, which its socket and its server share.
#[derive(Debug, Default)]
pub(crate) struct IdleState {
    /// True while a request is being answered.
    answering: AtomicBool,
    /// True if the connection is idle, and may leave hyper.
    parked: AtomicBool,
    /// True if the connection closes after a response whose request was not read to its end.
    unread: AtomicBool,
    /// Bytes of the body behind the last head; [`CHUNKED`] if they are not known.
    body: AtomicU64,
    /// True if the next response must say that the connection closes.
    closing: AtomicBool,
    /// True if the request was read to its end.
    read: AtomicBool,
    /// True if the socket should look whether the client has gone.
    look: AtomicBool,
    /// True if the client has gone.
    gone: AtomicBool,
    /// The last request is of HTTP/1.0.
    old: AtomicBool,
    /// Client that a trusted proxy named for the last request.
    client: Mutex<Option<ClientAddress>>,
}

/// Stands for an unknown length: no body is so long.
const CHUNKED: u64 = u64::MAX;

impl IdleState {
    /// Notes the length of the body behind a head that came; `None` if it is not known.
    pub(crate) fn note_body(&self, bytes: Option<u64>) {
        // Relaxed, here and below: both sides are the same task.
        self.body.store(bytes.unwrap_or(CHUNKED), Ordering::Relaxed);
    }

    /// Notes whether the last request is of HTTP/1.0, where the end of a connection may be that of a response.
    pub(crate) fn note_old_http(&self, old: bool) {
        self.old.store(old, Ordering::Relaxed);
    }

    /// True if the end of the connection may be taken for that of a response.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.old.load(Ordering::Relaxed)
    }

    /// Notes whether a request is being answered.
    pub(crate) fn note_answering(&self, answering: bool) {
        self.answering.store(answering, Ordering::Relaxed);
    }

    /// Notes that the request was read to its end. Over HTTP/2 only, where each stream has a state.
    pub(crate) fn note_read(&self) {
        self.read.store(true, Ordering::Relaxed);
    }

    /// True if the request was read to its end.
    pub(crate) fn has_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }

    /// Notes whether the connection closes with some of the request unread.
    pub(crate) fn note_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
    }

    /// True if the connection closes with some of the request unread.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Notes the client that a trusted proxy named.
    pub(crate) fn note_client(&self, client: Option<ClientAddress>) {
        *lock(&self.client) = client;
    }

    /// Makes the next response say that the connection closes.
    pub(crate) fn close_after_next(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// True if the next response says that the connection closes.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Parks the connection, which was idle for a while, unless it answers a request.
    pub(crate) fn park(&self) {
        let busy = self.answering.load(Ordering::Relaxed);
        self.parked.store(!busy, Ordering::Relaxed);
    }

    /// Length of the body behind the last head.
    pub(crate) fn body(&self) -> Length {
        match self.body.load(Ordering::Relaxed) {
            CHUNKED => Length::Chunked,
            bytes => Length::Bytes(bytes),
        }
    }

    /// Client that a trusted proxy named for the last request.
    pub(crate) fn client(&self) -> Option<ClientAddress> {
        *lock(&self.client)
    }

    /// True if a request is being answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering.load(Ordering::Relaxed)
    }

    /// Takes the connection back from its park: a request came at the last moment.
    pub(crate) fn unpark(&self) {
        self.answering.store(true, Ordering::Relaxed);
        self.parked.store(false, Ordering::Relaxed);
    }

    /// Asks the socket whether the client has gone, and returns what it found when it was last
    /// asked. hyper does not look while it answers; it flushes the socket after each turn of an
    /// answer.
    pub(crate) fn look_for_client(&self) -> bool {
        self.look.store(true, Ordering::Relaxed);
        self.gone.load(Ordering::Relaxed)
    }

    /// Has the socket look whether the client has gone, if it was asked.
    pub(crate) fn look_if_asked(&self, gone: impl FnOnce() -> bool) {
        if self.look.load(Ordering::Relaxed) {
            self.look.store(false, Ordering::Relaxed);
            self.gone.store(gone(), Ordering::Relaxed);
        }
    }

    /// True if the socket stays open although hyper is done with it.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
    }
}
