//! A connection on the short way from a socket to an answer and back, for plain requests.
//!
//! A connection is here as long as its requests are plain. It has no buffer of its own: what comes
//! is read into one that all connections of a thread share. The first request of another form
//! takes the connection to hyper, with what was read of it.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Instant;

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::door::{Counted, Left, Moved, Question, Wait};
use super::out::{Out, Sent};
use super::plain::{Persistence, Plain, Seen};
use super::rpc::Reply;
use super::service::Service;
use super::socket::Patience;
use crate::tally::add;

/// A request that is longer is not plain.
pub(super) const ROOM: usize = 16 << 10;
/// A client that sends one request behind another gets so many answers before it is another's turn.
const TURN: usize = 16;

/// What a connection needs to go on.
pub(super) enum Need {
    /// Something from the client: a request, or that it reads.
    Client,
    /// Its next turn.
    Turn,
    /// The disk, which may have to be waited for.
    Disk(Wait),
    /// Hyper, which understands what came.
    Hyper(Bytes),
    /// Nothing: it is over.
    Nothing,
}

/// A connection.
pub(super) struct Lane {
    /// None while whoever waits for the disk has it.
    stream: Option<TcpStream>,
    /// When bytes were last sent.
    sent: Instant,
    /// An answer that is not sent whole.
    out: Option<Box<Out>>,
    /// Whether the client sends no more, so that the end is to be read.
    ends: bool,
    /// Whether nothing comes behind the answer that is under way.
    last: bool,
    /// What came and is not answered.
    rest: Vec<u8>,
    counted: Counted,
}

impl Lane {
    pub(super) fn new(moved: Moved) -> Self {
        let Moved { stream, read, sent, counted } = moved;
        let (rest, out) = (read.to_vec(), None); // what it was read into may be large
        let stream = Some(stream);
        Self { stream, sent, out, ends: false, last: false, rest, counted }
    }

    /// Where it goes on elsewhere.
    pub(super) fn leave(self, read: Bytes) -> Option<Moved> {
        Some(Moved { stream: self.stream?, read, sent: self.sent, counted: self.counted })
    }

