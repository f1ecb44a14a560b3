//! Packed files of the archive, opened over their pages: heights made readable, and hashes found.

use std::collections::{BTreeSet, HashMap};
use std::iter;
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use neve_archive::{
    Digest, Manifest, PAGE_BYTES, PageLists, SegmentEntry, SegmentPages, SpanEntry,
};
use neve_record::packed::Codec;
use neve_store::{
    ArchivedPlace, ArchivedSegment, Identity, PackedBytes, PackedCodec, PackedPages, WithoutLogs,
};
use tokio::sync::{OnceCell, Semaphore};
use tracing::warn;

use super::budget::{Budget, READS_MAX};
use super::fetch::ObjectNotRead;
use super::filters::LoadedFilters;
use super::page_file::PageFile;
use super::page_source::{OpenedPages, PageSource};
use super::turns;
use crate::archive::source::identity_of;
use crate::config::ArchiveTrust;
use crate::config::settings::ArchiveConfig;
use crate::rpc::methods::LogsBeyond;
use crate::shared::lock::lock;

mod hashes;

/// Bytes of page lists in memory. Those of a span of mainnet have 260 KB. The sizes are those that the manifest names,
/// which may be false.
const LISTS_BYTES_MAX: u64 = 32 << 20;
/// Bytes of the page lists of one span: an address has places for twice as many. Those of 64 segments of 256 MiB, the
/// longest that a replica takes, have 8 MiB.
const SPAN_LISTS_BYTES_MAX: u64 = LISTS_BYTES_MAX / 2;
/// Bytes that they may have whatever their form says: a manifest may leave out terms that the lists name.
const SPAN_LISTS_BYTES_MIN: u64 = 64 << 10;
/// Bytes that tables of archived files take together.
const TABLES_BYTES_MAX: usize = 32 << 20;

/// Manifest whose heights may be answered.
pub(super) struct Known {
    pub(super) manifest: Arc<Manifest>,
    pub(super) heights: RangeInclusive<u64>,
    /// Heights below a gap, which lead to the anchor.
    pub(super) anchored: Option<RangeInclusive<u64>>,
}

impl Known {
    /// True if all of these heights are answered.
    pub(super) fn has(&self, heights: &RangeInclusive<u64>) -> bool {
        let mut ranges = iter::once(&self.heights).chain(&self.anchored);
        ranges.any(|range| range.contains(heights.start()) && range.contains(heights.end()))
    }

    /// Segments with these heights, all of which must be answered.
    pub(super) fn segments(
        &self,
        heights: &RangeInclusive<u64>,
    ) -> Result<Vec<&SegmentEntry>, ObjectNotRead> {
        let segments = &self.manifest.segments;
        let from = segments.partition_point(|entry| entry.first <= *heights.start());
        let from =
            from.checked_sub(1).filter(|_| self.has(heights)).ok_or(ObjectNotRead::Unknown)?;
        let end = segments.partition_point(|entry| entry.first <= *heights.end());
        Ok(segments.get(from..end).unwrap_or_default().iter().collect())
    }

    /// Those of the heights that a segment has.
    pub(super) fn heights_in(
        &self,
        entry: &SegmentEntry,
        heights: &RangeInclusive<u64>,
    ) -> Range<u64> {
        let end = entry.first + u64::from(self.manifest.range);
        entry.first.max(*heights.start())..end.min(heights.end().saturating_add(1))
    }
}

/// Segments and hashes that a request is lent.
#[derive(Default)]
pub(super) struct Borrowed {
    pub(super) segments: Vec<ArchivedSegment>,
    /// Places of hashes in them.
    pub(super) places: Vec<ArchivedPlace>,
    /// Heights without logs.
    pub(super) without: Vec<WithoutLogs>,
    /// A call for logs that needs too many reads.
    pub(super) beyond: Option<LogsBeyond>,
    /// Height of a hash that is not answered.
    pub(super) unproven: Option<u64>,
}

/// Lists of keys, of which a log must have one each. Work on other threads shares them.
pub(super) type Keys = Arc<[Vec<u64>]>;

/// Packed files of the archive.
pub(super) struct ArchivedFiles {
    pub(super) pages: Arc<PageSource>,
    pub(super) filters: Arc<LoadedFilters>,
    /// Reads that one call for logs may need.
    pub(super) logs_reads_max: usize,
    /// True if the terms of spans are those of their segments for certain.
    pub(super) trusts_terms: bool,
    codec: Arc<dyn PackedCodec>,
    /// Page lists of spans, or those that one request brings for all.
    lists: Mutex<Lists>,
    /// Places of threads that look hashes up in filters.
    look_ups: Arc<Semaphore>,
}

