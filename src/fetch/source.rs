//! One height from whichever upstream has it: complete and proven, however often it takes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metrics::counter;
use neve_chain::{Checks, Refusal, TotalDifficulty};
use neve_jsonrpc::Rules;
use tokio::task::JoinError;
use tracing::{debug, warn};

use super::assemble::Assembled;
use super::backoff::Backoff;
use super::client::CallError;
use super::evidence::{Answer, Evidence};
use super::pool::{Lease, Need, Pool, Purpose};
use super::prove::{Busy, Prover, add};
use super::texts::{Named, Texts, is_of_another, one_batch, two_calls};
use super::upstream::{LATE, Upstream};
use crate::mirror::Means;

/// A height that is announced but not there: behind a balancer that takes some milliseconds.
const NOT_YET_FIRST: Duration = Duration::from_millis(20);
const NOT_YET_MAX: Duration = Duration::from_secs(1);
/// After a refused block. The upstream may come to its senses; asking faster does not help it.
const REFUSED_FIRST: Duration = Duration::from_millis(250);
const REFUSED_MAX: Duration = Duration::from_secs(30);
/// After bad luck. All that is above this height waits for it.
const UNLUCKY_FIRST: Duration = Duration::from_millis(10);
/// With several upstreams a height is asked of another when one takes so long, and so many times as
/// long as usual.
const STALL_MIN: Duration = Duration::from_secs(2);
const STALLS: u32 = 8;
/// How often it is said that a height is still awaited.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// Heights whose next answer is kept.
const DISPUTED_MAX: usize = 256;
/// How long whoever confirmed or denied a hash is not asked again.
const CONFIRM_EVERY: Duration = Duration::from_millis(250);

/// Fetches heights. Clones share everything.
#[derive(Clone)]
pub(crate) struct Source {
    pub(super) pool: Arc<Pool>,
    pub(super) evidence: Evidence,
    pub(super) prover: Prover,
    /// Upstreams that must agree on a hash.
    agree: usize,
    /// Heights of which something was refused: what is accepted in its place is kept too.
    disputed: Arc<Mutex<BTreeSet<u64>>>,
}

/// A proven height, and who gave it.
pub(super) struct Fetched {
    pub(super) assembled: Assembled,
    /// The upstream's place.
    pub(super) from: usize,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// Not there, or not executed.
    NotYet,
    /// There, and wrong.
    Refused(&'static str, String),
    /// No answer for much longer than it usually takes, while another upstream could be asked.
    Stalled,
    /// No answer.
    Call(CallError),
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        if !error.is_absent() {
            return Self::Call(error);
        }
        debug!(%error, "not there");
        Self::NotYet
    }
}

impl From<JoinError> for Failed {
    fn from(error: JoinError) -> Self {
        Self::Call(CallError::Unreachable(error.to_string()))
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.reason(), refusal.to_string())
    }
}

/// What is waited for between attempts at one height.
struct Patience {
    not_yet: Backoff,
    refused: Backoff,
    unlucky: Backoff,
    said: Instant,
}

impl Source {
    pub(super) fn new(
        pool: Arc<Pool>,
        evidence: Evidence,
        busy: Arc<Busy>,
        config: &crate::config::FetchConfig,
    ) -> Self {
        let prover = Prover::new(config.verify_threads, config.compress, busy);
        Self { pool, evidence, prover, agree: config.agree, disputed: Arc::default() }
    }

    /// Where an empty store begins, if a neve is mirrored and says so.
    pub(super) async fn start(&self) -> Option<u64> {
        let peer = self.pool.upstreams.iter().find_map(|upstream| upstream.peer.as_ref())?;
        let listing = peer.list().await;
        listing.inspect_err(|why| peer.say(Means::Files, Some(why))).ok()?.start()
    }

    /// A height, however often it takes. It ends only with a height that is proven in itself.
    pub(super) async fn fetch(&self, height: u64, purpose: Purpose, checks: Checks) -> Fetched {
        self.fetch_needed(Need::new(height, purpose), checks).await
    }

