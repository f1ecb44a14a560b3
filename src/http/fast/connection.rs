//! A connection on the short way from a socket to an answer and back, for plain requests.
//!
//! A connection is here as long as its requests are plain. It has no buffer of its own: what comes
//! is read into one that all connections of a thread share. The first request of another form
//! takes the connection to hyper, with what was read of it.

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
use crate::http::{ConnectionGuard, OffloadedRequest, OpenConnection, UnsentResponse};
use crate::rpc::{Calls, RpcResponse};
use crate::shared::{ClientAddress, FREE_BYTES, Holder, Reservation, Timeout, add};

/// A request that is longer is not plain.
pub(crate) const ROOM: usize = 16 << 10;
/// A client that sends one request behind another gets so many answers before it is another's turn.
const TURN: usize = 16;

/// Next step of a connection.
pub(crate) enum NextStep {
    /// Something from the client: a request, or that it reads.
    Client,
    /// The next turn of the event loop.
    Turn,
    /// Another thread, which may wait for the disk and take long, for the response.
    Offload(OffloadedRequest),
    /// The disk, for the rest of a response.
    Disk(Box<ResponseWriter>),
    /// Hyper, which understands what came.
    Hyper(Bytes),
    /// Nothing: it is over.
    Nothing,
}

/// Responses that a connection still gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// Responses to all requests of the client.
    Any,
    /// A response, which says that the connection closes.
    One,
    /// None.
    None,
}

/// A connection.
pub(crate) struct FastConnection {
    /// None while whoever waits for the disk has it.
    stream: Option<TcpStream>,
    /// Time when bytes were last sent.
    sent: Instant,
    /// An answer that is not sent whole.
    out: Option<Box<ResponseWriter>>,
    /// True if the client sends no more, so that the end is to be read.
    ends: bool,
    /// Responses that may come behind the one that is under way.
    ahead: Ahead,
    /// Received bytes without a response.
    rest: Vec<u8>,
    address: ClientAddress,
    proxied: bool,
    /// True if no request was answered.
    is_new: bool,
    /// Covers what came, if that is much.
    held: Option<Reservation>,
    counted: ConnectionGuard,
}

impl FastConnection {
    pub(crate) fn new(moved: OpenConnection) -> Self {
        let OpenConnection { stream, read, sent, address, proxied, is_new, held, counted } = moved;
        let (rest, out) = (read.to_vec(), None); // what it was read into may be large
        let (stream, ends, ahead) = (Some(stream), false, Ahead::Any);
        Self { stream, sent, out, ends, ahead, rest, address, proxied, is_new, held, counted }
    }

    /// Gives the connection to another thread.
    pub(crate) fn leave(self, read: Bytes) -> Option<OpenConnection> {
        let Self { stream, sent, address, proxied, is_new, held, counted, .. } = self;
        Some(OpenConnection {
            stream: stream?,
            read,
            sent,
            address,
            proxied,
            is_new,
            held,
            counted,
        })
    }

    /// Socket, unless somebody else has it.
    pub(crate) fn stream(&self) -> io::Result<&TcpStream> {
        self.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Closes the connection once what is under way is sent.
    #[cfg(test)]
    pub(crate) fn ends_after_this(&mut self) {
        self.ahead = Ahead::None;
    }

    /// Closes the connection behind the response to its next request, and says so in that response.
    pub(crate) fn close_after_next(&mut self) {
        if self.ahead == Ahead::Any {
            self.ahead = Ahead::One;
        }
    }

    /// Notes that the client sends no more.
    pub(crate) fn note_end(&mut self) {
        self.ends = true;
    }

    /// True if nothing is owed to the client.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_none() && !self.waits()
    }

    /// True if it has anything to do now that its socket can be read from, or written to.
    pub(crate) fn wants(&self, readable: bool) -> bool {
        readable || self.out.is_some()
    }

    /// True if the disk is waited for.
    pub(crate) fn waits(&self) -> bool {
        self.stream.is_none()
    }

    /// The wait that ends at the deadline.
    pub(crate) fn wait_kind(&self) -> Timeout {
        if self.out.is_some() { Timeout::Write } else { Timeout::Idle }
    }

    /// Time at which neve closes it, if nothing is sent until then.
    pub(crate) fn deadline(&self, deadlines: Deadlines) -> Option<Instant> {
        (!self.waits()).then(|| self.sent + self.wait_kind().limit(deadlines))
    }

    /// Gives its socket to whoever waits for the disk.
    pub(crate) fn wait(&mut self) -> Option<TcpStream> {
        self.stream.take()
    }

    /// Takes it back, with what is left of an answer.
    pub(crate) fn answered(&mut self, mut left: UnsentResponse, now: Instant) {
        if left.out.has_moved() {
            self.sent = now;
        }
        (self.stream, self.out) = (Some(left.stream), Some(left.out));
    }

    /// Takes it back, with a request that hyper is to answer and all that came behind it; false if
    /// there is no memory for them.
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

