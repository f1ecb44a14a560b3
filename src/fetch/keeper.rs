//! Looks after one upstream: admits it when it is who it should be, follows its head, and takes it
//! out when it fails, until it is better.

use std::sync::Arc;
use std::time::Duration;

use neve_chain::{Block, Checks, TotalDifficulty};
use neve_jsonrpc::Rules;
use neve_store::{Hash, Identity};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::backoff::Backoff;
use super::client::CallError;
use super::heads::Announced;
use super::pool::Pool;
use super::session::rules_of;
use super::texts::Named;
use super::upstream::Upstream;
use super::{Follower, proven_height};
use crate::status::Phase;

const FIRST: Duration = Duration::from_millis(250);
const MAX: Duration = Duration::from_secs(15);
/// With a WebSocket the head is asked for so much more seldom.
const POLLS_SKIPPED: u32 = 10;

/// Why an upstream is not asked.
#[derive(Debug, thiserror::Error)]
enum Out {
    /// It does not answer.
    #[error("{0}")]
    Call(#[from] CallError),
    /// It serves another chain.
    #[error("the upstream serves {found}, but {expected} is wanted")]
    WrongChain {
        /// Its chain.
        found: Identity,
        /// The store's, or the network's.
        expected: Identity,
    },
    /// What it says of itself does not check out.
    #[error("the upstream's {0}")]
    Senseless(String),
    /// It has another block where ours is proven.
    #[error(
        "at height {height} the upstream has block {theirs}, the store has {ours}, which is proven; \
             if the chain was started anew, use another data directory"
    )]
    Disagrees {
        /// Where.
        height: u64,
        /// Its block.
        theirs: Hash,
        /// The stored one.
        ours: Hash,
    },
}

impl Out {
    fn phase(&self) -> Phase {
        match self {
            Self::WrongChain { .. } => Phase::WrongChain,
            Self::Disagrees { .. } => Phase::Disagrees,
            Self::Call(_) | Self::Senseless(_) => Phase::Waiting,
        }
    }

    /// A short label, for the metric.
    fn reason(&self) -> &'static str {
        match self {
            Self::Call(error) => error.reason(),
            Self::WrongChain { .. } => "wrong_chain",
            Self::Senseless(_) => "senseless",
            Self::Disagrees { .. } => "disagrees",
        }
    }

    /// The shortest wait before it is asked again: what it asked for.
    fn at_least(&self) -> Duration {
        match self {
            Self::Call(CallError::Throttled { after, .. }) => after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}

/// Looks after an upstream.
pub(super) struct Keeper {
    pub(super) follower: Arc<Follower>,
    pub(super) pool: Arc<Pool>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) heads: watch::Receiver<Announced>,
}

