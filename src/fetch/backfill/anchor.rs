//! The beginning of a replica without an upstream: the archive's segment with the anchor, as far as the
//! anchor's header settles it. Segments below it come as history.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use neve_archive::Manifest;
use neve_chain::{Checks, Settlement};
use neve_jsonrpc::Rules;
use neve_record::assemble::Assembled;
use neve_record::audit::audit;
use neve_store::residency::loaded;
use neve_store::verify::{Finding, Stored, Visitor};
use neve_store::{Hash, PartialSegment, SealedPage};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::archive_transfer::{ArchiveTransferError, has_own_range, received};
use super::error::BackfillError;
use super::interval::BackfillInterval;
use super::segment_verifier::{SegmentError, SegmentVerifier};
use super::transfer::TransferError;
use crate::archive::{ArchiveSource, Failed, identity_of};
use crate::client::Backoff;
use crate::config::Anchor;
use crate::fetch::{Follower, HeightFetcher, unsettled};
use crate::shared::{IngestBudget, IngestReservation};

/// Wait after an attempt that failed: the first, and the longest.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_mins(1);
/// Records that wait for the writer.
const RECORDS_AHEAD: usize = 4;

/// Begins with an archive. Without an upstream it stores the heights up to the anchor, unless the store has them, and
/// tries until that succeeds.
pub(crate) async fn begin_with(
    follower: &Follower,
    source: &HeightFetcher,
    archive: &Arc<ArchiveSource>,
) {
    let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
    // Also with upstreams, which may all be away: the archive fills the tail without them.
    note_verified(follower, source).await;
    let Some(anchor) = archive.anchor.filter(|_| follower.endpoints.is_empty()) else { return };
    loop {
        let why = match begun(follower, source, archive, anchor).await {
            Ok(()) => break,
            Err(TransferError::Backfill(BackfillError::Writer(_))) => return,
            Err(TransferError::Backfill(why)) => why.to_string(),
            Err(TransferError::Source(why)) => why.to_string(),
            Err(TransferError::Segment(wrong)) => wrong.to_string(),
            Err(TransferError::Full) => "the retention would delete it".to_owned(),
        };
        archive.say(Some(&why));
        tokio::time::sleep(backoff.wait()).await;
    }
    follower.status.change_archive(|archive| archive.is_begun = true);
}

/// Stores the heights up to the anchor, unless the store has them. Fails if it has another block there.
async fn begun(
    follower: &Follower,
    source: &HeightFetcher,
    archive: &Arc<ArchiveSource>,
    anchor: Anchor,
) -> Result<(), ArchiveTransferError> {
    // A store that was killed meanwhile has some of them.
    if head(follower).is_none_or(|(height, _)| height < anchor.height) {
        let settled = begin(follower, source, archive, anchor).await?;
        follower.status.set_verified(Some(settled));
        return Ok(());
    }
    let reader = &follower.serving.reader;
    let stored = loaded(|| reader.record(anchor.height).map(|record| record.hash()));
    match stored.filter(|stored| stored.0 != anchor.hash.0) {
        Some(other) => {
            Err(TransferError::Segment(SegmentError::anchor(anchor.height, Some(other))))
        }
        None => Ok(()),
    }
}

/// Height and hash of the newest stored block.
fn head(follower: &Follower) -> Option<(u64, Hash)> {
    loaded(|| follower.serving.reader.head().map(|head| (head.height(), head.hash())))
}

/// Says up to which stored height stored headers have settled the receipts.
async fn note_verified(follower: &Follower, source: &HeightFetcher) {
    let (reader, checks) = (follower.serving.reader.clone(), checks(follower, source));
    match spawn_blocking(move || unsettled::of_store(&reader, checks)).await {
        Ok(Ok(window)) => follower.status.set_verified(window.settled()),
        Ok(Err(height)) => warn!(height, "stored height cannot be read"),
        Err(error) => warn!(%error, "stored heights not read"),
    }
}

fn checks(follower: &Follower, source: &HeightFetcher) -> Checks {
    BackfillInterval::new(follower, source, 0..=0).checks
}

/// Stores the heights that the anchor settles. Returns the highest.
async fn begin(
    follower: &Follower,
    source: &HeightFetcher,
    archive: &Arc<ArchiveSource>,
    anchor: Anchor,
) -> Result<u64, ArchiveTransferError> {
    let manifest = archive.manifest().await.map_err(TransferError::Source)?;
    has_own_range(follower, &manifest).map_err(TransferError::Source)?;
    let (height, heights) = (anchor.height, manifest.heights());
    let entry = manifest.segment_of(height);
    let entry = entry.ok_or(TransferError::Source(Failed::NoHeight { height, heights }))?;
    bind(follower, &manifest).await?;
    let segment = received(follower, archive, &manifest, entry).await?;
    let (mut incoming, settled) = append_settled(follower, source, segment, anchor).await?;
    spawn_blocking(move || incoming.restart()).await??; // its file is not needed any more
    let settled = settled.map_err(ArchiveTransferError::Segment)?;
    archive.accept();
    Ok(settled)
}

/// Binds the store to the archive's chain. A store that has heights keeps its rules, and refuses another chain.
async fn bind(follower: &Follower, manifest: &Manifest) -> Result<(), BackfillError> {
    let known = follower.serving.identity().map(|_| follower.serving.rules());
    let rules = known.unwrap_or(Rules::BeforeHelicon);
    Ok(follower.ingest.bind(identity_of(manifest), rules).await??)
}