    /// Bytes that came and are not answered.
    pub(crate) fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest).into()
    }

    /// Goes on as long as nothing has to be waited for.
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
            self.held.take_if(|_| !matches!(need, NextStep::Hyper(_)));
            return need;
        }
        if self.hold(service, self.rest.len()) { need } else { self.refuse() }
    }

    /// Sees to it that what came may be kept.
    fn hold(&mut self, service: &FastService, bytes: usize) -> bool {
        service.responder.rpc.memory.account(self.address).hold(&mut self.held, Holder::Head, bytes)
    }

    /// Says that there is no memory, as far as that goes at once, and ends.
    fn refuse(&mut self) -> NextStep {
        if let (None, Ok(stream)) = (&self.out, self.stream()) {
            let _ = send(stream, &[IoSlice::new(ErrorResponse::NO_ROOM_RAW)]);
        }
        NextStep::Nothing
    }

    fn go_on_in(
        &mut self,
        service: &FastService,
        room: &mut ReadBuffer<'_>,
        now: Instant,
    ) -> io::Result<NextStep> {
        if let Some(out) = self.out.take()
            && let Some(need) = self.send(*out, service, now)?
        {
            return Ok(need);
        }
        for _ in 0..TURN {
            if self.ahead == Ahead::None {
                // What came behind and is not read would have the system reset the connection.
                let _ = recv(self.stream()?, &mut *room.bytes, RecvFlags::empty());
                return Ok(NextStep::Nothing);
            }
            let mut plain = match self.request(service, room)? {
                Ok(plain) => plain,
                Err(need) => return Ok(need),
            };
            self.is_new = false;
            if self.ahead == Ahead::One && plain.persistence == Persistence::Kept {
                plain.persistence = Persistence::Closed;
            }
            if plain.persistence != Persistence::Kept {
                self.ahead = Ahead::None;
            }
            let client = plain.client.unwrap_or(self.address);
            let reply = match answer(service, room.came(), &plain, client, now) {
                Ok(reply) if reply.needs_upstream() => return Ok(self.hyper(service, room)),
                Ok(reply) => reply,
                Err(Cold) => return Ok(self.wait_for_disk(service, room, &plain, client)),
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

    /// Has a request answered by who may wait for the disk, if there is memory for it.
    fn wait_for_disk(
        &mut self,
        service: &FastService,
        room: &mut ReadBuffer<'_>,
        plain: &FastRequest,
        address: ClientAddress,
    ) -> NextStep {
        let unpacks = residency::was_too_heavy(); // asked also if the request is refused: it is of this one
        let (body_at, end) = (plain.body.start, plain.body.end);
        let request = Bytes::copy_from_slice(&room.bytes[..end]);
        room.take(end);
        let mut held = None;
        let account = service.responder.rpc.memory.account(address);
        if end > FREE_BYTES && !account.hold(&mut held, Holder::Body, end) {
            return self.refuse();
        }
        let (accepts, persistence) = (plain.accepts, plain.persistence);
        let question = OffloadedRequest {
            request,
            body_at,
            accepts,
            persistence,
            address,
            unpacks,
            _held: held,
        };
        NextStep::Offload(question)
    }

    /// The next request, or what it takes to get one.
    fn request(
        &mut self,
        service: &FastService,
        room: &mut ReadBuffer<'_>,
    ) -> io::Result<Result<FastRequest, NextStep>> {
        loop {
            let need = match service.parse_fast(room.came(), self.proxied) {
                Seen::FastRequest(plain) => return Ok(Ok(plain)),
                Seen::Begin if room.len < ROOM => self.read(service, room)?,
                Seen::Begin | Seen::Other => Some(self.hyper(service, room)),
            };
            if let Some(need) = need {
                return Ok(Err(need));
            }
        }
    }

    /// Has hyper go on with what came, if there is memory for it.
    fn hyper(&mut self, service: &FastService, room: &mut ReadBuffer<'_>) -> NextStep {
        if room.len > FREE_BYTES && !self.hold(service, room.len) {
            room.len = 0;
            return self.refuse();
        }
        room.hyper()
    }

    /// Reads what came, or says what it takes.
    fn read(
        &mut self,
        service: &FastService,
        room: &mut ReadBuffer<'_>,
    ) -> io::Result<Option<NextStep>> {
        if room.drained && !self.ends {
            return Ok(Some(NextStep::Client));
        }
        match recv(self.stream()?, &mut room.bytes[room.len..], RecvFlags::empty()) {
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

    /// Sends an answer, or says what it takes to send the rest.
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
            _ if !out.reserve(service.responder.rpc.memory.account(self.address)) => {
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
    let reply = service.responder.answer_if_resident(body, plain.accepts, address, count);
    if !reply.as_ref().is_ok_and(RpcResponse::needs_upstream) {
        add(&counters.requests, 1); // hyper's thread counts the others
        add(&counters.plain, 1);
    }
    reply
}

/// The buffer, and how much of it is in use.
struct ReadBuffer<'r> {
    bytes: &'r mut [u8],
    len: usize,
    /// True if the last read left some of it empty: what comes after that is told anew.
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

    /// Takes a request out.
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
