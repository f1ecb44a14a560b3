//! Logs of the archive: spans say in which segments they may be, and each segment in which blocks.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use futures_util::future::join_all;
use neve_archive::{Manifest, SegmentEntry, TermPages, segment_bit, segments_in};
use neve_store::{ArchivedSegment, WithoutLogs};

use super::archived_files::{ArchivedFiles, Borrowed, Keys, Known, ReadExtent};
use super::budget::{Budget, PAGES_MAX};
use super::fetch::ObjectNotRead;
use super::page_file::{self, PageFile, joins};
use crate::rpc::methods::LogsBeyond;

mod plan;

use plan::PlanLimits;

/// Segments that are read at a time.
const SEGMENTS_MAX: usize = 16;
/// Reads that a segment with few logs takes: its front, its log index, and frames. Also those before its frames:
/// page lists, front and log index.
const SEGMENT_READS: usize = 3;
/// Pages that are read through, or ahead, to save a read: 1 MiB takes about as long as a read of nothing, and the index
/// of logs of a mainnet segment ends within it behind the front. At most this part of a read. `SPARE_MAX` bounds them in
/// a request: with 16 in each segment none are left for the 49th.
const BESIDE_PAGES_MAX: usize = 16;
const BESIDE_PART: usize = 4;
/// Terms that are looked for in spans. With more of them most segments have one.
const TERMS_MAX: usize = 64;

/// Segments that may have logs, and heights that have none.
type Candidates<'m> = (Vec<&'m SegmentEntry>, Vec<Range<u64>>);

/// A call for logs.
struct LogsCall<'c> {
    known: &'c Known,
    heights: &'c RangeInclusive<u64>,
    keys: &'c Keys,
    /// Budget of its request.
    request: &'c Budget<'c>,
    /// Budget of the call.
    budget: &'c Budget<'c>,
    /// True if its reads are planned together.
    is_planned: bool,
}

impl ArchivedFiles {
    /// Makes logs with a key of each list readable, all or nothing. Reads beyond the limit of one call name the
    /// heights that would pass.
    pub(super) async fn logs(
        &self,
        known: &Known,
        heights: RangeInclusive<u64>,
        keys: &Keys,
        request: &Budget<'_>,
    ) -> Result<Borrowed, ObjectNotRead> {
        let budget = &Budget::of_logs(request, self.logs_reads_max);
        let entries = known.segments(&heights)?;
        let spans = by_span(&known.manifest, &entries);
        let is_planned = self.plans(spans.len(), keys);
        let call = LogsCall { known, heights: &heights, keys, request, budget, is_planned };
        let (mut segments, mut without) = (Vec::new(), Vec::new());
        for spans in spans.chunks(if is_planned { plan::SPANS_MAX } else { 1 }) {
            if let Some(end) = self.logs_in(&call, spans, &mut segments, &mut without).await? {
                return Ok(self.beyond(&heights, keys, end));
            }
        }
        Ok(Borrowed { segments, without: without_logs(keys, without), ..Borrowed::default() })
    }

    /// Makes the logs of spans readable, and adds their segments, and the heights without logs. Beyond the reads of the
    /// call, returns the end of the heights that would pass.
    async fn logs_in(
        &self,
        call: &LogsCall<'_>,
        spans: &[&[&SegmentEntry]],
        segments: &mut Vec<ArchivedSegment>,
        without: &mut Vec<Range<u64>>,
    ) -> Result<Option<u64>, ObjectNotRead> {
        let ((some, none), end) = self.candidates_of(call, spans).await?;
        without.extend(none);
        let planned = if call.is_planned {
            self.planned(&some, lists_ahead(&call.known.manifest, spans), call.budget)
        } else {
            some.into_iter().map(|entry| (entry, ReadExtent::Near)).collect()
        };
        let passes = self.parts(call, &planned, segments).await?;
        Ok(passes.or(end))
    }

