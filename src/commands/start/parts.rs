//! State that the writer, the follower and the pages for operators share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use neve_store::{Retention, Writer};
#[cfg(feature = "archive")]
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::error::StartError;
use super::store::StoreDir;
use super::upstreams::Upstreams;
#[cfg(feature = "archive")]
use crate::archive::read::{ArchiveReader, PagePlace};
#[cfg(feature = "archive")]
use crate::archive::write::Pusher;
#[cfg(feature = "archive")]
use crate::archive::{ArchiveSource, NeighborProof};
use crate::config::Network;
#[cfg(feature = "archive")]
use crate::config::settings::Senders;
use crate::config::settings::{Config, Limits, LiveRates};
use crate::fetch::{Evidence, Follower};
use crate::http::relay::RelayShared;
use crate::ingest::{Ingest, writer};
#[cfg(feature = "archive")]
use crate::observe::process;
use crate::observe::{Admin, CapacityBounds, DiskBounds, MirrorPlaces};
use crate::relay::RelayState;
use crate::shared::{IngestBudget, MemoryBudget, Serving, StageTimes, Status};
use crate::upstream::PoolSlot;

/// State that writer, follower and administrator share.
pub(crate) struct Parts {
    pub(crate) chain: Upstreams,
    /// Names of the upstreams, for /health.
    shown: Arc<ArcSwap<String>>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) status: Arc<Status>,
    options: neve_store::Options,
    queued: Arc<AtomicU64>,
    busy: Arc<StageTimes>,
    written: Arc<AtomicU64>,
    budget: IngestBudget,
    pool: PoolSlot,
    rates: LiveRates,
    evidence: Evidence,
    /// Bytes of segments that wait for the archive; `None`: nothing is pushed.
    unpushed_bytes_max: Option<u64>,
    background_nice: i32,
    #[cfg(feature = "archive")]
    archive: Option<Arc<ArchiveSource>>,
}

