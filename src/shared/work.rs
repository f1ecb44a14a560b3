//! Bounds of the work for one request: time, bytes examined, and a client that is still there.
//!
//! A node's server cancels a request when the client has closed its side, and answers with an error
//! if a request takes too long. Here each search, fee history and batch asks [`Work`] whether to go
//! on. A serving thread hands long work over, so here its work is bounded in bytes only.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use neve_jsonrpc::RpcError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::settings::WorkLimits;

/// Bytes examined between two readings of the clock, about 0.1 ms.
const CLOCK_BYTES: u64 = 128 << 10;
/// Bytes that a call of [`Work::examine`] counts in addition, so that many small calls are bounded too.
const CALL_BYTES: u64 = 64;
/// Time between two checks of the client's socket. Shorter work is finished even if the client has
/// left.
pub(crate) const GONE_INTERVAL: Duration = Duration::from_millis(10);

/// Reason why work ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The work took too long.
    Late,
    /// The client has gone.
    Gone,
    /// The work examined too much; work that examines nothing goes on.
    Examined,
}

/// Time from which the bounds of a request count. It stays the same when the request changes threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Began(Instant);

impl Began {
    /// Returns the present time.
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since then.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// True if `at` is no earlier.
    pub(crate) fn is_before(self, at: Instant) -> bool {
        self.0 <= at
    }
}

/// Work for one request.
pub(crate) struct Work<'g> {
    limits: WorkLimits,
    /// End of its time; `None` on a serving thread.
    until: Option<Instant>,
    /// Says whether the client has gone.
    gone: &'g dyn Fn() -> bool,
    /// Time of the next look at the socket.
    look_at: Cell<Option<Instant>>,
    examined: Cell<u64>,
    /// Bytes examined since the last look at the clock.
    unlooked: Cell<u64>,
    stopped: Cell<Option<Stop>>,
}

impl Work<'static> {
    /// Work on a serving thread.
    pub(crate) fn here(limits: WorkLimits) -> Self {
        Self::new(limits, None, None, &|| false)
    }
}

impl<'g> Work<'g> {
    /// Work on another thread, for a client of which `gone` says whether it has left.
    pub(crate) fn elsewhere(
        limits: WorkLimits,
        Began(began): Began,
        gone: &'g dyn Fn() -> bool,
    ) -> Self {
        let until = began.checked_add(limits.duration_max);
        Self::new(limits, until, Some(began + GONE_INTERVAL), gone)
    }

    fn new(
        limits: WorkLimits,
        until: Option<Instant>,
        look_at: Option<Instant>,
        gone: &'g dyn Fn() -> bool,
    ) -> Self {
        let (examined, unlooked, stopped) = (Cell::new(0), Cell::new(0), Cell::new(None));
        Self { limits, until, gone, look_at: Cell::new(look_at), examined, unlooked, stopped }
    }

    /// Notes that bytes were examined. False if that must end.
    pub(crate) fn examine(&self, bytes: u64) -> bool {
        let examined = self.examined.get().saturating_add(bytes);
        self.examined.set(examined);
        if examined > self.limits.examined_bytes_max && self.stopped.get().is_none() {
            self.stopped.set(Some(Stop::Examined));
        }
        let unlooked = self.unlooked.get().saturating_add(bytes + CALL_BYTES);
        self.unlooked.set(unlooked);
        if unlooked >= CLOCK_BYTES {
            self.check();
        }
        self.stopped.get().is_none()
    }

    /// Looks at the clock, and now and then at the socket. Returns the reason if all of the work
    /// ends.
    pub(crate) fn check(&self) -> Option<Stop> {
        if let Some(look_at) = self.look_at.get() {
            self.unlooked.set(0);
            let now = Instant::now();
            if now >= look_at {
                self.look_at.set(Some(now + GONE_INTERVAL));
                if (self.gone)() {
                    self.stopped.set(Some(Stop::Gone));
                }
            }
            if self.stopped.get() != Some(Stop::Gone)
                && self.until.is_some_and(|until| now >= until)
            {
                // In place of `Examined`, too: with that, work that examines nothing would go on.
                self.stopped.set(Some(Stop::Late));
            }
        }
        self.ended()
    }

