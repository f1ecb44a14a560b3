//! Times of calls by method and outcome, counted by one thread in buckets of doubling length.
//!
//! A serving thread reads the clock once for all calls that one wake-up answered: a reading for each
//! would cost more than all else that is counted. Until then the calls are pending.

mod recent_times;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use neve_jsonrpc::{FREQUENT_METHODS, Method, other_methods};

pub(crate) use recent_times::RecentTimes;

/// Labels of outcomes; a relayed call is apart from a refused one.
pub(crate) const LATENCY_OUTCOMES: [&str; 4] = ["hit", "error", "miss", "relay"];
/// Place of a relayed call in them.
pub(crate) const RELAY: usize = 3;

/// Binary logarithms of the first and the last bound, in nanoseconds: 16 µs and 17 s.
const FIRST: u32 = 14;
const LAST: u32 = 34;
/// Buckets, the one without an end included.
pub(crate) const BUCKETS: usize = (LAST - FIRST) as usize + 2;

/// Methods with times of their own, and one for all others. A thread takes 736 bytes for each, and a page of /metrics 2 kB
/// for each with a call of one outcome. So names that few clients call share the last one.
const METHODS: usize = Method::ALL.len() + FREQUENT_METHODS + 1;
/// Calls that may be pending. More are settled at once.
const PENDING_MAX: usize = 32;

/// Times of one thread. Only that thread adds to them.
#[derive(Debug)]
pub(crate) struct Latencies {
    counts: Box<[[[AtomicU64; BUCKETS]; LATENCY_OUTCOMES.len()]; METHODS]>,
    nanoseconds: [[AtomicU64; LATENCY_OUTCOMES.len()]; METHODS],
    /// Places of pending calls: a method and an outcome.
    pending: [AtomicUsize; PENDING_MAX],
    waiting: AtomicUsize,
}

impl Default for Latencies {
    fn default() -> Self {
        let each = || std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            counts: Box::new(std::array::from_fn(|_| each())),
            nanoseconds: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            pending: std::array::from_fn(|_| AtomicUsize::new(0)),
            waiting: AtomicUsize::new(0),
        }
    }
}

/// Bucket of a time: the first whose bound is not below it.
fn bucket(nanoseconds: u64) -> usize {
    let length = u64::BITS - nanoseconds.saturating_sub(1).leading_zeros();
    length.clamp(FIRST, LAST + 1) as usize - FIRST as usize
}

/// Upper bounds of the buckets in nanoseconds, without the last bucket.
pub(crate) fn bounds() -> impl Iterator<Item = u64> {
    (FIRST..=LAST).map(|at| 1 << at)
}

/// Adds to a count that only this thread adds to, without a locked instruction.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Place of an outcome of the method with this number. The last number is that of all others.
fn place(method: usize, outcome: usize) -> usize {
    method.min(METHODS - 1) * LATENCY_OUTCOMES.len() + outcome
}

impl Latencies {
    /// Counts the time of a call, by its method's number and the place of its outcome.
    pub(crate) fn count(&self, method: usize, outcome: usize, took: Duration) {
        self.add(place(method, outcome), took.as_nanos() as u64);
    }

    /// Leaves a call to the next [`Latencies::settle`]. `woke` is the time of the wake-up.
    pub(crate) fn pend(&self, method: usize, outcome: usize, woke: Instant) {
        let mut waiting = self.waiting.load(Ordering::Relaxed);
        // More calls in one wake-up than there are places: those so far are counted early.
        if waiting >= PENDING_MAX {
            self.settle(woke);
            waiting = 0;
        }
        self.pending[waiting].store(place(method, outcome), Ordering::Relaxed);
        self.waiting.store(waiting + 1, Ordering::Relaxed);
    }

    /// Counts the times of all pending calls, which take from the wake-up until now.
    pub(crate) fn settle(&self, woke: Instant) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting == 0 {
            return;
        }
        self.waiting.store(0, Ordering::Relaxed);
        let took = woke.elapsed().as_nanos() as u64;
        for place in &self.pending[..waiting.min(PENDING_MAX)] {
            self.add(place.load(Ordering::Relaxed), took);
        }
    }

    fn add(&self, place: usize, nanoseconds: u64) {
        let (method, outcome) = (place / LATENCY_OUTCOMES.len(), place % LATENCY_OUTCOMES.len());
        add(&self.counts[method][outcome][bucket(nanoseconds)], 1);
        add(&self.nanoseconds[method][outcome], nanoseconds);
    }

    /// Adds the counts of a method and outcome to `counts`, and returns the nanoseconds of all.
    fn read(&self, method: usize, outcome: usize, counts: &mut [u64; BUCKETS]) -> u64 {
        for (sum, count) in counts.iter_mut().zip(&self.counts[method][outcome]) {
            // Relaxed: a call that is counted just now may be in this read or in the next one.
            *sum += count.load(Ordering::Relaxed);
        }
        self.nanoseconds[method][outcome].load(Ordering::Relaxed)
    }
}