    /// The same, of a block whose hash may be known.
    pub(super) async fn fetch_needed(&self, mut need: Need, checks: Checks) -> Fetched {
        let begun = Instant::now();
        let (height, purpose) = (need.height, need.purpose);
        let mut patience = Patience {
            not_yet: Backoff::new(NOT_YET_FIRST, NOT_YET_MAX),
            refused: Backoff::new(REFUSED_FIRST, REFUSED_MAX),
            unlucky: Backoff::new(UNLUCKY_FIRST, REFUSED_MAX),
            said: begun,
        };
        loop {
            let lease = self.pool.lease(need.clone()).await;
            match self.attempt(&lease, &need, checks).await {
                Ok((assembled, texts)) => {
                    let fetched = Fetched { assembled, from: lease.place };
                    let upstream = Arc::clone(&lease.upstream);
                    drop(lease);
                    if !self.confirmed(&fetched, purpose, &texts).await {
                        need.not(fetched.from, patience.refused.wait());
                        continue;
                    }
                    if self.disputed().remove(&height) {
                        self.keep(height, &upstream, texts, "accepted", "");
                    }
                    upstream.gave_height();
                    add(&self.prover.busy.fetch, begun);
                    return fetched;
                }
                Err((failed, texts)) => {
                    self.after(&lease, failed, texts, &mut need, &mut patience);
                }
            }
            if patience.said.elapsed() > SAY_EVERY {
                warn!(height, "still waiting for an upstream to have this height");
                patience.said = Instant::now();
            }
        }
    }

    /// What follows from a failure: the height goes elsewhere, or comes back later.
    fn after(
        &self,
        lease: &Lease,
        failed: Failed,
        texts: Texts,
        need: &mut Need,
        patience: &mut Patience,
    ) {
        let upstream = &lease.upstream;
        match failed {
            Failed::NotYet => {
                let head = upstream.state().head;
                if need.height + LATE < head {
                    debug!(need.height, upstream = upstream.name, "lacks this height");
                    upstream.lacks(need.height);
                }
                need.not(lease.place, patience.not_yet.wait());
            }
            Failed::Stalled => {
                debug!(need.height, upstream = upstream.name, "stalls");
                upstream.doubt("stalled");
                upstream.state().window.refused(Instant::now());
                need.not(lease.place, patience.refused.wait());
            }
            Failed::Call(CallError::Throttled { after, status }) => {
                debug!(need.height, %status, ?after, "throttled");
                let wait = after.unwrap_or_default().max(patience.refused.wait());
                upstream.rest(wait);
            }
            Failed::Call(error) if upstream.forgives(&error) => {
                debug!(need.height, upstream = upstream.name, %error, "asked again");
                need.not(lease.place, patience.unlucky.wait());
            }
            Failed::Call(error) => {
                upstream.fails(error);
                self.pool.changed(false);
            }
            Failed::Refused(reason, why) => {
                refuse(need.height, reason, &why);
                self.refused(need.height, upstream, texts, reason, &why);
                need.not(lease.place, patience.refused.wait());
            }
        }
    }