/// Pages of a segment that its reads bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadExtent {
    /// The needed ones alone.
    Needed,
    /// Also up to 1 MiB behind the front, and gaps of up to 1 MiB.
    Near,
    /// Also up to 1 MiB behind the front, and each gap, so that frames take one read.
    Gaps,
    /// All, by one read.
    Whole,
}

/// Pages that the reads of a segment may have.
struct RunLimits {
    /// Pages of one read.
    run: usize,
    /// Pages behind the front that come with it.
    behind: usize,
    /// Pages of a gap between frames that is read through.
    gap: usize,
}

/// Page lists, by the digest of their object.
#[derive(Default)]
struct Lists {
    cells: HashMap<Digest, Arc<OnceCell<Arc<PageLists>>>>,
    bytes: u64,
}

impl Lists {
    /// Place of the lists of a span. If those that are here would take too many bytes with them, these go.
    fn cell(&mut self, span: &SpanEntry) -> Arc<OnceCell<Arc<PageLists>>> {
        let key = span.pages.digest;
        if !self.cells.contains_key(&key) {
            if self.bytes + span.pages.bytes > LISTS_BYTES_MAX {
                *self = Self::default();
            }
            self.bytes += span.pages.bytes;
        }
        Arc::clone(self.cells.entry(key).or_default())
    }
}

impl ArchivedFiles {
    /// Packed files over pages, with the limits and the trust of the settings.
    pub(super) fn new(pages: PageSource, config: &ArchiveConfig) -> Self {
        let codec = Arc::new(Codec::new(TABLES_BYTES_MAX));
        let trusts_terms = config.trust != ArchiveTrust::Prove;
        let logs_reads_max = config.logs_reads_max;
        let (pages, lists) = (Arc::new(pages), Mutex::default());
        let filters = Arc::new(LoadedFilters::new(config.filter_bytes_max));
        let look_ups = Arc::new(Semaphore::new(turns::count()));
        Self { pages, filters, logs_reads_max, trusts_terms, codec, lists, look_ups }
    }

    /// Makes heights readable, as far as logs with a key of each list need them.
    pub(super) async fn heights(
        &self,
        known: &Known,
        heights: RangeInclusive<u64>,
        keys: &Keys,
        budget: &Budget<'_>,
    ) -> Result<Vec<ArchivedSegment>, ObjectNotRead> {
        let entries = known.segments(&heights)?;
        if entries.len() > READS_MAX {
            return Err(ObjectNotRead::TooMany);
        }
        let extent = if keys.is_empty() { ReadExtent::Needed } else { ReadExtent::Near };
        let parts = entries.into_iter().map(|entry| {
            let heights = known.heights_in(entry, &heights);
            self.part(&known.manifest, entry, heights, (keys, extent), budget)
        });
        join_all(parts).await.into_iter().collect()
    }

    /// Makes heights of a segment readable. Opening reads its front, for logs with the indexes behind it; then each
    /// run of neighboring pages is one read. Logs read through gaps, as far as the extent says.
    pub(super) async fn part(
        &self,
        manifest: &Manifest,
        entry: &SegmentEntry,
        heights: Range<u64>,
        (keys, extent): (&Keys, ReadExtent),
        budget: &Budget<'_>,
    ) -> Result<ArchivedSegment, ObjectNotRead> {
        let limits = self.run_limits(extent);
        // Before it is open: requests of one address must not have all files while they wait for reads.
        let lent = self.pages.lend(budget.payer, entry.digest)?;
        let (file, segment) = self.open(manifest, entry, extent, budget).await?;
        self.bring_index(&file, &segment, keys, budget).await?;
        let wanted = self.wanted(&file, &segment, keys, heights).await?;
        let between = || file.between(&wanted, limits.gap);
        self.bring_with(&file, &wanted, between, limits.run, budget).await?;
        self.pages.dir.touch(&file.name);
        Ok(match lent {
            Some(lent) => segment.guarded(Arc::new(lent)),
            None => segment,
        })
    }

    /// Brings the index of the logs of a segment, if logs are searched for.
    async fn bring_index(
        &self,
        file: &Arc<PageFile>,
        segment: &ArchivedSegment,
        keys: &Keys,
        budget: &Budget<'_>,
    ) -> Result<(), ObjectNotRead> {
        if keys.is_empty() {
            return Ok(());
        }
        let (offset, len) = segment.terms_extent().ok_or(ObjectNotRead::Changed)?;
        self.bring(file, &file.pages(offset..offset + len as u64).collect(), budget).await
    }

