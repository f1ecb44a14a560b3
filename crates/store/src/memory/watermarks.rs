//! Watermarks: the bytes of a mapped file that readers may see.

use std::ops::Range;

use crate::sync::{AtomicU64, Ordering};

/// The ends of the two readable regions of a file: `first..` and `second..`.
pub(crate) struct Watermarks {
    first: u64,
    second: u64,
    /// Invariant: bytes of `first..first_end` never change again. Raised last.
    first_end: AtomicU64,
    /// Invariant: bytes of `second..second_end` never change again.
    second_end: AtomicU64,
}

impl Watermarks {
    /// Nothing is readable.
    pub(crate) fn new(first: u64, second: u64) -> Self {
        let (first_end, second_end) = (AtomicU64::new(first), AtomicU64::new(second));
        Self { first, second, first_end, second_end }
    }

    /// Makes bytes up to the given ends readable. A reader that sees `first_end` sees both, and all
    /// that was written before. Ends never sink.
    pub(crate) fn publish(&self, first_end: u64, second_end: u64) {
        self.second_end.fetch_max(second_end, Ordering::Release);
        self.first_end.fetch_max(first_end, Ordering::Release);
    }

    /// End of the first region.
    #[inline]
    pub(crate) fn first_end(&self) -> u64 {
        self.first_end.load(Ordering::Acquire)
    }

    /// End of the second region.
    #[inline]
    pub(crate) fn second_end(&self) -> u64 {
        self.second_end.load(Ordering::Acquire)
    }

    /// True if all bytes of `range` are readable.
    #[inline]
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        // Acquire: with an end come the bytes before it, see `publish`.
        let readable = |start, end: &AtomicU64| {
            range.start >= start && range.end <= end.load(Ordering::Acquire)
        };
        // A damaged slot may name any range.
        range.start <= range.end
            && (readable(self.second, &self.second_end) || readable(self.first, &self.first_end))
    }
}