impl Parts {
    #[cfg_attr(
        not(feature = "archive"),
        expect(clippy::unnecessary_wraps, reason = "an archive may fail to open")
    )]
    pub(crate) fn of(
        config: &Config,
        place: &StoreDir,
        chain: Upstreams,
        serving: &Arc<Serving>,
        rates: &LiveRates,
    ) -> Result<Self, StartError> {
        let status = Arc::default();
        let push = config.archive.as_ref().and_then(|archive| archive.push.as_ref());
        Ok(Self {
            #[cfg(feature = "archive")]
            archive: archive(config, &status)?,
            shown: Arc::new(ArcSwap::from_pointee(chain.shown())),
            chain,
            serving: Arc::clone(serving),
            status,
            options: config.store,
            queued: Arc::default(),
            busy: Arc::default(),
            written: Arc::default(),
            budget: IngestBudget::new(config.fetch.ingest_bytes_max),
            pool: PoolSlot::default(),
            rates: Arc::clone(rates),
            evidence: Evidence::new(place.path()),
            unpushed_bytes_max: push.map(|push| push.unpushed_bytes_max),
            background_nice: config.background_nice,
        })
    }

    /// Starts to push packed files, if the settings say so. Pushing ends when the guard is dropped.
    #[cfg(feature = "archive")]
    pub(crate) fn pusher(
        &self,
        config: &Config,
        place: &StoreDir,
    ) -> Result<Option<Pusher>, StartError> {
        let Some(archive) = config.archive.as_ref().filter(|archive| archive.push.is_some()) else {
            return Ok(None);
        };
        let shared = (&self.status, &self.serving);
        let started = Pusher::start(archive, place.path(), shared, self.background_nice);
        let named = || config.values.named("archive-push");
        started.map(Some).map_err(|why| StartError::Setting(named(), why.to_string()))
    }

    /// Heights below the served range that the archive has, which are read on a runtime.
    #[cfg(feature = "archive")]
    pub(crate) fn below(
        &self,
        config: &Config,
        place: &StoreDir,
        runtime: &Handle,
    ) -> Result<Option<Arc<ArchiveReader>>, StartError> {
        let (Some(archive), Some(source)) = (&config.archive, &self.archive) else {
            return Ok(None);
        };
        let (store, evidence) = (place.path().to_owned(), self.evidence.clone());
        let at = PagePlace { store, evidence, files_max: process::page_files_max() };
        let senders = config.fetch.recover_senders == Senders::Always;
        let (bytes_max, admitted) = (archive.proof_bytes_max, config.fetch.admitted);
        let proof = NeighborProof { bytes_max, senders, admitted };
        let reader = ArchiveReader::new(source, &self.serving, archive, at, proof, runtime);
        let named = || config.values.named("archive");
        reader.map(Some).map_err(|why| StartError::Setting(named(), why.to_string()))
    }

    /// Takes other upstreams: for followers and relays that begin from now on.
    pub(crate) fn set_upstreams(&mut self, chain: Upstreams) {
        self.shown.store(Arc::new(chain.shown()));
        // The status of the earlier source would otherwise stand beside the new one.
        self.status.forget_mirror();
        self.chain = chain;
        // A new one: the relay of before selects from the earlier pool until another one takes its
        // place.
        self.pool = PoolSlot::default();
    }

    /// Place of the upstreams that followers and relays share.
    pub(crate) fn pool(&self) -> PoolSlot {
        Arc::clone(&self.pool)
    }

    /// The relay of misses, if there is one.
    pub(crate) fn relay(&self, config: &Config) -> Option<RelayShared> {
        let relay = config.misses.relay.as_ref()?;
        let state = RelayState::new(
            // Followed upstreams come first: the relay knows them by their places in the pool.
            [&self.chain.endpoints[..], &self.chain.relayed_only].concat(),
            self.chain.tls.clone(),
            config.fetch.connect_timeout,
            relay.clone(),
            Arc::clone(&self.pool),
            &self.rates,
        );
        Some(RelayShared::new(state, relay))
    }

    /// Starts the writer thread.
    pub(crate) fn writing(
        &self,
        writer: Writer,
        retention: Retention,
        fsync_interval: Duration,
        unpacked_bytes: Option<u64>,
    ) -> io::Result<(Ingest, JoinHandle<()>)> {
        writer::start(writer::Setup {
            writer,
            serving: Arc::clone(&self.serving),
            status: Arc::clone(&self.status),
            retention,
            unpushed_bytes_max: self.unpushed_bytes_max,
            fsync_interval,
            queued: Arc::clone(&self.queued),
            options: self.options,
            unpacked_bytes,
            nice: self.background_nice,
            busy: Arc::clone(&self.written),
        })
    }

    pub(crate) fn follower(&self, config: &Config, ingest: Ingest) -> Follower {
        Follower {
            #[cfg(feature = "archive")]
            archive: self.archive.clone(),
            endpoints: self.chain.endpoints.clone(),
            tls: self.chain.tls.clone(),
            config: config.fetch,
            rates: Arc::clone(&self.rates),
            start: config.start,
            backfill: config.backfill,
            retention: config.retention,
            unpacked_bytes: config.unpacked_bytes,
            expected: self.chain.network.map(Network::identity),
            mirror: self.chain.mirror,
            serving: Arc::clone(&self.serving),
            status: Arc::clone(&self.status),
            ingest,
            budget: self.budget.clone(),
            evidence: self.evidence.clone(),
            busy: Arc::clone(&self.busy),
            pool: Arc::clone(&self.pool),
        }
    }

    /// Without what belongs to the listeners.
    pub(crate) fn admin(&self, config: &Config, place: &StoreDir) -> Admin {
        Admin {
            serving: Arc::clone(&self.serving),
            status: Arc::clone(&self.status),
            thread_counters: Vec::new(),
            connections: Arc::default(),
            mirrors: MirrorPlaces::new(config.http.mirrors_max),
            queue_bytes: Arc::clone(&self.queued),
            budget: self.budget.clone(),
            busy: Arc::clone(&self.busy),
            written: Arc::clone(&self.written),
            memory: memory_budget(&config.limits),
            // `neve import` and others have no listener, and so no metrics.
            metrics: None,
            ready: Arc::new(ArcSwap::from_pointee(config.ready)),
            upstream: Arc::clone(&self.shown),
            data_dir: place.path().to_owned(),
            bounds: bounds(config),
        }
    }
}

#[cfg(feature = "archive")]
fn archive(
    config: &Config,
    status: &Arc<Status>,
) -> Result<Option<Arc<ArchiveSource>>, StartError> {
    let Some(archive) = &config.archive else { return Ok(None) };
    let opened = ArchiveSource::open(archive, status);
    let named = || config.values.named("archive");
    opened
        .map(|opened| Some(Arc::new(opened)))
        .map_err(|why| StartError::Setting(named(), why.to_string()))
}

fn bounds(config: &Config) -> CapacityBounds {
    let reserve = config.store.disk_reserve_bytes;
    let disk = DiskBounds { retention: config.retention, reserve };
    CapacityBounds { disk, connections: config.limits.connections_max.into() }
}

fn memory_budget(limits: &Limits) -> Arc<MemoryBudget> {
    MemoryBudget::new(limits.client_bytes_total_max, limits.client_bytes_address_max)
}

/// Lets the writer store what waits, and sync, and waits for it. False if it did not end as it should.
pub(crate) async fn finish(ingest: Ingest, writer: JoinHandle<()>, limit: Duration) -> bool {
    // The writer ends when the last handle is gone.
    drop(ingest);
    let joined = tokio::task::spawn_blocking(move || writer.join());
    let joined = timeout(limit, joined).await;
    match &joined {
        Ok(Ok(Ok(()))) => info!("neve stopped"),
        Ok(_) => error!("the writer panicked"),
        Err(_) => warn!("writer did not finish in time"),
    }
    matches!(joined, Ok(Ok(Ok(()))))
}
