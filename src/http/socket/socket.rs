//! A socket that gives up on the other side.
//!
//! hyper's only timeout guards request heads, starts a timer for each, and knows nothing of a
//! client that stops reading its answer and so holds it, and the segment behind it, for ever. Here
//! one rule covers heads, bodies, idle connections and answers (and in `lanes` the same one, with
//! one look for all instead of a timer each): bytes must be *sent* within the time-out, counted
//! from the opening or from the last that were. Bytes that come in do not count, so that one byte a
//! minute keeps nothing alive.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::framing::{Framing, MALFORMED};
use super::idle_state::IdleState;
use crate::config::settings::Deadlines;
use crate::http::admit::ErrorResponse;
use crate::http::response::{ResponseWriter, Sent, poll_send};
use crate::http::{ConnectionGuard, OpenConnection};
use crate::shared::{
    Account, ClientAddress, FREE_BYTES, Holder, MemoryBudget, Reservation, ThreadCounters, Timeout,
    has_gone,
};

/// After so long without a byte a connection does without buffers.
const PARK_AFTER: Duration = Duration::from_secs(1);

/// Bytes of a head if nothing else is said.
const HEAD_BYTES: usize = 8 << 10;
/// Go's server waits as long (`net/http`, `rstAvoidanceDelay`).
const LINGER: Duration = Duration::from_millis(500);
const LINGER_ROOM: usize = 4 << 10;
/// Bytes that are read at once.
const READ: usize = 64 << 10;

