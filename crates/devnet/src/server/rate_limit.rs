//! The rate limit of a public endpoint: a bucket that holds what a second brings.

use std::sync::Mutex;
use std::time::Instant;

use crate::config::{Counted, RateLimit};
use crate::lock::lock;

/// Requests or calls that are still allowed.
#[derive(Debug)]
pub(super) struct Allowance {
    limit: RateLimit,
    left: Mutex<(f64, Instant)>,
}

impl Allowance {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, left: Mutex::new((limit.per_second, Instant::now())) }
    }

    /// Takes a request of `calls` calls, if any allowance is left. A batch may take more than is left: what
    /// follows waits for it.
    pub(super) fn take(&self, calls: usize, now: Instant) -> bool {
        let cost = match self.limit.counts {
            Counted::Requests => 1.0,
            Counted::Calls => f64::from(u32::try_from(calls.max(1)).unwrap_or(u32::MAX)),
        };
        let mut left = lock(&self.left);
        let (before, since) = *left;
        let brought = self.limit.per_second * now.saturating_duration_since(since).as_secs_f64();
        let full = (before + brought).min(self.limit.per_second);
        let is_allowed = full >= 1.0;
        *left = (if is_allowed { full - cost } else { full }, now);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn allowed(counts: Counted, calls: usize) -> usize {
        let allowance = Allowance::new(RateLimit { per_second: 20.0, counts });
        let begin = Instant::now();
        let times = (0..100_u32).map(|step| begin + step * Duration::from_millis(100));
        times.filter(|time| allowance.take(calls, *time)).count()
    }

    #[test]
    fn batch_is_one_request_or_as_many_as_it_has_calls() {
        // Ten seconds in steps of a tenth.
        assert_eq!(allowed(Counted::Requests, 32), 100);
        let calls = allowed(Counted::Calls, 32) * 32;
        assert!((180..=240).contains(&calls), "{calls}");
    }

    #[test]
    fn second_brings_no_more_than_the_limit() {
        let allowance = Allowance::new(RateLimit { per_second: 20.0, counts: Counted::Requests });
        let later = Instant::now() + Duration::from_hours(1);
        let taken = (0..100).filter(|_| allowance.take(1, later)).count();
        assert_eq!(taken, 20);
    }
}