    /// True if the reads of a call over so many spans are planned together, behind those of all terms. Of more spans or
    /// terms, these reads would leave too few to the first segments, and an error would name a short range.
    fn plans(&self, spans: usize, keys: &Keys) -> bool {
        let terms: usize = keys.iter().map(Vec::len).sum();
        let is_short = spans <= plan::SPANS_MAX && (1 + terms) * spans <= self.logs_reads_max / 2;
        is_short && self.uses_terms(keys) && self.logs_reads_max >= plan::PLANNED_READS_MAX
    }

    /// Adds the extent of its reads to each segment. Page lists that are still to come take so many reads.
    fn planned<'m>(
        &self,
        segments: &[&'m SegmentEntry],
        lists: usize,
        budget: &Budget<'_>,
    ) -> Vec<(&'m SegmentEntry, ReadExtent)> {
        let sizes: Vec<_> = segments.iter().map(|entry| entry.bytes).collect();
        let reads = lists + self.logs_reads_max.saturating_sub(budget.reads_left());
        let pages = budget.spare_left().min(self.pages.address_pages_max());
        // On a full disk, memory takes few pages.
        let pages = if page_file::has_unwritten() { 0 } else { pages };
        let limits = PlanLimits { segment_pages: self.pages.whole_pages_max(), pages };
        segments.iter().copied().zip(plan::plan(reads, &sizes, &limits)).collect()
    }

    /// Makes the logs of segments readable. Beyond the reads of the call, returns the end of the heights that would pass.
    async fn parts(
        &self,
        call: &LogsCall<'_>,
        planned: &[(&SegmentEntry, ReadExtent)],
        segments: &mut Vec<ArchivedSegment>,
    ) -> Result<Option<u64>, ObjectNotRead> {
        let mut rest = planned;
        while !rest.is_empty() {
            // Of segments beyond the reads that are left, all reads would be in vain.
            let count = (call.budget.reads_left() / SEGMENT_READS).clamp(1, SEGMENTS_MAX);
            let (now, later) = rest.split_at(count.min(rest.len()));
            let parts = now.iter().map(|(entry, extent)| self.part_of(call, entry, *extent));
            for ((entry, _), part) in now.iter().zip(join_all(parts).await) {
                match part {
                    Ok(segment) => segments.push(segment),
                    Err(ObjectNotRead::Beyond) => return self.fitting(call, entry).await.map(Some),
                    Err(why) => return Err(why),
                }
            }
            rest = later;
        }
        Ok(None)
    }

    /// Makes the logs of a segment readable.
    async fn part_of(
        &self,
        call: &LogsCall<'_>,
        entry: &SegmentEntry,
        extent: ReadExtent,
    ) -> Result<ArchivedSegment, ObjectNotRead> {
        let LogsCall { known, heights, keys, budget, .. } = *call;
        let heights = known.heights_in(entry, heights);
        self.part(&known.manifest, entry, heights, (keys, extent), budget).await
    }

    /// Says that the logs of the heights below `end` alone would pass.
    fn beyond(&self, heights: &RangeInclusive<u64>, keys: &[Vec<u64>], end: u64) -> Borrowed {
        let first = *heights.start();
        let beyond = LogsBeyond {
            first,
            criteria: keys.to_vec(),
            passes: first..=end.saturating_sub(1).max(first),
            reads_max: self.logs_reads_max,
        };
        Borrowed { beyond: Some(beyond), ..Borrowed::default() }
    }

    /// Height up to which the logs of a call pass whose reads end in this segment.
    async fn fitting(
        &self,
        call: &LogsCall<'_>,
        entry: &SegmentEntry,
    ) -> Result<u64, ObjectNotRead> {
        let LogsCall { known, heights, keys, request, .. } = *call;
        if entry.first > *heights.start() {
            return Ok(entry.first);
        }
        let (file, segment) = self.open(&known.manifest, entry, ReadExtent::Near, request).await?;
        let (heights, keys) = (known.heights_in(entry, heights), Arc::clone(keys));
        let limits = (self.logs_reads_max, self.pages.run_pages_max());
        let fitting = move || fitting_end(&segment, &file, &keys, heights, limits);
        self.pages.compute(fitting).await?.ok_or(ObjectNotRead::Changed)
    }

