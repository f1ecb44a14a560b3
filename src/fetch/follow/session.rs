//! A session: one run of following, up to the first contradiction.

mod publish;

use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use neve_chain::{Checks, Settlement};
use neve_store::residency::loaded;
use neve_store::{Hash, Reader, Record};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::first_height::first_height;
use super::givers::Givers;
use super::session_end::SessionEnd;
use crate::config::settings::Senders;
use crate::fetch::unsettled::{self, Rebuilt};
use crate::fetch::{FetchedHeight, Follower, HeightFetcher};
use crate::shared::{IngestBudget, IngestReservation, Phase};
use crate::upstream::{PoolState, Priority};

/// Heights behind the head that count as following it.
const FOLLOWING_WITHIN: u64 = 16;

/// Heights below the head within which a height is requested before those of catching up.
const LIVE_WITHIN: u64 = 4;

/// State of a session of following; it ends with its first contradiction.
pub(crate) struct Session<'f> {
    follower: &'f Follower,
    source: HeightFetcher,
    sight: watch::Receiver<PoolState>,
    checks: Checks,
    window: Settlement,
    /// The height that this session began with.
    first: u64,
    /// Height and hash of the last published block.
    last: Option<(u64, Hash)>,
    /// Heights up to here were disproved once: they are published only when proven.
    distrust: Option<u64>,
    /// Proven in themselves, and waiting for a header to prove their receipts.
    held: VecDeque<(Record, IngestReservation)>,
    givers: Givers,
    published: u64,
}

impl<'f> Session<'f> {
    pub(crate) fn new(
        follower: &'f Follower,
        source: HeightFetcher,
        distrust: Option<u64>,
        givers: Givers,
    ) -> Self {
        let sight = source.pool.sight();
        Self {
            follower,
            source,
            sight,
            checks: Checks { chain_id: 0, senders: false, admitted: follower.config.admitted },
            window: Settlement::new(0),
            first: 0,
            last: None,
            distrust,
            held: VecDeque::new(),
            givers,
            published: 0,
        }
    }

    pub(crate) fn distrust(&self) -> Option<u64> {
        self.distrust
    }

    /// Takes what is known of the unsettled heights, for the next session.
    pub(crate) fn take_givers(&mut self) -> Givers {
        std::mem::take(&mut self.givers)
    }

    pub(crate) fn published(&self) -> u64 {
        self.published
    }

