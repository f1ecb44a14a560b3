//! One session with an upstream.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use metrics::counter;
use neve_chain::{Block, CheckedHeader, Checks, Disproof, Proof, Settlement, TotalDifficulty};
use neve_jsonrpc::Rules;
use neve_store::{Error, Hash, Identity, Record};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::assemble::Assembled;
use super::heads::Announced;
use super::source::{Source, refuse};
use super::upstream::CallError;
use super::{Follower, window};
use crate::cli::Senders;
use crate::ingest::Stopped;
use crate::status::Phase;
use crate::units::StartAt;

/// With a WebSocket the head is asked for so much more seldom.
const POLLS_SKIPPED: u32 = 10;
/// This close to the head counts as following it.
const FOLLOWING_WITHIN: u64 = 16;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// The upstream does not answer.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The upstream serves another chain.
    #[error("the upstream serves {found}, but {expected} is wanted")]
    WrongChain {
        /// Its chain.
        found: Identity,
        /// The store's, or the network's.
        expected: Identity,
    },
    /// What the upstream says of itself does not check out.
    #[error("the upstream's {0}")]
    Senseless(String),
    /// The upstream has another block where ours is proven.
    #[error(
        "at height {height} the upstream has block {theirs}, the store has {ours}, which is proven; \
             if the chain was started anew, use another data directory"
    )]
    Disagrees {
        /// Where.
        height: u64,
        /// The upstream's block.
        theirs: Hash,
        /// The stored one.
        ours: Hash,
    },
    /// A block that does not fit those before it.
    #[error("block {height} does not fit what the upstream sent before: {why}")]
    Contradiction {
        /// Its height.
        height: u64,
        /// How.
        why: String,
    },
    /// The store refused.
    #[error("{0}")]
    Store(#[from] Error),
    /// The writer has stopped.
    #[error("the writer has stopped")]
    Stopped,
}

impl From<Stopped> for End {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl End {
    pub(super) fn phase(&self) -> Phase {
        match self {
            Self::WrongChain { .. } | Self::Store(Error::WrongChain { .. }) => Phase::WrongChain,
            Self::Disagrees { .. } => Phase::Disagrees,
            Self::Stopped => Phase::Stopped,
            _ => Phase::Waiting,
        }
    }

    /// The shortest wait before the next session: what the upstream asked for.
    pub(super) fn at_least(&self) -> Duration {
        match self {
            Self::Call(CallError::Throttled { after, .. }) => after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}

/// A session.
pub(super) struct Session<'f> {
    follower: &'f Follower,
    source: Source,
    heads: watch::Receiver<Announced>,
    checks: Checks,
    window: Settlement,
    /// The height that this session began with.
    first: u64,
    /// Height and hash of what was published last.
    last: Option<(u64, Hash)>,
    /// Heights up to here were disproved once: they are published only when proven.
    distrust: Option<u64>,
    /// Proven in themselves, and waiting for a header to prove their receipts.
    held: VecDeque<(Record, Rules)>,
    published: u64,
}

impl<'f> Session<'f> {
    pub(super) fn new(
        follower: &'f Follower,
        source: Source,
        heads: watch::Receiver<Announced>,
        distrust: Option<u64>,
    ) -> Self {
        Self {
            follower,
            source,
            heads,
            checks: Checks { chain_id: 0, senders: false },
            window: Settlement::new(0),
            first: 0,
            last: None,
            distrust,
            held: VecDeque::new(),
            published: 0,
        }
    }

    pub(super) fn distrust(&self) -> Option<u64> {
        self.distrust
    }

    pub(super) fn published(&self) -> u64 {
        self.published
    }

