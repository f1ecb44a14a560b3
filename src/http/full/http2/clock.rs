//! The clock of a connection of HTTP/2. It closes a connection that is idle, and one whose client leaves the
//! ends of responses, for which no stream has a clock.
//!
//! GOAWAY comes first, so that other streams of the connection end. The connection is cut later.

use std::sync::Arc;

use tokio::time::Instant;

use super::send_memory::SendMemory;
use super::streams::OpenStreams;
use crate::config::settings::Deadlines;
use crate::http::{ClientWait, look_every};

/// State of a connection at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Open,
    /// To be told that it closes, for its client let this wait run out.
    Closing(ClientWait),
    /// To be cut: its client takes nothing, does not close, or never began.
    Late,
}

/// Clock of a connection.
#[derive(Debug)]
pub(super) struct ConnectionClock {
    deadlines: Deadlines,
    streams: Arc<OpenStreams>,
    memory: Arc<SendMemory>,
    /// Time of the line at the cut, while there is a reason for it.
    cut_at: Option<Instant>,
}

impl ConnectionClock {
    pub(super) fn new(
        deadlines: Deadlines,
        streams: Arc<OpenStreams>,
        memory: Arc<SendMemory>,
    ) -> Self {
        Self { deadlines, streams, memory, cut_at: None }
    }

    /// Time since which no stream is open and nothing waits for the client.
    fn idle_since(&self) -> Option<Instant> {
        Some(self.streams.idle_since()?.max(self.memory.idle_since()?))
    }

    /// Time of the next look.
    pub(super) fn next_look(&self, now: Instant) -> Instant {
        let next = now + look_every(self.deadlines);
        let idle =
            self.idle_since().map(|since| ClientWait::Request.late_at(since, self.deadlines));
        idle.filter(|until| *until > now).map_or(next, |until| until.min(next))
    }

    /// State of the connection at this time.
    pub(super) fn look(&mut self, now: Instant) -> Look {
        let (idle, tail) = (ClientWait::Request, ClientWait::LastSlices);
        let is_late = |wait: ClientWait, since, now| wait.late_at(since, self.deadlines) <= now;
        let is_idle = self.idle_since().is_some_and(|since| is_late(idle, since, now));
        let tails = self.memory.tails_since();
        let line = self.memory.line().at(now);
        let is_left = |since| is_late(tail, since, line);
        let is_left_once = tails.is_some_and(|(oldest, _)| is_left(oldest));
        if !is_idle && !is_left_once {
            self.cut_at = None;
            return Look::Open;
        }
        let Some(cut_at) = self.cut_at else {
            // After GOAWAY the client has the same time again, or that of a write if it was idle.
            let (over, next) = if is_idle { (idle, ClientWait::Response) } else { (tail, tail) };
            self.cut_at = Some(next.late_at(line, self.deadlines));
            return Look::Closing(over);
        };
        // Streams that are open and tails that are young may end meanwhile.
        let is_left_alone =
            self.streams.idle_since().is_some() && tails.is_some_and(|(_, newest)| is_left(newest));
        if cut_at <= line || is_left_alone { Look::Late } else { Look::Open }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use bytes::Bytes;

    use super::super::send_memory::StreamPieces;
    use super::*;
    use crate::shared::{ClientAddress, MemoryBudget};

    const IDLE: Duration = Duration::from_secs(100);
    const WRITE: Duration = Duration::from_secs(10);
    const IDLES: Look = Look::Closing(ClientWait::Request);
    const TAIL: Look = Look::Closing(ClientWait::LastSlices);

    struct Connection {
        clock: ConnectionClock,
        begin: Instant,
    }

    impl Connection {
        fn new() -> Self {
            let budget = MemoryBudget::new(1 << 20, 1 << 20);
            let deadlines = Deadlines { idle: IDLE, write: WRITE };
            let (streams, memory) = (Arc::default(), SendMemory::new(&budget));
            Self { clock: ConnectionClock::new(deadlines, streams, memory), begin: Instant::now() }
        }

        /// A stream, and a piece of its response.
        fn piece(&self) -> (Arc<StreamPieces>, Bytes) {
            let memory = &self.clock.memory;
            let pieces = StreamPieces::new(Arc::clone(memory));
            let address = ClientAddress::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let taken = memory.take(address, 100).expect("memory");
            let piece = pieces.hold(Bytes::from_static(b"x"), taken);
            (pieces, piece)
        }

        /// State after so many seconds. What is noted meanwhile takes no time.
        fn after(&mut self, seconds: u64) -> Look {
            self.clock.look(self.begin + Duration::from_secs(seconds) + Duration::from_millis(900))
        }
    }

    #[test]
    fn idle_connection_is_told_and_then_cut() {
        let mut connection = Connection::new();
        assert_eq!(connection.after(98), Look::Open);
        assert_eq!([100, 105, 111].map(|at| connection.after(at)), [IDLES, Look::Open, Look::Late]);
    }

    #[test]
    fn connection_is_not_idle_while_a_response_is_in_flight() {
        let mut connection = Connection::new();
        assert_eq!(connection.after(100), IDLES);
        let (_stream, piece) = connection.piece();
        assert_eq!(connection.after(111), Look::Open, "the response goes on");
        drop(piece);
        assert_eq!(connection.after(112), IDLES, "it is idle since a while ago");
        let open = connection.clock.streams.open();
        assert_eq!(connection.after(130), Look::Open, "a stream is open");
        drop(open);
        assert_eq!(connection.after(131), IDLES);
        assert_eq!(connection.after(142), Look::Late);
    }

    #[test]
    fn tail_that_is_left_ends_the_connection_when_other_streams_ended() {
        let mut connection = Connection::new();
        let (stream, piece) = connection.piece();
        assert_eq!(connection.after(90), Look::Open, "its stream has a clock");
        stream.leave();
        let open = connection.clock.streams.open();
        assert_eq!(connection.after(38), Look::Open);
        assert_eq!([41, 79].map(|at| connection.after(at)), [TAIL, Look::Open]);
        assert_eq!(connection.after(82), Look::Late, "other streams had their time");
        connection.clock.cut_at = None;
        drop(open);
        assert_eq!([41, 42].map(|at| connection.after(at)), [TAIL, Look::Late]);
        drop(piece);
        assert_eq!(connection.after(43), Look::Open);
    }

    #[test]
    fn tail_behind_a_full_line_is_not_left() {
        let mut connection = Connection::new();
        let (stream, _piece) = connection.piece();
        stream.leave();
        let line = Arc::clone(connection.clock.memory.line());
        line.runs(false, connection.begin + Duration::from_secs(10));
        assert_eq!(connection.after(90), Look::Open);
        line.runs(true, connection.begin + Duration::from_secs(90));
        assert_eq!([118, 121].map(|at| connection.after(at)), [Look::Open, TAIL]);
    }

    #[test]
    fn first_look_does_not_wait_for_the_idle_timeout() {
        let connection = Connection::new();
        let begin = connection.begin;
        assert_eq!(connection.clock.next_look(begin), begin + WRITE / 2);
        let late = begin + IDLE - Duration::from_secs(1);
        assert!(connection.clock.next_look(late) < late + Duration::from_secs(2));
    }
}
