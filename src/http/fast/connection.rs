//! A connection of the fast path, for plain requests.
//!
//! A connection stays here as long as its requests are plain. It has no read buffer: all connections
//! of a thread share one. The first request of another form takes the connection to hyper, with the
//! bytes that were read of it.

use std::io;
use std::io::{ErrorKind, IoSlice};
use std::net::TcpStream;
use std::time::Instant;

use bytes::Bytes;
use neve_store::residency::{self, Cold};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::request::{FastRequest, Seen};
use super::service::FastService;
use crate::config::settings::Deadlines;
use crate::http::admit::ErrorResponse;
use crate::http::response::{Persistence, ResponseWriter, Sent, send};
use crate::http::{ClientWait, ConnectionGuard, OffloadedRequest, OpenConnection, UnsentResponse};
use crate::rpc::{Calls, RpcResponse};
use crate::shared::{ClientAddress, FREE_BYTES, Holder, Reservation, add};

/// Bytes of the shared read buffer. A longer request is not plain.
pub(crate) const ROOM: usize = 16 << 10;
/// Responses to pipelined requests of one client before another connection has its turn.
const TURN: usize = 16;

/// Next step of a connection.
pub(crate) enum NextStep {
    /// Wait for the client: for a request, or until it reads.
    Client,
    /// The next turn of the event loop.
    Turn,
    /// A response from another thread, which may wait for the disk or take long.
    Offload(OffloadedRequest),
    /// The rest of a response from the disk.
    Disk(Box<ResponseWriter>),
    /// Hyper, with the received bytes.
    Hyper(Bytes),
    /// The end of the connection.
    Nothing,
}

/// Responses that a connection still gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// Responses to all requests of the client.
    Any,
    /// Response to one more request, which says that the connection closes.
    One,
    /// No more responses.
    None,
}

/// A connection of the event loop. It closes when it is dropped.
pub(crate) struct FastConnection {
    /// None while another thread, which waits for the disk, has it.
    stream: Option<TcpStream>,
    /// Time when bytes were last sent.
    sent: Instant,
    /// Response that is not sent whole.
    out: Option<Box<ResponseWriter>>,
    /// True if the client sends no more: a read will return the end.
    ends: bool,
    /// Responses that may follow the one that is being sent.
    ahead: Ahead,
    /// Received bytes without a response.
    rest: Vec<u8>,
    /// Address of the other side.
    address: ClientAddress,
    /// Client of the last request: the other side, or the client that a trusted proxy named.
    client: ClientAddress,
    proxied: bool,
    /// True if no request was answered.
    is_new: bool,
    /// Reservation for received bytes beyond the free ones.
    held: Option<Reservation>,
    counted: ConnectionGuard,
}

impl FastConnection {
    pub(crate) fn new(moved: OpenConnection) -> Self {
        let OpenConnection { stream, read, sent, address, proxied, is_new, held, counted } = moved;
        let (rest, out) = (read.to_vec(), None); // a copy: the buffer of `read` may be large
        let (stream, ends, ahead, client) = (Some(stream), false, Ahead::Any, address);
        Self {
            stream,
            sent,
            out,
            ends,
            ahead,
            rest,
            address,
            client,
            proxied,
            is_new,
            held,
            counted,
        }
    }

    /// Gives the connection to another thread.
    pub(crate) fn leave(self, read: Bytes) -> Option<OpenConnection> {
        let Self { stream, sent, address, proxied, is_new, held, counted, .. } = self;
        let stream = stream?;
        Some(OpenConnection { stream, read, sent, address, proxied, is_new, held, counted })
    }

    /// Returns the socket, unless another thread has it.
    pub(crate) fn stream(&self) -> io::Result<&TcpStream> {
        self.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Closes the connection once the current response is sent.
    #[cfg(test)]
    pub(crate) fn ends_after_this(&mut self) {
        self.ahead = Ahead::None;
    }

    /// Has bytes come that wait for a response in part.
    #[cfg(test)]
    pub(crate) fn comes_behind(&mut self, bytes: &[u8]) {
        self.rest = bytes.to_vec();
    }

    /// Closes the connection after the response to its next request, which says so.
    pub(crate) fn close_after_next(&mut self) {
        // With `None` the last response is on its way, and no later one may follow it.
        if self.ahead == Ahead::Any {
            self.ahead = Ahead::One;
        }
    }

    /// Notes that the client sends no more.
    pub(crate) fn note_end(&mut self) {
        self.ends = true;
    }

    /// True if no request waits for a response.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_none() && !self.waits()
    }

    /// True if an event of its socket gives it something to do.
    pub(crate) fn wants(&self, readable: bool) -> bool {
        readable || self.out.is_some()
    }

    /// True if another thread has the socket, to wait for the disk.
    pub(crate) fn waits(&self) -> bool {
        self.stream.is_none()
    }

    /// Returns the kind of wait that ends at the deadline.
    pub(crate) fn wait_kind(&self) -> ClientWait {
        ClientWait::of(self.out.is_some())
    }