    /// Its socket, unless somebody else has it.
    pub(super) fn stream(&self) -> io::Result<&TcpStream> {
        self.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Closes the connection once what is under way is sent.
    #[cfg(test)]
    pub(super) fn ends_after_this(&mut self) {
        self.last = true;
    }

    /// Notes that the client sends no more.
    pub(super) fn note_end(&mut self) {
        self.ends = true;
    }

    /// Whether nothing is owed to the client.
    pub(super) fn is_idle(&self) -> bool {
        self.out.is_none() && !self.waits()
    }

    /// Whether it has anything to do now that its socket can be read from, or written to.
    pub(super) fn wants(&self, readable: bool) -> bool {
        readable || self.out.is_some()
    }

    /// Whether the disk is waited for.
    pub(super) fn waits(&self) -> bool {
        self.stream.is_none()
    }

    /// When it is given up, if nothing is sent until then.
    pub(super) fn deadline(&self, patience: Patience) -> Option<Instant> {
        let limit = if self.out.is_some() { patience.write } else { patience.idle };
        (!self.waits()).then(|| self.sent + limit)
    }

    /// Gives its socket to whoever waits for the disk.
    pub(super) fn wait(&mut self) -> Option<TcpStream> {
        self.stream.take()
    }

    /// Takes it back, with what is left of an answer.
    pub(super) fn answered(&mut self, mut left: Left, now: Instant) {
        if left.out.has_moved() {
            self.sent = now;
        }
        (self.stream, self.out) = (Some(left.stream), Some(left.out));
    }

    /// Goes on as long as nothing has to be waited for.
    pub(super) fn go_on(&mut self, service: &Service, room: &mut [u8], now: Instant) -> Need {
        let mut room = Room { bytes: room, len: 0, drained: false };
        room.add(&std::mem::take(&mut self.rest));
        let need = self.go_on_in(service, &mut room, now).unwrap_or(Need::Nothing);
        self.rest = room.came().to_vec();
        need
    }

    fn go_on_in(
        &mut self,
        service: &Service,
        room: &mut Room<'_>,
        now: Instant,
    ) -> io::Result<Need> {
        if let Some(out) = self.out.take()
            && let Some(need) = self.send(*out, now)?
        {
            return Ok(need);
        }
        for _ in 0..TURN {
            if self.last {
                // What came behind and is not read would have the system reset the connection.
                let _ = recv(self.stream()?, &mut *room.bytes, RecvFlags::empty());
                return Ok(Need::Nothing);
            }
            let plain = match self.request(service, room)? {
                Ok(plain) => plain,
                Err(need) => return Ok(need),
            };
            self.last = plain.persistence != Persistence::Kept;
            let Some(reply) = answer(service, room.came(), &plain) else {
                return Ok(room.disk(&plain));
            };
            room.take(plain.body.end);
            if let Some(need) = self.send(service.out(reply, plain.persistence), now)? {
                return Ok(need);
            }
        }
        Ok(Need::Turn)
    }

    /// The next request, or what it takes to get one.
    fn request(&self, service: &Service, room: &mut Room<'_>) -> io::Result<Result<Plain, Need>> {
        loop {
            let need = match service.look(room.came()) {
                Seen::Plain(plain) => return Ok(Ok(plain)),
                Seen::Begin if room.len < ROOM => self.read(room)?,
                Seen::Begin | Seen::Other => Some(room.hyper()),
            };
            if let Some(need) = need {
                return Ok(Err(need));
            }
        }
    }

    /// Reads what came, or says what it takes.
    fn read(&self, room: &mut Room<'_>) -> io::Result<Option<Need>> {
        if room.drained && !self.ends {
            return Ok(Some(Need::Client));
        }
        match recv(self.stream()?, &mut room.bytes[room.len..], RecvFlags::empty()) {
            Ok((_, 0)) if room.len > 0 => Ok(Some(room.hyper())),
            Ok((_, 0)) => Ok(Some(Need::Nothing)),
            Ok((_, more)) => {
                room.len += more;
                room.drained = room.len < room.bytes.len();
                Ok(None)
            }
            Err(Errno::AGAIN) => Ok(Some(Need::Client)),
            Err(Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends an answer, or says what it takes to send the rest.
    fn send(&mut self, mut out: Out, now: Instant) -> io::Result<Option<Need>> {
        let sent = out.send(self.stream()?)?;
        if out.has_moved() {
            self.sent = now;
        }
        Ok(match sent {
            Sent::All => None,
            Sent::Full => {
                self.out = Some(Box::new(out));
                Some(Need::Client)
            }
            Sent::Cold => Some(Need::Disk(Wait::Send(Box::new(out)))),
        })
    }
}

fn answer(service: &Service, came: &[u8], plain: &Plain) -> Option<Reply> {
    let tally = &service.rpc.tally;
    add(&tally.requests, 1);
    add(&tally.plain, 1);
    service.answer_now(&came[plain.body.clone()], plain.accepts)
}

/// The buffer, and how much of it is in use.
struct Room<'r> {
    bytes: &'r mut [u8],
    len: usize,
    /// Whether the last read left some of it empty: what comes after that is told anew.
    drained: bool,
}

impl Room<'_> {
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

    fn disk(&mut self, plain: &Plain) -> Need {
        let body = Bytes::copy_from_slice(&self.bytes[plain.body.clone()]);
        self.take(plain.body.end);
        let (accepts, persistence) = (plain.accepts, plain.persistence);
        Need::Disk(Wait::Answer(Question { body, accepts, persistence }))
    }

    fn hyper(&mut self) -> Need {
        let came = Bytes::copy_from_slice(self.came());
        self.len = 0;
        Need::Hyper(came)
    }
}
