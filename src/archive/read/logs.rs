//! Logs of the archive: spans say in which segments they may be, and each segment in which blocks.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use futures_util::future::join_all;
use neve_archive::{Manifest, SegmentEntry, TermPages, segment_bit, segments_in};
use neve_store::{ArchivedSegment, WithoutLogs};

use super::archived_files::{ArchivedFiles, Borrowed, Keys, Known};
use super::budget::{Budget, PAGES_MAX};
use super::fetch::ObjectNotRead;
use super::page_file::{PageFile, joins};
use crate::rpc::methods::LogsBeyond;

/// Segments that are read at a time.
const SEGMENTS_MAX: usize = 16;
/// Reads that a segment with few logs takes: its front, its log index, and frames. Also those before its frames:
/// page lists, front and log index.
const SEGMENT_READS: usize = 3;
/// Pages that are read through, or ahead, to save a read: 1 MiB takes about as long as a read of nothing, and the index
/// of logs of a mainnet segment ends within it behind the front. At most this part of a read. `SPARE_MAX` bounds them in
/// a request: with 16 in each segment none are left for the 17th.
const BESIDE_PAGES_MAX: usize = 16;
const BESIDE_PART: usize = 4;
/// Terms that are looked for in spans. With more of them most segments have one.
const TERMS_MAX: usize = 64;

/// Segments that may have logs, and heights that have none.
type Candidates<'m> = (Vec<&'m SegmentEntry>, Vec<Range<u64>>);

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
        let manifest = &known.manifest;
        let budget = Budget::of_logs(request, self.logs_reads_max);
        let entries = known.segments(&heights)?;
        let mut borrowed = Borrowed::default();
        let mut without: Vec<Range<u64>> = Vec::new();
        let span = |entry: &SegmentEntry| manifest.span_of(entry).map(|span| span.first);
        for entries in entries.chunk_by(|a, b| span(a) == span(b)) {
            let (some, none) = match self.candidates(manifest, entries, keys, &budget).await {
                Err(ObjectNotRead::Beyond) => {
                    let at = entries.first().map_or(*heights.start(), |entry| entry.first);
                    return Ok(self.beyond(&heights, keys, at));
                }
                found => found?,
            };
            without.extend(none);
            let mut rest = &some[..];
            while !rest.is_empty() {
                // Of segments beyond the reads that are left, all reads would be in vain.
                let count = (budget.reads_left() / SEGMENT_READS).clamp(1, SEGMENTS_MAX);
                let (now, later) = rest.split_at(count.min(rest.len()));
                let parts = now.iter().map(|entry| {
                    let heights = known.heights_in(entry, &heights);
                    self.part(manifest, entry, heights, keys, &budget)
                });
                for (entry, part) in now.iter().zip(join_all(parts).await) {
                    match part {
                        Ok(segment) => borrowed.segments.push(segment),
                        Err(ObjectNotRead::Beyond) if entry.first > *heights.start() => {
                            return Ok(self.beyond(&heights, keys, entry.first));
                        }
                        Err(ObjectNotRead::Beyond) => {
                            let at = self.fitting(known, entry, &heights, keys, request).await?;
                            return Ok(self.beyond(&heights, keys, at));
                        }
                        Err(why) => return Err(why),
                    }
                }
                rest = later;
            }
        }
        if !without.is_empty() {
            borrowed.without.push(WithoutLogs { criteria: keys.to_vec(), heights: without });
        }
        Ok(borrowed)
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

    /// Height up to which the logs of one segment pass.
    async fn fitting(
        &self,
        known: &Known,
        entry: &SegmentEntry,
        heights: &RangeInclusive<u64>,
        keys: &Keys,
        request: &Budget<'_>,
    ) -> Result<u64, ObjectNotRead> {
        let (file, segment) = self.open(&known.manifest, entry, true, request).await?;
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
        budget: &Budget<'_>,
    ) -> Result<(), ObjectNotRead> {
        // Else a page beside them would send for pages that the disk has.
        self.pages.recall(file, pages).await?;
        let run_max = self.pages.run_pages_max();
        let reads = file.absent(pages, run_max).0;
        let beside = if reads > 0 { beside() } else { Vec::new() };
        let count = beside.len();
        let all: BTreeSet<_> = pages.iter().copied().chain(beside).collect();
        let saves = count > 0 && file.absent(&all, run_max).0 <= reads;
        if saves && budget.spare(count) {
            match self.bring(file, &all, budget).await {
                // A shorter read may be done in time, and has less of the rate.
                Err(ObjectNotRead::Changed | ObjectNotRead::Failed | ObjectNotRead::Refused) => {}
                brought => return brought,
            }
        }
        self.bring(file, pages, budget).await
    }

    /// Finds the segments of a span that may have logs, by the terms of the span if it has them.
    async fn candidates<'m>(
        &self,
        manifest: &Manifest,
        entries: &[&'m SegmentEntry],
        keys: &Keys,
        budget: &Budget<'_>,
    ) -> Result<Candidates<'m>, ObjectNotRead> {
        let all = (entries.to_vec(), Vec::new());
        let terms: usize = keys.iter().map(Vec::len).sum();
        // The index of one segment takes no more reads than its terms. Terms of a manifest that is not trusted prove nothing.
        if !self.trusts_terms || keys.is_empty() || terms > TERMS_MAX || entries.len() < 2 {
            return Ok(all);
        }
        let bits = match self.segments_with(manifest, entries, keys, budget).await {
            // The indexes of the segments say the same.
            Ok(None) | Err(ObjectNotRead::Absent | ObjectNotRead::Changed) => return Ok(all),
            found => found?.unwrap_or(u64::MAX),
        };
        let range = manifest.range;
        let is_some = |entry: &&SegmentEntry| bits >> segment_bit(entry.first, range) & 1 == 1;
        let (some, none): (Vec<&SegmentEntry>, Vec<&SegmentEntry>) =
            entries.iter().copied().partition(is_some);
        let none = none.iter().map(|entry| entry.first..entry.first + u64::from(range));
        Ok((some, none.collect()))
    }

    /// Finds the segments of a group that may have logs, a bit each. `None` if the span has no terms.
    async fn segments_with(
        &self,
        manifest: &Manifest,
        entries: &[&SegmentEntry],
        keys: &Keys,
        budget: &Budget<'_>,
    ) -> Result<Option<u64>, ObjectNotRead> {
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
    let found = segment.candidates(keys, heights.clone());
    let (mut reads, mut count, mut run) = (0, 0, 0..0);
    // A damaged index excludes no height.
    for height in found.unwrap_or_else(|| heights.clone().collect()) {
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
