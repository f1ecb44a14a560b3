//! An archive's segments in place of history that is asked for height by height.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use metrics::counter;
use neve_archive::{Manifest, SegmentEntry};
use neve_chain::{Checks, Settlement};
use neve_store::{PartialSegment, SealedPage};

use super::error::BackfillError;
use super::interval::BackfillInterval;
use super::plan::{goal, has_room_below};
use super::segment_transfer::{BackfillStep, keep_evidence, publish};
use super::segment_verifier::{SegmentError, VerifiedSegment, check};
use crate::archive::{ArchiveSource, Failed, identity_of};
use crate::fetch::{Follower, HeightFetcher, unsettled};
use crate::upstream::Priority;

/// Segments that are under way or being proven.
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
    let Some(range) = follower.serving.reader.range() else { return Ok(BackfillStep::Nothing) };
    let (first, goal) = (*range.start(), goal(follower, *range.end()));
    if follower.status.verified().is_none_or(|verified| verified + 1 < first) {
        return Ok(BackfillStep::Nothing); // until something above can prove it
    }
    if first <= goal {
        return Ok(BackfillStep::Ask { from: first }); // of which nothing comes but what /health shows
    }
    if archive.rests() {
        return Ok(BackfillStep::Ask { from: 0 });
    }
    let manifest = match archive.manifest().await {
        Ok(manifest) => manifest,
        Err(why) => {
            archive.say(Some(&why.to_string()));
            return Ok(BackfillStep::Ask { from: 0 });
        }
    };
    if follower.serving.identity() != Some(identity_of(&manifest)) {
        archive.say(Some(&format!("it has {}", identity_of(&manifest))));
        return Ok(BackfillStep::Ask { from: 0 });
    }
    if let Err(why) = has_own_range(follower, &manifest) {
        archive.say(Some(&why.to_string()));
        return Ok(BackfillStep::Ask { from: 0 });
    }
    let wanted = wanted(archive, &manifest, first, goal);
    if wanted.is_empty() {
        return Ok(BackfillStep::Ask { from: below(&manifest, first) });
    }
    take_all(follower, source, archive, &manifest, wanted).await
}

/// Compares the length of an archive's ranges with that of the store's. Each packed file takes a map of the kernel, and
/// stays as it came: an archive of files with one height would use up all maps.
pub(super) fn has_own_range(follower: &Follower, manifest: &Manifest) -> Result<(), Failed> {
    let (found, own) = (manifest.range, follower.ingest.range_blocks());
    if found == own { Ok(()) } else { Err(Failed::OtherRange { found, own }) }
}

