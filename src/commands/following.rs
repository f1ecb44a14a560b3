//! Following in the background, and other upstreams while neve runs.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::reload::Reload;
use super::start::{Parts, Upstreams};
use crate::config::settings::Config;
use crate::fetch::Follower;
use crate::http::listener::Reloaded;
use crate::http::relay::RelayShared;
use crate::ingest::Ingest;
use crate::upstream::{PoolSlot, watch_upgrades};

/// Time between the end of following and its next begin: backfill that was cut off leaves a thread that ends
/// by itself, and waits as long after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Time in which one of other upstreams should be admitted.
const ADMISSION_MAX: Duration = Duration::from_secs(10);
/// Time between looks at whether one is.
const LOOK: Duration = Duration::from_millis(20);

/// Tasks that follow upstreams.
pub(crate) struct Following {
    task: JoinHandle<()>,
    _upgrades: AbortOnDropHandle<()>,
    /// Waits to relay to other upstreams.
    _relay: Option<AbortOnDropHandle<()>>,
}

impl Following {
    pub(crate) fn start(follower: Follower) -> Self {
        let upgrades = watch_upgrades(follower.endpoints.clone(), follower.tls.clone());
        let upgrades = AbortOnDropHandle::new(tokio::spawn(upgrades));
        Self { task: tokio::spawn(follower.run()), _upgrades: upgrades, _relay: None }
    }

    /// Follows other upstreams from now on. The next session begins behind what the writer has: no height is
    /// lost or written twice. If the upstreams cannot be used, all stays as it was.
    pub(crate) async fn again(
        self,
        parts: &mut Parts,
        config: &Config,
        chain: Upstreams,
        (ingest, reload): (&Ingest, &mut Reload),
    ) -> Self {
        if !can_replace(&parts.chain, &chain, config.fetch.quorum) {
            return self;
        }
        self.end().await;
        sleep(PAUSE).await;
        reload.header_files.clone_from(&chain.header_files);
        parts.set_upstreams(chain);
        let relaying = relay_once_admitted(reload.live.clone(), parts.relay(config), parts.pool());
        reload.source_due = false;
        info!(upstreams = parts.chain.shown(), "upstreams replaced");
        let following = Self::start(parts.follower(config, ingest.clone()));
        Self { _relay: Some(AbortOnDropHandle::new(tokio::spawn(relaying))), ..following }
    }

    /// Ends following, and waits until it has ended.
    pub(crate) async fn end(self) {
        // Awaited: until it has ended it may still append.
        self.task.abort();
        let _ = self.task.await; // it was aborted, or has ended
    }
}

/// True if other upstreams can be used in place of the earlier ones; else the log has the reason.
fn can_replace(earlier: &Upstreams, chain: &Upstreams, quorum: usize) -> bool {
    if chain.endpoints.is_empty() != earlier.endpoints.is_empty() {
        let reason = "without any neve is another program; restart it";
        warn!(reason, "upstreams not replaced");
        return false;
    }
    // The quorum is that of the start. Fewer upstreams would never agree.
    let upstreams = chain.endpoints.len();
    if upstreams > 0 && quorum > upstreams {
        let reason = "fewer than --upstream-quorum; restart neve";
        warn!(upstreams, quorum, reason, "upstreams not replaced");
        return false;
    }
    true
}

/// Relays misses to other upstreams once one of them is admitted. Until then the earlier ones answer.
async fn relay_once_admitted(
    live: watch::Sender<Reloaded>,
    relay: Option<RelayShared>,
    pool: PoolSlot,
) {
    let admitted = async {
        while pool.get().is_none_or(|pool| pool.sight().borrow().admitted == 0) {
            sleep(LOOK).await;
        }
    };
    let _ = timeout(ADMISSION_MAX, admitted).await;
    // Also without an admitted one: the settings name the earlier upstreams no longer.
    live.send_modify(|live| {
        if let (Some(relay), Some(earlier)) = (&relay, &live.relay) {
            relay.take_filters(earlier);
        }
        live.relay = relay;
    });
}
