//! What goes from one thread of a worker to the other, and from the acceptor to both.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use bytes::Bytes;

use super::encoded::Accepts;
use super::out::Out;
use super::plain::Persistence;

/// A connection, between two ways of serving it.
pub(super) struct Moved {
    pub(super) stream: TcpStream,
    /// What was read and is not answered.
    pub(super) read: Bytes,
    /// When bytes were last sent.
    pub(super) sent: Instant,
    pub(super) counted: Counted,
}

impl Moved {
    /// One that was just opened.
    pub(super) fn new(stream: TcpStream, counted: Counted) -> Self {
        Self { stream, read: Bytes::new(), sent: Instant::now(), counted }
    }
}

/// To the short way.
pub(super) enum Come {
    /// A connection.
    Connection(Moved),
    /// What is left of an answer on the connection of this key, which waits for it; nothing if making or
    /// sending it failed, and then the connection is closed.
    Answer(usize, Option<Left>),
    /// Connections are to end.
    Drain,
    /// No more will be accepted.
    Last,
}

/// To the long way.
pub(super) enum Leave {
    /// A connection.
    Connection(Moved),
    /// The socket of the connection of this key, and what it waits for.
    Disk(usize, TcpStream, Wait),
}

/// What is left of an answer, and the socket for it.
pub(super) struct Left {
    pub(super) stream: TcpStream,
    pub(super) out: Box<Out>,
}

impl Left {
    /// Sends what goes at once, on a thread that may wait for the disk; nothing is left if that failed.
    pub(super) fn send(mut self) -> Option<Self> {
        self.out.send_loading(&self.stream).is_ok().then_some(self)
    }
}

/// What the disk may have to be waited for with.
pub(super) enum Wait {
    /// Answering this.
    Answer(Question),
    /// Sending what is left of an answer.
    Send(Box<Out>),
}

/// A question whose answer may have to be waited for.
pub(super) struct Question {
    pub(super) body: Bytes,
    pub(super) accepts: Accepts,
    pub(super) persistence: Persistence,
}

/// The way in, for other threads.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) sender: Sender<Come>,
    pub(super) waker: Arc<mio::Waker>,
}

impl Door {
    /// Brings something. Who has gone needs nothing more.
    pub(super) fn bring(&self, come: Come) {
        if self.sender.send(come).is_ok() {
            let _ = self.waker.wake(); // an eventfd that is open takes it
        }
    }
}

/// An open connection, as long as it lives: one of its worker, and one of the process.
pub(super) struct Counted([Arc<AtomicUsize>; 2]);

impl Counted {
    pub(super) fn new(worker: &Arc<AtomicUsize>, process: &Arc<AtomicUsize>) -> Self {
        let counts = [worker, process].map(Arc::clone);
        counts.iter().for_each(|count| _ = count.fetch_add(1, Ordering::Relaxed));
        Self(counts)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.iter().for_each(|count| _ = count.fetch_sub(1, Ordering::Relaxed));
    }
}
