//! Following a node: from its heads to records in the store, in order, proven.
//!
//! A *session* begins with who the upstream is and where it agrees with the store; then heights
//! are fetched, a bounded number at a time, and published in order. Whatever is odd ends the
//! session: the next begins by asking again. Each height goes to the store through one queue.

mod assemble;
mod backoff;
mod heads;
mod relay;
mod session;
mod source;
mod tls;
mod upstream;
mod window;

use std::sync::Arc;
use std::time::Duration;

use neve_store::Identity;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

pub use assemble::{Assembled, assemble};
pub(crate) use tls::client_config;

use crate::cli::Network;
use crate::config::FetchConfig;
use crate::endpoint::Endpoint;
use crate::ingest::Ingest;
use crate::serving::Serving;
use crate::status::{Phase, Status};
use crate::units::StartAt;
use backoff::Backoff;
use heads::Heads;
use session::{End, Session};
use source::Source;
use upstream::Upstream;

const SESSION_FIRST: Duration = Duration::from_millis(250);
const SESSION_MAX: Duration = Duration::from_secs(15);

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

/// Follows one upstream.
pub(crate) struct Follower {
    pub(crate) endpoint: Endpoint,
    pub(crate) tls: rustls::ClientConfig,
    pub(crate) config: FetchConfig,
    pub(crate) start: StartAt,
    /// The chain that the upstream must serve, if that is known.
    pub(crate) expected: Option<Identity>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    pub(crate) ingest: Ingest,
}

impl Follower {
    /// Follows until the writer stops.
    pub(crate) async fn run(self) {
        let (newest, heads) = watch::channel(heads::Announced::default());
        let listener = self.endpoint.ws.clone().map(|uri| Heads {
            uri,
            tls: self.tls.clone(),
            config: self.config,
            status: Arc::clone(&self.status),
            newest,
        });
        let listening = listener.map(|listener| tokio::spawn(listener.run()));
        let upstream = Upstream::new(
            self.endpoint.rpc.clone(),
            self.tls.clone(),
            self.config,
            Arc::clone(&self.status),
        );
        let (serving, status) = (Arc::clone(&self.serving), Arc::clone(&self.status));
        let relaying = tokio::spawn(relay::run(upstream.clone(), serving, status));
        let _relaying = AbortOnDropHandle::new(relaying);
        self.follow(&Source::new(upstream, self.config.compress), heads).await;
        if let Some(listening) = listening {
            listening.abort();
        }
    }

    async fn follow(&self, source: &Source, heads: watch::Receiver<heads::Announced>) {
        let mut backoff = Backoff::new(SESSION_FIRST, SESSION_MAX);
        let mut distrust = None;
        loop {
            self.status.set_phase(Phase::Connecting);
            let mut session = Session::new(self, source.clone(), heads.clone(), distrust);
            let end = session.run().await;
            distrust = session.distrust();
            if session.published() > 0 {
                backoff.reset();
            }
            if matches!(end, End::Stopped) {
                self.status.set_phase(Phase::Stopped);
                return;
            }
            let wait = end.at_least().max(backoff.wait());
            self.report(&end, wait);
            tokio::time::sleep(wait).await;
        }
    }

    fn report(&self, end: &End, wait: Duration) {
        let upstream = &self.endpoint.rpc;
        match end.phase() {
            Phase::WrongChain | Phase::Disagrees => {
                error!(%upstream, "{end}; nothing is stored, asking again in {wait:.1?}");
            }
            _ if self.status.words().upstream_error.as_deref() == Some(&end.to_string()) => {
                info!(%upstream, "still: {end}; trying again in {wait:.1?}");
            }
            _ => warn!(%upstream, "{end}; trying again in {wait:.1?}"),
        }
        self.status.set_upstream_error(end.phase(), end.to_string());
    }
}
