//! The time within which neve must send bytes on a connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::config::settings::Deadlines;
use crate::http::ClientWait;
use crate::shared::ThreadCounters;

/// Time when bytes were last sent, and the time-out from then on.
pub(super) struct Deadline {
    pub(super) limits: Deadlines,
    /// Time when bytes were last sent.
    pub(super) sent: Instant,
    /// Timer that looks at `sent` when it fires, and is set again if bytes were sent since. So a
    /// request costs no timer. It exists from its first use on.
    timer: Option<Pin<Box<Sleep>>>,
    counters: Arc<ThreadCounters>,
}

impl Deadline {
    pub(super) fn new(limits: Deadlines, sent: Instant, counters: Arc<ThreadCounters>) -> Self {
        Self { limits, sent, timer: None, counters }
    }

    /// Returns an error once no byte was sent for the limit of this wait.
    pub(super) fn waiting<T>(
        &mut self,
        context: &mut Context<'_>,
        wait: ClientWait,
    ) -> Poll<io::Result<T>> {
        let limit = wait.limit(self.limits);
        if self.poll_unsent(context, limit).is_pending() {
            return Poll::Pending;
        }
        self.counters.time_out(wait.timeout());
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ready once no byte was sent for `limit`.
    pub(super) fn poll_unsent(&mut self, context: &mut Context<'_>, limit: Duration) -> Poll<()> {
        loop {
            let until = self.sent + limit;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() > until {
                timer.as_mut().reset(until); // this wait has a shorter limit
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