    /// Returns the time at which neve closes it, if nothing is sent until then.
    pub(crate) fn deadline(&self, deadlines: Deadlines) -> Option<Instant> {
        // While another thread has the socket, neve owes the client something, and not the reverse.
        (!self.waits()).then(|| self.wait_kind().late_at(self.sent, deadlines))
    }

    /// Gives the socket to a thread that waits for the disk.
    pub(crate) fn wait(&mut self) -> Option<TcpStream> {
        self.stream.take()
    }

    /// Takes the socket back, with the rest of a response.
    pub(crate) fn answered(&mut self, mut left: UnsentResponse, now: Instant) {
        // A client that takes nothing must not get more time by having its response offloaded.
        if left.out.has_moved() {
            self.sent = now;
        }
        (self.stream, self.out) = (Some(left.stream), Some(left.out));
    }

    /// Takes the socket back, with a request that goes to hyper before all bytes that came later.
    /// Returns false if there is no memory for them.
    pub(crate) fn unanswered(
        &mut self,
        service: &FastService,
        stream: TcpStream,
        request: &[u8],
    ) -> bool {
        self.stream = Some(stream);
        self.rest.splice(..0, request.iter().copied());
        self.rest.len() <= FREE_BYTES || self.hold(service, self.rest.len())
    }

