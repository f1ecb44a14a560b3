//! Connections that go from one thread of a worker to the other, and from the acceptor to both.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::StatusCode;
use tokio::sync::oneshot;

use crate::body::AcceptEncoding;
use crate::http::clients::Seat;
use crate::http::response::{Persistence, ResponseWriter};
use crate::rpc::Calls;
use crate::shared::{ClientAddress, Reservation};

/// Begin of the preface of HTTP/2 (RFC 9113, 3.4): no request of HTTP/1 begins so.
pub(crate) const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// A connection that was just accepted.
pub(crate) struct Arrived {
    pub(crate) stream: TcpStream,
    /// Bytes that were read and have no response.
    pub(crate) read: Bytes,
    /// Address of the client, or of a trusted proxy whose requests name theirs.
    pub(crate) address: ClientAddress,
    pub(crate) proxied: bool,
    /// Place among the connections of its address.
    pub(crate) seat: Option<Seat>,
}

/// A connection on its way between the fast path and the full path.
pub(crate) struct OpenConnection {
    pub(crate) stream: TcpStream,
    /// Bytes that were read and have no response.
    pub(crate) read: Bytes,
    /// Time when bytes were last sent.
    pub(crate) sent: Instant,
    /// Address of the other side.
    pub(crate) address: ClientAddress,
    /// True if that is a trusted proxy whose requests name their clients.
    pub(crate) proxied: bool,
    /// True if no request was answered on it: only then may it be one of HTTP/2 (RFC 9113, 3.3).
    pub(crate) is_new: bool,
    /// Reservation for the bytes that were read.
    pub(crate) held: Option<Reservation>,
    pub(crate) counted: ConnectionGuard,
}

impl OpenConnection {
    /// Makes one of a connection that was just accepted.
    pub(crate) fn new(arrived: Arrived, counted: ConnectionGuard) -> Self {
        let Arrived { stream, read, address, proxied, seat } = arrived;
        let counted = counted.with(seat);
        let (sent, is_new, held) = (Instant::now(), true, None);
        Self { stream, read, sent, address, proxied, is_new, held, counted }
    }
}

/// Message to the thread of the fast path.
pub(crate) enum ToFast {
    /// A connection, new or back from the full path.
    Connection(OpenConnection),
    /// The response for the connection of this key. Without one the connection closes.
    Answer(usize, Option<Answered>),
    /// Connections are to end.
    Drain,
    /// The service of the thread is another one.
    Renewed,
    /// A probe whether the thread goes on.
    Alive(oneshot::Sender<()>),
    /// The end: no more connections will come.
    Last,
}

/// Message to the thread of the full path.
pub(crate) enum ToFull {
    /// A connection whose next request is not plain.
    Connection(OpenConnection),
    /// A response of the connection of this key, whose rest is not in memory.
    Unsent(usize, UnsentResponse),
}

/// Rest of a response, and its socket.
pub(crate) struct UnsentResponse {
    pub(crate) stream: TcpStream,
    pub(crate) out: Box<ResponseWriter>,
}

impl UnsentResponse {
    /// Sends as much as the socket takes, on a thread that may wait for the disk. Returns nothing if
    /// that failed.
    pub(crate) fn send(mut self) -> Option<Self> {
        self.out.send_loading(&self.stream).is_ok().then_some(self)
    }
}

/// Outcome of a wait.
pub(crate) enum Waited {
    /// Rest of a response.
    Unsent(UnsentResponse),
    /// The socket, and a request for the full path.
    Unanswered(TcpStream, Bytes),
}

/// Work of another thread for a connection.
pub(crate) struct Answered {
    /// Outcome of the work; nothing if sending failed.
    pub(crate) waited: Option<Waited>,
    /// Counts for the thread of the connection.
    pub(crate) counted: Option<RequestCounts>,
}

/// Counts that another thread has of a request.
pub(crate) struct RequestCounts {
    pub(crate) calls: Calls,
    /// Time that the calls took.
    pub(crate) took: Duration,
    /// Status of the response and length of its body, if there is one.
    pub(crate) response: Option<(StatusCode, usize)>,
}

impl From<Option<Waited>> for Answered {
    /// Makes one with nothing to count.
    fn from(waited: Option<Waited>) -> Self {
        Self { waited, counted: None }
    }
}

/// A request for a thread that may wait.
pub(crate) struct OffloadedRequest {
    /// The whole request.
    pub(crate) request: Bytes,
    /// Place where its body begins.
    pub(crate) body_at: usize,
    pub(crate) accepts: AcceptEncoding,
    pub(crate) persistence: Persistence,
    pub(crate) address: ClientAddress,
    /// True if the request is offloaded only because unpacking takes long.
    pub(crate) unpacks: bool,
    /// Reservation for the request.
    pub(crate) _held: Option<Reservation>,
}

impl OffloadedRequest {
    /// Body of the request.
    pub(crate) fn body(&self) -> &[u8] {
        &self.request[self.body_at..]
    }
}

/// Way to the thread of the fast path, for other threads.
#[derive(Clone)]
pub(crate) struct Handoff {
    pub(crate) sender: Sender<ToFast>,
    pub(crate) waker: Arc<mio::Waker>,
}

impl Handoff {
    /// Sends a message. A thread that has ended needs none.
    pub(crate) fn bring(&self, come: ToFast) {
        if self.sender.send(come).is_ok() {
            let _ = self.waker.wake(); // a write to an open eventfd cannot fail
        }
    }

    /// Waits until the thread answers; false if it never will.
    pub(crate) async fn is_alive(&self) -> bool {
        let (told, answer) = oneshot::channel();
        self.bring(ToFast::Alive(told));
        answer.await.is_ok()
    }
}

/// An open connection, as long as it lives: one of its worker, one of the process, and one of its
/// address.
pub(crate) struct ConnectionGuard([Arc<AtomicUsize>; 2], Option<Seat>);

impl ConnectionGuard {
    pub(crate) fn new(worker: &Arc<AtomicUsize>, process: &Arc<AtomicUsize>) -> Self {
        let counts = [worker, process].map(Arc::clone);
        // Relaxed, here and below: the counts publish no other data.
        counts.iter().for_each(|count| _ = count.fetch_add(1, Ordering::Relaxed));
        Self(counts, None)
    }

    fn with(mut self, seat: Option<Seat>) -> Self {
        self.1 = seat;
        self
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.iter().for_each(|count| _ = count.fetch_sub(1, Ordering::Relaxed));
    }
}
