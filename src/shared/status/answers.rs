//! Times of the upstreams' answers. An upstream that answers and is not used counts as silent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::Status;

/// Times of the last answers. Each is in milliseconds from the start, plus 1; 0: none yet.
#[derive(Debug, Default)]
pub(super) struct AnswerTimes {
    /// Answers of any upstream.
    any: AtomicU64,
    /// Answers of any upstream while one was in use.
    used: AtomicU64,
    /// True if an upstream is in use.
    in_use: AtomicBool,
}

impl Status {
    /// An upstream has answered.
    pub(crate) fn heard(&self) {
        let since = self.started.elapsed().as_millis() as u64 + 1;
        self.answers.any.store(since, Ordering::Relaxed);
        if self.answers.in_use.load(Ordering::Relaxed) {
            self.answers.used.store(since, Ordering::Relaxed);
        }
    }

    /// Notes whether an upstream is in use: it is admitted, and names no head without a header that proves it.
    pub(crate) fn use_upstreams(&self, in_use: bool) {
        let was = self.answers.in_use.swap(in_use, Ordering::Relaxed);
        // The answers to which it owes its admission count.
        if in_use && !was {
            self.heard();
        }
    }

    /// Time without an answer of an upstream in use; `None` if there was none yet.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.since(&self.answers.used)
    }

    /// Time without an answer of any upstream, in use or not; `None` if there was none yet.
    pub(crate) fn silence_of_all(&self) -> Option<Duration> {
        self.since(&self.answers.any)
    }

    fn since(&self, at: &AtomicU64) -> Option<Duration> {
        let at = at.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started.elapsed().saturating_sub(Duration::from_millis(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_while_an_upstream_is_in_use() {
        let status = Status::default();
        let last = || status.answers.used.load(Ordering::Relaxed);
        status.heard();
        assert!(status.silence_of_all().is_some());
        assert_eq!(status.silence(), None);
        status.use_upstreams(true);
        assert!(status.silence().is_some());
        status.use_upstreams(false);
        status.answers.used.store(1, Ordering::Relaxed);
        status.heard();
        assert_eq!(last(), 1, "an upstream that is not in use answers");
        status.answers.any.store(0, Ordering::Relaxed);
        status.use_upstreams(true);
        status.heard();
        assert!(last() >= 1 && status.silence_of_all().is_some());
    }
}
