//! The waits of neve for its clients, and the limit of each: one rule for the fast path, HTTP/1 and HTTP/2 on the full path.
//!
//! A limit counts from the opening of a connection or from the last byte that neve sent. Received bytes do not count, so
//! one byte a minute keeps no connection alive. Each path has timers of its own.

use std::ops::Add;
use std::time::Duration;

use crate::config::settings::Deadlines;
use crate::shared::Timeout;

/// Write deadlines within which a client takes the last slices of a response of HTTP/2.
const LAST_SLICES: u32 = 4;

/// Wait for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientWait {
    /// For the next request, its head or its body.
    Request,
    /// Until the client takes more of a response.
    Response,
    /// Until the client takes the last slices of a response of HTTP/2. They are up to five times as long as a part of it, and a
    /// client with a small window for all streams serves one after the other.
    LastSlices,
}

impl ClientWait {
    /// Wait of a connection of HTTP/1. An unsent response goes before the next request.
    pub(crate) fn of(has_unsent: bool) -> Self {
        if has_unsent { Self::Response } else { Self::Request }
    }

    /// Longest time without a sent byte.
    pub(crate) fn limit(self, deadlines: Deadlines) -> Duration {
        match self {
            Self::Request => deadlines.idle,
            Self::Response => deadlines.write,
            Self::LastSlices => LAST_SLICES * deadlines.write,
        }
    }

    /// Time at which the client is late, if nothing is sent after `sent`.
    pub(crate) fn late_at<I: Add<Duration, Output = I>>(self, sent: I, deadlines: Deadlines) -> I {
        sent + self.limit(deadlines)
    }

    /// Timeout as which it is counted when it runs out.
    pub(crate) fn timeout(self) -> Timeout {
        match self {
            Self::Request => Timeout::Idle,
            Self::Response | Self::LastSlices => Timeout::Write,
        }
    }
}

/// Time between two looks at deadlines that others set: half of the shorter limit, so that a look comes before any deadline
/// that was set since the last look.
pub(crate) fn look_every(deadlines: Deadlines) -> Duration {
    deadlines.idle.min(deadlines.write) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_response_has_the_limit_of_a_write_and_its_last_slices_four() {
        let (idle, write) = (Duration::from_secs(30), Duration::from_secs(5));
        let deadlines = Deadlines { idle, write };
        let late = |wait: ClientWait| (wait.late_at(write, deadlines).as_secs(), wait.timeout());
        assert_eq!(late(ClientWait::of(false)), (35, Timeout::Idle));
        assert_eq!(late(ClientWait::of(true)), (10, Timeout::Write));
        assert_eq!(late(ClientWait::LastSlices), (25, Timeout::Write));
        assert_eq!(look_every(deadlines), write / 2);
    }
}