    /// Runs until something is odd.
    pub(super) async fn run(&mut self) -> End {
        match self.follow().await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, End> {
        let identity = self.identify().await?;
        self.checks.chain_id = identity.chain_id;
        let head = self.source.head().await?;
        self.follower.status.set_upstream_head(head);
        let rules = self.observed_rules(head).await?;
        self.follower.ingest.bind(identity, rules).await??;
        self.follower.serving.relayed.ask_again();
        self.last = self.follower.ingest.barrier().await?;
        self.agree(head).await?;
        let next = self.resume(head).await?;
        self.pump(next, head, identity).await
    }

    /// Who the upstream is: its chain id and genesis block, proven, and as expected.
    async fn identify(&self) -> Result<Identity, End> {
        let chain_id = self.source.chain_id().await?;
        let block = self.source.block(0).await?;
        let block = block.ok_or_else(|| End::Senseless("genesis block is missing".into()))?;
        let senseless =
            |refusal| End::Senseless(format!("genesis block does not check out: {refusal}"));
        let checks = Checks { chain_id, senders: false };
        let block =
            Block::parse(&block).and_then(|block| block.check(&checks)).map_err(senseless)?;
        let found = Identity { chain_id, genesis: Hash(block.hash.0) };
        let stored = self.follower.serving.identity();
        for expected in [self.follower.expected, stored].into_iter().flatten() {
            if expected != found {
                return Err(End::WrongChain { found, expected });
            }
        }
        Ok(found)
    }

    /// By which rules the upstream answers now: its newest header shows it.
    async fn observed_rules(&self, head: u64) -> Result<Rules, End> {
        let current = self.follower.serving.rules();
        let form = self.source.difficulty(head).await?;
        Ok(form.map_or(current, |form| rules_of(form, current)))
    }

    /// Finds where store and upstream agree, and takes unproven heights above it back. Nothing is
    /// taken back for an upstream that differs in what is proven: it is another chain.
    async fn agree(&mut self, upstream_head: u64) -> Result<(), End> {
        let proven = self.proven_height();
        let mut from = None;
        let mut next = self.last.map(|(head, _)| head.min(upstream_head));
        while let Some((height, ours)) = next.and_then(|height| self.stored_hash(height)) {
            let Some(theirs) = self.hash_at(height).await? else { break };
            if theirs == ours {
                break;
            }
            if proven.is_none_or(|proven| height <= proven) {
                return Err(End::Disagrees { height, theirs, ours });
            }
            warn!(height, %ours, %theirs, "the upstream has another block there");
            from = Some(height);
            next = height.checked_sub(1);
        }
        if let Some(from) = from {
            self.follower.ingest.withdraw(from).await??;
            self.last = self.follower.ingest.barrier().await?;
        }
        Ok(())
    }

    fn stored_hash(&self, height: u64) -> Option<(u64, Hash)> {
        let record = self.follower.serving.reader.record(height)?;
        Some((height, record.hash()))
    }

    /// The highest stored height that the newest stored header has proven.
    fn proven_height(&self) -> Option<u64> {
        use crate::parts::{SPANS, SpansRef, plain};
        let head = self.follower.serving.reader.head()?;
        let spans = plain(&head, SPANS)?;
        Some(SpansRef(spans.as_ref()).settled().unwrap_or(head.height()))
    }

    async fn hash_at(&self, height: u64) -> Result<Option<Hash>, End> {
        let Some(block) = self.source.block(height).await? else { return Ok(None) };
        let parsed = Block::parse(&block);
        let block =
            parsed.map_err(|refusal| End::Senseless(format!("block {height}: {refusal}")))?;
        Ok(Some(Hash(block.hash.0)))
    }

    /// The next height, with the window of unsettled ones before it.
    async fn resume(&mut self, head: u64) -> Result<u64, End> {
        let next = match (self.last, self.follower.start) {
            (Some((height, _)), _) => height + 1,
            (None, StartAt::Height(height)) => height,
            (None, StartAt::BeforeHead(back)) => head.saturating_sub(back),
        };
        let reader = &self.follower.serving.reader;
        let before = next.checked_sub(1).filter(|before| *before <= head);
        self.window = window::rebuild(reader, &self.source, before, self.checks).await?;
        self.first = next;
        self.note_verified();
        info!(next, upstream_head = head, "following");
        Ok(next)
    }

    fn note_verified(&self) {
        self.follower.status.set_verified(self.window.settled());
    }

    /// Fetches and publishes for ever.
    async fn pump(
        &mut self,
        mut next: u64,
        mut target: u64,
        identity: Identity,
    ) -> Result<std::convert::Infallible, End> {
        let config = self.follower.config;
        let mut pipeline = FuturesOrdered::new();
        let mut poll = interval(config.poll_interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut skipped, mut connections) = (0, self.heads.borrow_and_update().connections);
        loop {
            while pipeline.len() < config.concurrency && next <= target {
                pipeline.push_back(self.start_fetch(next, target));
                next += 1;
            }
            self.note_phase(target);
            tokio::select! {
                Some(fetched) = pipeline.next() => {
                    let fetched = fetched.map_err(|error| CallError::Unreachable(error.to_string()))?;
                    self.publish(fetched?).await?;
                }
                Ok(()) = self.heads.changed() => {
                    let announced = *self.heads.borrow_and_update();
                    target = target.max(announced.height.unwrap_or(0));
                    if announced.connections != connections {
                        connections = announced.connections;
                        self.follower.serving.relayed.ask_again();
                        target = target.max(self.look(identity).await?);
                    }
                }
                _ = poll.tick() => {
                    skipped += 1;
                    if !self.follower.status.ws_live() || skipped >= POLLS_SKIPPED {
                        skipped = 0;
                        target = target.max(self.look(identity).await?);
                    }
                }
            }
        }
    }

    fn start_fetch(
        &self,
        height: u64,
        target: u64,
    ) -> AbortOnDropHandle<Result<Assembled, CallError>> {
        let senders = match self.follower.config.senders {
            Senders::Always => true,
            Senders::Never => false,
            Senders::Live => height + FOLLOWING_WITHIN > target,
        };
        let (source, checks) = (self.source.clone(), Checks { senders, ..self.checks });
        AbortOnDropHandle::new(tokio::spawn(async move { source.fetch(height, checks).await }))
    }

    fn note_phase(&self, target: u64) {
        let next = self.last.map_or(self.first, |(height, _)| height + 1);
        let near = (target + 1).saturating_sub(next) <= FOLLOWING_WITHIN;
        self.follower.status.set_phase(if near { Phase::Following } else { Phase::CatchingUp });
    }

    /// Asks for the head, and on a chain before Helicon for the rules: the switch to v1.15 changes
    /// the answers about old blocks, whether or not there are new ones.
    async fn look(&self, identity: Identity) -> Result<u64, End> {
        let head = self.source.head().await?;
        self.follower.status.set_upstream_head(head);
        if self.follower.serving.rules() == Rules::BeforeHelicon {
            let rules = self.observed_rules(head).await?;
            self.follower.ingest.bind(identity, rules).await??;
        }
        Ok(head)
    }

    /// Holds a proven height against those before it, and publishes it.
    async fn publish(&mut self, assembled: Assembled) -> Result<(), End> {
        let Assembled { record, header, unsettled, difficulty } = assembled;
        let height = record.height;
        if let Some((_, hash)) = self.last.filter(|(_, hash)| *hash != record.parent) {
            let why = format!("its parent is {}, the block before is {hash}", record.parent);
            refuse(height, "parent_link", &why);
            return Err(End::Contradiction { height, why });
        }
        match self.window.settle(&CheckedHeader::of(&header)) {
            Ok(proof) => note_proof(height, &proof),
            Err(disproof) => return Err(self.disproved(height, &disproof).await?),
        }
        unsettled.into_iter().for_each(|receipts| self.window.push(receipts));
        self.last = Some((height, record.hash));
        let rules = rules_of(difficulty, self.follower.serving.rules());
        self.held.push_back((record, rules));
        self.release().await
    }

    /// A header contradicts receipts that are published: they go, and come back only proven.
    async fn disproved(&mut self, height: u64, disproof: &Disproof) -> Result<End, End> {
        refuse(height, disproof.reason(), &disproof.to_string());
        let why = disproof.to_string();
        if let Disproof::ReceiptsRoot { from, through, .. }
        | Disproof::LogsBloom { from, through, .. } = disproof
            && from <= through
        {
            self.distrust = Some(height);
            self.follower.ingest.withdraw(*from).await??;
        }
        Ok(End::Contradiction { height, why })
    }

    /// Publishes what may be: everything, but for heights that were disproved once and are not
    /// proven yet, and those behind them.
    async fn release(&mut self) -> Result<(), End> {
        let settled = self.window.settled();
        while let Some((record, rules)) = self.held.pop_front_if(|(record, _)| {
            let trusted = self.distrust.is_none_or(|distrust| record.height > distrust);
            trusted || settled.is_some_and(|settled| record.height <= settled)
        }) {
            self.published += 1;
            self.follower.ingest.append(record, rules).await?;
        }
        self.note_verified();
        Ok(())
    }
}

/// The rules that a form of the total difficulty tells of.
fn rules_of(form: TotalDifficulty, current: Rules) -> Rules {
    match form {
        TotalDifficulty::Number => Rules::BeforeHelicon,
        TotalDifficulty::Zero => Rules::Helicon,
        TotalDifficulty::Unknown => current,
    }
}

fn note_proof(height: u64, proof: &Proof) {
    if let Proof::Unprovable { from, through } = proof {
        let from = from.map_or("the start".to_owned(), |from| from.to_string());
        warn!(height, from, through, "settles heights whose receipts are not here: unproven");
        counter!("neve_proofs_missing_total").increment(1);
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("last", &self.last).finish_non_exhaustive()
    }
}
