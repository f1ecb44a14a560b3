//! Time as the clients of a connection of HTTP/2 have it: none passes while the socket takes no bytes.
//!
//! Streams share a line. While it is full, a stream that gets nothing may wait for its turn, and says nothing
//! about its client. The socket has a deadline of its own then.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::shared::lock::lock;

/// Time of the line of a connection.
#[derive(Debug, Default)]
pub(super) struct LineTime(Mutex<Stops>);

#[derive(Debug, Default)]
struct Stops {
    /// Length of all stops before.
    before: Duration,
    /// Begin of the stop that lasts.
    since: Option<Instant>,
}

impl LineTime {
    /// Notes whether the socket takes bytes.
    pub(super) fn runs(&self, runs: bool, now: Instant) {
        let mut stops = lock(&self.0);
        if !runs {
            stops.since.get_or_insert(now);
        } else if let Some(since) = stops.since.take() {
            stops.before += now.saturating_duration_since(since);
        }
    }

    /// Length of all stops until now.
    pub(super) fn behind(&self, now: Instant) -> Duration {
        let stops = lock(&self.0);
        stops.before
            + stops.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Time of the line.
    pub(super) fn now(&self) -> Instant {
        self.at(Instant::now())
    }

    /// Time of the line at this time.
    pub(super) fn at(&self, now: Instant) -> Instant {
        now - self.behind(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_passes_while_the_socket_takes_nothing() {
        let (line, begin) = (LineTime::default(), Instant::now());
        let second = |at| begin + Duration::from_secs(at);
        line.runs(true, second(1));
        assert_eq!(line.at(second(2)), second(2));
        line.runs(false, second(3));
        line.runs(false, second(5));
        assert_eq!([3, 6].map(|at| line.at(second(at))), [second(3), second(3)]);
        line.runs(true, second(7));
        line.runs(true, second(8));
        assert_eq!(line.at(second(9)), second(5));
        line.runs(false, second(10));
        assert_eq!(line.at(second(20)), second(6));
    }
}
