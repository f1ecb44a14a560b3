//! Fetches a height from any upstream that has it, until it is complete and proven.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::StatusCode;
use neve_chain::{Checks, TotalDifficulty};
use neve_jsonrpc::Rules;
use neve_record::assemble::Assembled;
use tokio::time::timeout;
use tracing::debug;

use super::error::{FetchError, refuse};
use super::evidence::{ACCEPTED, Evidence, RejectedPayload};
use super::payload::{Payload, is_of_another, one_batch, two_calls};
use super::prover::Prover;
use super::retry::RetryState;
use super::votes::Votes;
use crate::client::CallError;
use crate::mirror::Channel;
use crate::shared::lock::lock;
use crate::shared::{StageTimes, add_elapsed};
use crate::upstream::{
    AfterFailure, BlockName, FetchNeed, FetchPermit, LATE, Priority, Upstream, UpstreamPool,
};

/// Shortest time after which a height is requested from another upstream, too. The first one must also
/// take `STALLS` times as long as usual.
const STALL_MIN: Duration = Duration::from_secs(2);
const STALLS: u32 = 8;
/// Requests for a height of history that the only upstream lacks, before it is given up: a balancer's next node may have it.
const ABSENT_MAX: u32 = 8;
/// Heights whose next answer is kept.
const DISPUTED_MAX: usize = 256;
/// Time for which an upstream that confirmed or denied a hash is not asked about it again.
const CONFIRM_EVERY: Duration = Duration::from_millis(250);

/// Fetches heights. Clones share everything.
#[derive(Clone)]
pub(crate) struct HeightFetcher {
    pub(crate) pool: Arc<UpstreamPool>,
    pub(crate) evidence: Evidence,
    pub(crate) prover: Prover,
    /// Upstreams that must agree on a hash.
    agree: usize,
    /// Heights of which data was rejected. The accepted data of these is kept as evidence, too.
    disputed: Arc<Mutex<BTreeSet<u64>>>,
}

/// A proven height, and the upstream that gave it.
pub(crate) struct FetchedHeight {
    pub(crate) assembled: Assembled,
    /// Place of the upstream in the pool.
    pub(crate) from: usize,
}

impl HeightFetcher {
    pub(crate) fn new(
        pool: Arc<UpstreamPool>,
        evidence: Evidence,
        busy: Arc<StageTimes>,
        config: &crate::config::settings::FetchConfig,
    ) -> Self {
        let prover = Prover::new(config.prove_threads, config.precompress, busy);
        Self { pool, evidence, prover, agree: config.quorum, disputed: Arc::default() }
    }

    /// Returns the height at which an empty store begins, if the upstream is a mirror source that names one.
    pub(crate) async fn start(&self) -> Option<u64> {
        let peer = self.pool.upstreams.iter().find_map(|upstream| upstream.peer.as_ref())?;
        let listing = peer.list().await;
        listing.inspect_err(|why| peer.say(Channel::Files, Some(why))).ok()?.start()
    }

    /// Fetches a height, with as many attempts as it needs. Returns only a height that is proven in itself.
    pub(crate) async fn fetch(
        &self,
        height: u64,
        purpose: Priority,
        checks: Checks,
    ) -> FetchedHeight {
        loop {
            let need = FetchNeed::new(height, purpose);
            if let Some(fetched) = self.fetch_needed(need, checks).await {
                return fetched;
            }
        }
    }

    /// Fetches a block whose hash may be known. Returns `None` for a height of history that all upstreams lack.
    pub(crate) async fn fetch_needed(
        &self,
        mut need: FetchNeed,
        checks: Checks,
    ) -> Option<FetchedHeight> {
        let begun = Instant::now();
        let mut retry = RetryState::new(begun);
        // Before a lease: one of an upstream that lacked the height a moment ago takes a minute.
        while !self.is_given_up(&need, &retry) {
            if let Some(fetched) = self.fetch_once(&mut need, &mut retry, checks).await {
                add_elapsed(&self.prover.busy.fetch, begun);
                return Some(fetched);
            }
        }
        debug!(height = need.height, "no upstream has height");
        None
    }

