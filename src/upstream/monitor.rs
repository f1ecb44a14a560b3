//! Monitors one upstream: admits it if it has the right chain, follows its head, and ejects it when it
//! fails, until it works again.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use neve_chain::{Block, Checks, TotalDifficulty};
use neve_jsonrpc::Rules;
use neve_store::residency::loaded;
use neve_store::{Hash, Identity};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::head_listener::Announced;
use super::pool::UpstreamPool;
use super::probe::{BlockName, rules_of};
use super::state::{Upstream, is_near};
use crate::client::{Backoff, CallError};
use crate::config::settings::FetchConfig;
use crate::shared::{Phase, Serving, Status, unproven_head};

/// Wait before an upstream that failed is checked again: the first, and the longest.
const FIRST: Duration = Duration::from_millis(250);
const MAX: Duration = Duration::from_secs(15);
/// Shortest time between two requests for the header of a head that is far above all others.
const FAR_HEAD_INTERVAL: Duration = Duration::from_secs(1);
/// Polls of which one takes place beside a WebSocket; the others are left out.
const POLLS_SKIPPED: u32 = 10;
/// Contradiction of a mirror source without the genesis block and without a list, for a mirror that knows no chain.
const NO_CHAIN: &str = "genesis block is missing, and it does not name its chain to mirrors; \
    set --network, or run the source with --serve-mirrors";

/// Reason why an upstream is not asked.
#[derive(Debug, thiserror::Error)]
enum EjectReason {
    /// The upstream does not answer.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The upstream serves another chain.
    #[error("the upstream serves {found}, but {expected} is wanted")]
    WrongChain {
        /// Chain that the upstream serves.
        found: Identity,
        /// The store's, or the network's.
        expected: Identity,
    },
    /// The upstream names a head far above all others, and has no header there.
    #[error("the upstream's {}", unproven_head(*.0))]
    FalseHead(u64),
    /// The claims of the upstream about itself contradict each other.
    #[error("the upstream's {0}")]
    Senseless(String),
    /// The upstream has another block at a height that is proven here.
    #[error(
        "at height {height} the upstream has block {theirs}, the store has {ours}, which is proven; \
             if the chain was started anew, use another data directory"
    )]
    Disagrees {
        /// Height of the two blocks.
        height: u64,
        /// Hash of the upstream's block.
        theirs: Hash,
        /// Hash of the stored block.
        ours: Hash,
    },
}

impl EjectReason {
    fn phase(&self) -> Phase {
        match self {
            Self::WrongChain { .. } => Phase::WrongChain,
            Self::Disagrees { .. } => Phase::Disagrees,
            Self::Call(_) | Self::FalseHead(_) | Self::Senseless(_) => Phase::Waiting,
        }
    }

    /// A short label, for the metric.
    fn reason(&self) -> &'static str {
        match self {
            Self::Call(error) => error.reason(),
            Self::WrongChain { .. } => "wrong_chain",
            Self::FalseHead(_) => "false_head",
            Self::Senseless(_) => "inconsistent",
            Self::Disagrees { .. } => "disagrees",
        }
    }

    /// The head that no header proves, if that is the reason.
    fn unproven_head(&self) -> Option<u64> {
        match self {
            Self::FalseHead(head) => Some(*head),
            _ => None,
        }
    }

    /// The shortest wait before the next request: the one that the upstream wants.
    fn at_least(&self) -> Duration {
        match self {
            Self::Call(CallError::Throttled { after, .. }) => after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}

/// Looks after an upstream.
pub(crate) struct UpstreamMonitor {
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    /// The chain that the upstream must serve, if that is known.
    pub(crate) expected: Option<Identity>,
    pub(crate) config: FetchConfig,
    pub(crate) pool: Arc<UpstreamPool>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) heads: watch::Receiver<Announced>,
}

/// Requests for the head of an upstream.
struct HeadLooks {
    /// Connections of the WebSocket when it was last heard.
    connections: u64,
    /// Polls that were left out since the last one.
    skipped: u32,
    /// Time of the last request.
    last: Instant,
    /// True if a far head was announced, which the next poll asks for.
    waits: bool,
}