    /// Takes the received bytes that have no response.
    pub(crate) fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest).into()
    }

    /// Reads, answers and sends until it must wait.
    pub(crate) fn go_on(
        &mut self,
        service: &FastService,
        room: &mut [u8],
        now: Instant,
    ) -> NextStep {
        let mut room = ReadBuffer { bytes: room, len: 0, drained: false };
        room.add(&std::mem::take(&mut self.rest));
        let need = self.go_on_in(service, &mut room, now).unwrap_or(NextStep::Nothing);
        self.rest = room.came().to_vec();
        if self.rest.len() <= FREE_BYTES {
            // On the way to hyper the bytes are in `need`, and their reservation goes with them.
            self.held.take_if(|_| !matches!(need, NextStep::Hyper(_)));
            return need;
        }
        match need {
            need if self.hold(service, self.rest.len()) => need,
            // Its response may be sent in part: a refusal would be taken for a part of the body.
            NextStep::Disk(_) | NextStep::Nothing => NextStep::Nothing,
            _ => self.refuse(service),
        }
    }

    /// Reserves memory for received bytes; false if there is none.
    fn hold(&mut self, service: &FastService, bytes: usize) -> bool {
        service.responder.rpc.memory.account(self.address).hold(&mut self.held, Holder::Head, bytes)
    }

    /// Sends that there is no memory, if the socket takes it at once, and ends the connection.
    fn refuse(&mut self, service: &FastService) -> NextStep {
        // Amid an unsent response these bytes would be taken for a part of its body.
        if let (None, Ok(stream)) = (&self.out, self.stream()) {
            let status = ErrorResponse::NO_MEMORY.response().status();
            service.responder.rpc.counters.respond(status.as_u16());
            let _ = send(stream, &[IoSlice::new(ErrorResponse::NO_MEMORY_RAW)]);
        }
        NextStep::Nothing
    }

    fn go_on_in(
        &mut self,
        service: &FastService,
        room: &mut ReadBuffer<'_>,
        now: Instant,
    ) -> io::Result<NextStep> {
        // Responses keep the order of the requests (RFC 9112, 9.3.2): the unsent one goes first.
        if let Some(out) = self.out.take()
            && let Some(need) = self.send(*out, service, now)?
        {
            return Ok(need);
        }
        for _ in 0..TURN {
            if self.ahead == Ahead::None {
                // The kernel resets a connection that closes with unread bytes: the client could lose
                // the response.
                let _ = recv(self.stream()?, &mut *room.bytes, RecvFlags::empty());
                return Ok(NextStep::Nothing);
            }
            let mut plain = match self.request(service, room)? {
                Ok(plain) => plain,
                Err(need) => return Ok(need),
            };
            // From here on a preface of HTTP/2 is no longer one: see `OpenConnection::is_new`.
            self.is_new = false;
            // `Closed` says so in a header. `Old` (HTTP/1.0) closes anyway.
            if self.ahead == Ahead::One && plain.persistence == Persistence::Kept {
                plain.persistence = Persistence::Closed;
            }
            if plain.persistence != Persistence::Kept {
                self.ahead = Ahead::None;
            }
            // All clients of a proxy have its address: by that they would share one limit.
            self.client = plain.client.unwrap_or(self.address);
            let reply = match answer(service, room.came(), &plain, self.client, now) {
                // Relaying needs a runtime. The request is still in the buffer, so hyper reads it again.
                Ok(reply) if reply.needs_upstream() => return Ok(self.hyper(service, room)),
                Ok(reply) => reply,
                Err(Cold) => return Ok(self.wait_for_disk(service, room, &plain)),
            };
            room.take(plain.body.end);
            if let Some(need) =
                self.send(service.responder.out(reply, plain.persistence), service, now)?
            {
                return Ok(need);
            }
        }
        Ok(NextStep::Turn)
    }

    /// Hands a request to a thread that may wait for the disk, if there is memory for it.
    fn wait_for_disk(
        &mut self,
        service: &FastService,
        room: &mut ReadBuffer<'_>,
        plain: &FastRequest,
    ) -> NextStep {
        let unpacks = residency::was_too_heavy(); // before any return: the flag is of this request
        let (body_at, end) = (plain.body.start, plain.body.end);
        // The buffer belongs to all connections: the next one overwrites it.
        let request = Bytes::copy_from_slice(&room.bytes[..end]);
        room.take(end);
        let (mut held, address) = (None, self.client);
        let account = service.responder.rpc.memory.account(address);
        if end > FREE_BYTES && !account.hold(&mut held, Holder::Body, end) {
            return self.refuse(service);
        }
        let (accepts, persistence) = (plain.accepts, plain.persistence);
        let offloaded = OffloadedRequest {
            request,
            body_at,
            accepts,
            persistence,
            address,
            unpacks,
            _held: held,
        };
        NextStep::Offload(offloaded)
    }

    /// Returns the next request, or the step that brings one.
    fn request(
        &mut self,
        service: &FastService,
        room: &mut ReadBuffer<'_>,
    ) -> io::Result<Result<FastRequest, NextStep>> {
        loop {
            let need = match service.parse_fast(room.came(), self.proxied) {
                Seen::FastRequest(plain) => return Ok(Ok(plain)),
                // A full buffer cannot complete a request: only hyper reads longer ones.
                Seen::Begin if room.len < ROOM => self.read(service, room)?,
                Seen::Begin | Seen::Other => Some(self.hyper(service, room)),
            };
            if let Some(need) = need {
                return Ok(Err(need));
            }
        }
    }

    /// Hands the connection to hyper with the received bytes, if there is memory for them.
    fn hyper(&mut self, service: &FastService, room: &mut ReadBuffer<'_>) -> NextStep {
        if room.len > FREE_BYTES && !self.hold(service, room.len) {
            // Bytes without a reservation go: `go_on` would keep them.
            room.len = 0;
            return self.refuse(service);
        }
        room.hyper()
    }

    /// Reads from the socket. Returns the next step if there is nothing to read.
    fn read(
        &mut self,
        service: &FastService,
        room: &mut ReadBuffer<'_>,
    ) -> io::Result<Option<NextStep>> {
        // A read would find nothing. After the end of the client it has to be read once more: the
        // event has come already.
        if room.drained && !self.ends {
            return Ok(Some(NextStep::Client));
        }
        match recv(self.stream()?, &mut room.bytes[room.len..], RecvFlags::empty()) {
            // The client ended amid a request: hyper responds as it does to any incomplete one.
            Ok((_, 0)) if room.len > 0 => Ok(Some(self.hyper(service, room))),
            Ok((_, 0)) => Ok(Some(NextStep::Nothing)),
            Ok((_, more)) => {
                room.len += more;
                room.drained = room.len < room.bytes.len();
                Ok(None)
            }
            Err(Errno::AGAIN) => Ok(Some(NextStep::Client)),
            Err(Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a response. Returns the step that sends its rest, if there is one.
    fn send(
        &mut self,
        mut out: ResponseWriter,
        service: &FastService,
        now: Instant,
    ) -> io::Result<Option<NextStep>> {
        let sent = out.send(self.stream()?)?;
        if out.has_moved() {
            self.sent = now;
        }
        Ok(match sent {
            Sent::All => None,
            // Unread responses count for the client, which loses its connection beyond its share.
            _ if !out.reserve(service.responder.rpc.memory.account(self.client)) => {
                Some(NextStep::Nothing)
            }
            Sent::Full => {
                self.out = Some(Box::new(out));
                Some(NextStep::Client)
            }
            Sent::Cold => Some(NextStep::Disk(Box::new(out))),
        })
    }
}

fn answer(
    service: &FastService,
    came: &[u8],
    plain: &FastRequest,
    address: ClientAddress,
    woke: Instant,
) -> Result<RpcResponse, Cold> {
    let counters = &service.responder.rpc.counters;
    let count = |calls: Calls| calls.count_at_end(counters, woke);
    let body = &came[plain.body.clone()];
    let reply = service.responder.rpc.answer_if_resident(body, plain.accepts, address, count);
    if !reply.as_ref().is_ok_and(RpcResponse::needs_upstream) {
        add(&counters.plain, 1); // hyper's thread counts the others
    }
    reply
}

/// The shared read buffer, and the number of bytes in use.
struct ReadBuffer<'r> {
    bytes: &'r mut [u8],
    len: usize,
    /// True if the last read did not fill it: an event tells of any later byte.
    drained: bool,
}

impl ReadBuffer<'_> {
    fn came(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn add(&mut self, more: &[u8]) {
        let end = self.len + more.len();
        self.bytes[self.len..end].copy_from_slice(more);
        self.len = end;
    }

    /// Removes a request from its front.
    fn take(&mut self, len: usize) {
        self.bytes.copy_within(len..self.len, 0);
        self.len -= len;
    }

    fn hyper(&mut self) -> NextStep {
        let came = Bytes::copy_from_slice(self.came());
        self.len = 0;
        NextStep::Hyper(came)
    }
}
