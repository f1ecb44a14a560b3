//! Following nodes: from their heads to records in the store, in order, proven.
//!
//! Each upstream has a *keeper*, which admits it when it is of the right chain and follows its head.
//! A *session* begins where store and upstreams agree; then heights are fetched from whichever
//! upstream answers soonest, and published in order. Whatever is odd ends the session: the next
//! begins by asking again. *Backfill* goes on beside it. One scheduler decides who is asked for what.

mod assemble;
mod backfill;
mod backoff;
mod budget;
mod client;
mod evidence;
mod heads;
mod keeper;
mod limits;
mod mirrored;
mod pool;
mod prove;
mod questions;
mod relay;
mod session;
mod skeleton;
mod source;
mod texts;
mod tls;
mod upstream;
mod window;

use std::sync::Arc;
use std::time::Duration;

use neve_store::{Identity, Reader, Retention};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

pub use assemble::{Assembled, assemble};
pub(crate) use budget::{Budget, Room};
pub(crate) use client::AGENT;
pub(crate) use evidence::Evidence;
pub(crate) use prove::Busy;
pub(crate) use tls::{client_config, connector};

use crate::cli::Network;
use crate::config::{BackfillConfig, FetchConfig};
use crate::endpoint::Endpoint;
use crate::ingest::Ingest;
use crate::mirror::Peer;
use crate::serving::Serving;
use crate::status::{Phase, Status};
use crate::units::StartAt;
use backoff::Backoff;
use client::Client;
use heads::Heads;
use keeper::Keeper;
use mirrored::Following;
use pool::Pool;
use session::{End, Session};
use source::Source;
use upstream::Upstream;

const SESSION_FIRST: Duration = Duration::from_millis(250);
const SESSION_MAX: Duration = Duration::from_secs(15);
/// What Avalanche's public API bears from one address: some 25 requests a second, and three
/// WebSocket connects a minute, beyond which it blocks for a day.
const PUBLIC_REQUESTS_PER_SECOND: f64 = 20.0;
const PUBLIC_CONNECT_INTERVAL: Duration = Duration::from_secs(30);

/// The C-chain's genesis block is the same on mainnet and Fuji: their chain ids differ, which are
/// in no header (avalanchego, `genesis/genesis_mainnet.json` and `genesis_fuji.json`).
const GENESIS: [u8; 32] = [
    0x31, 0xce, 0xd5, 0xb9, 0xbe, 0xb7, 0xf8, 0x78, 0x2b, 0x01, 0x46, 0x60, 0xda, 0x0c, 0xb1, 0x8c,
    0xc4, 0x09, 0xf1, 0x21, 0xf4, 0x08, 0x18, 0x68, 0x86, 0xe1, 0xca, 0x3e, 0x8e, 0xec, 0xa9, 0x6b,
];

impl Network {
    /// The chain that the network has.
    pub fn identity(self) -> Identity {
        let chain_id = match self {
            Self::Mainnet => 43114,
            Self::Fuji => 43113,
        };
        Identity { chain_id, genesis: neve_store::Hash(GENESIS) }
    }
}

/// Follows upstreams.
pub(crate) struct Follower {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) tls: rustls::ClientConfig,
    pub(crate) config: FetchConfig,
    pub(crate) start: StartAt,
    pub(crate) backfill: BackfillConfig,
    pub(crate) retention: Retention,
    /// The chain that the upstreams must serve, if that is known.
    pub(crate) expected: Option<Identity>,
    /// Whether the last endpoint is a neve to be a copy of.
    pub(crate) mirror: bool,
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    pub(crate) ingest: Ingest,
    pub(crate) budget: Budget,
    pub(crate) evidence: Evidence,
    pub(crate) busy: Arc<Busy>,
}

