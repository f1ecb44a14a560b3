//! A socket with deadlines, for hyper and tungstenite.
//!
//! hyper's only timeout guards request heads, and starts a timer for each. A client that stops
//! reading its response would hold it, and the segment behind it, for ever. Here one rule covers
//! heads, bodies, idle connections and responses ([`ClientWait`]). The event loop has the same rule, with one
//! look for all connections instead of a timer each.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::deadline::Deadline;
use super::framing::{Framing, MALFORMED};
use super::idle_state::IdleState;
use super::memory::SocketMemory;
use crate::config::settings::Deadlines;
use crate::http::admit::ErrorResponse;
use crate::http::response::{ResponseWriter, Sent};
use crate::http::{ClientWait, ConnectionGuard, OpenConnection};
use crate::shared::{Account, ClientAddress, MemoryBudget, Reservation, ThreadCounters, has_gone};

/// Time without a byte after which a connection gives up its buffers.
const PARK_AFTER: Duration = Duration::from_secs(1);

/// Default limit of the bytes of a head.
const HEAD_BYTES: usize = 8 << 10;
/// Time to read on after the last response, as in Go's server (`net/http`, `rstAvoidanceDelay`).
pub(crate) const LINGER: Duration = Duration::from_millis(500);
const LINGER_ROOM: usize = 4 << 10;
/// Bytes of one read.
const READ: usize = 64 << 10;

