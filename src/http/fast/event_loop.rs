//! The loop of a serving thread: it gives each ready connection a turn, and waits for none.
//!
//! The loop has no tasks. A task for each connection would touch memory of its own twice for each
//! request: to wake it and to run it. With hundreds of connections that memory has left the nearest
//! caches by then (docs/decisions/0017). Work that waits for more than its own socket goes to the
//! worker's other thread, which has a runtime.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{io, thread};

use arc_swap::ArcSwap;
use bytes::Bytes;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use neve_store::residency;
use slab::Slab;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{error, warn};

use super::connection::{FastConnection, NextStep, ROOM};
use super::service::FastService;
use crate::config::settings::Deadlines;
use crate::http::{Handoff, OpenConnection, ToFast, ToFull, UnsentResponse, Waited};

#[cfg(test)]
mod tests;

/// Highest number of events of one wait. Fewer gained nothing: docs/decisions/rejected.md.
const EVENTS: usize = 1024;
/// Token of messages from other threads, for which no socket has an event.
const HANDOFF: Token = Token(usize::MAX);
/// Least time between two checks for connections past their deadline.
const LOOKS_APART: Duration = Duration::from_millis(50);
/// Time that an idle connection stays open at the end: a request may be on its way, and gets a
/// response that says that the connection closes.
const DRAIN_IDLE: Duration = Duration::from_secs(1);
/// Pause after an unexpected failure of `poll`: an immediate retry would spin.
const PAUSE: Duration = Duration::from_millis(100);

/// The fast-path connections of a thread.
pub(crate) struct EventLoop {
    poll: Poll,
    coming: Receiver<ToFast>,
    leaving: UnboundedSender<ToFull>,
    /// Way back, for threads that answer offloaded requests.
    handoff: Handoff,
    service: Arc<FastService>,
    /// Place of the service, where a reload puts another one.
    place: Arc<ArcSwap<FastService>>,
    deadlines: Deadlines,
    open: Slab<FastConnection>,
    /// Read buffer that all connections share.
    room: Vec<u8>,
    /// Keys of connections that want another turn.
    again: Vec<usize>,
    /// Time of the next look for connections past their deadline, at the first deadline or before.
    look_at: Option<Instant>,
    /// Time at which idle connections close, once connections are to end.
    drain_end: Option<Instant>,
    /// True if no more connections will come.
    last: bool,
}

impl EventLoop {
    pub(crate) fn new(
        place: Arc<ArcSwap<FastService>>,
        leaving: UnboundedSender<ToFull>,
    ) -> io::Result<(Self, Handoff)> {
        let poll = Poll::new()?;
        let (sender, coming) = mpsc::channel();
        let waker = Arc::new(Waker::new(poll.registry(), HANDOFF)?);
        let (open, room, again) = (Slab::new(), vec![0; ROOM], Vec::new());
        let (look_at, drain_end, last) = (None, None, false);
        let handoff = Handoff { sender, waker };
        let service = place.load_full();
        let deadlines = service.deadlines;
        let event_loop = Self {
            poll,
            coming,
            leaving,
            handoff: handoff.clone(),
            service,
            place,
            deadlines,
            open,
            room,
            again,
            look_at,
            drain_end,
            last,
        };
        Ok((event_loop, handoff))
    }

    /// Serves until no more connections come and the last one has closed.
    pub(crate) fn run(mut self) {
        let (mut events, mut now) = (Events::with_capacity(EVENTS), Instant::now());
        while !self.last || !self.open.is_empty() {
            if let Err(error) = self.poll.poll(&mut events, self.timeout(now)) {
                complain(&error);
                continue;
            }
            now = Instant::now();
            events.iter().for_each(|event| self.event(event, now));
            // New connections come last: one may get the key of a connection that closed in this turn,
            // and must not get its events.
            if events.iter().any(|event| event.token() == HANDOFF) {
                self.take_handoffs(now);
            }
            self.turns(now);
            // Here, so that one look at the clock times all calls of the round.
            self.service.responder.rpc.counters.latencies.settle(now);
            self.close_expired(now);
        }
    }