impl Follower {
    /// Follows until the writer stops.
    pub(crate) async fn run(self) {
        let follower = Arc::new(self);
        let mut beside = JoinSet::new(); // ends with this
        let peer = follower.peer();
        let upstreams: Vec<_> = (1..)
            .zip(&follower.endpoints)
            .map(|(count, at)| {
                let last = count == follower.endpoints.len();
                Arc::new(follower.upstream(at, peer.clone().filter(|_| last)))
            })
            .collect();
        let pool = Pool::new(upstreams);
        for (endpoint, upstream) in follower.endpoints.iter().zip(&pool.upstreams) {
            let (newest, heads) = follower.listen(endpoint, &mut beside);
            if let Some(peer) = upstream.peer.clone() {
                let following = Following {
                    follower: Arc::clone(&follower),
                    pool: Arc::clone(&pool),
                    upstream: Arc::clone(upstream),
                    peer,
                    newest,
                };
                beside.spawn(following.run());
            }
            let keeper = Keeper {
                follower: Arc::clone(&follower),
                pool: Arc::clone(&pool),
                upstream: Arc::clone(upstream),
                heads,
            };
            beside.spawn(keeper.run());
        }
        beside.spawn(Arc::clone(&pool).run(Arc::clone(&follower.status)));
        let (serving, status) = (Arc::clone(&follower.serving), Arc::clone(&follower.status));
        beside.spawn(relay::run(Arc::clone(&pool), serving, status));
        let source = follower.source(&pool);
        beside.spawn(backfill::run(Arc::clone(&follower), source.clone(), peer));
        follower.follow(&source).await;
    }

    /// The neve that is mirrored.
    fn peer(&self) -> Option<Arc<Peer>> {
        let endpoint = self.endpoints.last().filter(|_| self.mirror)?;
        let status = Arc::clone(&self.status);
        Some(Arc::new(Peer::new(endpoint, self.tls.clone(), self.config, status)))
    }

    fn upstream(&self, endpoint: &Endpoint, peer: Option<Arc<Peer>>) -> Upstream {
        let client = Client::new(
            endpoint.rpc.clone(),
            self.tls.clone(),
            self.config,
            Arc::clone(&self.status),
        );
        let public = endpoint.is_public().then_some(PUBLIC_REQUESTS_PER_SECOND);
        let pace = self.config.requests_per_second.unwrap_or(public);
        Upstream::new(endpoint.shown(), client, self.config.concurrency, pace).mirrored(peer)
    }

    fn source(&self, pool: &Arc<Pool>) -> Source {
        let (evidence, busy) = (self.evidence.clone(), Arc::clone(&self.busy));
        Source::new(Arc::clone(pool), evidence, busy, &self.config)
    }

    fn listen(
        &self,
        endpoint: &Endpoint,
        beside: &mut JoinSet<()>,
    ) -> (watch::Sender<heads::Announced>, watch::Receiver<heads::Announced>) {
        let (newest, heads) = watch::channel(heads::Announced::default());
        let interval = if endpoint.is_public() { PUBLIC_CONNECT_INTERVAL } else { Duration::ZERO };
        if let Some(uri) = endpoint.ws.clone() {
            let listener = Heads {
                uri,
                tls: self.tls.clone(),
                config: self.config,
                status: Arc::clone(&self.status),
                connect_interval: interval,
                newest: newest.clone(),
            };
            beside.spawn(listener.run());
        }
        (newest, heads)
    }

    async fn follow(&self, source: &Source) {
        let mut backoff = Backoff::new(SESSION_FIRST, SESSION_MAX);
        let mut distrust = None;
        let mut sight = source.pool.sight();
        loop {
            // The sender is in the pool.
            let _ = sight.wait_for(|sight| sight.admitted > 0).await;
            let mut session = Session::new(self, source.clone(), distrust);
            let end = session.run().await;
            distrust = session.distrust();
            if session.published() > 0 {
                backoff.reset();
            }
            match end {
                End::Stopped => {
                    self.status.set_phase(Phase::Stopped);
                    return;
                }
                End::Lost => {} // its keeper has said why
                end => {
                    let wait = backoff.wait();
                    self.report(&end, wait);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    fn report(&self, end: &End, wait: Duration) {
        match end.phase() {
            Phase::WrongChain => error!("{end}; nothing is stored, asking again in {wait:.1?}"),
            _ if self.status.words().upstream_error.as_deref() == Some(&end.to_string()) => {
                info!("still: {end}; trying again in {wait:.1?}");
            }
            _ => warn!("{end}; trying again in {wait:.1?}"),
        }
        self.status.set_upstream_error(end.phase(), end.to_string());
    }
}

/// The highest stored height that the newest stored header has proven.
fn proven_height(reader: &Reader) -> Option<u64> {
    use crate::parts::{SPANS, SpansRef, plain};
    let head = reader.head()?;
    let spans = plain(&head, SPANS)?;
    Some(SpansRef(spans.as_ref()).settled().unwrap_or(head.height()))
}