thread_local! {
    /// Read buffer of the thread: hyper may get only some of the bytes.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// A connection that ends when nothing is sent for too long.
#[allow(clippy::struct_excessive_bools, reason = "none of them follows from another")]
pub(crate) struct HyperSocket {
    pub(super) io: TcpStream,
    deadline: Deadline,
    /// True for a WebSocket, which may be silent for any time.
    pub(super) idles: bool,
    /// State that the socket shares with its server.
    pub(super) quiet: Arc<IdleState>,
    /// True if bytes came since the last ones were sent.
    pub(super) fed: bool,
    /// True if the socket is full: the client does not read.
    unsent: bool,
    /// Bytes that were read but not given to hyper yet.
    pub(super) before: Bytes,
    /// Place in the request that hyper reads.
    framing: Framing,
    /// True if the other side is a trusted proxy whose requests name their clients.
    proxied: bool,
    pub(super) memory: SocketMemory,
}

impl HyperSocket {
    /// Makes one of a connection to which bytes were last sent at `sent`.
    pub(crate) fn new(
        io: TcpStream,
        sent: Instant,
        address: ClientAddress,
        deadlines: Deadlines,
        counters: Arc<ThreadCounters>,
        memory: Arc<MemoryBudget>,
    ) -> Self {
        let (quiet, before, framing) = (Arc::default(), Bytes::new(), Framing::new(HEAD_BYTES));
        let (idles, fed, unsent, proxied) = (false, false, false, false);
        let deadline = Deadline::new(deadlines, sent, counters);
        let memory = SocketMemory::new(memory, address, HEAD_BYTES);
        Self { io, deadline, idles, quiet, fed, unsent, before, framing, proxied, memory }
    }

    /// Sets the limit of the bytes of a head.
    pub(crate) fn header_bytes_max(mut self, header_bytes_max: usize) -> Self {
        self.framing = Framing::new(header_bytes_max);
        self.memory.came_max = header_bytes_max;
        self
    }

    /// Marks the socket of a trusted proxy whose requests name their clients.
    pub(crate) fn proxied(mut self, proxied: bool) -> Self {
        self.proxied = proxied;
        self
    }

    /// Keeps the reservation for bytes that were read before.
    pub(crate) fn holding(mut self, held: Option<Reservation>) -> Self {
        self.memory.read_held = held;
        self
    }

    /// True if there was no memory for received bytes.
    pub(crate) fn is_refused(&self) -> bool {
        self.memory.refused
    }

    /// Account of the client.
    pub(crate) fn account(&self) -> Account<'_> {
        self.memory.account()
    }

    /// Address of the other side, and whether that is a proxy whose requests name their clients.
    pub(crate) fn client(&self) -> (ClientAddress, bool) {
        (self.memory.address, self.proxied)
    }

    /// Sets the state that it shares with its server.
    pub(crate) fn tell(&mut self, quiet: Arc<IdleState>) {
        self.quiet = quiet;
    }

    /// Takes the connection out of this runtime.
    pub(crate) fn leave(self, counted: ConnectionGuard) -> io::Result<OpenConnection> {
        let stream = self.io.into_std()?;
        let (sent, address, proxied) =
            (self.deadline.sent.into_std(), self.memory.address, self.proxied);
        let (read, held) = (self.before, self.memory.read_held);
        // A preface of HTTP/2 behind a response is none.
        let is_new = false;
        Ok(OpenConnection { stream, read, sent, address, proxied, is_new, held, counted })
    }

    /// Returns the socket with bytes that were read and not used.
    pub(crate) fn with_read(mut self, read: Bytes) -> Self {
        self.memory.came += read.len();
        let later = std::mem::replace(&mut self.before, read);
        if !later.is_empty() {
            self.before = [&self.before[..], &later].concat().into();
        }
        self
    }

    /// Closes the connection by a reset, so that the client does not take a part of a response for all of it.
    pub(crate) fn reset(self) {
        // If it fails the connection ends all the same.
        let _ = SockRef::from(&self.io).set_linger(Some(Duration::ZERO));
    }

    /// Reads on for a moment after the last response: closing with bytes unread resets the
    /// connection, and the client may lose what was sent.
    pub(crate) async fn linger(self) {
        let mut stream = self.io;
        // hyper has not done so if the last request had `Upgrade`.
        let _ = stream.shutdown().await;
        let read_on = async { while poll_fn(|context| poll_discard(&stream, context)).await {} };
        let _ = timeout(LINGER, read_on).await;
    }

    /// Gives hyper the part of `bytes` that it may have now, and keeps the rest.
    fn give(&mut self, mut bytes: Bytes, buf: &mut ReadBuf<'_>) {
        let most = bytes.len().min(buf.remaining());
        let passed = self.framing.pass(&bytes[..most]);
        buf.put_slice(&bytes.split_to(passed.len));
        if passed.bare_lf {
            // hyper refuses this as a malformed head, with its usual response.
            bytes = Bytes::from_static(MALFORMED);
            let len = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes.split_to(len));
        }
        self.before = bytes;
    }

    /// Reads from the socket, and gives hyper the bytes that it may have now.
    pub(super) fn poll_framed(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper has parsed the head by now, and says how long the body is.
        if self.framing.is_behind_head() {
            self.framing.body(self.quiet.body());
        }
        // Behind a request that was not read to its end hyper reads once more, when its response is on its way.
        let may_refuse = self.framing.is_in_head() || self.quiet.is_answering();
        let mut bytes = std::mem::take(&mut self.before);
        if bytes.is_empty() {
            bytes = ready!(self.poll_bytes(context, buf.remaining()))?;
            self.memory.came += bytes.len();
        }
        self.give(bytes, buf);
        Poll::Ready(if self.fits(may_refuse) { Ok(()) } else { Err(NO_MEMORY.into()) })
    }

    /// Reads at most so many bytes from the network.
    fn poll_bytes(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        let io = Pin::new(&mut self.io);
        ROOM.with_borrow_mut(|room| {
            let most = most.min(room.len());
            let mut read = ReadBuf::new(&mut room[..most]);
            ready!(io.poll_read(context, &mut read))?;
            Poll::Ready(Ok(Bytes::copy_from_slice(read.filled())))
        })
    }

    /// Returns true if there is memory for the received bytes. If not, the client gets an error, unless that could
    /// stand amid a response.
    fn fits(&mut self, may_refuse: bool) -> bool {
        let fits = self.memory.fits(self.before.len());
        if !fits && may_refuse && !self.unsent {
            // Directly, and as far as the socket takes it: the runtime may not know yet that it is writable.
            let _ = SockRef::from(&self.io).send(ErrorResponse::NO_MEMORY_RAW);
        }
        fits
    }

    /// Notes the outcome of a write. Returns false if there is no memory for bytes that the client does
    /// not take.
    pub(super) fn keeps(&mut self, bytes: usize, written: &Poll<io::Result<usize>>) -> bool {
        let client = self.quiet.client();
        self.memory.keeps(client, bytes, written)
    }

    /// Sends a response, as far as no thread has to wait for the disk.
    pub(crate) fn poll_out(
        &mut self,
        context: &mut Context<'_>,
        out: &mut ResponseWriter,
    ) -> Poll<io::Result<Sent>> {
        let sent = loop {
            if self.io.poll_write_ready(context)?.is_pending() {
                break Poll::Pending;
            }
            match try_send(&self.io, out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => break Poll::Ready(sent),
            }
        };
        if out.has_moved() {
            self.deadline.sent = Instant::now();
        }
        // The client may leave the rest unread for long: it counts for its address from now on.
        if sent.is_pending() && !out.reserve(self.account()) {
            return Poll::Ready(Err(NO_MEMORY.into()));
        }
        self.written(context, sent)
    }

    /// Makes another handle of the connection, for a thread that may wait for the disk.
    pub(crate) fn try_clone(&self) -> io::Result<std::net::TcpStream> {
        self.io.as_fd().try_clone_to_owned().map(Into::into)
    }

    /// Turns it into a WebSocket of this client. Pings replace the idle time-out. The kernel keeps at
    /// most about `unsent_max` bytes for a client that does not read.
    pub(crate) fn turn_into_websocket(&mut self, client: ClientAddress, unsent_max: u32) {
        (self.idles, self.memory.address) = (true, client);
        self.memory.read_held = None; // hyper's buffer is gone
        // A failure costs memory only.
        let _ = SockRef::from(&self.io).set_tcp_notsent_lowat(unsent_max);
    }

    /// True if the client has gone.
    pub(crate) fn has_gone(&self) -> bool {
        has_gone(&self.io)
    }

    /// Waits for the next request. Parks the connection when it is idle for a while.
    pub(super) fn idling<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let idle = self.deadline.limits.idle;
        // Amid a request or response the connection cannot leave hyper. With so short a time-out it
        // closes instead.
        if self.fed || self.unsent || self.quiet.is_parked() || PARK_AFTER >= idle {
            return self.deadline.waiting(context, ClientWait::Request);
        }
        if self.deadline.poll_unsent(context, PARK_AFTER).is_pending() {
            return Poll::Pending;
        }
        self.quiet.park();
        self.deadline.waiting(context, ClientWait::Request)
    }

    pub(super) fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.unsent = written.is_pending();
        if self.unsent {
            return self.deadline.waiting(context, ClientWait::Response);
        }
        (self.deadline.sent, self.fed) = (Instant::now(), false);
        if !self.quiet.is_answering() {
            self.memory.came = 0;
        }
        written
    }
}

