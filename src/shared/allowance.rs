//! Calls that a client may make a second. Pure: the time comes from the caller.

mod token_bucket;

use std::time::{Duration, Instant};

pub(crate) use token_bucket::TokenBucket;

/// Calls that are left to a client. A second's worth may come at once. A batch takes as many as it has
/// calls, also more than are left; the next request waits until the debt is paid.
#[derive(Debug)]
pub(crate) struct Allowance {
    a_second: f64,
    bucket: TokenBucket,
}

impl Allowance {
    pub(crate) fn new(a_second: f64, now: Instant) -> Self {
        Self { a_second, bucket: TokenBucket::new(a_second.max(1.0), now) }
    }

    /// Takes `calls`, or says how long none is left.
    pub(crate) fn take(&mut self, calls: u32, now: Instant) -> Result<(), Duration> {
        self.ready(now)?;
        // A large batch may take it below zero, and the client waits longer then. Zero calls are a
        // request, too.
        self.bucket.take(f64::from(calls.max(1)));
        Ok(())
    }

    /// Says how long none is left, and takes none.
    pub(crate) fn ready(&mut self, now: Instant) -> Result<(), Duration> {
        let wait = self.bucket.wait_for(1.0, self.a_second, now);
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    /// True if `calls` would leave half of a second's worth to others.
    #[cfg(feature = "archive")]
    pub(crate) fn spares(&mut self, calls: u32, now: Instant) -> bool {
        let left = self.bucket.refill(self.a_second, now);
        left >= 1.0 && left - f64::from(calls.max(1)) >= self.a_second / 2.0
    }

    /// True if a second's worth is left.
    #[cfg(feature = "archive")]
    pub(crate) fn is_whole(&mut self, now: Instant) -> bool {
        self.bucket.refill(self.a_second, now) >= self.a_second.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rate_holds_and_a_second_of_it_may_come_at_once() {
        let now = Instant::now();
        let mut allowance = Allowance::new(5.0, now);
        let taken = |allowance: &mut Allowance, now| {
            (0..100).take_while(|_| allowance.take(1, now).is_ok()).count()
        };
        assert_eq!(taken(&mut allowance, now), 5);
        assert_eq!(allowance.take(1, now), Err(SECOND / 5));
        assert_eq!(taken(&mut allowance, now + SECOND), 5);
        assert_eq!(taken(&mut allowance, now + 60 * SECOND), 5, "no more after a quiet time");
        let mut slow = Allowance::new(0.5, now);
        assert_eq!((slow.take(1, now), slow.take(1, now)), (Ok(()), Err(2 * SECOND)));
    }

    #[cfg(feature = "archive")]
    #[test]
    fn half_of_a_second_is_left_to_others() {
        let now = Instant::now();
        let mut allowance = Allowance::new(10.0, now);
        assert!(allowance.spares(5, now) && !allowance.spares(6, now));
        assert_eq!(allowance.take(4, now), Ok(()));
        assert!(allowance.spares(1, now) && !allowance.spares(2, now));
        assert_eq!(allowance.take(110, now), Ok(()));
        assert!(!allowance.spares(1, now + 10 * SECOND) && allowance.spares(1, now + 12 * SECOND));
    }

    #[test]
    fn batch_takes_all_its_calls() {
        let now = Instant::now();
        let mut allowance = Allowance::new(10.0, now);
        assert_eq!(allowance.take(110, now), Ok(()));
        assert!(allowance.take(1, now + 10 * SECOND).is_err());
        assert!(allowance.take(1, now + 11 * SECOND).is_ok());
    }
}
