//! The time within which a connection must have bytes sent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::config::settings::Deadlines;
use crate::shared::{ThreadCounters, Timeout};

/// Time when bytes were sent last, and the time-out since.
pub(super) struct Deadline {
    pub(super) limits: Deadlines,
    /// Time when bytes were last sent.
    pub(super) sent: Instant,
    /// Looks at `sent` when it fires, and is set again if that was not long ago: it costs nothing
    /// a request. Made when first needed.
    timer: Option<Pin<Box<Sleep>>>,
    counters: Arc<ThreadCounters>,
}

impl Deadline {
    pub(super) fn new(limits: Deadlines, sent: Instant, counters: Arc<ThreadCounters>) -> Self {
        Self { limits, sent, timer: None, counters }
    }

    /// Errs once nothing was sent for the limit of this wait.
    pub(super) fn waiting<T>(
        &mut self,
        context: &mut Context<'_>,
        wait: Timeout,
    ) -> Poll<io::Result<T>> {
        let limit = wait.limit(self.limits);
        if self.poll_unsent(context, limit).is_pending() {
            return Poll::Pending;
        }
        self.counters.time_out(wait);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready once nothing was sent for `limit`.
    pub(super) fn poll_unsent(&mut self, context: &mut Context<'_>, limit: Duration) -> Poll<()> {
        loop {
            let until = self.sent + limit;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() > until {
                timer.as_mut().reset(until); // what waits now is less patient
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }
}