/// Sends a response, as far as no thread has to wait for the disk. Fails with `WouldBlock` if the socket is full.
fn try_send(stream: &TcpStream, out: &mut ResponseWriter) -> io::Result<Sent> {
    stream.try_io(Interest::WRITABLE, || match out.send(stream)? {
        Sent::Full => Err(io::ErrorKind::WouldBlock.into()),
        sent => Ok(sent),
    })
}

/// Reads bytes and drops them; false at the end.
pub(crate) fn poll_discard(stream: &TcpStream, context: &mut Context<'_>) -> Poll<bool> {
    let mut room = [0; LINGER_ROOM];
    loop {
        if ready!(stream.poll_read_ready(context)).is_err() {
            return Poll::Ready(false);
        }
        match stream.try_read(&mut room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return Poll::Ready(read.is_ok_and(|len| len > 0)),
        }
    }
}

/// Error of a connection without memory. No system call of a socket returns it.
pub(crate) const NO_MEMORY: io::ErrorKind = io::ErrorKind::QuotaExceeded;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream as StdTcpStream};

    use hyper::header::CONTENT_LENGTH;

    use super::*;
    use crate::shared::FREE_BYTES;

    const BODY: [u8; 2 * FREE_BYTES] = [b'x'; 2 * FREE_BYTES];

    /// Bytes that a client gets when there is no memory for the body that it sends.
    async fn told(is_answering: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut client = StdTcpStream::connect(address).expect("it listens");
        let (stream, _) = listener.accept().expect("it was asked");
        for end in [&client, &stream] {
            end.set_nonblocking(true).expect("a socket");
        }
        let stream = TcpStream::from_std(stream).expect("a runtime");
        let deadlines = Deadlines { idle: Duration::from_mins(1), write: Duration::from_mins(1) };
        let (memory, from) = (MemoryBudget::new(1, 1), IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        let mut socket =
            HyperSocket::new(stream, Instant::now(), from, deadlines, Arc::default(), memory);
        let mut room = vec![0; 4 * FREE_BYTES];
        let head = format!("POST / HTTP/1.1\r\n{CONTENT_LENGTH}: {}\r\n\r\n", BODY.len());
        client.write_all(head.as_bytes()).expect("it goes at once");
        let mut buf = ReadBuf::new(&mut room);
        let read = poll_fn(|context| socket.poll_framed(context, &mut buf)).await;
        assert!(read.is_ok() && buf.filled() == head.as_bytes());
        socket.quiet.note_body(Some(BODY.len() as u64));
        socket.quiet.note_answering(is_answering);
        client.write_all(&BODY).expect("it goes at once");
        let mut read = Ok(());
        while read.is_ok() {
            let mut buf = ReadBuf::new(&mut room);
            read = poll_fn(|context| socket.poll_framed(context, &mut buf)).await;
        }
        assert_eq!(read.expect_err("there is no memory").kind(), NO_MEMORY);
        let mut told = vec![0; 1000];
        let len = client.read(&mut told).unwrap_or_default();
        String::from_utf8_lossy(&told[..len]).into_owned()
    }

    #[tokio::test]
    async fn refusal_for_memory_never_stands_amid_a_response() {
        let refusal = String::from_utf8_lossy(ErrorResponse::NO_MEMORY_RAW);
        assert_eq!(told(true).await, refusal, "the request is read to be answered");
        assert_eq!(told(false).await, "", "the response is on its way");
    }
}
