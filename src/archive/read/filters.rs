//! Filters of spans in memory, newest first, up to a bound.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use neve_archive::{Digest, HashFilter, Manifest, Merging, PAGE_BYTES, SPAN_SEGMENTS, SpanEntry};
use tokio::time::sleep;
use tracing::warn;

use super::fetch::{ObjectNotRead, Payer};
use super::page_source::PageSource;
use crate::shared::lock::lock;

mod loaded;

use loaded::Loaded;

/// Tables of filters that a serving thread asks: about 40 us for all of them.
const ASKED_MAX: usize = 512;
/// Bytes that evidence has of a filter: its header, and the first buckets.
const EVIDENCE_BYTES: usize = PAGE_BYTES;
/// Part of the memory of all filters that a merge may take beside them: 256 MiB of 4 GiB, where mainnet's takes 100 MB.
const MERGED_PART: u64 = 16;

/// Filters that are here.
pub(super) struct LoadedFilters {
    bytes_max: u64,
    loaded: ArcSwap<Loaded>,
    /// Filters that are absent or changed, and the time when that was seen.
    left: Mutex<HashMap<Digest, Instant>>,
}

/// Filter that is brought next, and those that are here.
#[derive(Default)]
struct Plan<'s> {
    /// Height down to which they are here without a gap.
    reach: Option<u64>,
    has_gap: bool,
    next: Option<&'s SpanEntry>,
    /// Those that spans still have, as far as they were looked at.
    kept: HashSet<Digest>,
}

impl Plan<'_> {
    /// Notes the next span whose filter is here.
    fn keep(&mut self, span: &SpanEntry) {
        self.kept.insert(span.filter.digest);
        if !self.has_gap {
            self.reach = Some(span.first);
        }
    }
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
        self.loaded.load().may_have(hash)
    }

    /// True if there are too many tables for a serving thread to ask them.
    pub(super) fn are_many(&self) -> bool {
        self.loaded.load().tables() > ASKED_MAX
    }

    /// Index of the last of these spans whose filter is here and says that it may have the hash.
    pub(super) fn last_span(&self, spans: &[SpanEntry], hash: &[u8; 32]) -> Option<usize> {
        let found = self.loaded.load().with_hash(hash);
        spans.iter().rposition(|span| found.contains(&span.filter.digest))
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
            return self.tidy(source, loaded, kept).await.map(|has_more| (reach, !has_more));
        };
        let key = span.filter.digest;
        let filter = match Self::bring(source, manifest, span).await {
            Err(ObjectNotRead::Absent | ObjectNotRead::Changed) => {
                lock(&self.left).insert(key, Instant::now()); // those below it are of use without it
                return Ok((reach, false));
            }
            filter => filter?,
        };
        let is_whole = span.segments == SPAN_SEGMENTS;
        self.loaded.store(Arc::new(loaded.with(filter, key, is_whole)));
        Ok((if has_gap { reach } else { Some(span.first) }, false))
    }

    /// Drops filters that no span has any more, or merges some. Returns true if there may be more to do. All filters are
    /// brought before: without its filter a hash is a miss.
    async fn tidy(
        &self,
        source: &Arc<PageSource>,
        loaded: Arc<Loaded>,
        kept: HashSet<Digest>,
    ) -> Result<bool, ObjectNotRead> {
        if loaded.has_others_than(&kept) {
            let left = source.compute(move || loaded.keep(&kept)).await?; // spans that grew have other ones
            self.loaded.store(Arc::new(left));
            return Ok(true);
        }
        let (all, bytes_max) = (Arc::clone(&loaded), (self.bytes_max / MERGED_PART) as usize);
        let alike = source.compute(move || all.alike(bytes_max)).await?;
        let Some((merging, members)) = alike else {
            return Ok(false);
        };
        let merging = Self::step_through(source, merging).await?;
        let merged = source.compute(move || loaded.merged(merging.finish(), members)).await?;
        self.loaded.store(Arc::new(merged));
        Ok(true)
    }

    /// Takes all steps of a merge.
    async fn step_through(
        source: &PageSource,
        mut merging: Merging,
    ) -> Result<Merging, ObjectNotRead> {
        loop {
            let begun = Instant::now();
            let stepping = move || (merging.step(), merging);
            let (has_more, stepped) = source.compute(stepping).await?;
            merging = stepped;
            if !has_more {
                return Ok(merging);
            }
            sleep(begun.elapsed()).await; // requests compute meanwhile
        }
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
            if loaded.has(&key) {
                plan.keep(span);
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
        let rejecting = Arc::clone(source);
        let reading = move || {
            let beginning = object.get(..EVIDENCE_BYTES).unwrap_or(&object).to_vec();
            HashFilter::read(object).map_err(|error| {
                warn!(object = %name, %error, "archive filter rejected");
                rejecting.count_rejected(&name, 0, &beginning);
                ObjectNotRead::Changed
            })
        };
        source.compute(reading).await?
    }
}

#[cfg(test)]
mod tests;
