//! `neve serve`: the one place where store, follower, writer and servers meet.

use std::fmt::Write as _;
use std::io;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics_exporter_prometheus::PrometheusHandle;
use neve_devnet::DevnetThread;
use neve_record::packed::Codec;
use neve_store::{Opened, Retention, Writer};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use super::dev;
use super::reload::Reload;
use crate::client::client_config;
use crate::config::settings::{AdminListen, Config, GROUPS, Limits, UpstreamConfig};
use crate::config::{
    self, Endpoint, Human, ListenAddress, Network, SettingsSource, UpstreamHeaders,
};
use crate::fetch::{Evidence, Follower};
use crate::http::Offload;
use crate::http::clients::Seats;
use crate::http::listener::{Role, Shared};
use crate::http::mirror::MirrorEndpoint;
use crate::http::relay::RelayShared;
use crate::http::server::Workers;
use crate::ingest::{Ingest, memory_lock, rules_of_stamp, scrubber, writer};
use crate::observe::{Admin, head_age, process, progress};
use crate::relay::RelayState;
use crate::rpc::cursors::Filters;
use crate::shared::{IngestBudget, MemoryBudget, Serving, StageTimes, Status, ThreadCounters};
use crate::upstream::PoolSlot;

/// Reason why serving could not begin.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("cannot make a temporary directory: {0}")]
    Temporary(io::Error),
    #[error("{}: no store; name the directory of neve serve", .0.display())]
    NoStore(PathBuf),
    #[error(transparent)]
    Store(#[from] neve_store::Error),
    #[error("{0}")]
    Tls(String),
    #[error("--upstream-header-file {}: {why}", .file.display())]
    Headers { file: PathBuf, why: String },
    /// A setting with value and origin, and why it does not work.
    #[error("{0}: {1}")]
    Setting(String, String),
    #[error("the development chain does not start: {0}")]
    Dev(String),
    #[error(
        "the system refuses mincore(2): {0}; add mincore to SystemCallFilter= of the unit, or to \
         the seccomp profile of the container"
    )]
    Mincore(io::Error),
    #[error("cannot start a thread or a runtime: {0}")]
    Thread(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT.
pub fn run(config: Config, source: SettingsSource) -> ExitCode {
    let reload = Reload::new(source, &config, crate::observe::metrics::log(&config.log));
    config::warn_of_unknown(&config::command(GROUPS));
    process::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime
        .map_err(StartError::from)
        .and_then(|runtime| runtime.block_on(serve(config, reload)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// `neve repair`: reads the whole store, fetches damaged records again, and ends.
pub fn repair(config: Config) -> ExitCode {
    crate::observe::metrics::log(&config.log);
    config::warn_of_unknown(&config::command(GROUPS));
    process::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let repaired =
        runtime.map_err(StartError::from).and_then(|runtime| runtime.block_on(repair_all(config)));
    match repaired {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            error!("{error}");
            ExitCode::from(COULD_NOT_LOOK)
        }
    }
}

/// Exit code of `neve verify` for a store that cannot be read.
const COULD_NOT_LOOK: u8 = 2;

/// True if nothing is damaged any more.
async fn repair_all(config: Config) -> Result<bool, StartError> {
    let place = StoreDir::of(&config)?;
    if !neve_store::verify::is_store(place.path())? {
        return Err(StartError::NoStore(place.path().to_owned()));
    }
    let chain = Upstreams::of(&config.source).await?;
    let Opened { writer, reader, notes } = open(&config, place.path())?;
    notes.iter().for_each(|note| warn!("{note}"));
    let (scrubbed, dir) = (reader.clone(), place.path().to_owned());
    let scrubbing = tokio::task::spawn_blocking(move || {
        let mut bases = scrubbed.sealed().into_iter();
        bases.try_for_each(|(base, _)| scrubbed.scrub(&dir, base, &mut |_| {}).map(drop))
    });
    scrubbing.await.map_err(io::Error::other)??;
    let damaged = reader.damaged();
    let records: usize = damaged.iter().map(|one| one.heights.len()).sum();
    info!(segments = damaged.len(), records, "store read");
    let serving = Arc::new(Serving::new(reader));
    if let Some(stamp) = writer.stamp() {
        serving.identify(stamp.identity);
        serving.set_rules(rules_of_stamp(stamp.rules));
    }
    let parts = Parts::of(&config, chain, &serving);
    // Nothing is evicted: the store is as it was, but for the damage.
    let (ingest, writer) =
        parts.writing(writer, Retention::default(), config.fsync_interval, None)?;
    let failed = if damaged.is_empty() {
        Vec::new()
    } else {
        parts.follower(&config, &place, ingest.clone()).repair().await
    };
    failed.iter().for_each(|(segment, why)| error!(segment, why, "segment not repaired"));
    if let Some(gap) = serving.reader.gap() {
        warn!(from = gap.start, to = gap.end - 1, "neve serve fills the gap");
    }
    let finished = finish(ingest, writer, config.http.drain_timeout).await;
    Ok(failed.is_empty() && finished)
}

async fn serve(config: Config, mut reload: Reload) -> Result<(), StartError> {
    let signals = Signals::new()?;
    neve_store::residency::check_kernel().map_err(StartError::Mincore)?;
    let place = StoreDir::of(&config)?;
    let chain = Upstreams::of(&config.source).await?;
    let Opened { writer, reader, notes } = open(&config, place.path())?;
    notes.iter().for_each(|note| warn!("{note}"));
    let serving = Arc::new(Serving::new(reader));
    if let Some(stamp) = writer.stamp() {
        serving.identify(stamp.identity);
        serving.set_rules(rules_of_stamp(stamp.rules));
    }
    describe_store(&serving, place.path());
    let parts = Parts::of(&config, chain, &serving);
    let (ingest, writer) =
        parts.writing(writer, config.retention, config.fsync_interval, config.unpacked_bytes)?;
    let follower = parts.follower(&config, &place, ingest.clone());
    let metrics = crate::observe::metrics::install();
    let admin = |tallies: &[Arc<ThreadCounters>], connections: &Arc<AtomicUsize>| Admin {
        tallies: tallies.to_vec(),
        connections: Arc::clone(connections),
        metrics: metrics.clone(),
        ready: Arc::clone(&reload.ready),
        ..parts.admin(&config, &place)
    };
    let front = Listeners::start(&config, &serving, parts.relay(&config), admin).await?;
    front.greet(&parts.chain);
    let _beside = beside(&serving, &parts.status, &config, &reload, metrics.clone());
    if let Some(pace) = config.scrub_bytes_per_second {
        scrubber::start(Arc::clone(&serving), place.path().to_owned(), pace)?;
    }
    let following = tokio::spawn(follower.run());
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    signals.stop(&mut reload).await;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    following.abort();
    let _ = following.await;
    front.drain(reload.drain_timeout).await;
    finish(ingest, writer, reload.drain_timeout).await;
    Ok(())
}

/// State that writer, follower and administrator share.
struct Parts {
    chain: Upstreams,
    serving: Arc<Serving>,
    status: Arc<Status>,
    options: neve_store::Options,
    queued: Arc<AtomicU64>,
    busy: Arc<StageTimes>,
    written: Arc<AtomicU64>,
    budget: IngestBudget,
    pool: PoolSlot,
}

impl Parts {
    fn of(config: &Config, chain: Upstreams, serving: &Arc<Serving>) -> Self {
        Self {
            chain,
            serving: Arc::clone(serving),
            status: Arc::default(),
            options: config.store,
            queued: Arc::default(),
            busy: Arc::default(),
            written: Arc::default(),
            budget: IngestBudget::new(config.fetch.ingest_bytes_max),
            pool: PoolSlot::default(),
        }
    }

    /// The relay of misses, if there is one.
    fn relay(&self, config: &Config) -> Option<RelayShared> {
        let relay = config.misses.relay.as_ref()?;
        let state = RelayState::new(
            self.chain.endpoints.clone(),
            self.chain.tls.clone(),
            config.fetch.connect_timeout,
            relay.clone(),
            Arc::clone(&self.pool),
        );
        Some(RelayShared::new(state, relay))
    }

    /// Starts the writer thread.
    fn writing(
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
            fsync_interval,
            queued: Arc::clone(&self.queued),
            options: self.options,
            unpacked_bytes,
            busy: Arc::clone(&self.written),
        })
    }

    fn follower(&self, config: &Config, place: &StoreDir, ingest: Ingest) -> Follower {
        Follower {
            endpoints: self.chain.endpoints.clone(),
            tls: self.chain.tls.clone(),
            config: config.fetch,
            start: config.start,
            backfill: config.backfill,
            retention: config.retention,
            expected: self.chain.network.map(Network::identity),
            mirror: self.chain.mirror,
            serving: Arc::clone(&self.serving),
            status: Arc::clone(&self.status),
            ingest,
            budget: self.budget.clone(),
            evidence: Evidence::new(place.path()),
            busy: Arc::clone(&self.busy),
            pool: Arc::clone(&self.pool),
        }
    }

    /// Without what belongs to the listeners.
    fn admin(&self, config: &Config, place: &StoreDir) -> Admin {
        Admin {
            serving: Arc::clone(&self.serving),
            status: Arc::clone(&self.status),
            tallies: Vec::new(),
            connections: Arc::default(),
            queue_bytes: Arc::clone(&self.queued),
            budget: self.budget.clone(),
            busy: Arc::clone(&self.busy),
            written: Arc::clone(&self.written),
            memory: memory_budget(&config.limits),
            metrics: None,
            ready: Arc::new(ArcSwap::from_pointee(config.ready)),
            upstream: self.chain.shown(),
            data_dir: place.path().to_owned(),
        }
    }
}

/// Work beside serving, which ends when it is dropped.
fn beside(
    serving: &Arc<Serving>,
    status: &Arc<Status>,
    config: &Config,
    reload: &Reload,
    metrics: Option<PrometheusHandle>,
) -> [AbortOnDropHandle<()>; 4] {
    let showing = tokio::spawn(progress::run(Arc::clone(serving), Arc::clone(status)));
    let keeping = tokio::spawn(memory_lock::run(Arc::clone(serving), config.lock_newest_bytes));
    let aging = tokio::spawn(head_age::run(Arc::clone(serving), Arc::clone(&reload.ready)));
    let upkeep = tokio::spawn(crate::observe::metrics::keep_up(
        crate::observe::metrics::UPKEEP_EVERY,
        move || {
            metrics.as_ref().inspect(|metrics| metrics.run_upkeep());
        },
    ));
    [showing, keeping, aging, upkeep].map(AbortOnDropHandle::new)
}

/// Data directory, and the guard of a temporary one.
enum StoreDir {
    Given(PathBuf),
    Temporary(TempDir),
}

impl StoreDir {
    fn of(config: &Config) -> Result<Self, StartError> {
        match &config.data_dir {
            Some(dir) => Ok(Self::Given(dir.clone())),
            None => tempfile::Builder::new()
                .prefix("neve-dev-")
                .tempdir()
                .map(Self::Temporary)
                .map_err(StartError::Temporary),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

/// Upstreams, ready to be asked.
struct Upstreams {
    endpoints: Vec<Endpoint>,
    /// True if the last of them is mirrored.
    mirror: bool,
    network: Option<Network>,
    tls: rustls::ClientConfig,
    /// Keeps the development chain running.
    _dev: Option<DevnetThread>,
}

impl Upstreams {
    async fn of(source: &UpstreamConfig) -> Result<Self, StartError> {
        match source {
            UpstreamConfig::Upstream { endpoints, mirror, network, ca, header_files } => Ok(Self {
                endpoints: with_headers(endpoints.clone(), header_files)?,
                mirror: *mirror,
                network: *network,
                tls: client_config(ca.as_deref()).map_err(StartError::Tls)?,
                _dev: None,
            }),
            UpstreamConfig::Dev { rate } => {
                let chain =
                    dev::start(*rate).await.map_err(|error| StartError::Dev(error.to_string()))?;
                let endpoint = Endpoint::parse(&chain.base_url()).map_err(StartError::Dev)?;
                let tls = client_config(None).map_err(StartError::Tls)?;
                let endpoints = vec![endpoint];
                Ok(Self { endpoints, mirror: false, network: None, tls, _dev: Some(chain) })
            }
        }
    }

    /// The names of all.
    fn shown(&self) -> String {
        let shown: Vec<_> = self.endpoints.iter().map(|endpoint| &*endpoint.name).collect();
        shown.join(", ")
    }
}

/// Reads `--upstream-header-file`: one for all endpoints, or one for each.
fn with_headers(
    mut endpoints: Vec<Endpoint>,
    files: &[PathBuf],
) -> Result<Vec<Endpoint>, StartError> {
    for (at, endpoint) in endpoints.iter_mut().enumerate() {
        let file = if files.len() == 1 { files.first() } else { files.get(at) };
        let Some(file) = file.filter(|file| file.as_os_str() != "none") else { continue };
        let wrong = |why| StartError::Headers { file: file.clone(), why };
        endpoint.headers = UpstreamHeaders::read(file).map_err(wrong)?;
    }
    for file in files.iter().filter(|file| is_readable_by_all(file)) {
        warn!(file = %file.display(), "header file readable by others");
    }
    Ok(endpoints)
}

fn is_readable_by_all(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

fn open(config: &Config, dir: &Path) -> Result<Opened, StartError> {
    let expected = match &config.source {
        UpstreamConfig::Upstream { network: Some(network), .. } => Some(network.identity()),
        _ => None,
    };
    let options = neve_store::Options { expected, ..config.store };
    neve_store::open_with(dir, options, Arc::new(Codec::default())).map_err(|error| match error {
        neve_store::Error::Locked { .. } => {
            let why = "locked by another process; stop that one".to_owned();
            StartError::Setting(config.values.named("data-dir"), why)
        }
        other => other.into(),
    })
}

fn memory_budget(limits: &Limits) -> Arc<MemoryBudget> {
    MemoryBudget::new(limits.client_bytes_total_max, limits.client_bytes_address_max)
}

fn describe_store(serving: &Serving, dir: &Path) {
    let usage = serving.reader.usage();
    let (segments, bytes) = (usage.segments, Human(usage.disk_bytes));
    let dir = dir.display();
    if let Some(range) = serving.reader.range() {
        let (first, head) = (range.start(), range.end());
        info!(%dir, first, head, segments, %bytes, "store opened");
    } else {
        info!(%dir, "store opened, empty");
    }
}

/// Options of the greeting's `curl` command.
const CURL_OPTIONS: &str = r#"-H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",false]}'"#;

/// Memory that clients of the admin listener can make neve hold.
const ADMIN_BYTES: usize = 8 << 20;

/// The listeners and the threads behind them.
struct Listeners {
    shared: Shared,
    addresses: Vec<SocketAddr>,
    accepting: Vec<tokio::task::JoinHandle<Workers>>,
    drain: watch::Sender<bool>,
}

impl Listeners {
    /// Binds and starts; from here on requests are answered.
    async fn start(
        config: &Config,
        serving: &Arc<Serving>,
        relay: Option<RelayShared>,
        admin: impl FnOnce(&[Arc<ThreadCounters>], &Arc<AtomicUsize>) -> Admin,
    ) -> Result<Self, StartError> {
        let tallies: Vec<_> =
            (0..config.http.threads).map(|_| <[Arc<ThreadCounters>; 2]>::default()).collect();
        let connections = Arc::new(AtomicUsize::new(0));
        let admin = Arc::new(admin(tallies.as_flattened(), &connections));
        let (drain, draining) = watch::channel(false);
        let serving = Arc::clone(serving);
        let (limits, http) = (connections_limits(config.limits), &config.http);
        let mirrors = (http.mirrors_max > 0).then(|| MirrorEndpoint {
            serving: Arc::clone(&serving),
            dir: admin.data_dir.clone(),
            room: Arc::new(Semaphore::new(http.mirrors_max)),
            seats: Seats::new(MirrorEndpoint::share(http.mirrors_max)),
            drain: draining.clone(),
        });
        let memory = Arc::clone(&admin.memory);
        let shared = Shared {
            serving,
            admin,
            filters: Arc::new(Filters::new(limits.filters_max, limits.filters_address_max)),
            memory,
            limits,
            offload: Offload::new(http.threads, limits.queue),
            http: http.clone(),
            connections,
            drain: draining,
            mirrors,
            misses: config.misses.policy(),
            relay,
        };
        let mut front = Self { shared, addresses: Vec::new(), accepting: Vec::new(), drain };
        let role = Role::Rpc { admin: http.admin_on_main };
        front.listen(&http.listen, &config.values.named("listen"), role, &tallies).await?;
        front.listen_for_admin(config).await?;
        Ok(front)
    }

    async fn listen_for_admin(&mut self, config: &Config) -> Result<(), StartError> {
        let (address, given) = match &config.http.admin_listen {
            AdminListen::Off => return Ok(()),
            AdminListen::Given(address) => (address, true),
            AdminListen::Default(address) => (address, false),
        };
        let named = config.values.named("admin-listen");
        match self.listen(address, &named, Role::Admin, &[Default::default()]).await {
            Err(StartError::Setting(_, error)) if !given => {
                warn!(%address, error, "no admin listener");
            }
            listening => {
                listening?;
                if let Some(address) = self.addresses.last() {
                    info!(%address, "admin listener");
                }
            }
        }
        Ok(())
    }

    async fn listen(
        &mut self,
        address: &ListenAddress,
        named: &str,
        role: Role,
        tallies: &[[Arc<ThreadCounters>; 2]],
    ) -> Result<(), StartError> {
        let failed = |error: io::Error| StartError::Setting(named.to_owned(), not_bound(&error));
        let listener = TcpListener::bind(address.host_and_port()).await.map_err(failed)?;
        self.addresses.push(listener.local_addr().map_err(failed)?);
        let mut shared = self.shared.clone();
        if role == Role::Admin {
            // An operator is answered also when clients use up their memory.
            shared.memory = MemoryBudget::new(ADMIN_BYTES, ADMIN_BYTES);
        }
        let workers = Workers::start(&shared, role, tallies)?;
        self.accepting.push(tokio::spawn(async move {
            workers.accept(listener, &shared).await;
            workers
        }));
        Ok(())
    }

    /// Says where it is, on standard output: this is what was asked for.
    fn greet(&self, upstreams: &Upstreams) {
        let listen = self.addresses[0];
        let admin = self.addresses.last().unwrap_or(&listen);
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "neve {} serves http://{listen}/", env!("CARGO_PKG_VERSION"));
        let _ = writeln!(text, "upstream {}", upstreams.shown());
        let _ = writeln!(text, "health   http://{admin}/health");
        let _ = writeln!(text, "try it:");
        let _ = writeln!(text, "  curl -s {CURL_OPTIONS} http://{listen}/");
        let mut out = io::stdout();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Nobody may be reading, and the log has the address too.
            warn!(%error, %listen, %admin, "greeting not written");
        }
    }

    /// Stops accepting, lets answers under way finish, and says if they did not.
    async fn drain(self, limit: Duration) {
        info!("draining");
        let _ = self.drain.send(true);
        let mut workers = Vec::new();
        for accepting in self.accepting {
            workers.extend(accepting.await);
        }
        let connections = &self.shared.connections;
        let empty = async {
            while connections.load(Ordering::Relaxed) > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(limit, empty).await.is_ok() {
            workers.into_iter().for_each(Workers::join);
        } else {
            let left = connections.load(Ordering::Relaxed);
            warn!(left, "connections cut after drain");
        }
    }
}

/// Says why an address cannot be listened on, and what to do.
fn not_bound(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "port in use; stop its owner (see ss -ltnp)".to_owned(),
        io::ErrorKind::AddrNotAvailable => "no address of this machine; see ip addr".to_owned(),
        io::ErrorKind::PermissionDenied => "not permitted; use a port above 1023".to_owned(),
        _ => format!("cannot listen: {error}; check host and port"),
    }
}

/// The limits with no more connections than descriptors allow: with all of them taken, the admin
/// listener could not accept either.
fn connections_limits(limits: Limits) -> Limits {
    let most = process::connections_max();
    if most >= limits.connections_max {
        return limits;
    }
    warn!(connections_max = most, "few descriptors, fewer connections");
    Limits {
        connections_max: most,
        connections_address_max: limits.connections_address_max.min(most),
        ..limits
    }
}

/// The signals of an operator, held from the start: none of them kills the process from then on.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT, and reloads settings at SIGHUP.
    async fn stop(mut self, reload: &mut Reload) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return info!("SIGTERM"),
                _ = self.interrupt.recv() => return info!("SIGINT"),
                // A terminal sends it too when it closes: that is no wish to stop.
                _ = self.hangup.recv() => reload.run(),
            }
        }
    }
}

/// Lets the writer store what waits, and sync.
/// Waits for the writer. False if it did not end as it should.
async fn finish(ingest: Ingest, writer: JoinHandle<()>, limit: Duration) -> bool {
    drop(ingest);
    let joined = tokio::task::spawn_blocking(move || writer.join());
    let joined = timeout(limit, joined).await;
    match &joined {
        Ok(Ok(Ok(()))) => info!("stopped"),
        Ok(_) => error!("the writer panicked"),
        Err(_) => warn!("writer did not finish in time"),
    }
    matches!(joined, Ok(Ok(Ok(()))))
}
