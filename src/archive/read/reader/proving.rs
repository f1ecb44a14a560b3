//! Proof of archived segments that no signer has vouched for: the next one below those that are proven, each time
//! that a client asks for a height there.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use metrics::counter;
use neve_archive::{Manifest, SegmentEntry};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use super::ArchiveReader;
use crate::archive::local::OpenedFile;
use crate::archive::read::archived_files::Known;
use crate::archive::read::fetch::{ObjectNotRead, Payer};
use crate::archive::read::proofs::ProofCandidate;
use crate::archive::verify::{Fault, UNPROVEN, read_segment};
use crate::config::{Anchor, ArchiveTrust};
use crate::rpc::methods::{LogsAt, Want};

/// Heights of nothing, above all others.
#[expect(clippy::reversed_empty_ranges, reason = "it has no heights, and all are below it")]
const NO_HEIGHTS: RangeInclusive<u64> = u64::MAX..=u64::MAX - 1;
/// Time after which a segment is tried again that could not be read, and one that was rejected.
const AGAIN_UNREAD: Duration = Duration::from_secs(5);
const AGAIN_REJECTED: Duration = Duration::from_mins(5);

/// Heights that clients ask for and that no proven segment has.
pub(super) struct Demand {
    /// Manifest that may name them.
    manifest: ArcSwapOption<Manifest>,
    /// Lowest height that was asked for since the last proof began.
    lowest: AtomicU64,
    asked: Notify,
    /// True if the last segment that was to be proven was rejected, or there was none: another attempt soon would find
    /// no other one.
    is_hopeless: AtomicBool,
}

impl Default for Demand {
    fn default() -> Self {
        let (manifest, asked) = (ArcSwapOption::default(), Notify::default());
        let (lowest, is_hopeless) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Self { manifest, lowest, asked, is_hopeless }
    }
}

impl Demand {
    /// Takes the manifest whose segments may be asked for.
    pub(super) fn offer(&self, manifest: &Arc<Manifest>) {
        self.manifest.store(Some(Arc::clone(manifest)));
    }

    /// Manifest without a height that is answered.
    pub(super) fn unanswered(&self) -> Option<Arc<Known>> {
        let manifest = self.manifest.load_full()?;
        Some(Arc::new(Known { manifest, heights: NO_HEIGHTS, anchored: None }))
    }

    /// Asks for a proof if the archive has heights that a client wants and that are not answered. However many ask
    /// meanwhile, one more segment is proven. Returns true if another attempt may find it proven.
    pub(super) fn ask(&self, want: &Want, known: Option<&Known>) -> bool {
        let Some(lowest) = self.unproven(want, known) else { return false };
        self.lowest.fetch_min(lowest, Ordering::Relaxed); // the wake-up orders it
        self.asked.notify_one();
        !self.is_hopeless.load(Ordering::Relaxed)
    }

    /// True if [`Self::ask`] asks for a proof.
    pub(super) fn may_ask(&self, want: &Want, known: Option<&Known>) -> bool {
        self.unproven(want, known).is_some()
    }

    /// Lowest height that a client wants, if the archive has it and it is not answered.
    fn unproven(&self, want: &Want, known: Option<&Known>) -> Option<u64> {
        let is_new = |at: &u64| known.is_none_or(|known| !known.has(&(*at..=*at)));
        let lowest = lowest(want).filter(is_new)?;
        self.manifest.load().as_ref()?.segment_of(lowest).map(|_| lowest)
    }
}

/// Lowest height that a request needs. `None` if it names a hash.
fn lowest(want: &Want) -> Option<u64> {
    match want {
        Want::Height(height) => Some(*height),
        Want::Heights(heights) | Want::Logs(LogsAt::Heights(heights), _) => Some(*heights.start()),
        Want::Hash(_) | Want::Logs(LogsAt::Block(_), _) => None,
    }
}

/// Reason why a segment is not proven.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unproven {
    #[error(transparent)]
    NotRead(#[from] ObjectNotRead),
    #[error("segment of {bytes} bytes, over --archive-proof-bytes-max {max}")]
    Large { bytes: u64, max: u64 },
    #[error("{}: {}", .0.0, .0.1)]
    Rejected(Fault),
}

