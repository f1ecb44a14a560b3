//! Following in the background, and other upstreams while neve runs.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::reload::Reload;
use super::start::{Parts, Upstreams};
use crate::config::settings::{Config, UpstreamConfig};
use crate::fetch::Follower;
use crate::ingest::Ingest;
use crate::upstream::watch_upgrades;

/// Time between the end of following and its next begin: backfill that was cut off leaves a thread that ends
/// by itself, and waits as long after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Tasks that follow upstreams.
pub(crate) struct Following {
    following: JoinHandle<()>,
    _upgrades: AbortOnDropHandle<()>,
}

impl Following {
    pub(crate) fn start(follower: Follower) -> Self {
        let upgrades = watch_upgrades(follower.endpoints.clone(), follower.tls.clone());
        let upgrades = AbortOnDropHandle::new(tokio::spawn(upgrades));
        Self { following: tokio::spawn(follower.run()), _upgrades: upgrades }
    }

    /// Follows other upstreams from now on. The next session begins behind what the writer has: no height is
    /// lost or written twice. If the upstreams cannot be used, all stays as it was.
    pub(crate) async fn again(
        self,
        parts: &mut Parts,
        config: &Config,
        source: &UpstreamConfig,
        (ingest, reload): (&Ingest, &mut Reload),
    ) -> Self {
        let rules = config.misses.relay.as_ref().map_or(&[][..], |relay| &relay.rules[..]);
        let chain = match Upstreams::of(source, rules).await {
            Ok(chain) => chain,
            Err(error) => {
                warn!(%error, "upstreams not replaced");
                return self;
            }
        };
        if chain.endpoints.is_empty() != parts.chain.endpoints.is_empty() {
            warn!("upstreams not replaced: without any neve is another program; restart it");
            return self;
        }
        // The quorum is that of the start. Fewer upstreams would never agree.
        let (quorum, upstreams) = (config.fetch.quorum, chain.endpoints.len());
        if upstreams > 0 && quorum > upstreams {
            warn!(
                upstreams,
                quorum, "upstreams not replaced: fewer than --upstream-quorum; restart neve"
            );
            return self;
        }
        self.end().await;
        sleep(PAUSE).await;
        reload.header_files.clone_from(&chain.header_files);
        parts.set_upstreams(chain);
        let relay = parts.relay(config);
        reload.live.send_modify(|live| {
            if let (Some(relay), Some(earlier)) = (&relay, &live.relay) {
                relay.take_filters(earlier);
            }
            live.relay = relay;
        });
        reload.source_due = false;
        info!(upstreams = parts.chain.shown(), "upstreams replaced");
        Self::start(parts.follower(config, ingest.clone()))
    }

    /// Ends following.
    pub(crate) async fn end(self) {
        self.following.abort();
        let _ = self.following.await; // it was aborted, or has ended
    }
}