    /// Finds the pages of those heights that may have a log with a key of each list. Closes a segment that is damaged.
    async fn wanted(
        &self,
        file: &Arc<PageFile>,
        segment: &ArchivedSegment,
        keys: &Keys,
        heights: Range<u64>,
    ) -> Result<BTreeSet<usize>, ObjectNotRead> {
        let (of, over, keys) = (segment.clone(), Arc::clone(file), Arc::clone(keys));
        let wanted = self.pages.compute(move || wanted_pages(&of, &over, &keys, heights)).await?;
        wanted.ok_or_else(|| {
            self.pages.forget(&file.name.digest); // the disk may have changed them since they were proven
            ObjectNotRead::Changed
        })
    }

    /// Brings pages, as far as the request may.
    pub(super) async fn bring(
        &self,
        file: &Arc<PageFile>,
        pages: &BTreeSet<usize>,
        budget: &Budget<'_>,
    ) -> Result<(), ObjectNotRead> {
        self.bring_in_runs(file, pages, self.pages.run_pages_max(), budget).await
    }

    /// Brings pages by reads of at most `run_max` pages, as far as the request may.
    pub(super) async fn bring_in_runs(
        &self,
        file: &Arc<PageFile>,
        pages: &BTreeSet<usize>,
        run_max: usize,
        budget: &Budget<'_>,
    ) -> Result<(), ObjectNotRead> {
        budget.take(file.absent(pages, run_max))?;
        self.pages.ensure_pages(file, pages, run_max, budget.payer).await
    }

    /// Pages that the reads of a segment may have.
    fn run_limits(&self, extent: ReadExtent) -> RunLimits {
        let (run, whole, near) =
            (self.pages.run_pages_max(), self.pages.whole_pages_max(), self.beside_max());
        let (run, behind, gap) = match extent {
            ReadExtent::Needed => (run, 0, 0),
            ReadExtent::Near => (run, near, near),
            ReadExtent::Gaps => (whole, near, whole),
            ReadExtent::Whole => (whole, whole, whole),
        };
        RunLimits { run, behind, gap }
    }

    /// Opens a segment, unless it is open. All requests wait for the first one that opens it. A search reads the indexes
    /// in the same read.
    pub(super) async fn open(
        &self,
        manifest: &Manifest,
        entry: &SegmentEntry,
        extent: ReadExtent,
        budget: &Budget<'_>,
    ) -> Result<OpenedPages, ObjectNotRead> {
        let place = self.pages.opening(entry.digest);
        let opening = || self.open_anew(manifest, entry, extent, budget);
        place.cell.get_or_try_init(opening).await.cloned()
    }

    async fn open_anew(
        &self,
        manifest: &Manifest,
        entry: &SegmentEntry,
        extent: ReadExtent,
        budget: &Budget<'_>,
    ) -> Result<OpenedPages, ObjectNotRead> {
        let pages = self.segment_pages(manifest, entry, budget).await?;
        let name = manifest.segment_name(entry);
        let file = self.pages.file(name, entry.bytes, &pages.pages).await?;
        let front = file.pages(0..u64::from(pages.front));
        let limits = self.run_limits(extent);
        let behind = front.end..pages.pages.len().min(front.end.saturating_add(limits.behind));
        // Only if none of them is here, or the read would bring some again.
        let is_absent = || file.absent(&behind.clone().collect(), 1).1 == behind.len();
        let beside = || if is_absent() { behind.clone().collect() } else { Vec::new() };
        self.bring_with(&file, &front.collect(), beside, limits.run, budget).await?;
        let (codec, source) = (Arc::clone(&self.codec), Arc::clone(&file));
        let named = NamedBlocks::of(manifest, entry);
        let segment = self.pages.compute(move || open_over(source, &codec, &named)).await?;
        Ok((file, segment?))
    }

    /// Returns the page list of a segment.
    async fn segment_pages(
        &self,
        manifest: &Manifest,
        entry: &SegmentEntry,
        budget: &Budget<'_>,
    ) -> Result<SegmentPages, ObjectNotRead> {
        let span = manifest.span_of(entry).ok_or(ObjectNotRead::Unknown)?;
        // A copy, so that the lists of the span go while pages come.
        let pages = self.lists(manifest, span, budget).await?.segment(entry.first).cloned();
        let pages = pages.ok_or(ObjectNotRead::Changed)?;
        // The lists have the digest of their name, and may be of other objects all the same.
        if pages.pages.object_digest() != entry.digest || u64::from(pages.front) > entry.bytes {
            return Err(ObjectNotRead::Changed);
        }
        Ok(pages)
    }