impl UpstreamMonitor {
    /// Watches the upstream; it never ends.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::new(FIRST, MAX);
        loop {
            if self.pool.admitted().is_empty() {
                self.status.set_phase(Phase::Connecting);
            }
            let heights = self.upstream.heights();
            let out = self.keep().await;
            // Only heights make the next wait short: an upstream that is admitted and fails at once
            // waits longer each time.
            if self.upstream.heights() > heights {
                backoff.reset();
            }
            // The upstream's own wait is the least: a request before it would be throttled again.
            let wait = out.at_least().max(backoff.wait());
            self.eject(&out, wait);
            tokio::time::sleep(wait).await;
        }
    }

    fn eject(&self, out: &EjectReason, wait: Duration) {
        let text = out.to_string();
        let again = self.upstream.error().as_ref() == Some(&text);
        self.upstream.state().unproven_head = out.unproven_head();
        self.upstream.eject(out.reason(), out.phase(), (text.clone(), wait));
        self.note_head(false);
        let (upstream, status) = (&self.upstream.name, &self.status);
        let retry_in = format_args!("{wait:.1?}");
        match out.phase() {
            Phase::WrongChain | Phase::Disagrees => {
                error!(upstream, error = %out, retry_in, "upstream not used");
            }
            _ if again => info!(upstream, error = %out, retry_in, "upstream still failing"),
            _ => warn!(upstream, error = %out, retry_in, "upstream failed"),
        }
        // While another upstream is asked, nothing is wrong with following.
        if self.pool.admitted().is_empty() {
            status.set_upstream_error(out.phase(), text);
        }
    }

    async fn keep(&mut self) -> EjectReason {
        let admitted = self.admit().await;
        match admitted {
            Ok(()) => self.watch().await,
            Err(out) => out,
        }
    }

    async fn admit(&self) -> Result<(), EjectReason> {
        let identity = self.identify().await?;
        let head = self.upstream.client.head().await?;
        let form = self.upstream.client.proven_header(head).await?;
        // The four requests so far: chain id, genesis block, head and header.
        self.upstream.charge(4);
        // A near head is proven when its block comes. A far one would be requested, and lag would
        // count from it.
        if form.is_none() && !is_near(head, self.believed()) {
            return Err(EjectReason::FalseHead(head));
        }
        self.agree(head).await?;
        self.choose_chain(identity)?;
        let rules = self.rules_by(form);
        // With a quorum a 0 would say that nothing is missing.
        let proven = form.map_or(head.min(self.believed()), |_| head);
        self.upstream.admit(head, proven, rules);
        self.note_head(true);
        Ok(())
    }

    /// Has this chain followed, if it is that of the first admitted upstream.
    fn choose_chain(&self, found: Identity) -> Result<(), EjectReason> {
        // The first upstream that is admitted decides which chain is followed.
        let expected = *self.pool.identity.get_or_init(|| found);
        if expected != found {
            return Err(EjectReason::WrongChain { found, expected });
        }
        Ok(())
    }

    /// Identity of the upstream: its chain id and genesis block, proven, and as expected.
    async fn identify(&self) -> Result<Identity, EjectReason> {
        let client = &self.upstream.client;
        let chain_id = client.chain_id().await?;
        let block = client.block(BlockName::Height(0)).await;
        // A neve may lack the genesis block, and tell its chain in another way.
        if !matches!(block, Ok(Some(_)))
            && let Some(found) = self.told(chain_id).await
        {
            return self.expect(found);
        }
        let is_missing = block.as_ref().map_or_else(CallError::is_absent, Option::is_none);
        if is_missing && self.upstream.peer.is_some() {
            return Err(EjectReason::Senseless(NO_CHAIN.into()));
        }
        let block =
            block?.ok_or_else(|| EjectReason::Senseless("genesis block is missing".into()))?;
        let genesis = self.proven_hash(&block, chain_id)?;
        self.expect(Identity { chain_id, genesis })
    }

    /// Hash of a genesis block, which is proven here.
    fn proven_hash(&self, block: &[u8], chain_id: u64) -> Result<Hash, EjectReason> {
        let senseless = |refusal| {
            EjectReason::Senseless(format!("genesis block does not check out: {refusal}"))
        };
        let admitted = self.config.admitted;
        let checks = Checks { chain_id, senders: false, admitted };
        let block =
            Block::parse(block).and_then(|block| block.check(&checks)).map_err(senseless)?;
        Ok(Hash(block.hash.0))
    }

    /// Identity of a neve without the genesis block: in its list for mirrors or, if it
    /// has none, by its chain id alone.
    async fn told(&self, chain_id: u64) -> Option<Identity> {
        let peer = self.upstream.peer.as_ref()?;
        let known = [self.expected, self.serving.identity()];
        // A mirror source without files does not name its chain: its blocks are held against the
        // known one.
        let told = peer.identity().await.or(known.into_iter().flatten().next());
        told.filter(|told| told.chain_id == chain_id)
    }

    fn expect(&self, found: Identity) -> Result<Identity, EjectReason> {
        let stored = self.serving.identity();
        for expected in [self.expected, stored].into_iter().flatten() {
            if expected != found {
                return Err(EjectReason::WrongChain { found, expected });
            }
        }
        Ok(found)
    }

    /// Rules by which it answers, as a header shows.
    fn rules_by(&self, form: Option<TotalDifficulty>) -> Rules {
        let current = self.serving.rules();
        form.map_or(current, |form| rules_of(form, current))
    }

    /// The highest head that is believed of any upstream: it has a proven header, or is stored.
    fn believed(&self) -> u64 {
        let stored = self.serving.reader.range().map_or(0, |range| *range.end());
        self.pool.sight().borrow().proven.max(stored)
    }

    /// Compares a proven height with the upstream's. One that differs has another chain, and is not used.
    async fn agree(&self, head: u64) -> Result<(), EjectReason> {
        let reader = &self.serving.reader;
        let Some(proven) = self.serving.proven_height() else { return Ok(()) };
        // An upstream that is behind is compared at its own head.
        let height = proven.min(head);
        let ours = loaded(|| reader.record(height).map(|record| record.hash()));
        // Without our record, as after damage, nothing can be compared; blocks are still checked by
        // their parents.
        let Some(ours) = ours else { return Ok(()) };
        let Some(theirs) = self.upstream.client.hash(height).await? else { return Ok(()) };
        if theirs == ours {
            return Ok(());
        }
        Err(EjectReason::Disagrees { height, theirs, ours })
    }

    /// Follows its head until it fails.
    async fn watch(&mut self) -> EjectReason {
        let mut poll = interval(self.config.poll_interval);
        // Polls that were missed, for example while the machine was suspended, would come all at
        // once.
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.tick().await; // its head was asked for just now
        let connections = self.heads.borrow_and_update().connections;
        let mut looks = HeadLooks { connections, skipped: 0, last: Instant::now(), waits: false };
        loop {
            let looked = tokio::select! {
                error = self.upstream.failure() => return error.into(),
                Ok(()) = self.heads.changed() => self.hear(&mut looks).await,
                _ = poll.tick() => self.poll(&mut looks).await,
            };
            if let Err(out) = looked {
                return out;
            }
        }
    }

    /// Takes an announcement, and looks at the head if that is worth a request.
    async fn hear(&mut self, looks: &mut HeadLooks) -> Result<(), EjectReason> {
        let announced = *self.heads.borrow_and_update();
        let keys = announced.helicon_keys;
        let near = announced.height.is_none_or(|height| self.announced(height, keys));
        let connected = announced.connections != looks.connections;
        looks.connections = announced.connections;
        // A far head costs a request to believe, and a liar may announce one after another.
        let soon = looks.last.elapsed() < FAR_HEAD_INTERVAL;
        looks.waits = !near && soon;
        if connected || !near && !soon {
            looks.last = Instant::now();
            return self.look(connected).await;
        }
        Ok(())
    }

    /// Looks at the head, unless announcements make the poll needless.
    async fn poll(&self, looks: &mut HeadLooks) -> Result<(), EjectReason> {
        looks.skipped += 1;
        // While announcements work, polls are needed only to confirm what they claimed.
        let is_open = {
            let state = self.upstream.state();
            state.unproven_head.is_some() || state.head > self.believed()
        };
        let is_due = looks.skipped >= POLLS_SKIPPED || is_open || looks.waits;
        if self.heads.borrow().live && !is_due {
            return Ok(());
        }
        (looks.skipped, looks.waits, looks.last) = (0, false, Instant::now());
        self.look(false).await
    }

    /// Takes an announced head. Returns false if it is too far above all others to be believed.
    fn announced(&self, head: u64, keys: Option<bool>) -> bool {
        let is_near = self.upstream.announces(head, keys, self.believed());
        if is_near {
            self.note_head(false);
        }
        is_near
    }

    /// Looks at its head unless it wants no requests. An upstream that throttles works.
    async fn look(&self, connected: bool) -> Result<(), EjectReason> {
        if self.upstream.resting().is_some() {
            return Ok(());
        }
        match self.ask_for_head(connected).await {
            // A 503 without a time may come from a front whose node is dead.
            Err(EjectReason::Call(CallError::Throttled { after, status }))
                if after.is_some() || status == StatusCode::TOO_MANY_REQUESTS =>
            {
                self.upstream.throttles(after);
                Ok(())
            }
            looked => looked,
        }
    }

    /// Asks for its head and, unless that is believed already, for a header there. Before Helicon
    /// the header is asked for in any case: the switch to v1.15 changes the answers about old
    /// blocks, whether or not there are new ones.
    async fn ask_for_head(&self, connected: bool) -> Result<(), EjectReason> {
        self.upstream.charge(1);
        let head = self.upstream.client.head().await?;
        let believed = self.believed();
        let is_old = {
            let state = self.upstream.state();
            state.rules == Rules::BeforeHelicon || state.rules_doubted
        };
        if is_old || connected || head > believed {
            self.upstream.charge(1);
            let form = self.upstream.client.proven_header(head).await?;
            self.upstream.answers_head(head, form.is_some() || head <= believed, believed);
            if form.is_some() {
                let rules = self.rules_by(form);
                let mut state = self.upstream.state();
                (state.rules, state.rules_doubted) = (rules, false);
            }
        } else {
            self.upstream.answers_head(head, true, believed);
        }
        self.note_head(connected);
        Ok(())
    }

    fn note_head(&self, connected: bool) {
        self.pool.changed(connected);
        let sight = *self.pool.sight().borrow();
        self.status.use_upstreams(sight.in_use > 0);
        self.status.set_helicon_heads(sight.helicon_keys);
        if sight.admitted == 0 {
            return; // the last heads that were known stay
        }
        self.status.set_upstream_head(sight.head, sight.proven);
    }
}