impl Keeper {
    /// For ever.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST, MAX);
        loop {
            if self.pool.admitted().is_empty() {
                self.follower.status.set_phase(Phase::Connecting);
            }
            let heights = self.upstream.heights();
            let out = self.keep().await;
            if self.upstream.heights() > heights {
                backoff.reset();
            }
            let wait = out.at_least().max(backoff.wait());
            self.take_out(&out, wait);
            tokio::time::sleep(wait).await;
        }
    }

    fn take_out(&self, out: &Out, wait: Duration) {
        let text = out.to_string();
        let again = self.upstream.error().as_ref() == Some(&text);
        self.upstream.take_out(out.reason(), out.phase(), text.clone());
        self.pool.changed(false);
        let (upstream, status) = (&self.upstream.name, &self.follower.status);
        match out.phase() {
            Phase::WrongChain | Phase::Disagrees => {
                error!(upstream, "{out}; nothing is taken from it, asking again in {wait:.1?}");
            }
            _ if again => info!(upstream, "still: {out}; trying again in {wait:.1?}"),
            _ => warn!(upstream, "{out}; trying again in {wait:.1?}"),
        }
        if self.pool.admitted().is_empty() {
            status.set_upstream_error(out.phase(), text);
        }
    }

    async fn keep(&mut self) -> Out {
        let admitted = self.admit().await;
        match admitted {
            Ok(()) => self.watch().await,
            Err(out) => out,
        }
    }

    async fn admit(&self) -> Result<(), Out> {
        let identity = self.identify().await?;
        let head = self.upstream.client.head().await?;
        let rules = self.observed_rules(head).await?;
        self.upstream.charge(4);
        self.agree(head).await?;
        if *self.pool.identity.get_or_init(|| identity) != identity {
            let expected = *self.pool.identity.get_or_init(|| identity);
            return Err(Out::WrongChain { found: identity, expected });
        }
        self.upstream.admit(head, rules);
        self.note_head(true);
        Ok(())
    }

    /// Who it is: its chain id and genesis block, proven, and as expected.
    async fn identify(&self) -> Result<Identity, Out> {
        let client = &self.upstream.client;
        let chain_id = client.chain_id().await?;
        let block = client.block(Named::Height(0)).await;
        if !matches!(block, Ok(Some(_)))
            && let Some(found) = self.told(chain_id).await
        {
            return self.expect(found);
        }
        let block = block?.ok_or_else(|| Out::Senseless("genesis block is missing".into()))?;
        let senseless =
            |refusal| Out::Senseless(format!("genesis block does not check out: {refusal}"));
        let checks = Checks { chain_id, senders: false };
        let block =
            Block::parse(&block).and_then(|block| block.check(&checks)).map_err(senseless)?;
        self.expect(Identity { chain_id, genesis: Hash(block.hash.0) })
    }

    /// Who a neve says to be that has not got the genesis block: in its list for mirrors or, if it
    /// has none, by its chain id alone.
    async fn told(&self, chain_id: u64) -> Option<Identity> {
        let peer = self.upstream.peer.as_ref()?;
        let known = [self.follower.expected, self.follower.serving.identity()];
        let told = peer.identity().await.or(known.into_iter().flatten().next());
        told.filter(|told| told.chain_id == chain_id)
    }

    fn expect(&self, found: Identity) -> Result<Identity, Out> {
        let stored = self.follower.serving.identity();
        for expected in [self.follower.expected, stored].into_iter().flatten() {
            if expected != found {
                return Err(Out::WrongChain { found, expected });
            }
        }
        Ok(found)
    }

    /// By which rules it answers now: its newest header shows it.
    async fn observed_rules(&self, head: u64) -> Result<Rules, Out> {
        let current = self.follower.serving.rules();
        let form: Option<TotalDifficulty> = self.upstream.client.difficulty(head).await?;
        Ok(form.map_or(current, |form| rules_of(form, current)))
    }

    /// Nothing is taken from an upstream that differs in what is proven: it is another chain.
    async fn agree(&self, head: u64) -> Result<(), Out> {
        let reader = &self.follower.serving.reader;
        let Some(proven) = proven_height(reader) else { return Ok(()) };
        let height = proven.min(head);
        let Some(record) = reader.record(height) else { return Ok(()) };
        let Some(theirs) = self.upstream.client.hash(height).await? else { return Ok(()) };
        let ours = record.hash();
        if theirs == ours {
            return Ok(());
        }
        Err(Out::Disagrees { height, theirs, ours })
    }

    /// Follows its head until it fails.
    async fn watch(&mut self) -> Out {
        let mut poll = interval(self.follower.config.poll_interval);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.tick().await; // its head was asked for just now
        let mut skipped = 0;
        let mut connections = self.heads.borrow_and_update().connections;
        loop {
            let looked = tokio::select! {
                error = self.upstream.failure() => return error.into(),
                Ok(()) = self.heads.changed() => {
                    let announced = *self.heads.borrow_and_update();
                    if let Some(height) = announced.height {
                        self.upstream.has_head(height);
                        self.note_head(false);
                    }
                    let connected = announced.connections != connections;
                    connections = announced.connections;
                    if connected { self.look(true).await } else { Ok(()) }
                }
                _ = poll.tick() => {
                    skipped += 1;
                    if self.heads.borrow().live && skipped < POLLS_SKIPPED {
                        continue;
                    }
                    skipped = 0;
                    self.look(false).await
                }
            };
            if let Err(out) = looked {
                return out;
            }
        }
    }

    /// Asks for its head, and before Helicon for its rules: the switch to v1.15 changes the answers
    /// about old blocks, whether or not there are new ones.
    async fn look(&self, connected: bool) -> Result<(), Out> {
        if self.upstream.resting().is_some() {
            return Ok(());
        }
        self.upstream.charge(1);
        let head = match self.upstream.client.head().await {
            Ok(head) => head,
            Err(CallError::Throttled { after, .. }) if after.is_some() => {
                self.upstream.rest(after.unwrap_or_default());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.upstream.has_head(head);
        let rules = self.upstream.state().rules;
        if rules == Rules::BeforeHelicon {
            let rules = self.observed_rules(head).await?;
            self.upstream.state().rules = rules;
        }
        self.note_head(connected);
        Ok(())
    }

    fn note_head(&self, connected: bool) {
        self.pool.changed(connected);
        let head = self.pool.sight().borrow().head;
        self.follower.status.set_upstream_head(head);
    }
}
