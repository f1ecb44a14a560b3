//! Heights below the served range, a segment at a time.
//!
//! An interval that fills about a segment is chosen below the first served height. Its hashes come
//! first (see `skeleton.rs`), then its blocks, in any order; they are written aside in ascending
//! order, settled by the headers in it and by those that are stored above it, and published whole.
//! It stops where retention would evict at once what it fetched.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use neve_chain::{CheckedHeader, Checks, Disproof, Settlement};
use neve_record::assemble::Assembled;
use neve_store::residency::loaded;
use neve_store::{Error, Hash, RecordRef};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::segment_transfer::BackfillStep;
use super::{header_chain, segment_transfer};
use crate::client::Backoff;
use crate::config::StartAt;
use crate::config::settings::{BackfillTarget, Senders};
use crate::fetch::follow::note_proof;
use crate::fetch::run::Follower;
use crate::fetch::{Fetched, HeightFetcher, refuse, unsettled};
use crate::ingest::{BackfillThread, Stopped};
use crate::mirror::MirrorSource;
use crate::shared::IngestReservation;
use crate::upstream::{FetchNeed, Priority};

/// How often it is looked whether there is anything to do.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_SOON: Duration = Duration::from_millis(20);
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_mins(1);
/// Records that are looked at to know how large the next ones will be.
const SAMPLE: u64 = 32;
/// Of a record on disk besides its bytes: slot, hash table, index of logs, for each byte a bit.
const OVERHEAD: u64 = 16;
/// Of a segment that an interval is planned to fill: records that turn out larger must not leave a
/// small segment over.
const FILL: u64 = 10;

