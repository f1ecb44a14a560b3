//! An archive's segments in place of history that is asked for height by height.

use std::ops::Range;
use std::sync::Arc;

use neve_archive::{Manifest, SegmentEntry};
use neve_store::{PartialSegment, SealedPage};

use super::error::BackfillError;
use super::segment_verifier::{SegmentError, VerifiedSegment};
use super::transfer::{
    BackfillStep, SegmentSource, TransferError, take_all, verify, wanted_heights,
};
use crate::archive::{ArchiveSource, Failed, identity_of};
use crate::fetch::{Follower, HeightFetcher};

/// Segments that are in flight or being proven.
const AHEAD: usize = 2;

/// Takes segments of the archive that lie below the first height, newest first.
pub(super) async fn fill(
    follower: &Follower,
    source: &HeightFetcher,
    archive: &Arc<ArchiveSource>,
) -> Result<BackfillStep, BackfillError> {
    let step = next_step(follower, source, archive).await?;
    // An archive has no single heights to request.
    let is_alone = follower.endpoints.is_empty() && matches!(step, BackfillStep::Ask { .. });
    Ok(if is_alone { BackfillStep::Nothing } else { step })
}

async fn next_step(
    follower: &Follower,
    source: &HeightFetcher,
    archive: &Arc<ArchiveSource>,
) -> Result<BackfillStep, BackfillError> {
    let heights = match heights_to_take(follower, archive) {
        Ok(heights) => heights,
        Err(step) => return Ok(step),
    };
    match own_manifest(follower, archive).await {
        Ok(manifest) => {
            let manifest = &manifest;
            ArchiveSegments { follower, source, archive, manifest }.take_joining(heights).await
        }
        Err(why) => {
            archive.say(Some(&why));
            Ok(BackfillStep::Ask { from: 0 })
        }
    }
}

/// Heights that segments of the archive may bring now; without any, the next step.
fn heights_to_take(
    follower: &Follower,
    archive: &ArchiveSource,
) -> Result<Range<u64>, BackfillStep> {
    let heights = wanted_heights(follower).inspect_err(|step| {
        if matches!(step, BackfillStep::Ask { .. }) {
            archive.wants_nothing(); // all is here
        }
    })?;
    if archive.rests() { Err(BackfillStep::Ask { from: 0 }) } else { Ok(heights) }
}

/// Returns the archive's manifest, or why it is of no use to this store.
async fn own_manifest(
    follower: &Follower,
    archive: &ArchiveSource,
) -> Result<Arc<Manifest>, String> {
    let manifest = archive.manifest().await.map_err(|why| why.to_string())?;
    let identity = identity_of(&manifest);
    if follower.serving.identity() != Some(identity) {
        return Err(format!("it has {identity}"));
    }
    has_own_range(follower, &manifest).map_err(|why| why.to_string())?;
    Ok(manifest)
}

/// Compares the length of an archive's ranges with that of the store's. Each packed file takes a map of the kernel, and
/// stays as it came: an archive of files with one height would use up all maps.
pub(super) fn has_own_range(follower: &Follower, manifest: &Manifest) -> Result<(), Failed> {
    let (found, own) = (manifest.range, follower.ingest.range_blocks());
    if found == own { Ok(()) } else { Err(Failed::OtherRange { found, own }) }
}

/// Segments that join the first height, newest first.
fn joining(manifest: &Manifest, heights: &Range<u64>) -> Vec<SegmentEntry> {
    let (range, goal, first) = (u64::from(manifest.range), heights.start, heights.end);
    let below = manifest.segments.iter().rev().skip_while(|entry| entry.first + range > first);
    let joins = |(count, entry): &(u64, &SegmentEntry)| entry.first + (count + 1) * range == first;
    let joining = (0..).zip(below).take_while(joins).map(|(_, entry)| *entry);
    joining.take_while(|entry| entry.first + range > goal).collect()
}