    /// Requests a height from one upstream. Returns only a height that is proven, and that others confirm if they must.
    async fn fetch_once(
        &self,
        need: &mut FetchNeed,
        retry: &mut RetryState,
        checks: Checks,
    ) -> Option<FetchedHeight> {
        let lease = self.pool.lease(need.clone()).await;
        match self.attempt(&lease, need, checks).await {
            Ok((assembled, texts)) => {
                let fetched = FetchedHeight { assembled, from: lease.place };
                drop(lease); // its place is free while others confirm
                if self.confirmed(&fetched, need.purpose, &texts).await {
                    self.note_accepted(&fetched, texts);
                    return Some(fetched);
                }
                need.not(fetched.from, retry.refused.wait());
            }
            Err((failed, texts)) => self.after(&lease, failed, texts, need, retry),
        }
        None
    }

    /// Notes that an upstream gave a height. Keeps its payload if another one was refused.
    fn note_accepted(&self, fetched: &FetchedHeight, texts: Payload) {
        let height = fetched.assembled.record.height;
        let upstream = &self.pool.upstreams[fetched.from];
        // Another upstream's payload of this height was refused. Both are kept as evidence.
        if self.disputed().remove(&height) {
            self.keep(height, upstream, texts, ACCEPTED, "");
        }
        upstream.gave_height();
    }

    /// True if a height of history is worth no further request. An upstream that is behind may get a newer one.
    fn is_given_up(&self, need: &FetchNeed, retry: &RetryState) -> bool {
        let is_history = need.purpose == Priority::Backfill;
        is_history && self.is_absent(need.height, retry.absent)
    }

    /// True if all upstreams lack a height, after so many responses without it.
    pub(crate) fn is_absent(&self, height: u64, responses: u32) -> bool {
        let least = if self.pool.upstreams.len() > 1 { 0 } else { ABSENT_MAX };
        responses >= least && self.pool.is_lacked(height)
    }

    /// Decides after a failure whether the height goes to another upstream, or to the same one later.
    fn after(
        &self,
        lease: &FetchPermit,
        failed: FetchError,
        texts: Payload,
        need: &mut FetchNeed,
        retry: &mut RetryState,
    ) {
        let upstream = &lease.upstream;
        match failed {
            FetchError::NotYet => {
                // Just below its head it may only be late. Further below it lacks the height, and one of history too.
                let head = upstream.state().head;
                if need.purpose == Priority::Backfill || need.height + LATE < head {
                    debug!(need.height, upstream = upstream.name, "upstream lacks height");
                    upstream.mark_missing(need.height);
                }
                need.not(lease.place, retry.not_yet.wait());
                retry.absent += 1;
            }
            FetchError::Stalled => {
                debug!(need.height, upstream = upstream.name, "upstream stalls");
                upstream.penalize("stalled", "no response for much longer than usual");
                upstream.state().window.refused(Instant::now());
                need.not(lease.place, retry.refused.wait());
            }
            FetchError::Call(error) => {
                debug!(need.height, upstream = upstream.name, %error, "height not fetched");
                // If it pauses, it does so for all heights: it is not excluded for this one.
                if self.pool.failed(upstream, error) == AfterFailure::Tolerated {
                    need.not(lease.place, retry.unlucky.wait());
                }
            }
            FetchError::Refused(reason, why) => {
                refuse(need.height, Some(&upstream.name), reason, &why);
                self.refused(need.height, upstream, texts, reason, &why);
                need.not(lease.place, retry.refused.wait());
            }
        }
        retry.say(need.height);
    }

    fn disputed(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        lock(&self.disputed)
    }

    /// Keeps a rejected answer as evidence, and penalizes its upstream.
    pub(crate) fn refused(
        &self,
        height: u64,
        upstream: &Upstream,
        texts: Payload,
        reason: &'static str,
        why: &str,
    ) {
        upstream.penalize(reason, &format!("block {height}: {why}"));
        let mut disputed = self.disputed();
        // A liar names as many heights as it likes: the set is bounded.
        if disputed.len() < DISPUTED_MAX {
            disputed.insert(height);
        }
        drop(disputed);
        self.keep(height, upstream, texts, reason, why);
    }