impl Unproven {
    pub(super) fn outcome(&self) -> (&'static str, Duration) {
        match self {
            // It was read whole to know that.
            Self::NotRead(ObjectNotRead::Changed) => ("failed", AGAIN_REJECTED),
            Self::NotRead(_) => ("failed", AGAIN_UNREAD),
            Self::Large { .. } | Self::Rejected(_) => ("rejected", AGAIN_REJECTED),
        }
    }
}

impl ArchiveReader {
    /// Proves the next segment when a client has asked for it, and then rests for as long as that took: half of a
    /// processor is the most that clients can have of it.
    pub(super) async fn keep_proving(&self) {
        if self.trust != ArchiveTrust::Prove {
            return;
        }
        let mut said = String::new();
        loop {
            self.demand.asked.notified().await;
            let lowest = self.demand.lowest.swap(u64::MAX, Ordering::Relaxed);
            let began = Instant::now();
            let next = self.prove_next(lowest).await;
            let finds_nothing = matches!(next, Ok(None)) && !self.is_proven(lowest);
            let rest = rest_after(next, began, &mut said);
            let is_hopeless = finds_nothing || rest == AGAIN_REJECTED;
            self.demand.is_hopeless.store(is_hopeless, Ordering::Relaxed);
            sleep(rest).await;
        }
    }

    /// Proves the next segment, if the lowest height that is asked for is below the proven ones. Returns its first height;
    /// `None` if there is none to prove.
    async fn prove_next(&self, asked: u64) -> Result<Option<u64>, Unproven> {
        let (manifest, end) = (self.demand.manifest.load_full(), self.end());
        let Some((manifest, end)) = manifest.zip(end) else { return Ok(None) };
        let mut failed = None;
        if let Some(anchored) = self.anchor_below(&manifest, end) {
            match self.prove_anchored(&manifest, anchored, asked).await {
                // What was proven meanwhile is answered soon.
                Ok(proven) if proven.is_some() || self.is_proven(asked) => return Ok(proven),
                Ok(_) => {}
                // A wrong anchor holds up no proof from the tail.
                Err(why) => failed = Some(why),
            }
        }
        let candidate = self.proofs.candidate(&manifest, end, None);
        let candidate = candidate.filter(|candidate| asked < candidate.above.first);
        let Some(candidate) = candidate else { return failed.map_or(Ok(None), Err) };
        self.prove_candidate(&manifest, &candidate, u64::MAX).await?;
        let proofs = Arc::clone(&self.proofs);
        self.files.pages.off(move || proofs.add(&candidate.segment)).await?;
        Ok(Some(candidate.segment.first))
    }

    /// True if a height is proven, so that it is answered soon if it is not yet.
    fn is_proven(&self, height: u64) -> bool {
        let (manifest, end) = (self.demand.manifest.load_full(), self.end());
        let Some((manifest, end)) = manifest.zip(end) else { return false };
        let from_anchor = || {
            let (_, entry) = self.anchor_below(&manifest, end)?;
            self.proofs.anchored_heights(&manifest, &entry)
        };
        let ranges = [self.proofs.heights(&manifest, end), from_anchor()];
        ranges.into_iter().flatten().any(|heights| heights.contains(&height))
    }

    /// Returns the anchor and its segment, unless that is proven from the served range on, which begins at `end`.
    pub(super) fn anchor_below(
        &self,
        manifest: &Manifest,
        end: u64,
    ) -> Option<(Anchor, SegmentEntry)> {
        let anchor = self.anchor.filter(|anchor| anchor.height < end)?;
        let entry = *manifest.segment_of(anchor.height)?;
        let tail = self.proofs.heights(manifest, end);
        tail.is_none_or(|tail| entry.first < *tail.start()).then_some((anchor, entry))
    }

