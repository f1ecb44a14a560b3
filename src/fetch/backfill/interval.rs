//! Heights below the served range, a segment at a time.
//!
//! An interval that fills about a segment is chosen below the first served height. Its hashes come
//! first (see `header_chain.rs`), then its blocks, in any order; they are written aside in ascending
//! order, settled by the headers in it and by those that are stored above it, and published whole.
//! It stops where retention would evict at once what it fetched.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use neve_chain::{CheckedHeader, Checks, Disproof, Proof, Settlement};
use neve_record::assemble::Assembled;
use neve_store::residency::loaded;
use neve_store::{Hash, Reader};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use super::error::BackfillError;
use super::header_chain;
use crate::config::settings::Senders;
use crate::fetch::unsettled::{self, Rebuilt};
use crate::fetch::{FetchedHeight, Follower, HeightFetcher, note_proof, refuse};
use crate::ingest::BackfillThread;
use crate::shared::IngestReservation;
use crate::upstream::{FetchNeed, Priority};

/// An interval on its way.
pub(crate) struct BackfillInterval<'f> {
    follower: &'f Follower,
    source: &'f HeightFetcher,
    interval: RangeInclusive<u64>,
    pub(crate) checks: Checks,
    /// Upstreams that gave the unsettled heights.
    givers: Vec<(u64, usize)>,
    /// True if all heights below that the interval's headers settle are in the window.
    is_settled_below: bool,
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
        Self { follower, source, interval, checks, givers: Vec::new(), is_settled_below: true }
    }

    /// Publishes the interval, or the upper part of it that can be had and proven.
    pub(super) async fn run(mut self) -> Result<(), BackfillError> {
        let last = *self.interval.end();
        let parent = parent_of(&self.follower.serving.reader, last + 1).await;
        // The proven block above names the hash of the last one here: all else follows from it.
        let parent = parent.ok_or(BackfillError::Unreadable)?;
        let hashes = header_chain::hashes(self.source, self.interval.clone(), parent).await;
        // Of an interval that reaches further down than all upstreams the upper part is had.
        let count = u64::try_from(hashes.len()).unwrap_or(u64::MAX);
        let lowest = (last + 1).saturating_sub(count);
        let mut first = lowest;
        while first <= last {
            self.interval = first..=last;
            let from = usize::try_from(first - lowest).unwrap_or(usize::MAX);
            match self.publish(&hashes[from..]).await {
                Err(BackfillError::NotGiven(height) | BackfillError::Unproven(height)) => {
                    debug!(height, "history begins above");
                    first = height + 1;
                }
                done => return done,
            }
        }
        Err(BackfillError::NotGiven(last))
    }

    /// Fetches the blocks of these hashes, and publishes them.
    async fn publish(&mut self, hashes: &[Hash]) -> Result<(), BackfillError> {
        let begun = Instant::now();
        let (first, last) = (*self.interval.start(), *self.interval.end());
        let mut window = self.rebuilt_window().await;
        let history = self.follower.ingest.history().await??;
        match self.fill(hashes, &mut window, &history).await {
            Ok(()) => {}
            Err(BackfillError::Ended) => {
                // The thread that writes has ended: its own error says why.
                let why = history.finish().await?.err();
                return Err(why.map_or(BackfillError::Ended, BackfillError::from));
            }
            Err(BackfillError::Disproved(disproof)) => {
                self.blame(&disproof);
                return Err(disproof.into());
            }
            Err(why) => return Err(why),
        }
        // Before readers see them: headers above prove the last receipts.
        self.settle_above(&mut window).await?;
        let built = history.finish().await??;
        let heights = self.follower.ingest.prepend(built).await??;
        info!(first, last, heights, elapsed = ?begun.elapsed(), "heights backfilled");
        Ok(())
    }

    /// Rebuilds the window of unsettled heights below the interval, and notes their givers.
    async fn rebuilt_window(&mut self) -> Settlement {
        let before = self.interval.start().checked_sub(1);
        let reader = &self.follower.serving.reader;
        let rebuilt =
            unsettled::rebuild(reader, self.source, before, Priority::Backfill, self.checks).await;
        let Rebuilt { window, givers, is_whole } = rebuilt;
        self.givers = givers.into_iter().filter_map(|(at, by)| Some((at, by?))).collect();
        self.is_settled_below = is_whole;
        window
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
                // Behind a long queue a request only holds a reservation. One may wait, or all would stop.
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
                    let (fetched, room) = fetched??;
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
    ) -> AbortOnDropHandle<Result<(FetchedHeight, IngestReservation), BackfillError>> {
        let (source, checks) = (self.source.clone(), self.checks);
        let budget = self.follower.budget.clone();
        // A task, as in a session: unpolled, it would keep its permit while a record is written.
        AbortOnDropHandle::new(tokio::spawn(async move {
            let need = FetchNeed { hash: Some(hash), ..FetchNeed::new(height, Priority::Backfill) };
            let fetched = source.fetch_needed(need, checks).await;
            let fetched = fetched.ok_or(BackfillError::NotGiven(height))?;
            budget.fit(&mut room, fetched.assembled.record.encoded_len());
            Ok((fetched, room))
        }))
    }

    async fn take(
        &mut self,
        fetched: FetchedHeight,
        room: IngestReservation,
        window: &mut Settlement,
        history: &BackfillThread,
    ) -> Result<(), BackfillError> {
        let Assembled { record, header, unsettled, .. } = fetched.assembled;
        let height = record.height;
        if unsettled.is_some() {
            self.givers.push((height, fetched.from));
        }
        let proof = window.settle(&CheckedHeader::of(&header))?;
        note_proof(height, &proof);
        self.has_proof(&proof)?;
        let settled = window.settled();
        // Settled receipts are proven: their givers have nothing more to answer for.
        self.givers.retain(|(height, _)| settled.is_none_or(|settled| *height > settled));
        unsettled.into_iter().for_each(|receipts| window.push(receipts));
        if !history.append(record, room).await {
            return Err(BackfillError::Ended);
        }
        self.follower.status.set_backfill_interval(*self.interval.start(), height + 1);
        Ok(())
    }

    /// Fails for receipts that nothing proves, as all upstreams lack those that are settled together with them.
    fn has_proof(&self, proof: &Proof) -> Result<(), BackfillError> {
        match proof {
            Proof::Unprovable { through, .. }
                if !self.is_settled_below && through >= self.interval.start() =>
            {
                Err(BackfillError::Unproven(*through))
            }
            _ => Ok(()),
        }
    }

    /// Lets the stored headers above settle the last heights.
    pub(crate) async fn settle_above(
        &mut self,
        window: &mut Settlement,
    ) -> Result<(), BackfillError> {
        let last = *self.interval.end();
        for height in last + 1.. {
            if window.settled().is_some_and(|settled| settled >= last) {
                break;
            }
            // What is stored was proven when it came: only its receipts are needed.
            let checks = Checks { senders: false, ..self.checks };
            let stored = unsettled::stored(&self.follower.serving.reader, height, checks).await;
            let Assembled { header, unsettled, .. } = stored.ok_or(BackfillError::Unreadable)?;
            let settled = window.settle(&CheckedHeader::of(&header));
            let proof = settled.inspect_err(|disproof| self.blame(disproof))?;
            note_proof(height, &proof);
            self.has_proof(&proof)?;
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
            let (reason, why) = (disproof.reason(), disproof.to_string());
            guilty.for_each(|(_, by)| self.source.pool.upstreams[*by].penalize(reason, &why));
        }
    }
}

/// Parent of a stored block.
pub(super) async fn parent_of(reader: &Reader, height: u64) -> Option<Hash> {
    let parent = move |reader: &Reader| loaded(|| reader.record(height).map(|one| one.parent()));
    unsettled::off_task(reader, parent).await
}