    /// Gives a turn to each connection that wants another one.
    fn turns(&mut self, now: Instant) {
        // A turn may push its key again: that one is for the next round, after a look at the sockets.
        let mut again = std::mem::take(&mut self.again);
        // An event of this round may have added a key that was there already.
        again.sort_unstable();
        again.dedup();
        again.into_iter().for_each(|key| self.turn(key, now));
    }

    /// Time until the next duty at `now`.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        self.look_at.map(|at| at.saturating_duration_since(now))
    }

    fn event(&mut self, event: &Event, now: Instant) {
        let Token(key) = event.token();
        // An earlier event of this round may have closed it.
        let Some(connection) = self.open.get_mut(key) else { return };
        let ends = event.is_read_closed() || event.is_error();
        if ends {
            connection.note_end(); // bytes may still be unread before the end
        }
        if connection.wants(event.is_readable() || ends) {
            self.turn(key, now);
        }
    }

    /// Takes connections, answers and signals from other threads.
    fn take_handoffs(&mut self, now: Instant) {
        while let Ok(come) = self.coming.try_recv() {
            match come {
                ToFast::Connection(moved) => self.enter(moved, now),
                ToFast::Answer(key, answered) => {
                    let count = |answered| self.service.responder.count(answered);
                    let waited = answered.and_then(count);
                    self.answered(key, waited, now);
                }
                ToFast::Drain => self.drain(now),
                ToFast::Renewed => self.renew(now),
                ToFast::Alive(told) => drop(told.send(())), // the asker may have given up
                ToFast::Last => self.last = true,
            }
        }
    }

    fn enter(&mut self, moved: OpenConnection, now: Instant) {
        if moved.read.len() > ROOM {
            return drop(self.leaving.send(ToFull::Connection(moved))); // too long for a plain request
        }
        let came = !moved.read.is_empty();
        let mut connection = FastConnection::new(moved);
        if self.drain_end.is_some() {
            connection.close_after_next();
        }
        let fd = connection.stream().map(AsRawFd::as_raw_fd);
        let key = self.open.insert(connection);
        // Both at once: mio's events are edge-triggered, so a second registration is never needed.
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let registered =
            fd.and_then(|fd| registry.register(&mut SourceFd(&fd), Token(key), interest));
        if let Err(error) = registered {
            warn!(%error, "cannot serve a connection");
            return self.remove(key);
        }
        self.look_by(key);
        // Bytes that were read before it came raise no event. While neve drains, the turn closes it
        // if it is idle.
        if came || self.drain_end.is_some() {
            self.turn(key, now);
        }
    }

    fn answered(&mut self, key: usize, waited: Option<Waited>, now: Instant) {
        // The key is still its own: a connection without its socket has no turn and no deadline, so
        // it stays open.
        let (Some(connection), Some(waited)) = (self.open.get_mut(key), waited) else {
            return self.remove(key);
        };
        match waited {
            Waited::Unsent(left) => connection.answered(left, now),
            Waited::Unanswered(stream, request) => {
                if !connection.unanswered(&self.service, stream, &request) {
                    return self.remove(key);
                }
                let read = connection.take_rest();
                return self.leave(key, read);
            }
        }
        self.turn(key, now);
        self.look_by(key); // without a socket it had no deadline
    }

    /// Takes another service for all connections. A shorter deadline may be due at once.
    fn renew(&mut self, now: Instant) {
        self.service = self.place.load_full();
        self.deadlines = self.service.deadlines;
        self.look_at = Some(now);
    }

    /// Lets connections end after their next response, or once they are idle for a while.
    fn drain(&mut self, now: Instant) {
        let end = now + DRAIN_IDLE;
        self.drain_end = Some(end);
        self.open.iter_mut().for_each(|(_, connection)| connection.close_after_next());
        self.look_at = Some(self.look_at.map_or(end, |at| at.min(end)));
    }

    /// Gives a connection its turn, unless another thread has the socket.
    fn turn(&mut self, key: usize, now: Instant) {
        let is_alone = self.open.len() == 1;
        let Some(connection) = self.open.get_mut(key).filter(|connection| !connection.waits())
        else {
            return;
        };
        let (service, room) = (&self.service, &mut self.room);
        // A connection that is alone holds up no other, so it may unpack more here
        // (docs/decisions/0037).
        residency::set_alone(is_alone);
        // A panic of one connection must not end the others. The connection is closed with all that
        // it half did.
        let need = catch_unwind(AssertUnwindSafe(|| connection.go_on(service, room, now)));
        match need.unwrap_or(NextStep::Nothing) {
            NextStep::Client
                if connection.is_idle() && self.drain_end.is_some_and(|end| end <= now) =>
            {
                self.remove(key);
            }
            // Its deadline only moved later, unless idle connections end sooner than unsent responses.
            NextStep::Client
                if connection.is_idle() && self.deadlines.idle >= self.deadlines.write => {}
            NextStep::Client => self.look_by(key),
            NextStep::Turn => self.again.push(key),
            // The thread that reads the disk also sends, because the pages may leave memory again. The
            // socket stays registered; the turn after the answer finds what came meanwhile.
            NextStep::Offload(offloaded) => {
                let Some(stream) = connection.wait() else { return self.remove(key) };
                let handoff = self.handoff.clone();
                let told = move |answered| handoff.bring(ToFast::Answer(key, answered));
                self.service.responder.answer_offloaded(offloaded, stream, told);
            }
            NextStep::Disk(out) => {
                let stream = connection.wait();
                let leave =
                    stream.map(|stream| ToFull::Unsent(key, UnsentResponse { stream, out }));
                if leave.is_none_or(|leave| self.leaving.send(leave).is_err()) {
                    self.remove(key);
                }
            }
            NextStep::Hyper(read) => self.leave(key, read),
            NextStep::Nothing => self.remove(key),
        }
    }

    fn leave(&mut self, key: usize, read: Bytes) {
        let Some(moved) = self.open.remove(key).leave(read) else { return };
        let fd = moved.stream.as_raw_fd();
        // Before the message: the other thread may close the socket, and the next one may get its
        // number.
        match self.poll.registry().deregister(&mut SourceFd(&fd)) {
            // The other thread ends only after this one.
            Ok(()) => drop(self.leaving.send(ToFull::Connection(moved))),
            Err(error) => warn!(%error, "cannot serve a connection"),
        }
    }

    /// Closes a connection, which also ends its events.
    fn remove(&mut self, key: usize) {
        let _ = self.open.try_remove(key);
    }

    /// Moves the next look forward to the deadline of this connection.
    fn look_by(&mut self, key: usize) {
        let connection = self.open.get(key);
        let due = connection.and_then(|connection| due(connection, self.deadlines, self.drain_end));
        self.look_at = [self.look_at, due].into_iter().flatten().min();
    }

    /// Closes connections past their deadline.
    fn close_expired(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        let (mut next, deadlines, drain_end) = (None::<Instant>, self.deadlines, self.drain_end);
        let counters = &self.service.responder.rpc.counters;
        self.open.retain(|_, connection| {
            let Some(due) = due(connection, deadlines, drain_end) else { return true };
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
            } else if drain_end.is_none() {
                // While neve drains, an idle connection is closed by neve's wish: no timeout.
                counters.time_out(connection.wait_kind().timeout());
            }
            due > now
        });
        // A check visits all connections, so it must not come too often.
        self.look_at = next.map(|next| next.max(now + LOOKS_APART));
    }
}

/// Returns the time at which neve closes a connection, if nothing is sent until then.
fn due(
    connection: &FastConnection,
    deadlines: Deadlines,
    drain_end: Option<Instant>,
) -> Option<Instant> {
    let due = connection.deadline(deadlines)?;
    Some(drain_end.filter(|_| connection.is_idle()).map_or(due, |end| due.min(end)))
}

/// Logs a failure of `poll`, unless a signal interrupted it.
fn complain(error: &io::Error) {
    // Signals for neve end `poll` early, and are no failure.
    if error.kind() != ErrorKind::Interrupted {
        error!(%error, "cannot wait for connections");
        thread::park_timeout(PAUSE);
    }
}