/// Segments that join the first height, newest first.
fn wanted(
    archive: &ArchiveSource,
    manifest: &Manifest,
    first: u64,
    goal: u64,
) -> Vec<SegmentEntry> {
    let range = u64::from(manifest.range);
    let below = manifest.segments.iter().rev().skip_while(|entry| entry.first + range > first);
    let joins = |(count, entry): &(u64, &SegmentEntry)| entry.first + (count + 1) * range == first;
    let wanted = (0..).zip(below).take_while(joins).map(|(_, entry)| *entry);
    wanted.take_while(|entry| entry.first + range > goal && !archive.is_refused(entry)).collect()
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

async fn take_all(
    follower: &Follower,
    source: &HeightFetcher,
    archive: &Arc<ArchiveSource>,
    manifest: &Manifest,
    wanted: Vec<SegmentEntry>,
) -> Result<BackfillStep, BackfillError> {
    let taking = |entry: SegmentEntry| async move {
        let transfer = ArchiveTransfer { follower, source, archive, manifest, entry };
        (entry, transfer.run().await)
    };
    // In order, as each must join the one above it.
    let mut taken = std::pin::pin!(stream::iter(wanted).map(taking).buffered(AHEAD));
    while let Some((entry, outcome)) = taken.next().await {
        let wrong = match outcome {
            Ok(checked) => {
                let heights = entry.first..entry.first + u64::from(manifest.range);
                match publish(follower, source, heights, checked).await {
                    Ok(()) => {
                        archive.accept();
                        continue;
                    }
                    // Its last heights, which headers above it settle.
                    Err(BackfillError::Disproved(disproof)) => SegmentError::disproved(&disproof),
                    Err(stop) => return Err(stop),
                }
            }
            Err(TransferError::Full) => return Ok(BackfillStep::Ask { from: entry.first }),
            Err(TransferError::Backfill(stop)) => return Err(stop),
            Err(TransferError::Archive(why)) => {
                archive.say(Some(&why.to_string()));
                archive.leave(&entry);
                return Ok(BackfillStep::Ask { from: entry.first });
            }
            Err(TransferError::Segment(wrong)) => {
                counter!("neve_blocks_rejected_total", "reason" => wrong.reason).increment(1);
                wrong
            }
        };
        archive.refuse(&entry, &wrong.to_string());
        keep_evidence(follower, &archive.url, entry.first, &wrong);
        // Segments below cannot join before these heights are here.
        return Ok(BackfillStep::Ask { from: entry.first });
    }
    Ok(BackfillStep::Again)
}

/// Reason why a segment was not taken.
#[derive(Debug)]
pub(super) enum TransferError {
    /// The retention rule would delete the segment.
    Full,
    Segment(SegmentError),
    Archive(Failed),
    Backfill(BackfillError),
}

impl<E: Into<BackfillError>> From<E> for TransferError {
    fn from(error: E) -> Self {
        Self::Backfill(error.into())
    }
}

/// A segment on its way.
struct ArchiveTransfer<'f> {
    follower: &'f Follower,
    source: &'f HeightFetcher,
    archive: &'f ArchiveSource,
    manifest: &'f Manifest,
    entry: SegmentEntry,
}

impl ArchiveTransfer<'_> {
    async fn run(self) -> Result<VerifiedSegment, TransferError> {
        // Before the download: what retention would evict at once need not come.
        if !has_room_below(self.follower) {
            return Err(TransferError::Full);
        }
        let (incoming, page) =
            received(self.follower, self.archive, self.manifest, &self.entry).await?;
        let interval =
            BackfillInterval::new(self.follower, self.source, self.entry.first..=self.entry.first);
        let checks = interval.checks;
        let window = self.window(checks).await;
        // Segments and single heights share the threads of the prover.
        let _turn = self.source.prover.turns.acquire().await.ok();
        let checked = tokio::task::spawn_blocking(move || check(incoming, &page, checks, window));
        checked.await??.map_err(TransferError::Segment)
    }

    /// The heights below that the segment's headers settle. Without an upstream they are not here:
    /// the segment below is held against the stored headers when it comes.
    async fn window(&self, checks: Checks) -> Settlement {
        let before =
            self.entry.first.checked_sub(1).filter(|_| !self.follower.endpoints.is_empty());
        let reader = &self.follower.serving.reader;
        unsettled::rebuild(reader, self.source, before, Priority::Backfill, checks).await.0
    }
}

/// Gets a segment and writes it beside the store.
pub(super) async fn received(
    follower: &Follower,
    archive: &ArchiveSource,
    manifest: &Manifest,
    entry: &SegmentEntry,
) -> Result<(PartialSegment, SealedPage), TransferError> {
    let bytes = archive.segment(manifest, entry).await.map_err(TransferError::Archive)?;
    let (history, base) = (follower.ingest.raw_history().await??, entry.first);
    let expected = (identity_of(manifest), base, manifest.range);
    let written = tokio::task::spawn_blocking(move || {
        let Some(mut incoming) = history.receive_packed(base)? else { return Ok(None) };
        // The object comes whole: what an earlier try left is of no use.
        incoming.restart()?;
        let is_whole = incoming.write(&bytes)? && incoming.is_whole();
        let page = incoming.page().filter(|_| is_whole).cloned();
        let page = page.filter(|page| (page.identity, page.base, page.records) == expected);
        match page {
            Some(page) => Ok(Some((incoming, page))),
            None => incoming.restart().map(|()| None), // another file than the manifest names
        }
    });
    let received = written.await?.map_err(BackfillError::from)?;
    received.ok_or_else(|| TransferError::Segment(SegmentError::another()))
}
