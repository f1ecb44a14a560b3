//! Filters of spans in memory, newest first, up to a bound.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use neve_archive::{Digest, HashFilter, Manifest, SpanEntry};

use super::fetch::{ObjectNotRead, Payer};
use super::page_source::PageSource;
use crate::shared::lock::lock;

/// Filters that a serving thread asks: about 40 us for all of them.
const ASKED_MAX: usize = 512;

/// Filters that are here.
pub(super) struct LoadedFilters {
    bytes_max: u64,
    loaded: ArcSwap<Loaded>,
    /// Filters that are absent or changed, and the time when that was seen.
    left: Mutex<HashMap<Digest, Instant>>,
}

type Loaded = HashMap<Digest, Arc<HashFilter>>;

/// Filter that is brought next, and those that are here.
#[derive(Default)]
struct Plan<'s> {
    /// Height down to which they are here without a gap.
    reach: Option<u64>,
    has_gap: bool,
    next: Option<&'s SpanEntry>,
    /// Those that spans still have, as far as they were looked at.
    kept: Loaded,
}

/// Time for which such a filter is left alone.
const LEFT_FOR: Duration = Duration::from_mins(5);

impl LoadedFilters {
    /// No filters yet, and at most so many bytes of them.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, loaded: ArcSwap::default(), left: Mutex::default() }
    }

    /// True if a filter that is here says that its span may have the hash.
    pub(super) fn may_have(&self, hash: &[u8; 32]) -> bool {
        HashFilter::any_may_have(self.loaded.load().values().map(|filter| &**filter), hash)
    }

    /// True if there are too many filters for a serving thread to ask them.
    pub(super) fn are_many(&self) -> bool {
        self.loaded.load().len() > ASKED_MAX
    }

    /// Index of the last of these spans whose filter is here and says that it may have the hash.
    pub(super) fn last_span(&self, spans: &[SpanEntry], hash: &[u8; 32]) -> Option<usize> {
        let loaded = self.loaded.load();
        let may_have = |span: &SpanEntry| {
            loaded.get(&span.filter.digest).is_some_and(|filter| filter.may_have(hash))
        };
        spans.iter().rposition(may_have)
    }

    /// Brings the next filter of these spans, which descend. Returns the height down to which filters are
    /// here without a gap, and true if there is no other one to bring.
    pub(super) async fn next(
        &self,
        source: &Arc<PageSource>,
        manifest: &Manifest,
        spans: impl Iterator<Item = &SpanEntry>,
    ) -> Result<(Option<u64>, bool), ObjectNotRead> {
        let loaded = self.loaded.load_full();
        let Plan { reach, has_gap, next, kept } = self.plan(&loaded, spans);
        let Some(span) = next else {
            if kept.len() != loaded.len() {
                self.loaded.store(Arc::new(kept)); // spans that grew have other ones
            }
            return Ok((reach, true));
        };
        let key = span.filter.digest;
        let filter = match Self::bring(source, manifest, span).await {
            Err(ObjectNotRead::Absent | ObjectNotRead::Changed) => {
                lock(&self.left).insert(key, Instant::now()); // those below it are of use without it
                return Ok((reach, false));
            }
            filter => filter?,
        };
        let mut more = HashMap::clone(&loaded);
        more.insert(key, Arc::new(filter));
        self.loaded.store(Arc::new(more));
        Ok((if has_gap { reach } else { Some(span.first) }, false))
    }

    /// Finds the first of these spans whose filter is to be brought.
    fn plan<'s>(&self, loaded: &Loaded, spans: impl Iterator<Item = &'s SpanEntry>) -> Plan<'s> {
        let mut left = lock(&self.left);
        // Once for all spans: there may be thousands of both.
        left.retain(|_, since| since.elapsed() < LEFT_FOR);
        let (mut plan, mut bytes) = (Plan::default(), 0);
        for span in spans {
            // A filter that is left alone counts, too: it may come later.
            bytes += span.filter.bytes;
            if bytes > self.bytes_max {
                break;
            }
            let key = span.filter.digest;
            if let Some(filter) = loaded.get(&key) {
                plan.kept.insert(key, Arc::clone(filter));
                if !plan.has_gap {
                    plan.reach = Some(span.first);
                }
            } else if left.contains_key(&key) {
                plan.has_gap = true;
            } else {
                plan.next = Some(span);
                break;
            }
        }
        plan
    }

    async fn bring(
        source: &Arc<PageSource>,
        manifest: &Manifest,
        span: &SpanEntry,
    ) -> Result<HashFilter, ObjectNotRead> {
        let name = manifest.filter_name(span);
        let object = source.whole(name, span.filter.bytes, Payer::Neve).await?;
        let filter = source.compute(move || HashFilter::read(object)).await?;
        filter.map_err(|_| ObjectNotRead::Changed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use neve_archive::IndexEntry;

    use super::*;

    fn digest(number: u64) -> Digest {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Digest(bytes)
    }

    /// Spans that all have a filter which is left alone, but the last one.
    fn spans(count: u64) -> (LoadedFilters, Vec<SpanEntry>) {
        let index = |number| IndexEntry { bytes: 10, digest: digest(number) };
        let span = |number| SpanEntry {
            first: number * 2048,
            segments: 64,
            bytes: 10,
            digest: digest(number),
            pages: index(number),
            filter: index(number),
            terms: None,
        };
        let filters = LoadedFilters::new(1 << 40);
        let left = (0..count - 1).map(|number| (digest(number), Instant::now()));
        *lock(&filters.left) = left.collect();
        (filters, (0..count).map(span).collect())
    }

    /// Time of one plan, the least of some.
    fn time(count: u64) -> Duration {
        let (filters, spans) = spans(count);
        let once = || {
            let begun = Instant::now();
            let plan = filters.plan(&HashMap::new(), spans.iter());
            assert_eq!(plan.next.map(|span| span.first), Some((count - 1) * 2048));
            assert!(plan.has_gap && plan.reach.is_none());
            begun.elapsed()
        };
        (0..9).map(|_| once()).min().expect("there are some")
    }

    #[test]
    fn sixteen_times_the_spans_take_far_less_than_256_times_the_time() {
        let (few, many) = (time(500), time(8000));
        assert!(many < few * 64, "{few:?}, {many:?}");
    }

    fn filter() -> Arc<HashFilter> {
        let span = neve_archive::Span::empty(0, 32, 1).expect("it is one");
        Arc::new(HashFilter::of(&span))
    }

    /// 660 filters, those of mainnet in 4 GiB, take about 50 us to say no of a hash.
    #[test]
    fn more_filters_than_a_serving_thread_asks_are_left_to_other_threads() {
        let filters = LoadedFilters::new(1 << 40);
        for (count, are_many) in [(0, false), (512, false), (513, true), (660, true)] {
            filters.loaded.store(Arc::new((0..count).map(|at| (digest(at), filter())).collect()));
            assert_eq!((filters.are_many(), filters.may_have(&[7; 32])), (are_many, false));
        }
    }

    #[test]
    fn newest_span_is_asked_first_and_those_below_it_afterwards() {
        let key = neve_archive::Key {
            hash: [7; 32],
            at: neve_archive::Spot { height: 0, transaction: None },
        };
        let span = neve_archive::Span::empty(0, 32, 1).and_then(|span| span.with(None, &[key]));
        let has = Arc::new(HashFilter::of(&span.expect("it is one")));
        let (filters, spans) = spans(4);
        let loaded = [(0, &has), (1, &filter()), (2, &has)];
        let loaded = loaded.map(|(at, filter)| (digest(at), Arc::clone(filter)));
        filters.loaded.store(Arc::new(HashMap::from(loaded)));
        assert_eq!(filters.last_span(&spans, &[7; 32]), Some(2), "that of 3 is not here");
        assert_eq!(filters.last_span(&spans[..2], &[7; 32]), Some(0));
        assert_eq!(filters.last_span(&spans, &[8; 32]), None);
    }

    #[test]
    fn filters_reach_down_to_the_first_one_that_is_left_alone() {
        let (filters, spans) = spans(4);
        let loaded = HashMap::from([(digest(3), filter()), (digest(1), filter())]);
        let plan = filters.plan(&loaded, spans.iter().rev());
        assert_eq!((plan.reach, plan.has_gap), (Some(3 * 2048), true));
        assert!(plan.next.is_none() && plan.kept.len() == 2);
        lock(&filters.left).remove(&digest(2));
        let plan = filters.plan(&loaded, spans.iter().rev());
        assert_eq!(plan.next.map(|span| span.first), Some(2 * 2048));
        let small = LoadedFilters::new(15);
        assert!(small.plan(&loaded, spans.iter().rev()).next.is_none(), "one of 10 bytes fits");
    }
}
