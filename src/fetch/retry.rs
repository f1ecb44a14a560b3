//! Waits between attempts at one height.

use std::time::{Duration, Instant};

use tracing::warn;

use crate::client::Backoff;

/// Wait for a height that is announced but not there yet. Behind a balancer that takes some milliseconds.
const NOT_YET_FIRST: Duration = Duration::from_millis(20);
const NOT_YET_MAX: Duration = Duration::from_secs(1);
/// Wait after a rejected block. The upstream may be right again later; more requests would not help it.
const REFUSED_FIRST: Duration = Duration::from_millis(250);
const REFUSED_MAX: Duration = Duration::from_secs(30);
/// Wait after a failure that may be bad luck. It is short, because all heights above wait for this one.
const UNLUCKY_FIRST: Duration = Duration::from_millis(10);
/// Time between two log lines about an awaited height.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// Waits between attempts at one height.
pub(super) struct RetryState {
    pub(super) not_yet: Backoff,
    pub(super) refused: Backoff,
    pub(super) unlucky: Backoff,
    /// Responses without the height.
    pub(super) absent: u32,
    said: Instant,
}

impl RetryState {
    pub(super) fn new(begun: Instant) -> Self {
        Self {
            not_yet: Backoff::new(NOT_YET_FIRST, NOT_YET_MAX),
            refused: Backoff::new(REFUSED_FIRST, REFUSED_MAX),
            unlucky: Backoff::new(UNLUCKY_FIRST, REFUSED_MAX),
            absent: 0,
            said: begun,
        }
    }

    /// Says now and then that a height is still awaited.
    pub(super) fn say(&mut self, height: u64) {
        if self.said.elapsed() > SAY_EVERY {
            warn!(height, "height still not fetched");
            self.said = Instant::now();
        }
    }
}