    /// True if nothing more may be examined.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Reason for which all of the work ends, as far as was seen.
    pub(crate) fn ended(&self) -> Option<Stop> {
        self.stopped.get().filter(|stop| *stop != Stop::Examined)
    }

    /// Error of a call that was stopped. A client that has gone does not see it.
    pub(crate) fn error(&self) -> RpcError {
        match self.stopped.get() {
            Some(Stop::Examined) => {
                let max = self.limits.examined_bytes_max;
                let message = format!(
                    "the request examined more than {max} bytes; ask for fewer blocks at a time"
                );
                RpcError { code: -32005, message: message.into() }
            }
            _ => RpcError::TIMED_OUT,
        }
    }
}

/// True if the other side of a socket has closed it, or said that it sends nothing more.
pub(crate) fn has_gone(stream: impl AsFd) -> bool {
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    // The kernel reports HUP and ERR unasked.
    let mut asked = [PollFd::new(&stream, PollFlags::RDHUP)];
    // If the kernel cannot say, the deadline ends the work.
    poll(&mut asked, Some(&Timespec::default())).is_ok() && asked[0].revents().intersects(gone)
}

/// Kind of work that is offloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Look-ups of what may not be in memory, and whole packed heights.
    ColdRead,
    /// Look-ups of the fast path with more packed bytes than a serving thread unpacks.
    Unpack,
    /// Searches, fee histories, binary forms, and requests whose reading alone takes long.
    Search,
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const LIMITS: WorkLimits =
        WorkLimits { duration_max: Duration::from_mins(1), examined_bytes_max: 1000 };

    fn began(ago: Duration) -> Began {
        Began(Instant::now().checked_sub(ago).unwrap())
    }

    #[test]
    fn work_ends_after_the_bytes_that_it_may_examine() {
        let work = Work::here(LIMITS);
        assert!(work.examine(600) && work.examine(400));
        assert!(!work.examine(1) && !work.examine(0));
        assert_eq!(work.ended(), None, "what examines nothing goes on");
        assert_eq!(work.error().code, -32005);
        assert!(work.error().message.contains("1000 bytes"), "{:?}", work.error());
    }

    #[test]
    fn work_ends_at_its_deadline() {
        let stays = || false;
        let in_time = Work::elsewhere(LIMITS, began(Duration::from_secs(1)), &stays);
        assert_eq!(in_time.check(), None);
        let late = Work::elsewhere(LIMITS, began(Duration::from_secs(61)), &stays);
        assert_eq!(late.check(), Some(Stop::Late));
        assert!(!late.examine(1));
        assert_eq!(late.error(), RpcError::TIMED_OUT);
    }

    #[test]
    fn work_ends_when_its_client_has_gone() {
        let left = || true;
        let short = Work::elsewhere(LIMITS, Began::now(), &left);
        assert_eq!(short.check(), None, "what is short is answered");
        let long = Work::elsewhere(LIMITS, began(Duration::from_secs(1)), &left);
        assert_eq!(long.check(), Some(Stop::Gone));
    }

    #[test]
    fn small_examinations_look_at_the_clock_too() {
        let stays = || false;
        let limits = WorkLimits { examined_bytes_max: u64::MAX, ..LIMITS };
        let late = Work::elsewhere(limits, began(Duration::from_secs(61)), &stays);
        let calls = (0..1 << 20).take_while(|_| late.examine(0)).count();
        assert!(calls < 1 << 12, "{calls}");
    }

    #[test]
    fn closed_client_is_gone_and_open_client_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        assert!(!has_gone(&stream));
        std::io::Write::write_all(&mut &client, b"unread").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while !has_gone(&stream) {
            assert!(Instant::now() < until, "its end has not come");
            std::thread::yield_now();
        }
    }
}