thread_local! {
    /// Place where bytes are read to, as hyper may get only some of them.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// A connection that ends when nothing is sent for too long.
#[allow(clippy::struct_excessive_bools, reason = "none of them follows from another")]
pub(crate) struct Socket {
    io: TcpStream,
    patience: Deadlines,
    /// True if nothing may come for any time.
    idles: bool,
    /// Time when bytes were last sent.
    sent: Instant,
    /// Looks at `sent` when it fires, and is set again if that was not long ago: it costs nothing
    /// a request. Made when first needed.
    timer: Option<Pin<Box<Sleep>>>,
    /// Told when nothing goes on.
    quiet: Arc<IdleState>,
    /// True if bytes came since bytes were sent.
    fed: bool,
    /// True if bytes wait for the client to read.
    unsent: bool,
    /// Bytes that were read before, and come first.
    before: Bytes,
    /// Place of hyper in the requests.
    framing: Framing,
    /// Address of the other side.
    address: ClientAddress,
    /// True if that is a trusted proxy whose requests name their clients.
    proxied: bool,
    memory: Arc<MemoryBudget>,
    /// Bytes that came since the last response, and how many of them hyper keeps at most.
    came: usize,
    came_max: usize,
    /// Covers what was read. It only grows: so do hyper's buffers.
    read_held: Option<Reservation>,
    /// Covers what hyper has not written.
    unsent_held: Option<Reservation>,
    /// True if there was no memory for what was read.
    refused: bool,
    tally: Arc<ThreadCounters>,
}

impl Socket {
    /// A connection that last had bytes sent at that time.
    pub(crate) fn new(
        io: TcpStream,
        sent: Instant,
        address: ClientAddress,
        patience: Deadlines,
        tally: Arc<ThreadCounters>,
        memory: Arc<MemoryBudget>,
    ) -> Self {
        let (quiet, before) = (Arc::default(), Bytes::new());
        let (timer, idles, fed, unsent) = (None, false, false, false);
        let (proxied, framing) = (false, Framing::new(HEAD_BYTES));
        Self {
            io,
            patience,
            idles,
            sent,
            timer,
            quiet,
            fed,
            unsent,
            before,
            framing,
            address,
            proxied,
            memory,
            came: 0,
            came_max: HEAD_BYTES,
            read_held: None,
            unsent_held: None,
            refused: false,
            tally,
        }
    }

    /// The same with at most so many bytes of a head.
    pub(crate) fn header_bytes_max(mut self, header_bytes_max: usize) -> Self {
        self.framing = Framing::new(header_bytes_max);
        self.came_max = header_bytes_max;
        self
    }

    /// The same of a trusted proxy whose requests name their clients.
    pub(crate) fn proxied(mut self, proxied: bool) -> Self {
        self.proxied = proxied;
        self
    }

    /// The same with memory that is reserved for what was read before.
    pub(crate) fn holding(mut self, held: Option<Reservation>) -> Self {
        self.read_held = held;
        self
    }

    /// True if there was no memory for what was read.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Account of the client.
    pub(crate) fn account(&self) -> Account<'_> {
        self.memory.account(self.address)
    }

    /// Address of the other side, and whether that is a proxy whose requests name their clients.
    pub(crate) fn client(&self) -> (ClientAddress, bool) {
        (self.address, self.proxied)
    }

    /// Whom to tell when nothing goes on.
    pub(crate) fn tell(&mut self, quiet: Arc<IdleState>) {
        self.quiet = quiet;
    }

    /// Takes it back from this runtime.
    pub(crate) fn leave(self, counted: ConnectionGuard) -> io::Result<OpenConnection> {
        let stream = self.io.into_std()?;
        let (sent, address, proxied) = (self.sent.into_std(), self.address, self.proxied);
        let (read, held) = (self.before, self.read_held);
        Ok(OpenConnection { stream, read, sent, address, proxied, held, counted })
    }

    /// Returns the socket with bytes that were read and not used.
    pub(crate) fn with_read(mut self, read: Bytes) -> Self {
        self.came += read.len();
        let later = std::mem::replace(&mut self.before, read);
        if !later.is_empty() {
            self.before = [&self.before[..], &later].concat().into();
        }
        self
    }

    /// Reads on for a moment after the last response: closing with bytes unread resets the
    /// connection, and the client may lose what was sent.
    pub(crate) async fn linger(self) {
        let stream = self.io;
        let read_on = async {
            let mut room = vec![0; LINGER_ROOM];
            while stream.readable().await.is_ok() {
                match stream.try_read(&mut room) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
        };
        let _ = timeout(LINGER, read_on).await;
    }

    /// Gives hyper of `bytes` what it may have now, and keeps the rest.
    fn give(&mut self, mut bytes: Bytes, buf: &mut ReadBuf<'_>) {
        let most = bytes.len().min(buf.remaining());
        let passed = self.framing.pass(&bytes[..most]);
        buf.put_slice(&bytes.split_to(passed.len));
        if passed.bare_lf {
            bytes = Bytes::from_static(MALFORMED);
            let len = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes.split_to(len));
        }
        self.before = bytes;
    }

    /// Reads what comes, and gives hyper of it what it may have now.
    fn poll_framed(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.framing.is_behind_head() {
            self.framing.body(self.quiet.body());
        }
        let mut bytes = std::mem::take(&mut self.before);
        if bytes.is_empty() {
            let io = Pin::new(&mut self.io);
            bytes = ready!(ROOM.with_borrow_mut(|room| {
                let most = buf.remaining().min(room.len());
                let mut read = ReadBuf::new(&mut room[..most]);
                ready!(io.poll_read(context, &mut read))?;
                Poll::Ready(io::Result::Ok(Bytes::copy_from_slice(read.filled())))
            }))?;
            self.came += bytes.len();
        }
        self.give(bytes, buf);
        Poll::Ready(if self.fits() { Ok(()) } else { Err(NO_ROOM.into()) })
    }

    /// True if there is memory for what has come. If not, the client is told.
    fn fits(&mut self) -> bool {
        let came = self.came.min(self.came_max) + self.before.len();
        if came <= FREE_BYTES {
            return true;
        }
        // A quarter more: buffers double, and are copied when they do.
        let held = (came + came / 4).next_multiple_of(FREE_BYTES);
        let account = self.memory.account(self.address);
        self.refused = !account.hold(&mut self.read_held, Holder::Head, held);
        if self.refused && !self.unsent {
            let _ = self.io.try_write(ErrorResponse::NO_ROOM_RAW); // as far as it goes at once
        }
        !self.refused
    }

    /// Notes what came of writing so many bytes. Those that the client does not take are kept, for
    /// which there must be memory.
    fn keeps(&mut self, bytes: usize, written: &Poll<io::Result<usize>>) -> bool {
        match written {
            Poll::Ready(Ok(len)) if *len == bytes => self.unsent_held = None,
            Poll::Pending if bytes > FREE_BYTES => {
                let client = self.quiet.client().unwrap_or(self.address);
                let account = self.memory.account(client);
                return account.hold(&mut self.unsent_held, Holder::Unread, bytes);
            }
            _ => {}
        }
        true
    }

    /// Sends an answer, as far as nobody has to wait for the disk.
    pub(crate) fn poll_out(
        &mut self,
        context: &mut Context<'_>,
        out: &mut ResponseWriter,
    ) -> Poll<io::Result<Sent>> {
        let stream = &self.io;
        let sent = loop {
            if stream.poll_write_ready(context)?.is_pending() {
                break Poll::Pending;
            }
            let sent = stream.try_io(Interest::WRITABLE, || match out.send(stream)? {
                Sent::Full => Err(io::ErrorKind::WouldBlock.into()),
                sent => Ok(sent),
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => break Poll::Ready(sent),
            }
        };
        if out.has_moved() {
            self.sent = Instant::now();
        }
        if sent.is_pending() && !out.reserve(self.account()) {
            return Poll::Ready(Err(NO_ROOM.into()));
        }
        self.written(context, sent)
    }

    /// Another handle of the connection, for a thread that may wait for the disk.
    pub(crate) fn try_clone(&self) -> io::Result<std::net::TcpStream> {
        self.io.as_fd().try_clone_to_owned().map(Into::into)
    }

    /// Goes on as a WebSocket of this client: one that says nothing is asked whether it is there,
    /// which is not this type's business, and the system keeps at most about `unsent_max` bytes for
    /// a client that does not read.
    pub(crate) fn turn_into_websocket(&mut self, client: ClientAddress, unsent_max: u32) {
        (self.idles, self.address) = (true, client);
        self.read_held = None; // hyper's buffer is gone
        // A failure costs memory and nothing else.
        let _ = SockRef::from(&self.io).set_tcp_notsent_lowat(unsent_max);
    }

    /// True if the client has gone.
    pub(crate) fn has_gone(&self) -> bool {
        has_gone(&self.io)
    }

    /// While a request is waited for: says so when nothing goes on for a while.
    fn idling<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let idle = self.patience.idle;
        if self.fed || self.unsent || self.quiet.is_parked() || PARK_AFTER >= idle {
            return self.waiting(context, Timeout::Idle);
        }
        if self.poll_unsent(context, PARK_AFTER).is_pending() {
            return Poll::Pending;
        }
        self.quiet.park();
        self.waiting(context, Timeout::Idle)
    }

    /// Errs once nothing was sent for the limit of this wait.
    fn waiting<T>(&mut self, context: &mut Context<'_>, wait: Timeout) -> Poll<io::Result<T>> {
        let limit = match wait {
            Timeout::Idle => self.patience.idle,
            Timeout::Write => self.patience.write,
        };
        if self.poll_unsent(context, limit).is_pending() {
            return Poll::Pending;
        }
        self.tally.time_out(wait);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready once nothing was sent for `limit`.
    fn poll_unsent(&mut self, context: &mut Context<'_>, limit: Duration) -> Poll<()> {
        loop {
            let until = self.sent + limit;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() > until {
                timer.as_mut().reset(until); // what waits now is less patient
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }

    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.unsent = written.is_pending();
        if self.unsent {
            return self.waiting(context, Timeout::Write);
        }
        (self.sent, self.fed) = (Instant::now(), false);
        if !self.quiet.is_answering() {
            self.came = 0;
        }
        written
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.idles {
            if self.before.is_empty() {
                return Pin::new(&mut self.io).poll_read(context, buf);
            }
            let len = self.before.len().min(buf.remaining());
            buf.put_slice(&self.before.split_to(len));
            return Poll::Ready(Ok(()));
        }
        let read = self.poll_framed(context, buf);
        if read.is_pending() {
            return self.idling(context);
        }
        self.fed = true;
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.refused {
            return Poll::Ready(Err(NO_ROOM.into()));
        }
        let written = Pin::new(&mut self.io).poll_write(context, buf);
        if !self.keeps(buf.len(), &written) {
            return Poll::Ready(Err(NO_ROOM.into()));
        }
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.refused {
            return Poll::Ready(Err(NO_ROOM.into()));
        }
        let sent = poll_send(&self.io, context, bufs);
        if !self.keeps(bufs.iter().map(|buf| buf.len()).sum(), &sent) {
            return Poll::Ready(Err(NO_ROOM.into()));
        }
        self.written(context, sent)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.quiet.found(|| has_gone(&self.io));
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.quiet.is_parked() {
            return Poll::Ready(Ok(())); // it goes on later
        }
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Error of a connection for which there is no memory; no system call fails with it, of a socket.
pub(crate) const NO_ROOM: io::ErrorKind = io::ErrorKind::QuotaExceeded;