    /// Pages that one read may bring to save another one.
    pub(super) fn beside_max(&self) -> usize {
        (self.pages.run_pages_max() / BESIDE_PART).min(BESIDE_PAGES_MAX)
    }

    /// Brings pages, and others in the same reads, as far as the request may. Others cause no read, and fail none.
    pub(super) async fn bring_with(
        &self,
        file: &Arc<PageFile>,
        pages: &BTreeSet<usize>,
        beside: impl FnOnce() -> Vec<usize>,
        run_max: usize,
        budget: &Budget<'_>,
    ) -> Result<(), ObjectNotRead> {
        // Else a page beside them would send for pages that the disk has.
        self.pages.recall(file, pages).await?;
        let reads = file.absent(pages, run_max).0;
        let beside = if reads > 0 { beside() } else { Vec::new() };
        let count = beside.len();
        let all: BTreeSet<_> = pages.iter().copied().chain(beside).collect();
        let saves = count > 0 && file.absent(&all, run_max).0 <= reads;
        if saves && budget.spare(count) {
            match self.bring_in_runs(file, &all, run_max, budget).await {
                // A shorter read may be done in time, and has less of the rate.
                Err(ObjectNotRead::Changed | ObjectNotRead::Failed | ObjectNotRead::Refused) => {}
                brought => return brought,
            }
        }
        self.bring_in_runs(file, pages, run_max, budget).await
    }

    /// Finds the segments of spans that may have logs, and the heights without. Beyond the reads of the call, also
    /// returns the start of the first span that is left.
    async fn candidates_of<'m>(
        &self,
        call: &LogsCall<'_>,
        spans: &[&[&'m SegmentEntry]],
    ) -> Result<(Candidates<'m>, Option<u64>), ObjectNotRead> {
        let (mut some, mut none) = (Vec::new(), Vec::new());
        for entries in spans {
            match self.candidates(call, entries).await {
                Err(ObjectNotRead::Beyond) => {
                    return Ok(((some, none), entries.first().map(|entry| entry.first)));
                }
                found => {
                    let (these, without) = found?;
                    some.extend(these);
                    none.extend(without);
                }
            }
        }
        Ok(((some, none), None))
    }

    /// True if the terms of spans say which segments may have logs. With many of them most segments have one. Terms of a
    /// manifest that is not trusted prove nothing.
    fn uses_terms(&self, keys: &Keys) -> bool {
        let terms: usize = keys.iter().map(Vec::len).sum();
        self.trusts_terms && !keys.is_empty() && terms <= TERMS_MAX
    }

    /// Finds the segments of a span that may have logs, by the terms of the span if it has them.
    async fn candidates<'m>(
        &self,
        call: &LogsCall<'_>,
        entries: &[&'m SegmentEntry],
    ) -> Result<Candidates<'m>, ObjectNotRead> {
        let all = (entries.to_vec(), Vec::new());
        // The index of one segment takes no more reads than its terms.
        if !self.uses_terms(call.keys) || entries.len() < 2 {
            return Ok(all);
        }
        let bits = match self.segments_with(call, entries).await {
            // The indexes of the segments say the same.
            Ok(None) | Err(ObjectNotRead::Absent | ObjectNotRead::Changed) => return Ok(all),
            found => found?.unwrap_or(u64::MAX),
        };
        let range = call.known.manifest.range;
        let is_some = |entry: &&SegmentEntry| bits >> segment_bit(entry.first, range) & 1 == 1;
        let (some, none): (Vec<&SegmentEntry>, Vec<&SegmentEntry>) =
            entries.iter().copied().partition(is_some);
        let none = none.iter().map(|entry| entry.first..entry.first + u64::from(range));
        Ok((some, none.collect()))
    }

