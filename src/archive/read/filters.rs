//! Filters of spans in memory, newest first, up to a bound.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use neve_archive::{Digest, HashFilter, Manifest, SpanEntry};

use super::fetch::NotRead;
use super::page_source::PageSource;
use crate::shared::lock::lock;

/// Filters that are here.
pub(super) struct Filters {
    bytes_max: u64,
    loaded: ArcSwap<HashMap<Digest, Arc<HashFilter>>>,
    /// Filters that are absent or changed, and the time when that was seen.
    left: Mutex<HashMap<Digest, Instant>>,
}

/// Time for which such a filter is left alone.
const LEFT_FOR: Duration = Duration::from_mins(5);

impl Filters {
    /// No filters yet, and at most so many bytes of them.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, loaded: ArcSwap::default(), left: Mutex::default() }
    }

    /// True if a filter that is here says that its span may have the hash.
    pub(super) fn may_have(&self, hash: &[u8; 32]) -> bool {
        self.loaded.load().values().any(|filter| filter.may_have(hash))
    }

    /// True if the filter of a span is here and says so.
    pub(super) fn span_may_have(&self, span: &SpanEntry, hash: &[u8; 32]) -> bool {
        let loaded = self.loaded.load();
        loaded.get(&span.filter.digest).is_some_and(|filter| filter.may_have(hash))
    }

    /// Brings the next filter of these spans, which descend. Returns the height down to which filters are
    /// here without a gap, and true if there is no other one to bring.
    pub(super) async fn next(
        &self,
        source: &Arc<PageSource>,
        manifest: &Manifest,
        spans: impl Iterator<Item = &SpanEntry>,
    ) -> Result<(Option<u64>, bool), NotRead> {
        let loaded = self.loaded.load_full();
        let (mut bytes, mut reach, mut kept) = (0, None, HashMap::new());
        let mut has_gap = false;
        for span in spans {
            bytes += span.filter.bytes;
            if bytes > self.bytes_max {
                break;
            }
            let key = span.filter.digest;
            if let Some(filter) = loaded.get(&key) {
                kept.insert(key, Arc::clone(filter));
                if !has_gap {
                    reach = Some(span.first);
                }
                continue;
            }
            if self.is_left(&key) {
                has_gap = true;
                continue;
            }
            let filter = match Self::bring(source, manifest, span).await {
                Err(NotRead::Absent | NotRead::Changed) => {
                    lock(&self.left).insert(key, Instant::now()); // those below it are of use without it
                    return Ok((reach, false));
                }
                filter => filter?,
            };
            let mut more = HashMap::clone(&loaded);
            more.insert(key, Arc::new(filter));
            self.loaded.store(Arc::new(more));
            return Ok((if has_gap { reach } else { Some(span.first) }, false));
        }
        if kept.len() != loaded.len() {
            self.loaded.store(Arc::new(kept)); // spans that grew have other ones
        }
        Ok((reach, true))
    }

    fn is_left(&self, key: &Digest) -> bool {
        let mut left = lock(&self.left);
        left.retain(|_, since| since.elapsed() < LEFT_FOR);
        left.contains_key(key)
    }

    async fn bring(
        source: &Arc<PageSource>,
        manifest: &Manifest,
        span: &SpanEntry,
    ) -> Result<HashFilter, NotRead> {
        let object = source.whole(&manifest.filter_name(span), span.filter.bytes, None).await?;
        HashFilter::read(object.into()).map_err(|_| NotRead::Changed)
    }
}
