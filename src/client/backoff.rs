//! Time to wait before the next attempt.

use std::time::Duration;

/// Waits that double up to a limit, each drawn at random between half and the whole, so that many
/// caches behind one node do not all come back at once.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// The next wait.
    pub(crate) fn wait(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.max);
        // Drawn from its upper half: clients of one failed server must not come back together.
        whole.mul_f64(fastrand::f64().mul_add(0.5, 0.5))
    }

    /// Makes the next wait short again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_are_never_less_than_half() {
        let (first, max) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, max);
        for whole in [100, 200, 400, 800, 1000, 1000] {
            let (wait, whole) = (backoff.wait(), Duration::from_millis(whole));
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.wait() <= first);
    }
}