/// Times of calls with the same method and outcome, over all threads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LatencySeries {
    /// Method, or `other` for one without times of its own.
    pub method: &'static str,
    /// Outcome, of [`LATENCY_OUTCOMES`].
    pub outcome: &'static str,
    /// Calls of each bucket.
    pub counts: [u64; BUCKETS],
    /// Sum of the times.
    pub nanoseconds: u64,
}

/// Names of the methods with times of their own, by their numbers, and `other` behind them.
fn names() -> impl Iterator<Item = &'static str> {
    let served = Method::ALL.iter().map(|method| method.name());
    served.chain(other_methods().take(FREQUENT_METHODS)).chain(["other"])
}

/// Sums the times of threads. Methods and outcomes without a call have no series.
pub(crate) fn latency_series(threads: &[&Latencies]) -> Vec<LatencySeries> {
    let mut found = Vec::new();
    for (at, method) in names().enumerate() {
        for (outcome_at, outcome) in LATENCY_OUTCOMES.into_iter().enumerate() {
            let mut counts = [0; BUCKETS];
            let times = threads.iter().map(|thread| thread.read(at, outcome_at, &mut counts));
            let nanoseconds = times.sum();
            if counts != [0; BUCKETS] {
                found.push(LatencySeries { method, outcome, counts, nanoseconds });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::MethodLabel;

    #[test]
    fn time_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        let bounds: Vec<u64> = bounds().collect();
        assert_eq!((bounds.len(), bounds[0], bounds[20]), (BUCKETS - 1, 16_384, 17_179_869_184));
        for (at, bound) in bounds.iter().enumerate() {
            assert_eq!((bucket(*bound), bucket(bound + 1)), (at, at + 1), "{bound}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    /// A call is timed by the number that its count has.
    #[test]
    fn timed_methods_have_the_numbers_of_their_labels() {
        let labels = MethodLabel::all().map(|(_, name)| name);
        let timed: Vec<_> = names().collect();
        assert_eq!((timed.len(), timed[METHODS - 1]), (METHODS, "other"));
        assert!(labels.zip(&timed[..METHODS - 1]).all(|(label, name)| label == *name), "{timed:?}");
        let wanted = ["eth_call", "eth_estimateGas", "eth_getBalance", "debug_traceTransaction"];
        assert!(wanted.iter().all(|name| timed.contains(name)), "{timed:?}");
        let of_a_method = size_of::<[[AtomicU64; BUCKETS + 1]; LATENCY_OUTCOMES.len()]>();
        assert_eq!(of_a_method, 736, "bytes of a thread, as the comment on METHODS has them");
    }

    #[test]
    fn pending_calls_are_all_settled_with_the_time_since_the_wake_up() {
        let (latencies, other) = (Latencies::default(), Latencies::default());
        let woke = Instant::now().checked_sub(Duration::from_secs(20)).expect("a later boot");
        let method = Method::BlockNumber as usize;
        (0..=PENDING_MAX).for_each(|_| latencies.pend(method, 0, woke));
        latencies.settle(woke);
        latencies.settle(woke);
        other.count(method, 0, Duration::from_micros(20));
        other.count(method, RELAY, Duration::from_micros(16));
        let series = latency_series(&[&latencies, &other]);
        assert_eq!(series.len(), 2);
        let hits = &series[0];
        assert_eq!((hits.method, hits.outcome), ("eth_blockNumber", "hit"));
        let mut expected = [0; BUCKETS];
        (expected[1], expected[BUCKETS - 1]) = (1, PENDING_MAX as u64 + 1);
        assert_eq!(hits.counts, expected);
        assert!(hits.nanoseconds > 20_000_000_000 * (PENDING_MAX as u64 + 1));
        assert_eq!((series[1].outcome, series[1].counts[0]), ("relay", 1));
    }
}
