//! Segments of a peer that were rejected. They are left alone for a while, each time for longer. The operator of the
//! peer may mend its disk, or put a true file there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for which a segment is left alone: the first time, and the longest.
const FIRST: Duration = Duration::from_mins(1);
const MAX: Duration = Duration::from_hours(1);

/// Time until which a segment is left alone, and for how long, by its base height.
#[derive(Debug, Default)]
pub(crate) struct RejectedSegments(HashMap<u64, (Instant, Duration)>);

impl RejectedSegments {
    /// The segment at `base` did not check out.
    pub(crate) fn add(&mut self, base: u64, now: Instant) {
        let wait = self.0.get(&base).map_or(FIRST, |(_, last)| (*last * 2).min(MAX));
        self.0.insert(base, (now + wait, wait));
    }

    /// True if the segment at `base` is left alone.
    pub(crate) fn has(&self, base: u64, now: Instant) -> bool {
        self.0.get(&base).is_some_and(|(until, _)| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_left_alone_for_longer_each_time_and_never_for_good() {
        let (mut now, mut refused) = (Instant::now(), RejectedSegments::default());
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(!refused.has(7, now));
            refused.add(7, now);
            now += Duration::from_mins(minutes);
            assert!(refused.has(7, now.checked_sub(Duration::from_nanos(1)).unwrap()), "{minutes}");
            assert!(!refused.has(8, now));
        }
        assert!(!refused.has(7, now));
    }
}