    /// Finds the segments of a group that may have logs, a bit each. `None` if the span has no terms.
    async fn segments_with(
        &self,
        call: &LogsCall<'_>,
        entries: &[&SegmentEntry],
    ) -> Result<Option<u64>, ObjectNotRead> {
        let (manifest, keys, budget) = (&call.known.manifest, call.keys, call.budget);
        let span = entries.first().and_then(|entry| manifest.span_of(entry));
        let span = span.ok_or(ObjectNotRead::Unknown)?;
        let (Some(name), Some(at)) = (manifest.terms_name(span), span.terms) else {
            return Ok(None);
        };
        // A copy, so that the lists of the span go while pages come.
        let terms = self.lists(manifest, span, budget).await?.terms.clone();
        let of_it = |terms: &TermPages| terms.pages.object_digest() == at.digest;
        let terms = terms.filter(of_it).ok_or(ObjectNotRead::Changed)?;
        let file = self.pages.file(name, at.bytes, &terms.pages).await?;
        let pages = keys.iter().flatten().flat_map(|term| terms.of_term(*term)).collect();
        self.bring(&file, &pages, budget).await?;
        self.pages.dir.touch(&file.name);
        let keys = Arc::clone(keys);
        let looking = move || look_up(&file, &terms, &keys);
        self.pages.compute(looking).await?.map(Some).ok_or(ObjectNotRead::Failed)
    }
}

/// Heights without logs with a key of each list, if there are any.
fn without_logs(keys: &Keys, heights: Vec<Range<u64>>) -> Vec<WithoutLogs> {
    if heights.is_empty() {
        return Vec::new();
    }
    vec![WithoutLogs { criteria: keys.to_vec(), heights }]
}

/// Segments by their spans.
fn by_span<'e, 'm>(
    manifest: &Manifest,
    entries: &'e [&'m SegmentEntry],
) -> Vec<&'e [&'m SegmentEntry]> {
    let span = |entry: &SegmentEntry| manifest.span_of(entry).map(|span| span.first);
    entries.chunk_by(|a, b| span(a) == span(b)).collect()
}

/// Spans of which no terms are read: their page lists come with the first segment.
fn lists_ahead(manifest: &Manifest, spans: &[&[&SegmentEntry]]) -> usize {
    let has_terms = |entry: &&SegmentEntry| {
        manifest.span_of(entry).is_some_and(|span| manifest.terms_name(span).is_some())
    };
    spans.iter().filter(|entries| entries.len() < 2 || !entries.iter().any(has_terms)).count()
}

/// Height behind the heights whose frames take at most so many reads, of so many pages each, also where none of their
/// pages is here: another replica may get the next call. `None` if the segment is damaged.
fn fitting_end(
    segment: &ArchivedSegment,
    file: &PageFile,
    keys: &Keys,
    heights: Range<u64>,
    (reads_max, run_max): (usize, usize),
) -> Option<u64> {
    let reads_max = reads_max.saturating_sub(SEGMENT_READS).max(1);
    let (mut reads, mut count, mut run) = (0, 0, 0..0);
    for height in candidate_heights(segment, keys, &heights) {
        let (offset, len) = segment.extent(height)?;
        let pages = file.pages(offset..offset + len as u64);
        // Frames ascend, and neighbors may share a page.
        for page in pages.start.max(run.end)..pages.end {
            reads += usize::from(!joins(&mut run, page, run_max));
            count += 1;
        }
        if reads > reads_max || count > PAGES_MAX {
            return Some(height);
        }
    }
    Some(heights.end)
}

/// Those of the heights that may have a log with a key of each list. A damaged index excludes none.
fn candidate_heights(segment: &ArchivedSegment, keys: &Keys, heights: &Range<u64>) -> Vec<u64> {
    let found = segment.candidates(keys, heights.clone());
    found.unwrap_or_else(|| heights.clone().collect())
}

/// The segments that may have a log with a key of each list. 0 stands for an absent term, which no log has.
fn look_up(file: &PageFile, terms: &TermPages, keys: &[Vec<u64>]) -> Option<u64> {
    keys.iter().try_fold(u64::MAX, |all, keys| {
        let some = keys.iter().filter(|key| **key != 0).try_fold(0, |some, key| {
            let pages = terms.of_term(*key);
            let start = file.extent(&pages).start;
            Some(some | segments_in(start, &file.read_index(pages)?, *key))
        });
        Some(all & some?)
    })
}
