//! The short way from a socket to an answer and back, for plain requests.
//!
//! A connection is here as long as its requests are plain. It has no buffer of its own: what comes
//! is read into one that all connections of a thread share. The first request of another form
//! takes the connection to hyper, with what was read of it.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::watch;

use super::connection::draining;
use super::encoded::Accepts;
use super::out::Out;
use super::plain::{Plain, Seen};
use super::rpc::Reply;
use super::service::Service;
use super::socket::Socket;
use crate::tally::add;

/// A request that is longer is not plain.
const ROOM: usize = 16 << 10;

thread_local! {
    /// Where requests are read to; empty while it is in use.
    static SHARED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Why a connection is here no longer.
pub(super) enum Left {
    /// It is over.
    Over,
    /// These bytes came, which are no plain request.
    Other(Bytes),
}

/// What a connection needs to go on.
enum Need {
    /// An answer to this body, for which the disk may have to be waited for.
    Disk(Bytes, Accepts),
    /// To leave.
    Leave(Left),
}

/// A connection.
struct Lane<'c> {
    socket: &'c mut Socket,
    service: &'c Service,
    /// What came and is not answered.
    rest: Vec<u8>,
    /// An answer that is not sent whole.
    out: Option<Box<Out>>,
}

/// Answers plain requests until something else comes, or the connection is to end.
pub(super) async fn run(
    socket: &mut Socket,
    service: &Service,
    drain: &mut watch::Receiver<bool>,
) -> Left {
    let rest = socket.take_read();
    if rest.len() > ROOM {
        return Left::Other(rest);
    }
    let mut lane = Lane { socket, service, rest: rest.into(), out: None };
    let mut drained = pin!(draining(drain));
    loop {
        let need = poll_fn(|context| match lane.poll(context) {
            Poll::Pending if lane.out.is_none() => {
                drained.as_mut().poll(context).map(|()| Need::Leave(Left::Over))
            }
            need => need,
        });
        match need.await {
            Need::Disk(body, accepts) => {
                let reply = Box::pin(service.answer_elsewhere(body, accepts)).await;
                lane.send(reply);
            }
            Need::Leave(left) => return left,
        }
    }
}

impl Lane<'_> {
    /// Goes on as long as nothing has to be waited for.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Need> {
        let mut bytes = SHARED.take();
        bytes.resize(ROOM, 0); // once a thread
        let mut room = Room { bytes: &mut bytes, len: 0 };
        room.add(&self.rest);
        let need = self.poll_in(context, &mut room);
        self.rest.clear();
        self.rest.extend_from_slice(room.came());
        SHARED.set(bytes);
        need
    }

    fn poll_in(&mut self, context: &mut Context<'_>, room: &mut Room<'_>) -> Poll<Need> {
        loop {
            if let Some(out) = &mut self.out {
                if ready!(out.poll_send(self.socket, context)).is_err() {
                    return Poll::Ready(Need::Leave(Left::Over));
                }
                self.out = None;
            }
            match self.service.look(room.came()) {
                Seen::Plain(plain) => {
                    let Some(reply) = self.answer(room.came(), &plain) else {
                        return Poll::Ready(room.disk(&plain));
                    };
                    self.send(reply);
                    room.take(plain.body.end);
                }
                Seen::Begin if room.len < ROOM => {
                    let read = ready!(self.socket.poll_into(context, &mut room.bytes[room.len..]));
                    match read {
                        Ok(0) if room.len > 0 => return Poll::Ready(room.other()),
                        Ok(0) | Err(_) => return Poll::Ready(Need::Leave(Left::Over)),
                        Ok(more) => room.len += more,
                    }
                }
                Seen::Begin | Seen::Other => return Poll::Ready(room.other()),
            }
        }
    }

    fn answer(&self, came: &[u8], plain: &Plain) -> Option<Reply> {
        let tally = &self.service.rpc.tally;
        add(&tally.requests, 1);
        add(&tally.plain, 1);
        self.service.answer_now(&came[plain.body.clone()], plain.accepts)
    }

    fn send(&mut self, reply: Reply) {
        let out = match reply {
            Reply::Answer(body) if body.coding().is_none() => Out::plain(body),
            reply => Out::new(self.service.response(reply)),
        };
        add(&self.service.rpc.tally.bytes, out.body_len() as u64);
        self.out = Some(Box::new(out));
    }
}

/// The buffer, and how much of it is in use.
struct Room<'r> {
    bytes: &'r mut [u8],
    len: usize,
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
        Need::Disk(body, plain.accepts)
    }

    fn other(&mut self) -> Need {
        let came = Bytes::copy_from_slice(self.came());
        self.len = 0;
        Need::Leave(Left::Other(came))
    }
}
