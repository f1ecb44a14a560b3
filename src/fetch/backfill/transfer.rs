//! History in whole segments, newest first: what a mirror source and an archive have in common.

use std::ops::Range;
use std::time::Instant;

use futures_util::{StreamExt, stream};
use metrics::counter;
use neve_chain::{Checks, Settlement};
use neve_store::{PartialSegment, SealedPage};
use tracing::info;

use super::error::BackfillError;
use super::interval::BackfillInterval;
use super::plan::{goal, has_room_below};
use super::segment_verifier::{SegmentError, VerifiedSegment, check};
use crate::fetch::{Follower, HeightFetcher, RejectedPayload, unsettled};
use crate::upstream::Priority;

/// Next step below the first height.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BackfillStep {
    /// Something was published: look again.
    Again,
    /// Ask for heights one by one, not below this one.
    Ask { from: u64 },
    /// No step: the source has nothing for this store.
    Nothing,
}

impl BackfillStep {
    /// Joins it with the step of another source of segments. Single heights are requested only above the heights
    /// that either source may still have.
    #[cfg(feature = "archive")]
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Again, _) | (_, Self::Again) => Self::Again,
            // The higher one: below it the other source may still have a whole segment.
            (Self::Ask { from: a }, Self::Ask { from: b }) => Self::Ask { from: a.max(b) },
            (ask @ Self::Ask { .. }, Self::Nothing) | (Self::Nothing, ask) => ask,
        }
    }
}

/// Source of whole segments: another neve, or an archive.
pub(super) trait SegmentSource: Sync {
    /// A segment that the source has.
    type Entry: Copy + Send;
    /// Reason why the source did not give it.
    type Failure: Send;

    /// Name for evidence.
    fn name(&self) -> &str;
    /// Heights of a segment.
    fn heights(&self, entry: Self::Entry) -> Range<u64>;
    /// Download and proof of a segment.
    fn take(
        &self,
        entry: Self::Entry,
    ) -> impl Future<Output = Result<VerifiedSegment, TransferError<Self::Failure>>> + Send;
    /// Notes that a segment is stored.
    fn accepted(&self);
    /// Notes that a segment did not come.
    fn failed(&self, entry: Self::Entry, why: &Self::Failure);
    /// Leaves a wrong segment alone for a while.
    fn reject(&self, entry: Self::Entry, wrong: &SegmentError);
}

/// Reason why a segment was not taken.
#[derive(Debug)]
pub(super) enum TransferError<F> {
    /// The retention rule would delete the segment.
    Full,
    /// The bytes of the segment are wrong.
    Segment(SegmentError),
    /// Failure of the source.
    Source(F),
    /// Failure of the store, or a stop: backfill cannot go on.
    Backfill(BackfillError),
}

impl<F> TransferError<F> {
    /// Counts a segment with wrong bytes.
    fn count(&self) {
        if let Self::Segment(wrong) = self {
            counter!("neve_blocks_rejected_total", "reason" => wrong.reason).increment(1);
        }
    }

    /// Reason why the heights above a segment did not settle its last ones.
    fn of_settling(why: BackfillError) -> Self {
        match why {
            BackfillError::Disproved(disproof) => Self::Segment(SegmentError::disproved(&disproof)),
            stop => Self::Backfill(stop),
        }
    }
}

impl<F, E: Into<BackfillError>> From<E> for TransferError<F> {
    fn from(error: E) -> Self {
        Self::Backfill(error.into())
    }
}

/// Heights that whole segments may bring, the lowest wanted one to the one below the first; without any, the next step.
pub(super) fn wanted_heights(follower: &Follower) -> Result<Range<u64>, BackfillStep> {
    let range = follower.serving.reader.range().ok_or(BackfillStep::Nothing)?;
    let (first, goal) = (*range.start(), goal(follower, *range.end()));
    if follower.status.verified().is_none_or(|verified| verified + 1 < first) {
        return Err(BackfillStep::Nothing); // until something above can prove it
    }
    if first <= goal {
        return Err(BackfillStep::Ask { from: first }); // of which nothing comes but what /health shows
    }
    Ok(goal..first)
}

