//! Token bucket: the one rule by which neve keeps a rate. Pure: the time comes from the caller.

use std::time::{Duration, Instant};

/// Units that are left of a rate. At most one second's worth is saved up, and at least one unit: rates may be
/// below one. Units that are taken beyond what is left are a debt.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    left: f64,
    at: Instant,
}

impl TokenBucket {
    pub(crate) fn new(left: f64, now: Instant) -> Self {
        Self { left, at: now }
    }

    /// Adds the units of the time since the last look, by a rate of so many a second. Returns the units that are left.
    pub(crate) fn refill(&mut self, a_second: f64, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = since.mul_add(a_second, self.left).min(a_second.max(1.0));
        self.left
    }

    /// Lets time pass in which no rate holds: it adds no units.
    pub(crate) fn pass(&mut self, now: Instant) {
        self.at = now;
    }

    /// Time until so many units are left, by a rate of so many a second; zero for now.
    pub(crate) fn wait_for(&mut self, units: f64, a_second: f64, now: Instant) -> Duration {
        Duration::from_secs_f64(((units - self.refill(a_second, now)) / a_second).max(0.0))
    }

    /// Takes units, also more than are left.
    pub(crate) fn take(&mut self, units: f64) {
        self.left -= units;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn second_of_the_rate_is_saved_up_and_a_debt_is_paid_first() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(0.0, now);
        assert_eq!(bucket.wait_for(1.0, 4.0, now), SECOND / 4);
        let later = now + 60 * SECOND;
        assert!((bucket.refill(4.0, later) - 4.0).abs() < f64::EPSILON);
        bucket.take(6.0);
        assert_eq!(bucket.wait_for(1.0, 4.0, later), 3 * SECOND / 4);
        bucket.pass(later + SECOND);
        assert_eq!(bucket.wait_for(1.0, 4.0, later + SECOND), 3 * SECOND / 4, "no rate held");
        assert_eq!(bucket.wait_for(1.0, 0.5, later + 99 * SECOND), Duration::ZERO);
    }
}