    fn keep(
        &self,
        height: u64,
        upstream: &Upstream,
        texts: Payload,
        verdict: &'static str,
        why: &str,
    ) {
        let upstream = upstream.name.clone();
        self.evidence.keep(RejectedPayload { height, upstream, texts }, verdict, why);
    }

    /// Requests a height: by the tag `latest` if it is the newest, otherwise by its number.
    async fn attempt(
        &self,
        lease: &FetchPermit,
        need: &FetchNeed,
        checks: Checks,
    ) -> Result<(Assembled, Payload), (FetchError, Payload)> {
        let (upstream, height) = (&lease.upstream, need.height);
        if need.purpose == Priority::Follow && upstream.is_newest(height) {
            let newest = self.attempt_named(lease, need, checks, BlockName::Latest).await;
            match &newest {
                Err((failed, texts)) if is_of_another(failed, texts, height) => {
                    debug!(height, upstream = upstream.name, "latest is another block");
                    upstream.newest_was_another();
                }
                _ => return newest,
            }
        }
        self.attempt_named(lease, need, checks, BlockName::Height(height)).await
    }

    async fn attempt_named(
        &self,
        lease: &FetchPermit,
        need: &FetchNeed,
        checks: Checks,
        named: BlockName,
    ) -> Result<(Assembled, Payload), (FetchError, Payload)> {
        let follows = need.purpose == Priority::Follow;
        let mut begun = None;
        let came = |block: &Bytes| {
            begun = follows.then(|| self.prover.begin(block.clone(), checks));
        };
        let texts = self.ask(lease, need, named, came).await;
        // Before the proof: our own CPU time says nothing of the upstream.
        lease.answered();
        let texts = texts.map_err(|failed| (failed, Payload::default()))?;
        let assembled = self.prover.finish(begun, texts.clone(), checks).await;
        match assembled.and_then(|assembled| self.fitting(assembled, need)) {
            Ok(assembled) => Ok((assembled, texts)),
            Err(failed) => Err((failed, texts)),
        }
    }

    /// Gets the payload of a height. Calls `came` with the block, which may come before the receipts.
    async fn ask(
        &self,
        lease: &FetchPermit,
        need: &FetchNeed,
        named: BlockName,
        came: impl FnOnce(&Bytes),
    ) -> Result<Payload, FetchError> {
        let upstream = &lease.upstream;
        let ask = async {
            // The stream has brought the height, or is about to: no request need be made.
            if let Some(peer) = &upstream.peer
                && let Some(texts) = peer.feed.take(need.height).await
            {
                came(&texts.0);
                return Ok(texts);
            }
            match need.purpose {
                Priority::Follow => two_calls(upstream, named, came).await,
                _ => one_batch(upstream, named).await,
            }
        };
        self.unless_stalled(upstream, ask).await
    }

    /// Waits for a payload as long as the upstream may take. Waits longer for one that throttles, unless another is free.
    async fn unless_stalled(
        &self,
        upstream: &Upstream,
        ask: impl Future<Output = Result<Payload, FetchError>>,
    ) -> Result<Payload, FetchError> {
        let mean = Duration::from_secs_f64(upstream.state().window.mean());
        let (limit, mut ask) = (STALL_MIN.max(STALLS * mean), pin!(ask));
        loop {
            if let Ok(texts) = timeout(limit, &mut ask).await {
                return texts;
            }
            // With one upstream only, a stall leaves no choice: it is waited for up to its timeout. Another one may
            // come meanwhile.
            if self.pool.sight().borrow().admitted < 2 {
                continue;
            }
            let Some(left) = upstream.resting() else { return Err(FetchError::Stalled) };
            if self.pool.admitted().into_iter().any(|(_, one)| one.resting().is_none()) {
                let status = StatusCode::TOO_MANY_REQUESTS;
                return Err(CallError::Throttled { status, after: Some(left) }.into());
            }
        }
    }