/// Lowest height to ask for, so that a segment joins then.
fn below(manifest: &Manifest, first: u64) -> u64 {
    let Some(last) = first.checked_sub(1) else { return 0 };
    match (manifest.segment_of(last), manifest.heights()) {
        (Some(holder), _) => holder.first,
        // Above its newest segment the archive has nothing to join: these heights come one by one.
        (None, Some((_, newest))) if newest < last => newest + 1,
        _ => 0,
    }
}

/// Reason why a segment of an archive is not taken.
pub(super) type ArchiveTransferError = TransferError<Failed>;

/// Segments of an archive.
struct ArchiveSegments<'f> {
    follower: &'f Follower,
    source: &'f HeightFetcher,
    archive: &'f ArchiveSource,
    manifest: &'f Manifest,
}

impl ArchiveSegments<'_> {
    /// Takes the segments that join the first height. Returns the next step.
    async fn take_joining(&self, heights: Range<u64>) -> Result<BackfillStep, BackfillError> {
        let joining = joining(self.manifest, &heights);
        if joining.is_empty() {
            self.archive.wants_nothing(); // a segment that failed was dropped, or its heights came one by one
        }
        let is_taken = |entry: &SegmentEntry| !self.archive.is_refused(entry);
        let wanted: Vec<_> = joining.into_iter().take_while(is_taken).collect();
        if wanted.is_empty() {
            return Ok(BackfillStep::Ask { from: below(self.manifest, heights.end) });
        }
        take_all(self.follower, self.source, self, wanted, AHEAD).await
    }
}

impl SegmentSource for ArchiveSegments<'_> {
    type Entry = SegmentEntry;
    type Failure = Failed;

    fn name(&self) -> &str {
        &self.archive.url
    }

    fn heights(&self, entry: SegmentEntry) -> Range<u64> {
        entry.first..entry.first + u64::from(self.manifest.range)
    }

    async fn take(&self, entry: SegmentEntry) -> Result<VerifiedSegment, ArchiveTransferError> {
        let Self { follower, source, archive, manifest } = *self;
        let (incoming, page) = received(follower, archive, manifest, &entry).await?;
        // Without an upstream that answers the heights below are not here: the segment below is held against the stored
        // headers when it comes.
        let is_asked = source.pool.sight().borrow().admitted > 0;
        let before = entry.first.checked_sub(1).filter(|_| is_asked);
        verify(follower, source, incoming, page, before).await
    }

    fn accepted(&self) {
        self.archive.accept();
    }

    fn failed(&self, entry: SegmentEntry, why: &Failed) {
        if matches!(why, Failed::Dropped(_)) {
            return; // the next step is that of the manifest which dropped it
        }
        self.archive.leave(&entry, &why.to_string());
    }

    fn reject(&self, entry: SegmentEntry, wrong: &SegmentError) {
        self.archive.refuse(&entry, &wrong.to_string());
    }
}

/// Gets a segment and writes it beside the store.
pub(super) async fn received(
    follower: &Follower,
    archive: &ArchiveSource,
    manifest: &Manifest,
    entry: &SegmentEntry,
) -> Result<(PartialSegment, SealedPage), ArchiveTransferError> {
    let bytes = archive.segment(manifest, entry).await.map_err(TransferError::Source)?;
    let (history, base) = (follower.ingest.raw_history().await??, entry.first);
    let expected = (identity_of(manifest), base, manifest.range);
    let written = tokio::task::spawn_blocking(move || {
        let Some(mut incoming) = history.receive_packed(base)? else { return Ok(None) };
        // The object comes whole: what an earlier try left is of no use.
        incoming.restart()?;
        let is_whole = incoming.write(&bytes)? && incoming.is_whole();
        let page = incoming.page().filter(|_| is_whole).cloned();
        let page = page.filter(|page| (page.identity, page.base, page.records) == expected);
        // Another file than the manifest names.
        let Some(page) = page else { return incoming.restart().map(|()| None) };
        Ok(Some((incoming, page)))
    });
    let received = written.await?.map_err(BackfillError::from)?;
    received.ok_or_else(|| TransferError::Segment(SegmentError::another()))
}