/// Takes segments in order, as each must join the one above it; `ahead` are in flight or being proven at once.
pub(super) async fn take_all<S: SegmentSource>(
    follower: &Follower,
    source: &HeightFetcher,
    segments: &S,
    wanted: Vec<S::Entry>,
    ahead: usize,
) -> Result<BackfillStep, BackfillError> {
    let taking = |entry| async move { (entry, take(follower, segments, entry).await) };
    let mut taken = std::pin::pin!(stream::iter(wanted).map(taking).buffered(ahead));
    while let Some((entry, outcome)) = taken.next().await {
        let published = match outcome.inspect_err(TransferError::count) {
            Ok(checked) => publish(follower, source, segments.heights(entry), checked).await,
            Err(why) => Err(why),
        };
        if let Err(why) = published {
            note_failure(follower, segments, entry, why)?;
            // Segments below cannot join before these heights are here.
            return Ok(BackfillStep::Ask { from: segments.heights(entry).start });
        }
        segments.accepted();
    }
    Ok(BackfillStep::Again)
}

/// Notes why a segment does not come. Fails if backfill cannot go on.
fn note_failure<S: SegmentSource>(
    follower: &Follower,
    segments: &S,
    entry: S::Entry,
    why: TransferError<S::Failure>,
) -> Result<(), BackfillError> {
    match why {
        TransferError::Full => {}
        TransferError::Backfill(stop) => return Err(stop),
        TransferError::Source(why) => segments.failed(entry, &why),
        TransferError::Segment(wrong) => {
            segments.reject(entry, &wrong);
            keep_evidence(follower, segments.name(), segments.heights(entry).start, &wrong);
        }
    }
    Ok(())
}

async fn take<S: SegmentSource>(
    follower: &Follower,
    segments: &S,
    entry: S::Entry,
) -> Result<VerifiedSegment, TransferError<S::Failure>> {
    // Before the download: what retention would evict at once need not come.
    if !has_room_below(follower).await {
        return Err(TransferError::Full);
    }
    segments.take(entry).await
}

/// Proves a segment that is here whole. Its headers settle the heights from `before` down, if they can be had.
pub(super) async fn verify<F>(
    follower: &Follower,
    source: &HeightFetcher,
    incoming: PartialSegment,
    page: SealedPage,
    before: Option<u64>,
) -> Result<VerifiedSegment, TransferError<F>> {
    let checks = BackfillInterval::new(follower, source, page.base..=page.base).checks;
    // Before the turn: to fetch the heights below may take long, and needs no processor.
    let window = window_below(follower, source, before, checks).await;
    // Segments and single heights share the threads of the prover.
    let _turn = source.prover.turns.acquire().await.ok();
    let checked = tokio::task::spawn_blocking(move || check(incoming, &page, checks, window));
    checked.await??.map_err(TransferError::Segment)
}

/// Window of the unsettled heights from `before` down. It is empty if all upstreams are away.
async fn window_below(
    follower: &Follower,
    source: &HeightFetcher,
    before: Option<u64>,
    checks: Checks,
) -> Settlement {
    let reader = &follower.serving.reader;
    let rebuilt = unsettled::rebuild(reader, source, before, Priority::Backfill, checks);
    let mut sight = source.pool.sight();
    let rebuilt = tokio::select! {
        rebuilt = rebuilt => Some(rebuilt),
        // The upstreams may be away for long, and the segment below can be held against the stored headers, too.
        _ = sight.wait_for(|sight| sight.admitted == 0), if before.is_some() => None,
    };
    match rebuilt {
        Some(rebuilt) => rebuilt.window,
        None => unsettled::rebuild(reader, source, None, Priority::Backfill, checks).await.window,
    }
}

/// Publishes a segment, once the stored headers above it have settled its last heights.
async fn publish<F>(
    follower: &Follower,
    source: &HeightFetcher,
    heights: Range<u64>,
    checked: VerifiedSegment,
) -> Result<(), TransferError<F>> {
    let begun = Instant::now();
    let VerifiedSegment { built, mut window } = checked;
    let (first, last) = (heights.start, heights.end - 1);
    let mut interval = BackfillInterval::new(follower, source, first..=last);
    let settled = interval.settle_above(&mut window).await;
    settled.map_err(TransferError::<F>::of_settling)?;
    let heights = follower.ingest.prepend(built).await??;
    info!(first, last, heights, elapsed = ?begun.elapsed(), "segment accepted");
    Ok(())
}

/// Keeps the wrong data of the segment that begins at `base`.
fn keep_evidence(follower: &Follower, from: &str, base: u64, wrong: &SegmentError) {
    if let Some(texts) = wrong.texts.clone() {
        let (height, upstream) = (wrong.height.unwrap_or(base), from.to_owned());
        let answer = RejectedPayload { height, upstream, texts };
        follower.evidence.keep(answer, wrong.reason, &wrong.to_string());
    }
}
