//! Following nodes: from their heads to records in the store, in order, proven.
//!
//! Each upstream has a *monitor*, which admits it if it has the right chain, and follows its head. A
//! *session* begins where store and upstreams agree. It fetches heights from the upstream that
//! answers soonest, and publishes them in order. Any contradiction ends the session, and the next one
//! begins with new requests. *Backfill* goes on beside it. One scheduler chooses the upstream of each
//! request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use super::follower::Follower;
use super::height_fetcher::HeightFetcher;
use crate::client::{Backoff, RpcClient};
use crate::config::Endpoint;
use crate::config::settings::LiveRate;
use crate::fetch::follow::{Givers, Session, SessionEnd, StreamFollower};
use crate::mirror::MirrorSource;
use crate::shared::Phase;
use crate::upstream::{Announced, HeadListener, Upstream, UpstreamMonitor, UpstreamPool};

/// Time that `neve repair` waits for an upstream.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait between two sessions: the first, and the longest.
const SESSION_FIRST: Duration = Duration::from_millis(250);
const SESSION_MAX: Duration = Duration::from_secs(15);
/// Limits of Avalanche's public API for one address: some 25 requests a second, and three
/// WebSocket connects a minute, beyond which it blocks for a day.
const PUBLIC_REQUESTS_PER_SECOND: f64 = 20.0;
const PUBLIC_CONNECT_INTERVAL: Duration = Duration::from_secs(30);

impl Follower {
    /// Follows until the writer stops.
    pub(crate) async fn run(self) {
        let follower = Arc::new(self);
        let mut beside = JoinSet::new(); // ends with this
        let (pool, peer) = follower.connect(&mut beside);
        let (serving, status) = (Arc::clone(&follower.serving), Arc::clone(&follower.status));
        let bytes_max = follower.config.relayed_bytes_max;
        beside.spawn(crate::fetch::follow::run(Arc::clone(&pool), serving, status, bytes_max));
        let source = follower.source(&pool);
        #[cfg(feature = "archive")]
        if let Some(archive) = &follower.archive {
            crate::fetch::backfill::begin_with(&follower, &source, archive).await;
        }
        beside.spawn(crate::fetch::backfill::run(Arc::clone(&follower), source.clone(), peer));
        beside.spawn(crate::fetch::backfill::repair_all(Arc::clone(&follower), source.clone()));
        follower.follow(&source).await;
    }

    /// Repairs all segments with known damage. Returns those that it could not repair, and why.
    pub(crate) async fn repair(self) -> Vec<(u64, String)> {
        let follower = Arc::new(self);
        let mut beside = JoinSet::new(); // ends with this
        let (pool, _) = follower.connect(&mut beside);
        let source = follower.source(&pool);
        let mut sight = pool.sight();
        let admitted = sight.wait_for(|sight| sight.admitted > 0);
        // `neve repair` must end: without an upstream it names each segment that stays damaged.
        let answers = tokio::time::timeout(ADMISSION_TIMEOUT, admitted).await.is_ok();
        let mut failed = Vec::new();
        for damaged in follower.serving.reader.damaged() {
            let repaired = if answers {
                crate::fetch::backfill::segment(&follower, &source, damaged.base).await
            } else {
                Err(crate::fetch::backfill::BackfillError::NoUpstream)
            };
            failed.extend(repaired.err().map(|why| (damaged.base, why.to_string())));
        }
        failed
    }

    /// Begins to listen to all upstreams.
    fn connect(
        self: &Arc<Self>,
        beside: &mut JoinSet<()>,
    ) -> (Arc<UpstreamPool>, Option<Arc<MirrorSource>>) {
        let peer = self.peer();
        let pool = UpstreamPool::new(self.upstreams(peer.as_ref()), self.config.quorum);
        let _ = self.pool.set(Arc::clone(&pool)); // a follower runs once
        self.note_stored_rules(&pool);
        for (endpoint, upstream) in self.endpoints.iter().zip(&pool.upstreams) {
            let (newest, heads) = self.listen(endpoint, beside);
            if let Some(stream) = self.stream_of(&pool, upstream, newest) {
                beside.spawn(stream.run());
            }
            beside.spawn(self.monitor_of(&pool, upstream, heads).run());
        }
        beside.spawn(Arc::clone(&pool).run(Arc::clone(&self.status)));
        (pool, peer)
    }

    fn note_stored_rules(&self, pool: &UpstreamPool) {
        if self.serving.identity().is_some() {
            pool.note_rules(self.serving.rules());
        }
        // Stored blocks show that Helicon is active, before any upstream says so.
        if self.serving.holds_asynchronous() {
            pool.note_asynchronous();
        }
    }