    /// Returns a proven block if it is the requested one.
    fn fitting(&self, assembled: Assembled, need: &FetchNeed) -> Result<Assembled, FetchError> {
        let found = assembled.record.height;
        if found != need.height {
            return Err(FetchError::Refused("height", format!("the upstream sent block {found}")));
        }
        // A valid block of this height, but not the one in this chain.
        if let Some(hash) = need.hash.filter(|hash| *hash != assembled.record.hash) {
            let why = format!("it is {}, its child names {hash}", assembled.record.hash);
            return Err(FetchError::Refused("backfill_link", why));
        }
        // The writer would stop at it. Another upstream may have a block that fits.
        let fits = assembled.record.check_limits();
        fits.map_err(|error| FetchError::Refused("too_large", error.to_string()))?;
        if self.is_of_old_rules(&assembled) {
            let why = "it answers by rules that another upstream has left".to_owned();
            return Err(FetchError::Refused("old_rules", why));
        }
        Ok(assembled)
    }

    /// True if the block has the form of the old rules while another upstream answers by the newer ones.
    fn is_of_old_rules(&self, assembled: &Assembled) -> bool {
        let sight = *self.pool.sight().borrow();
        assembled.difficulty == TotalDifficulty::Number
            && sight.rules() == Rules::Helicon
            && sight.admitted > 1
    }

    /// Waits until the quorum of upstreams has this block. Returns false if as many have another one.
    async fn confirmed(&self, fetched: &FetchedHeight, purpose: Priority, texts: &Payload) -> bool {
        // The hash of history is known before it is asked for.
        if self.agree < 2 || purpose == Priority::Backfill {
            return true;
        }
        let mut votes = Votes { agreed: vec![fetched.from], denied: Vec::new() };
        loop {
            for (place, upstream) in self.pool.admitted() {
                if !votes.has(place) && upstream.resting().is_none() {
                    votes.ask(place, &upstream, &fetched.assembled.record).await;
                }
                if votes.agreed.len() >= self.agree {
                    return true;
                }
            }
            // With few upstreams all others may deny the block, and be fewer than the quorum.
            if votes.denied.len() >= self.agree.min(self.pool.upstreams.len() - 1) {
                self.reject_denied(fetched, texts.clone(), votes.denied.len());
                return false;
            }
            tokio::time::sleep(CONFIRM_EVERY).await;
        }
    }

    /// Rejects a block in whose place so many upstreams have another one.
    fn reject_denied(&self, fetched: &FetchedHeight, texts: Payload, denied: usize) {
        let upstream = &self.pool.upstreams[fetched.from];
        let why = format!("{denied} others have another block");
        self.refused(fetched.assembled.record.height, upstream, texts, "disagrees", &why);
    }
}

#[cfg(test)]
mod tests {
    use neve_chain::AdmittedKeys;
    use neve_devnet::{Chain, ChainConfig, Part};
    use neve_record::assemble::assemble;

    use super::*;

    #[tokio::test]
    async fn record_that_the_store_cannot_hold_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (evidence, prover) = (Evidence::new(dir.path()), Prover::new(1, &[], Arc::default()));
        let pool = UpstreamPool::new(Vec::new(), 1);
        let source = HeightFetcher { pool, evidence, prover, agree: 1, disputed: Arc::default() };
        let config = ChainConfig::c_chain(1);
        let checks =
            Checks { chain_id: config.chain_id, senders: false, admitted: AdmittedKeys::NONE };
        let block = Chain::new(config).next_block();
        let text = block.answer(Part::Full, Rules::BeforeHelicon);
        let fitting = |height| {
            let mut assembled = assemble(&text, block.receipts(), &checks).unwrap();
            assembled.record.height = height;
            source.fitting(assembled, &FetchNeed::new(height, Priority::Follow)).map(drop)
        };
        assert!(fitting(0).is_ok() && fitting((1 << 47) - 1).is_ok());
        let Err(FetchError::Refused(reason, why)) = fitting(1 << 47) else { panic!("it is taken") };
        assert_eq!(reason, "too_large");
        assert!(why.contains("a height"), "{why}");
    }
}