    /// Links the segment with the anchor to it, or proves the next segment that leads to it, if that is asked for.
    async fn prove_anchored(
        &self,
        manifest: &Arc<Manifest>,
        (anchor, entry): (Anchor, SegmentEntry),
        asked: u64,
    ) -> Result<Option<u64>, Unproven> {
        if asked > anchor.height {
            return Ok(None);
        }
        if self.proofs.is_anchored(&entry).is_none() {
            self.link_anchor(manifest, anchor, entry).await?;
            return Ok(Some(entry.first));
        }
        let candidate = self.proofs.candidate(manifest, entry.first, Some(entry.digest));
        let candidate = candidate.filter(|candidate| asked < candidate.above.first);
        let Some(candidate) = candidate else { return Ok(None) };
        // Nothing says that headers above the anchor are in the chain.
        let until = if candidate.above == entry { anchor.height + 1 } else { u64::MAX };
        self.prove_candidate(manifest, &candidate, until).await?;
        self.proofs.add_leading(&candidate.segment);
        Ok(Some(candidate.segment.first))
    }

    /// Links the segment with the anchor to it.
    async fn link_anchor(
        &self,
        manifest: &Arc<Manifest>,
        anchor: Anchor,
        entry: SegmentEntry,
    ) -> Result<(), Unproven> {
        let (segment, proof) = (self.opened(manifest, entry).await?, self.proof);
        let linking = self.files.pages.off(move || proof.link(anchor, &segment)).await?;
        self.proofs.anchor(&entry, linking.map_err(Unproven::Rejected)?);
        Ok(())
    }

    /// Proves a segment by its neighbors, of the upper one by heights before `until`.
    async fn prove_candidate(
        &self,
        manifest: &Arc<Manifest>,
        candidate: &ProofCandidate,
        until: u64,
    ) -> Result<(), Unproven> {
        let segment = self.opened(manifest, candidate.segment).await?;
        let above = self.opened(manifest, candidate.above).await?;
        let alone = self.prove(None, &segment, (&above, until)).await;
        // Most proofs need nothing below the segment, so that is read only if one fails without.
        if let (Err(Unproven::Rejected((UNPROVEN, _))), Some(below)) = (&alone, candidate.below) {
            let below = self.opened(manifest, below).await?;
            return self.prove(Some(below), &segment, (&above, until)).await;
        }
        alone
    }

    async fn prove(
        &self,
        below: Option<Arc<OpenedFile>>,
        segment: &Arc<OpenedFile>,
        (above, until): (&Arc<OpenedFile>, u64),
    ) -> Result<(), Unproven> {
        let (segment, above, proof) = (Arc::clone(segment), Arc::clone(above), self.proof);
        // Without a turn at the processors: it takes seconds, for which reads of requests would wait.
        let prove = move || proof.prove(below.as_deref(), &segment, (&above, until));
        self.files.pages.off(prove).await?.map_err(Unproven::Rejected)
    }

    /// Brings a segment whole, and opens it. Its pages stay for requests.
    pub(super) async fn opened(
        &self,
        manifest: &Arc<Manifest>,
        entry: SegmentEntry,
    ) -> Result<Arc<OpenedFile>, Unproven> {
        let (bytes, max) = (entry.bytes, self.proof.bytes_max);
        if bytes > max {
            return Err(Unproven::Large { bytes, max });
        }
        let name = manifest.segment_name(&entry);
        let bytes = self.files.pages.whole(name, entry.bytes, Payer::Neve).await?;
        let manifest = Arc::clone(manifest);
        let open = move || read_segment(&manifest, &entry, bytes).map(Arc::new);
        let opened = self.files.pages.off(open).await?;
        opened.map_err(|why| Unproven::Rejected(("segment", why)))
    }
}

/// Logs and counts how an attempt at a proof ended. Returns the time until the next one.
fn rest_after(next: Result<Option<u64>, Unproven>, began: Instant, said: &mut String) -> Duration {
    match next {
        Ok(None) => AGAIN_UNREAD, // the tail changes meanwhile
        Ok(Some(first)) => {
            info!(first, "archived segment proven");
            count("proven");
            said.clear();
            began.elapsed()
        }
        Err(why) => {
            if *said != why.to_string() {
                warn!(%why, "archived segment not proven");
                *said = why.to_string(); // once, and not at each attempt
            }
            let (outcome, rest) = why.outcome();
            count(outcome);
            rest
        }
    }
}

fn count(outcome: &'static str) {
    counter!("neve_archive_proven_segments_total", "outcome" => outcome).increment(1);
}
