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
use neve_store::{Error, Hash, RecordRef};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::assemble::Assembled;
use super::backoff::Backoff;
use super::budget::Room;
use super::mirrored::{self, Next};
use super::pool::{Need, Purpose};
use super::session::note_proof;
use super::source::{Fetched, Source, refuse};
use super::{Follower, skeleton, window};
use crate::cli::Senders;
use crate::config::BackfillConfig;
use crate::history::HistoryWriter;
use crate::ingest::Stopped;
use crate::mirror::Peer;
use crate::units::StartAt;

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

/// Why an interval was given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    #[error("{0}")]
    Store(#[from] Error),
    #[error("the receipts of history do not check out: {0}")]
    Disproved(#[from] Disproof),
    #[error("a stored height above history does not check out")]
    Unreadable,
    #[error("fetching ended: {0}")]
    Task(#[from] tokio::task::JoinError),
    #[error("writing ended")]
    Ended,
    #[error("the writer has stopped")]
    Writer(#[from] Stopped),
}

/// Fills for ever.
pub(super) async fn run(follower: Arc<Follower>, source: Source, peer: Option<Arc<Peer>>) {
    if follower.backfill == BackfillConfig::None {
        return;
    }
    let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MAX);
    loop {
        // A new mirror begins with its segments as soon as it has what proves them.
        let new = peer.is_some() && follower.status.verified().is_none();
        let lowest = match &peer {
            None => Some(0),
            Some(peer) => match mirrored::fill(&follower, &source, peer).await {
                Ok(Next::Again) => {
                    backoff.reset();
                    continue;
                }
                Ok(Next::Ask { from }) => Some(from),
                Ok(Next::Nothing) => None,
                Err(Stop::Writer(_)) => return,
                Err(why) => {
                    let wait = backoff.wait();
                    warn!("segments of a neve: {why}; trying again in {wait:.1?}");
                    tokio::time::sleep(wait).await;
                    None
                }
            },
        };
        let Some(interval) = lowest.and_then(|lowest| plan(&follower, lowest)) else {
            tokio::time::sleep(if new { LOOK_SOON } else { LOOK_EVERY }).await;
            continue;
        };
        match Filling::new(&follower, &source, interval.clone()).run().await {
            Ok(()) => backoff.reset(),
            Err(Stop::Writer(_)) => return,
            Err(why) => {
                let wait = backoff.wait();
                warn!(?interval, "backfill: {why}; trying again in {wait:.1?}");
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

/// The lowest height that is wanted, and that retention would not drop at once.
pub(super) fn goal(follower: &Follower, head: u64) -> u64 {
    let wanted = match follower.backfill {
        BackfillConfig::None => u64::MAX,
        BackfillConfig::Retained => 0,
        BackfillConfig::To(StartAt::Height(height)) => height,
        BackfillConfig::To(StartAt::BeforeHead(back)) => head.saturating_sub(back),
    };
    let kept = follower.retention.blocks.map_or(0, |keep| (head + 1).saturating_sub(keep));
    wanted.max(kept)
}

/// Whether a further segment would be kept: it fits into the bound of bytes, with the one that the
/// head needs next, and its newest block is young enough.
pub(super) fn has_room(follower: &Follower, first: &RecordRef, segment_bytes: u64) -> bool {
    let retention = &follower.retention;
    let used = follower.serving.reader.usage().disk_bytes;
    let fits = retention.bytes.is_none_or(|limit| used + 2 * segment_bytes <= limit);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let age = now.as_secs().saturating_sub(first.timestamp());
    fits && retention.age.is_none_or(|limit| age < limit.as_secs())
}

/// An interval on its way.
pub(super) struct Filling<'f> {
    follower: &'f Follower,
    source: &'f Source,
    interval: RangeInclusive<u64>,
    pub(super) checks: Checks,
    /// Who gave what is not settled yet.
    givers: Vec<(u64, usize)>,
}

impl<'f> Filling<'f> {
    pub(super) fn new(
        follower: &'f Follower,
        source: &'f Source,
        interval: RangeInclusive<u64>,
    ) -> Self {
        let chain_id = follower.serving.identity().map_or(0, |identity| identity.chain_id);
        let senders = follower.config.senders == Senders::Always;
        let checks = Checks { chain_id, senders };
        Self { follower, source, interval, checks, givers: Vec::new() }
    }

    async fn run(mut self) -> Result<(), Stop> {
        let begun = Instant::now();
        let reader = &self.follower.serving.reader;
        let (first, last) = (*self.interval.start(), *self.interval.end());
        let above = reader.record(last + 1).ok_or(Stop::Unreadable)?;
        let hashes = skeleton::hashes(self.source, self.interval.clone(), above.parent()).await;
        let before = first.checked_sub(1);
        let (mut window, givers) =
            window::rebuild(reader, self.source, before, Purpose::Backfill, self.checks).await;
        self.givers = givers;
        let history = self.follower.ingest.history().await??;
        match self.fill(&hashes, &mut window, &history).await {
            Ok(()) => {}
            Err(Stop::Ended) => {
                return Err(history.finish().await?.err().map_or(Stop::Ended, Stop::from));
            }
            Err(Stop::Disproved(disproof)) => {
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
        history: &HistoryWriter,
    ) -> Result<(), Stop> {
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
        mut room: Room,
    ) -> AbortOnDropHandle<(Fetched, Room)> {
        let (source, checks) = (self.source.clone(), self.checks);
        let budget = self.follower.budget.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let need = Need { hash: Some(hash), ..Need::new(height, Purpose::Backfill) };
            let fetched = source.fetch_needed(need, checks).await;
            budget.fit(&mut room, fetched.assembled.record.encoded_len());
            (fetched, room)
        }))
    }

    async fn take(
        &mut self,
        fetched: Fetched,
        room: Room,
        window: &mut Settlement,
        history: &HistoryWriter,
    ) -> Result<(), Stop> {
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
            return Err(Stop::Ended);
        }
        self.follower.status.set_backfill_interval(*self.interval.start(), height + 1);
        Ok(())
    }

    /// Lets the stored headers above settle the last heights.
    pub(super) fn settle_above(&mut self, window: &mut Settlement) -> Result<(), Stop> {
        let last = *self.interval.end();
        for height in last + 1.. {
            if window.settled().is_some_and(|settled| settled >= last) {
                break;
            }
            let checks = Checks { senders: false, ..self.checks };
            let stored = window::stored(&self.follower.serving.reader, height, checks);
            let Assembled { header, unsettled, .. } = stored.ok_or(Stop::Unreadable)?;
            let settled = window.settle(&CheckedHeader::of(&header));
            note_proof(height, &settled.inspect_err(|disproof| self.blame(disproof))?);
            unsettled.into_iter().for_each(|receipts| window.push(receipts));
        }
        Ok(())
    }

    /// Headers of history are what they should be by their hash, so receipts must be false.
    fn blame(&self, disproof: &Disproof) {
        let height = *self.interval.start();
        refuse(height, disproof.reason(), &disproof.to_string());
        if let Disproof::ReceiptsRoot { from, through, .. }
        | Disproof::LogsBloom { from, through, .. } = disproof
        {
            let guilty =
                self.givers.iter().filter(|(height, _)| (from..=through).contains(&height));
            guilty.for_each(|(_, by)| self.source.pool.upstreams[*by].doubt(disproof.reason()));
        }
    }
}