    /// Returns the page lists of a span. All requests wait for the first one that brings them.
    pub(super) async fn lists(
        &self,
        manifest: &Manifest,
        span: &SpanEntry,
        budget: &Budget<'_>,
    ) -> Result<Arc<PageLists>, ObjectNotRead> {
        // The manifest may name any length: the bytes are in memory before their digest can differ.
        let form = manifest.pages_bytes(span);
        if span.pages.bytes > form.clamp(SPAN_LISTS_BYTES_MIN, SPAN_LISTS_BYTES_MAX) {
            return Err(ObjectNotRead::Changed);
        }
        // The lock ends with the block: to bring the lists may take seconds.
        let cell = {
            let mut lists = lock(&self.lists);
            lists.cell(span)
        };
        cell.get_or_try_init(|| self.bring_lists(manifest, span, budget)).await.cloned()
    }

    async fn bring_lists(
        &self,
        manifest: &Manifest,
        span: &SpanEntry,
        budget: &Budget<'_>,
    ) -> Result<Arc<PageLists>, ObjectNotRead> {
        let pages = span.pages.bytes.div_ceil(PAGE_BYTES as u64) as usize;
        budget.take((pages.div_ceil(self.pages.run_pages_max()), pages))?;
        let (name, payer) = (manifest.pages_name(span), budget.payer);
        // Its place goes once they are parsed: reads take seconds, and many spans may be asked for at once.
        let (bytes, _place) = self.pages.whole_held(name, span.pages.bytes, payer).await?;
        let digest = span.digest;
        let read = move || {
            let lists = PageLists::read(&bytes).ok();
            lists.filter(|lists| lists.span.object_digest() == digest)
        };
        self.pages.compute(read).await?.map(Arc::new).ok_or(ObjectNotRead::Changed)
    }
}

pub(super) fn no_keys() -> Keys {
    Arc::default()
}

/// Pages of those heights that may have a log with a key of each list. `None` if the segment is damaged.
fn wanted_pages(
    segment: &ArchivedSegment,
    file: &PageFile,
    keys: &Keys,
    heights: Range<u64>,
) -> Option<BTreeSet<usize>> {
    let wanted =
        if keys.is_empty() { heights.collect() } else { segment.candidates(keys, heights)? };
    let mut pages = BTreeSet::new();
    for height in wanted {
        let (offset, len) = segment.extent(height)?;
        pages.extend(file.pages(offset..offset + len as u64));
    }
    Some(pages)
}

/// Blocks of a segment as the manifest names them.
struct NamedBlocks {
    identity: Identity,
    range: u32,
    entry: SegmentEntry,
}

impl NamedBlocks {
    fn of(manifest: &Manifest, entry: &SegmentEntry) -> Self {
        Self { identity: identity_of(manifest), range: manifest.range, entry: *entry }
    }

    /// True if a segment has these blocks.
    fn are_in(&self, segment: &ArchivedSegment) -> bool {
        let Self { identity, range, entry } = self;
        let ends = segment.header().map(|header| (header, segment.last_hash()));
        ends.is_some_and(|(header, last)| {
            (header.identity, header.first, header.heights) == (*identity, entry.first, *range)
                && header.parent.0 == entry.parent.0
                && last.is_some_and(|last| last.0 == entry.last.0)
        })
    }
}

/// Opens a segment over its pages, and compares its blocks with the manifest.
fn open_over(
    file: Arc<PageFile>,
    codec: &Arc<dyn PackedCodec>,
    named: &NamedBlocks,
) -> Result<ArchivedSegment, ObjectNotRead> {
    let name = file.name;
    let pages: Arc<dyn PackedPages> = file;
    let segment = ArchivedSegment::open(PackedBytes::paged(pages), codec).map_err(|error| {
        warn!(object = %name, %error, "archived segment does not open");
        ObjectNotRead::Changed
    })?;
    if !named.are_in(&segment) {
        warn!(object = %name, "archived segment has other blocks");
        return Err(ObjectNotRead::Changed);
    }
    Ok(segment)
}

#[cfg(test)]
mod tests;