/// Reason why an interval was given up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackfillError {
    #[error("{0}")]
    Store(#[from] Error),
    #[error("the receipts of history do not check out: {0}")]
    Disproved(#[from] Disproof),
    #[error("a stored height above history does not check out")]
    Unreadable,
    #[error("no upstream answers, or none is of this chain")]
    NoUpstream,
    #[error("no upstream gives height {0}")]
    NotGiven(u64),
    #[error("the segment has changed meanwhile, or does not fit into one")]
    Changed,
    #[error("fetching ended: {0}")]
    Task(#[from] tokio::task::JoinError),
    #[error("writing ended")]
    Ended,
    #[error("the writer has stopped")]
    Writer(#[from] Stopped),
}

/// Fills for ever.
pub(crate) async fn run(
    follower: Arc<Follower>,
    source: HeightFetcher,
    peer: Option<Arc<MirrorSource>>,
) {
    let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
    // A gap comes with opening only: once it is closed, there is none.
    while follower.backfill != BackfillTarget::None || follower.serving.reader.gap().is_some() {
        // A new mirror begins with its segments as soon as it has what proves them.
        let new = peer.is_some() && follower.status.verified().is_none();
        let lowest = match &peer {
            None => Some(0),
            Some(peer) => match segment_transfer::fill(&follower, &source, peer).await {
                Ok(BackfillStep::Again) => {
                    backoff.reset();
                    continue;
                }
                Ok(BackfillStep::Ask { from }) => Some(from),
                Ok(BackfillStep::Nothing) => None,
                Err(BackfillError::Writer(_)) => return,
                Err(why) => {
                    let wait = backoff.wait();
                    warn!(
                        error = %why,
                        retry_in = format_args!("{wait:.1?}"),
                        "segments of the mirror source failed"
                    );
                    tokio::time::sleep(wait).await;
                    None
                }
            },
        };
        let Some(interval) = lowest.and_then(|lowest| plan(&follower, lowest)) else {
            tokio::time::sleep(if new { LOOK_SOON } else { LOOK_EVERY }).await;
            continue;
        };
        match BackfillInterval::new(&follower, &source, interval.clone()).run().await {
            Ok(()) => backoff.reset(),
            Err(BackfillError::Writer(_)) => return,
            Err(why) => {
                let wait = backoff.wait();
                warn!(?interval, error = %why, retry_in = format_args!("{wait:.1?}"), "backfill failed");
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// The next interval, not below `lowest`, if there is one, and it can be proven.
fn plan(follower: &Follower, lowest: u64) -> Option<RangeInclusive<u64>> {
    let (reader, status) = (&follower.serving.reader, &follower.status);
    let range = reader.range()?;
    let first = reader.record(*range.start())?;
    let bytes = follower.ingest.segment_bytes();
    let has_room = has_room(follower, &first, bytes);
    // Without room it has all that it may have.
    let goal = if has_room { goal(follower, *range.end()) } else { *range.start() };
    let lowest = reader.gap().map_or(lowest, |gap| lowest.max(gap.start)); // and no further at once
    status.set_backfill(goal, *range.start());
    let last = range.start().checked_sub(1).filter(|last| *last >= goal)?;
    // Its receipts must be settled by headers that are here.
    if status.verified().is_none_or(|verified| verified < last) {
        return None;
    }
    let sample = (*range.start()..).take(SAMPLE as usize).map_while(|height| reader.record(height));
    let (count, sum) = sample.fold((0, 0), |(n, sum), one| (n + 1, sum + one.stored_len()));
    let each = (sum / u64::max(count, 1)).max(1);
    let each = each + each / OVERHEAD + 256;
    let heights = (bytes - bytes / FILL) / each;
    let heights = heights.clamp(1, u64::from(follower.ingest.segment_blocks()));
    let interval = (last + 1).saturating_sub(heights).max(goal).max(lowest)..=last;
    Some(interval).filter(|interval| !interval.is_empty())
}

/// The lowest height that is wanted, and that retention would not drop at once. A gap is filled
/// whatever is asked for: what is below it is here.
pub(crate) fn goal(follower: &Follower, head: u64) -> u64 {
    let wanted = match follower.backfill {
        BackfillTarget::None => u64::MAX,
        BackfillTarget::Retained => 0,
        BackfillTarget::To(StartAt::Height(height)) => height,
        BackfillTarget::To(StartAt::BeforeHead(back)) => head.saturating_sub(back),
    };
    let kept = follower.retention.blocks.map_or(0, |keep| (head + 1).saturating_sub(keep));
    let gap = follower.serving.reader.gap().map_or(u64::MAX, |gap| gap.start);
    wanted.min(gap).max(kept)
}

/// True if a further segment would be kept: it fits into the bound of bytes, with the one that the
/// head needs next, and its newest block is young enough. Quarantined files make room for it.
pub(crate) fn has_room(follower: &Follower, first: &RecordRef, segment_bytes: u64) -> bool {
    let retention = &follower.retention;
    let usage = follower.serving.reader.usage();
    let used = usage.disk_bytes - usage.quarantined_bytes;
    let fits = retention.bytes.is_none_or(|limit| used + 2 * segment_bytes <= limit);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // The head's time, if the system clock is ahead of it: so does eviction.
    let head = follower.serving.reader.head().map_or(u64::MAX, |head| head.timestamp());
    let first = loaded(|| Some(first.timestamp())).unwrap_or(head);
    let age = now.as_secs().min(head).saturating_sub(first);
    fits && retention.age.is_none_or(|limit| age < limit.as_secs())
}

/// An interval on its way.
pub(crate) struct BackfillInterval<'f> {
    follower: &'f Follower,
    source: &'f HeightFetcher,
    interval: RangeInclusive<u64>,
    pub(crate) checks: Checks,
    /// Upstreams that gave the unsettled heights.
    givers: Vec<(u64, usize)>,
}

impl<'f> BackfillInterval<'f> {
    pub(crate) fn new(
        follower: &'f Follower,
        source: &'f HeightFetcher,
        interval: RangeInclusive<u64>,
    ) -> Self {
        let chain_id = follower.serving.identity().map_or(0, |identity| identity.chain_id);
        let senders = follower.config.recover_senders == Senders::Always;
        let checks = Checks { chain_id, senders, admitted: follower.config.admitted };
        Self { follower, source, interval, checks, givers: Vec::new() }
    }

    async fn run(mut self) -> Result<(), BackfillError> {
        let begun = Instant::now();
        let reader = &self.follower.serving.reader;
        let (first, last) = (*self.interval.start(), *self.interval.end());
        let parent = loaded(|| reader.record(last + 1).map(|above| above.parent()));
        let parent = parent.ok_or(BackfillError::Unreadable)?;
        let hashes = header_chain::hashes(self.source, self.interval.clone(), parent).await;
        let before = first.checked_sub(1);
        let (mut window, givers) =
            unsettled::rebuild(reader, self.source, before, Priority::Backfill, self.checks).await;
        self.givers = givers;
        let history = self.follower.ingest.history().await??;
        match self.fill(&hashes, &mut window, &history).await {
            Ok(()) => {}
            Err(BackfillError::Ended) => {
                return Err(history
                    .finish()
                    .await?
                    .err()
                    .map_or(BackfillError::Ended, BackfillError::from));
            }
            Err(BackfillError::Disproved(disproof)) => {
                self.blame(&disproof);
                return Err(disproof.into());
            }
            Err(why) => return Err(why),
        }
        self.settle_above(&mut window)?;
        let built = history.finish().await??;
        let heights = self.follower.ingest.prepend(built).await??;
        let took = begun.elapsed();
        info!(first, last, heights, ?took, "backfilled");
        Ok(())
    }

    /// Fetches and writes the heights aside.
    async fn fill(
        &mut self,
        hashes: &[Hash],
        window: &mut Settlement,
        history: &BackfillThread,
    ) -> Result<(), BackfillError> {
        let (budget, pool) = (self.follower.budget.consumer(), Arc::clone(&self.source.pool));
        let mut wanted = self.interval.clone().zip(hashes.iter().copied());
        let mut more = true;
        let mut pipeline = FuturesOrdered::new();
        loop {
            let (mut full, mut long) = (false, false);
            while more && !full && !long {
                long = pool.queue_is_long() && !pipeline.is_empty();
                let room = if long { None } else { budget.take(pipeline.is_empty()) };
                full = room.is_none();
                if let Some(room) = room {
                    match wanted.next() {
                        Some(next) => pipeline.push_back(self.start_fetch(next, room)),
                        None => more = false,
                    }
                }
            }
            if !more && pipeline.is_empty() {
                return Ok(());
            }
            let alone = pipeline.is_empty();
            tokio::select! {
                Some(fetched) = pipeline.next() => {
                    let (fetched, room) = fetched?;
                    self.take(fetched, room, window, history).await?;
                }
                () = pool.queue_shortens(), if long => {}
                () = budget.freed(alone), if full && !long => {}
            }
        }
    }

    fn start_fetch(
        &self,
        (height, hash): (u64, Hash),
        mut room: IngestReservation,
    ) -> AbortOnDropHandle<(Fetched, IngestReservation)> {
        let (source, checks) = (self.source.clone(), self.checks);
        let budget = self.follower.budget.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let need = FetchNeed { hash: Some(hash), ..FetchNeed::new(height, Priority::Backfill) };
            let fetched = source.fetch_needed(need, checks).await;
            budget.fit(&mut room, fetched.assembled.record.encoded_len());
            (fetched, room)
        }))
    }

    async fn take(
        &mut self,
        fetched: Fetched,
        room: IngestReservation,
        window: &mut Settlement,
        history: &BackfillThread,
    ) -> Result<(), BackfillError> {
        let Assembled { record, header, unsettled, .. } = fetched.assembled;
        let height = record.height;
        if unsettled.is_some() {
            self.givers.push((height, fetched.from));
        }
        note_proof(height, &window.settle(&CheckedHeader::of(&header))?);
        let settled = window.settled();
        self.givers.retain(|(height, _)| settled.is_none_or(|settled| *height > settled));
        unsettled.into_iter().for_each(|receipts| window.push(receipts));
        if !history.append(record, room).await {
            return Err(BackfillError::Ended);
        }
        self.follower.status.set_backfill_interval(*self.interval.start(), height + 1);
        Ok(())
    }

    /// Lets the stored headers above settle the last heights.
    pub(crate) fn settle_above(&mut self, window: &mut Settlement) -> Result<(), BackfillError> {
        let last = *self.interval.end();
        for height in last + 1.. {
            if window.settled().is_some_and(|settled| settled >= last) {
                break;
            }
            let checks = Checks { senders: false, ..self.checks };
            let stored = unsettled::stored(&self.follower.serving.reader, height, checks);
            let Assembled { header, unsettled, .. } = stored.ok_or(BackfillError::Unreadable)?;
            let settled = window.settle(&CheckedHeader::of(&header));
            note_proof(height, &settled.inspect_err(|disproof| self.blame(disproof))?);
            unsettled.into_iter().for_each(|receipts| window.push(receipts));
        }
        Ok(())
    }

    /// Headers of history are what they should be by their hash, so receipts must be false.
    fn blame(&self, disproof: &Disproof) {
        let height = *self.interval.start();
        refuse(height, None, disproof.reason(), &disproof.to_string());
        if let Disproof::ReceiptsRoot { from, through, .. }
        | Disproof::LogsBloom { from, through, .. } = disproof
        {
            let guilty =
                self.givers.iter().filter(|(height, _)| (from..=through).contains(&height));
            guilty.for_each(|(_, by)| self.source.pool.upstreams[*by].penalize(disproof.reason()));
        }
    }
}
