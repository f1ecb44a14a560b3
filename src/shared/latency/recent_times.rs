//! Times of the last requests to one server, and when one takes long among them. Pure: times come from the caller.

use std::time::Duration;

/// Measured times without which there is no estimate: a percentile of few times would hedge by chance.
const TIMES_MIN: usize = 16;

/// Times of the last requests to one server, at most `MAX` of them.
#[derive(Debug, Default)]
pub(crate) struct RecentTimes<const MAX: usize> {
    times: Vec<Duration>,
    /// Times noted so far.
    noted: usize,
}

impl<const MAX: usize> RecentTimes<MAX> {
    /// Notes a time in the place of the oldest.
    pub(crate) fn note(&mut self, took: Duration) {
        let place = self.noted % MAX;
        match self.times.get_mut(place) {
            Some(oldest) => *oldest = took,
            None => self.times.push(took),
        }
        self.noted += 1;
    }

    /// Time that 95 % of them did not exceed; `None` while too few are known.
    pub(crate) fn percentile_95(&self) -> Option<Duration> {
        if self.times.len() < TIMES_MIN {
            return None;
        }
        // A copy: the order of the times tells which one is the oldest.
        let mut sorted = self.times.clone();
        let place = (sorted.len() * 95).div_ceil(100) - 1;
        Some(*sorted.select_nth_unstable(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowest_twentieth_of_the_last_times_is_left_out() {
        let ms = Duration::from_millis;
        let mut recent = RecentTimes::<64>::default();
        for n in 1..=100 {
            assert_eq!(recent.percentile_95().is_some(), n > TIMES_MIN as u64);
            recent.note(ms(n));
        }
        // 37 ms to 100 ms are left; 61 of these 64 times are up to 97 ms.
        assert_eq!(recent.percentile_95(), Some(ms(97)));
    }
}