    fn upstreams(&self, peer: Option<&Arc<MirrorSource>>) -> Vec<Arc<Upstream>> {
        let upstreams = (1..).zip(&self.endpoints).map(|(count, at)| {
            // The mirror source stands last in the list; it alone gives files and a stream.
            let last = count == self.endpoints.len();
            Arc::new(self.upstream(at, peer.filter(|_| last).cloned()))
        });
        upstreams.collect()
    }

    /// Follower of an upstream's stream, if the upstream is the mirror source.
    fn stream_of(
        self: &Arc<Self>,
        pool: &Arc<UpstreamPool>,
        upstream: &Arc<Upstream>,
        newest: watch::Sender<Announced>,
    ) -> Option<StreamFollower> {
        let peer = upstream.peer.clone()?;
        let (follower, pool) = (Arc::clone(self), Arc::clone(pool));
        Some(StreamFollower { follower, pool, upstream: Arc::clone(upstream), peer, newest })
    }

    fn monitor_of(
        &self,
        pool: &Arc<UpstreamPool>,
        upstream: &Arc<Upstream>,
        heads: watch::Receiver<Announced>,
    ) -> UpstreamMonitor {
        UpstreamMonitor {
            serving: Arc::clone(&self.serving),
            status: Arc::clone(&self.status),
            expected: self.expected,
            config: self.config,
            pool: Arc::clone(pool),
            upstream: Arc::clone(upstream),
            heads,
        }
    }

    /// The neve that is mirrored.
    fn peer(&self) -> Option<Arc<MirrorSource>> {
        let endpoint = self.endpoints.last().filter(|_| self.mirror)?;
        let status = Arc::clone(&self.status);
        Some(Arc::new(MirrorSource::new(endpoint, self.tls.clone(), self.config, status)))
    }

    fn upstream(&self, endpoint: &Endpoint, peer: Option<Arc<MirrorSource>>) -> Upstream {
        let client =
            RpcClient::new(endpoint, self.tls.clone(), self.config, Arc::clone(&self.status));
        let public = endpoint.is_public().then_some(PUBLIC_REQUESTS_PER_SECOND);
        let rate = LiveRate::new(&self.rates, |rates| rates.upstream, public);
        Upstream::new(endpoint.name.clone(), client, self.config.concurrency, rate).mirrored(peer)
    }

    fn source(&self, pool: &Arc<UpstreamPool>) -> HeightFetcher {
        let (evidence, busy) = (self.evidence.clone(), Arc::clone(&self.busy));
        HeightFetcher::new(Arc::clone(pool), evidence, busy, &self.config)
    }

    fn listen(
        &self,
        endpoint: &Endpoint,
        beside: &mut JoinSet<()>,
    ) -> (watch::Sender<Announced>, watch::Receiver<Announced>) {
        let (newest, heads) = watch::channel(Announced::default());
        let interval = if endpoint.is_public() { PUBLIC_CONNECT_INTERVAL } else { Duration::ZERO };
        if let Some(uri) = endpoint.ws.clone() {
            let listener = HeadListener {
                uri,
                headers: endpoint.headers.clone(),
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

    async fn follow(&self, source: &HeightFetcher) {
        let mut backoff = Backoff::new(SESSION_FIRST, SESSION_MAX);
        let (mut distrust, mut givers) = (None, Givers::default());
        let mut sight = source.pool.sight();
        loop {
            // The sender is in the pool.
            let _ = sight.wait_for(|sight| sight.admitted > 0).await;
            let mut session = Session::new(self, source.clone(), distrust, givers);
            let end = session.run().await;
            distrust = session.distrust();
            givers = session.take_givers();
            // A session that published heights made progress, so the next one begins without a long
            // wait.
            if session.published() > 0 {
                backoff.reset();
            }
            match end {
                SessionEnd::Stopped => return self.status.set_phase(Phase::Stopped),
                SessionEnd::Lost => {} // its monitor has said why
                end => self.wait_after(&end, backoff.wait()).await,
            }
        }
    }

    async fn wait_after(&self, end: &SessionEnd, wait: Duration) {
        self.report(end, wait);
        tokio::time::sleep(wait).await;
    }

    fn report(&self, end: &SessionEnd, wait: Duration) {
        let retry_in = format_args!("{wait:.1?}");
        let text = end.to_string();
        let again = self.status.words().upstream_error.as_ref() == Some(&text);
        match end.phase() {
            Phase::WrongChain => error!(error = %end, retry_in, "following stopped"),
            // The same words again are no news: they would bury other warnings.
            _ if again => info!(error = %end, retry_in, "following still interrupted"),
            _ => warn!(error = %end, retry_in, "following interrupted"),
        }
        self.status.set_upstream_error(end.phase(), text);
    }
}