    fn disputed(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.disputed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an answer that was refused, and doubts who gave it.
    pub(super) fn refused(
        &self,
        height: u64,
        upstream: &Upstream,
        texts: Texts,
        reason: &'static str,
        why: &str,
    ) {
        upstream.doubt(reason);
        let mut disputed = self.disputed();
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
        texts: Texts,
        verdict: &'static str,
        why: &str,
    ) {
        let upstream = upstream.name.clone();
        self.evidence.keep(Answer { height, upstream, texts }, verdict, why);
    }

    /// Asks for a height, by its number unless it is the newest.
    async fn attempt(
        &self,
        lease: &Lease,
        need: &Need,
        checks: Checks,
    ) -> Result<(Assembled, Texts), (Failed, Texts)> {
        let (upstream, height) = (&lease.upstream, need.height);
        if need.purpose == Purpose::Follow && upstream.is_newest(height) {
            let newest = self.attempt_named(lease, need, checks, Named::Latest).await;
            match &newest {
                Err((failed, texts)) if is_of_another(failed, texts, height) => {
                    debug!(height, upstream = upstream.name, "not given for latest");
                    upstream.newest_was_another();
                }
                _ => return newest,
            }
        }
        self.attempt_named(lease, need, checks, Named::Height(height)).await
    }

    async fn attempt_named(
        &self,
        lease: &Lease,
        need: &Need,
        checks: Checks,
        named: Named,
    ) -> Result<(Assembled, Texts), (Failed, Texts)> {
        let follows = need.purpose == Purpose::Follow;
        let mut begun = None;
        let came = |block: &Bytes| {
            begun = follows.then(|| self.prover.begin(block.clone(), checks));
        };
        let texts = self.ask(lease, need, named, came).await;
        lease.answered();
        let texts = texts.map_err(|failed| (failed, Texts::default()))?;
        let assembled = match begun {
            Some(begun) => begun.end(texts.1.clone()).await,
            None => self.prover.prove(texts.clone(), checks).await,
        };
        match assembled.and_then(|assembled| self.fitting(assembled, need)) {
            Ok(assembled) => Ok((assembled, texts)),
            Err(failed) => Err((failed, texts)),
        }
    }

    /// Gets a height's texts; `came` is told of the block, which may be there first.
    async fn ask(
        &self,
        lease: &Lease,
        need: &Need,
        named: Named,
        came: impl FnOnce(&Bytes),
    ) -> Result<Texts, Failed> {
        let upstream = &lease.upstream;
        let ask = async {
            if let Some(peer) = &upstream.peer
                && let Some(texts) = peer.feed.take(need.height).await
            {
                came(&texts.0);
                return Ok(texts);
            }
            match need.purpose {
                Purpose::Follow => two_calls(upstream, named, came).await,
                _ => one_batch(upstream, named).await,
            }
        };
        if self.pool.sight().borrow().admitted < 2 {
            return ask.await;
        }
        let mean = Duration::from_secs_f64(upstream.state().window.mean());
        let answers = tokio::time::timeout(STALL_MIN.max(STALLS * mean), ask).await;
        answers.unwrap_or(Err(Failed::Stalled))
    }

    /// A proven block, if it is the one that was asked for.
    fn fitting(&self, assembled: Assembled, need: &Need) -> Result<Assembled, Failed> {
        let found = assembled.record.height;
        if found != need.height {
            return Err(Failed::Refused("height", format!("the upstream sent block {found}")));
        }
        if let Some(hash) = need.hash.filter(|hash| *hash != assembled.record.hash) {
            let why = format!("it is {}, its child names {hash}", assembled.record.hash);
            return Err(Failed::Refused("history_link", why));
        }
        if self.is_of_old_rules(&assembled) {
            let why = "it answers by rules that another upstream has left".to_owned();
            return Err(Failed::Refused("old_rules", why));
        }
        Ok(assembled)
    }

    /// Another upstream has gone over to newer rules, by which all answers are given from then on.
    fn is_of_old_rules(&self, assembled: &Assembled) -> bool {
        let sight = *self.pool.sight().borrow();
        assembled.difficulty == TotalDifficulty::Number
            && sight.rules() == Rules::Helicon
            && sight.admitted > 1
    }

    /// Whether as many upstreams as wanted have this block. Waits for them; it is not confirmed if
    /// as many have another.
    async fn confirmed(&self, fetched: &Fetched, purpose: Purpose, texts: &Texts) -> bool {
        // The hash of history is known before it is asked for.
        if self.agree < 2 || purpose == Purpose::Backfill {
            return true;
        }
        let record = &fetched.assembled.record;
        let (mut agreed, mut denied) = (vec![fetched.from], Vec::new());
        loop {
            for (place, upstream) in self.pool.admitted() {
                if agreed.contains(&place) || denied.contains(&place) {
                    continue;
                }
                upstream.charge(1);
                match upstream.client.hash(record.height).await {
                    Ok(Some(hash)) if hash == record.hash => agreed.push(place),
                    Ok(Some(hash)) => {
                        let upstream = &upstream.name;
                        warn!(record.height, ours = %record.hash, theirs = %hash, upstream, "upstreams disagree");
                        counter!("neve_upstream_disagreements_total").increment(1);
                        denied.push(place);
                    }
                    Ok(None) | Err(_) => {} // not yet, or its keeper will notice
                }
                if agreed.len() >= self.agree {
                    return true;
                }
            }
            if denied.len() >= self.agree.min(self.pool.upstreams.len() - 1) {
                let upstream = &self.pool.upstreams[fetched.from];
                let why = format!("{} others have another block", denied.len());
                self.refused(record.height, upstream, texts.clone(), "disagrees", &why);
                return false;
            }
            tokio::time::sleep(CONFIRM_EVERY).await;
        }
    }
}

/// Says and counts that a height is refused.
pub(super) fn refuse(height: u64, reason: &'static str, why: &str) {
    warn!(height, reason, why, "refused what the upstream sent");
    counter!("neve_blocks_refused_total", "reason" => reason).increment(1);
}