/// Stores the heights of a segment that the anchor settles. Returns the segment, and the highest of them.
async fn append_settled(
    follower: &Follower,
    source: &HeightFetcher,
    (incoming, page): (PartialSegment, SealedPage),
    anchor: Anchor,
) -> Result<(PartialSegment, Result<u64, SegmentError>), ArchiveTransferError> {
    let (checks, head) = (checks(follower, source), head(follower));
    let (incoming, settled) = spawn_blocking(move || {
        let settled = settled_height(&incoming, anchor, head, checks)?;
        Ok::<_, neve_store::Error>((incoming, settled))
    })
    .await??;
    let Settled { height: last, rules } = match settled {
        Ok(settled) => settled,
        Err(wrong) => return Ok((incoming, Err(wrong))),
    };
    info!(first = page.base, last, anchor = anchor.height, "archive begins");
    let heights = head.map_or(0, |(head, _)| head + 1)..=last;
    let incoming = append(follower, incoming, heights, rules, checks).await?;
    Ok((incoming, Ok(last)))
}

/// Heights that the anchor proves.
#[derive(Debug, Clone, Copy)]
struct Settled {
    /// Highest height whose receipts are proven.
    height: u64,
    /// Rules of a node that has the anchor.
    rules: Rules,
}

/// Proves the heights of a segment up to the anchor. The store ends at `head`.
fn settled_height(
    incoming: &PartialSegment,
    anchor: Anchor,
    head: Option<(u64, Hash)>,
    checks: Checks,
) -> Result<Result<Settled, SegmentError>, neve_store::Error> {
    let window = Settlement::new(Settlement::BYTES_MAX_DEFAULT);
    let inner = SegmentVerifier::new(checks, window);
    let mut look =
        UpToAnchor { inner, anchor: anchor.height, head, first: None, found: None, joins: false };
    incoming.verify(&mut look)?;
    Ok(look.settled(anchor))
}

/// Passes records up to the anchor on, and notes its hash.
struct UpToAnchor {
    inner: SegmentVerifier,
    anchor: u64,
    head: Option<(u64, Hash)>,
    first: Option<u64>,
    found: Option<Hash>,
    /// True if the store's newest block is the parent of one of them.
    joins: bool,
}

impl UpToAnchor {
    /// Returns the heights that the anchor proves, after all records were seen.
    fn settled(self, anchor: Anchor) -> Result<Settled, SegmentError> {
        let Self { inner, head, first, found, joins, .. } = self;
        if let Some(wrong) = inner.wrong {
            return Err(wrong);
        }
        if found != Some(Hash(anchor.hash.0)) {
            return Err(SegmentError::anchor(anchor.height, found));
        }
        if let Some((height, hash)) = head.filter(|_| !joins) {
            return Err(SegmentError::apart(height, hash));
        }
        let settled = inner.window.settled().filter(|settled| first.is_some_and(|f| f <= *settled));
        // Behind an asynchronous header some heights are always unsettled.
        let rules = match settled {
            Some(settled) if settled == anchor.height => Rules::BeforeHelicon,
            _ => Rules::Helicon,
        };
        let settled = settled.map(|height| Settled { height, rules });
        settled.ok_or_else(|| SegmentError::anchor(anchor.height, None))
    }
}

impl Visitor for UpToAnchor {
    fn finding(&mut self, finding: Finding) {
        self.inner.finding(finding);
    }

    fn record(&mut self, stored: &Stored<'_>) {
        self.first.get_or_insert(stored.height);
        if stored.height <= self.anchor {
            self.inner.record(stored);
        }
        if stored.height == self.anchor {
            self.found = Some(stored.hash);
        }
        self.joins |= self.head.is_some_and(|(_, hash)| hash == stored.parent);
    }

    fn progress(&mut self, _: u64) {}
}

/// Appends these heights, a few in memory at a time.
async fn append(
    follower: &Follower,
    incoming: PartialSegment,
    heights: RangeInclusive<u64>,
    rules: Rules,
    checks: Checks,
) -> Result<PartialSegment, ArchiveTransferError> {
    let (out, mut records) = mpsc::channel(RECORDS_AHEAD);
    let reading = spawn_blocking(move || {
        let mut sender = HeightSender { heights, checks, out };
        incoming.verify(&mut sender).map(|_| incoming)
    });
    let budget = follower.budget.consumer();
    while let Some(Assembled { record, .. }) = records.recv().await {
        let mut room = reserved(&budget).await;
        budget.fit(&mut room, record.encoded_len());
        follower.ingest.append(record, rules, room).await?;
    }
    let incoming = reading.await??;
    // The file is removed afterwards, so all of its heights must be stored by now.
    follower.ingest.barrier().await?;
    Ok(incoming)
}

/// Reserves memory for one height, as soon as the budget allows it.
async fn reserved(budget: &IngestBudget) -> IngestReservation {
    loop {
        match budget.take(true) {
            Some(room) => return room,
            None => budget.freed(true).await,
        }
    }
}

/// Makes records again and sends them.
struct HeightSender {
    heights: RangeInclusive<u64>,
    checks: Checks,
    out: mpsc::Sender<Assembled>,
}

impl Visitor for HeightSender {
    fn finding(&mut self, _: Finding) {}

    fn record(&mut self, stored: &Stored<'_>) {
        if !self.heights.contains(&stored.height) {
            return;
        }
        match audit(stored, &self.checks) {
            // The receiver is gone when neve stops.
            Ok((assembled, _)) => drop(self.out.blocking_send(assembled)),
            Err(error) => warn!(height = stored.height, %error, "record fails its proof"),
        }
    }

    fn progress(&mut self, _: u64) {}
}