    /// Runs until the first contradiction.
    pub(crate) async fn run(&mut self) -> SessionEnd {
        match self.follow().await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, SessionEnd> {
        let sight = *self.sight.borrow_and_update();
        let identity = *self.source.pool.identity.get().ok_or(SessionEnd::Lost)?;
        self.checks.chain_id = identity.chain_id;
        self.follower.ingest.bind(identity, sight.rules()).await??;
        // Another upstream that is there alone later must not change them.
        self.source.pool.note_rules(sight.rules());
        self.follower.serving.relayed.ask_again();
        // Records of the session before may still be in the queue.
        self.last = self.follower.ingest.barrier().await?;
        // A source may withdraw heights between two sessions.
        if let Some(from) = self.withdrawn_from(self.next()) {
            self.take_back(from).await?;
        }
        self.agree(sight.head).await?;
        let next = self.resume(sight.head).await?;
        self.pump(next, sight).await
    }

    /// Finds the height up to which store and upstreams agree, and withdraws unproven heights above it.
    /// Proven heights were compared when the upstreams were admitted.
    async fn agree(&mut self, upstream_head: u64) -> Result<(), SessionEnd> {
        let proven = self.follower.serving.proven_height();
        let mut from = None;
        // Nothing above the upstreams' head can be compared yet.
        let mut next = self.last.map(|(head, _)| head.min(upstream_head));
        while let Some(height) = next {
            let Some(ours) = self.stored_hash(height).await else { break };
            let settled = proven.is_none_or(|proven| height <= proven);
            // Proven heights cannot be wrong, and one that an upstream shares has all below it in
            // common.
            if settled || !self.is_denied(height, ours).await {
                break;
            }
            from = Some(height);
            next = height.checked_sub(1);
        }
        if let Some(from) = from {
            self.follower.ingest.withdraw(from).await??;
            self.last = self.follower.ingest.barrier().await?;
        }
        Ok(())
    }

    /// True if upstreams have another block there, and none has ours.
    async fn is_denied(&self, height: u64, ours: Hash) -> bool {
        let mut denied = false;
        for (_, upstream) in self.source.pool.admitted() {
            upstream.charge(1);
            match upstream.client.hash(height).await {
                // One upstream with our block is enough: the others may be on a fork of their own.
                Ok(Some(theirs)) if theirs == ours => return false,
                Ok(Some(theirs)) => {
                    let upstream = &upstream.name;
                    warn!(height, %ours, %theirs, upstream, "upstream has another block");
                    denied = true;
                }
                Ok(None) => {}
                Err(error) => _ = self.source.pool.failed(&upstream, error),
            }
        }
        denied
    }

    async fn stored_hash(&self, height: u64) -> Option<Hash> {
        let hash = move |reader: &Reader| loaded(|| reader.record(height).map(|one| one.hash()));
        unsettled::off_task(&self.follower.serving.reader, hash).await
    }

    /// Returns the next height. Rebuilds the window of unsettled heights before it.
    async fn resume(&mut self, head: u64) -> Result<u64, SessionEnd> {
        let next = match self.last {
            Some((height, _)) => height + 1,
            None => first_height(self.follower.start, &self.source, head).await,
        };
        // The window is not fetched for heights that no upstream has yet.
        let before = next.checked_sub(1).filter(|before| *before <= head);
        let Rebuilt { window, givers, .. } = self.rebuilt(before).await?;
        self.window = window;
        self.givers.begin(givers);
        self.first = next;
        self.note_verified();
        self.follower.status.begin_catch_up(next);
        info!(next, upstream_head = head, "following upstreams");
        Ok(next)
    }

    /// Rebuilds the window of the unsettled heights from `before` down. Fails once no upstream is admitted.
    async fn rebuilt(&self, before: Option<u64>) -> Result<Rebuilt, SessionEnd> {
        let reader = &self.follower.serving.reader;
        let rebuilt =
            unsettled::rebuild(reader, &self.source, before, Priority::CatchUp, self.checks);
        // Without an admitted upstream the rebuilding would wait for ever; the session ends instead.
        let mut sight = self.source.pool.sight();
        tokio::select! {
            rebuilt = rebuilt => Ok(rebuilt),
            _ = sight.wait_for(|sight| sight.admitted == 0) => Err(SessionEnd::Lost),
        }
    }

    fn note_verified(&self) {
        self.follower.status.set_verified(self.window.settled());
    }

    /// Fetches and publishes heights; ends only with the session.
    async fn pump(
        &mut self,
        mut next: u64,
        mut sight: PoolState,
    ) -> Result<std::convert::Infallible, SessionEnd> {
        let (budget, pool) = (self.follower.budget.consumer(), self.source.pool.clone());
        let mut pipeline = FuturesOrdered::new();
        loop {
            let (mut full, mut long) = (false, false);
            while next <= sight.head && !full && !long {
                long = pool.queue_is_long() && !pipeline.is_empty();
                let room = if long { None } else { self.room(&budget, pipeline.is_empty()) };
                full = room.is_none();
                if let Some(room) = room {
                    pipeline.push_back(self.start_fetch(next, sight, room));
                    next += 1;
                }
            }
            self.note_phase(&sight);
            let alone = pipeline.is_empty();
            tokio::select! {
                // News of upstreams first: a withdrawal ends the session before more is published.
                biased;
                Ok(()) = self.sight.changed() => {
                    let before = std::mem::replace(&mut sight, *self.sight.borrow_and_update());
                    self.seen(before, sight, next).await?;
                }
                Some(fetched) = pipeline.next() => {
                    let (fetched, room) = fetched?;
                    self.publish(fetched, room).await?;
                }
                () = pool.queue_shortens(), if long => {}
                () = budget.freed(alone), if full && !long => {}
            }
        }
    }

    /// Reserves memory for one more height. Heights that are held back wait for later headers. So those headers
    /// are fetched even if no memory is left.
    fn room(&self, budget: &IngestBudget, alone: bool) -> Option<IngestReservation> {
        let forced = alone && !self.held.is_empty();
        budget.take(alone).or_else(|| forced.then_some(IngestReservation::Forced))
    }

    /// Handles a change of the upstreams. `next` is the first height that is not requested.
    async fn seen(
        &mut self,
        before: PoolState,
        now: PoolState,
        next: u64,
    ) -> Result<(), SessionEnd> {
        if now.admitted == 0 {
            return Err(SessionEnd::Lost);
        }
        // Behind a new connection there may be another node, with other values.
        if now.connections != before.connections {
            self.follower.serving.relayed.ask_again();
        }
        if let Some(from) = self.withdrawn_from(next) {
            let height = self.take_back(from).await?;
            return Err(SessionEnd::withdrawn(height));
        }
        if now.rules() != self.follower.serving.rules() {
            let identity = *self.source.pool.identity.get().ok_or(SessionEnd::Lost)?;
            self.follower.ingest.bind(identity, now.rules()).await??;
        }
        Ok(())
    }

    /// Takes withdrawals of the mirror source. Returns the lowest height to withdraw here. Beside other upstreams only
    /// heights that the source gave go: it could else hold up following by withdrawing theirs, again and again.
    fn withdrawn_from(&mut self, next: u64) -> Option<u64> {
        let pool = &self.source.pool;
        let from = pool.take_withdrawn()?;
        if pool.upstreams.len() == 1 {
            return Some(from);
        }
        let source = pool.upstreams.iter().position(|one| one.peer.is_some())?;
        // Their giver is not known yet: `publish` looks.
        self.givers.withdraw(from.max(self.next())..next);
        let height = self.givers.first_of(source, from)?;
        pool.upstreams[source].withdrew(); // the others are asked first for a while
        Some(height)
    }

    /// Withdraws the unproven heights that the mirror source withdrew, without waiting for the header that
    /// disproves them. Returns the first one.
    async fn take_back(&mut self, from: u64) -> Result<u64, SessionEnd> {
        let proven = self.follower.serving.proven_height();
        // Proven heights stay, also if the mirror source withdraws them.
        let height = from.max(proven.map_or(0, |proven| proven + 1));
        self.follower.ingest.withdraw(height).await??;
        self.last = self.follower.ingest.barrier().await?;
        Ok(height)
    }

    fn start_fetch(
        &self,
        height: u64,
        sight: PoolState,
        mut room: IngestReservation,
    ) -> AbortOnDropHandle<(FetchedHeight, IngestReservation)> {
        let senders = recovers(self.follower.config.recover_senders, height, &sight);
        let newest = height + LIVE_WITHIN > sight.head;
        let purpose = if newest { Priority::Follow } else { Priority::CatchUp };
        let (source, checks) = (self.source.clone(), Checks { senders, ..self.checks });
        let budget = self.follower.budget.clone();
        // A task: a future that is not polled would keep its permit while the session appends.
        AbortOnDropHandle::new(tokio::spawn(async move {
            let fetched = source.fetch(height, purpose, checks).await;
            budget.fit(&mut room, fetched.assembled.record.encoded_len());
            (fetched, room)
        }))
    }

    /// The next height to publish.
    fn next(&self) -> u64 {
        self.last.map_or(self.first, |(height, _)| height + 1)
    }

    fn note_phase(&self, sight: &PoolState) {
        // By the proven head, as lag is: an upstream can say any head.
        let missing = sight.proven.saturating_add(1).saturating_sub(self.next());
        let near = missing <= FOLLOWING_WITHIN;
        self.follower.status.set_phase(if near { Phase::Following } else { Phase::CatchingUp });
    }
}

/// True if the senders of a height are recovered. That takes six times everything else: far below the head it is left out
/// (0009). The head of most upstreams decides: a false one must not have it left out, nor one far behind have it done.
fn recovers(which: Senders, height: u64, sight: &PoolState) -> bool {
    match which {
        Senders::Always => true,
        Senders::Never => false,
        Senders::Live => height + FOLLOWING_WITHIN > sight.common,
    }
}

#[cfg(test)]
mod tests;
