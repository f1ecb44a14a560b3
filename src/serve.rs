//! `neve serve`: the one place where store, follower, writer and servers meet.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use neve_devnet::DevnetThread;
use neve_store::Opened;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use crate::admin::Admin;
use crate::cli::Network;
use crate::config::{Config, Source};
use crate::dev;
use crate::endpoint::Endpoint;
use crate::fetch::{Budget, Busy, Evidence, Follower, client_config};
use crate::filters::Filters;
use crate::http::{Mirrors, Role, Shared, Workers};
use crate::ingest::{self, Ingest, rules_of_stamp};
use crate::newest;
use crate::process;
use crate::progress;
use crate::room::Room;
use crate::serving::Serving;
use crate::status::Status;
use crate::tally::Tally;
use crate::telemetry;
use crate::units::Human;

/// Why serving could not begin.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("cannot make a temporary directory: {0}")]
    Temporary(io::Error),
    #[error(transparent)]
    Store(#[from] neve_store::Error),
    #[error("{0}")]
    Tls(String),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error("the development chain does not start: {0}")]
    Dev(String),
    #[error("cannot start a thread or a runtime: {0}")]
    Thread(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT.
pub fn run(config: Config) -> ExitCode {
    telemetry::log(config.log_format);
    process::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = runtime.map_err(Failed::from).and_then(|runtime| runtime.block_on(serve(config)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: Config) -> Result<(), Failed> {
    let place = Place::of(&config)?;
    let chain = Upstreams::of(&config.source).await?;
    let Opened { writer, reader, notes } = open(&config, place.path())?;
    notes.iter().for_each(|note| warn!("{note}"));
    let serving = Arc::new(Serving::new(reader));
    if let Some(stamp) = writer.stamp() {
        serving.identify(stamp.identity);
        serving.set_rules(rules_of_stamp(stamp.rules));
    }
    describe_store(&serving, place.path());
    let status = Arc::new(Status::default());
    let (queued, busy) = (Arc::new(AtomicU64::new(0)), Arc::<Busy>::default());
    let written = Arc::new(AtomicU64::new(0));
    let budget = Budget::new(config.fetch.queue_bytes_max);
    let (ingest, writer) = ingest::start(ingest::Setup {
        writer,
        serving: Arc::clone(&serving),
        status: Arc::clone(&status),
        retention: config.retention,
        sync_interval: config.sync_interval,
        queued: Arc::clone(&queued),
        options: config.store,
        busy: Arc::clone(&written),
    })?;
    let follower = Follower {
        endpoints: chain.endpoints.clone(),
        tls: chain.tls.clone(),
        config: config.fetch,
        start: config.start,
        backfill: config.backfill,
        retention: config.retention,
        expected: chain.network.map(Network::identity),
        mirror: chain.mirror,
        serving: Arc::clone(&serving),
        status: Arc::clone(&status),
        ingest: ingest.clone(),
        budget: budget.clone(),
        evidence: Evidence::new(place.path()),
        busy: Arc::clone(&busy),
    };
    let admin = |tallies: &[Arc<Tally>], connections: &Arc<AtomicUsize>| Admin {
        serving: Arc::clone(&serving),
        status: Arc::clone(&status),
        tallies: tallies.to_vec(),
        connections: Arc::clone(connections),
        queue_bytes: queued,
        budget,
        busy,
        written,
        metrics: telemetry::install(),
        ready: config.ready,
        upstream: chain.shown(),
        data_dir: place.path().to_owned(),
    };
    let front = Front::start(&config, &serving, admin).await?;
    front.greet(&chain);
    let _beside = beside(&serving, &status, config.lock_newest_bytes);
    let following = tokio::spawn(follower.run());
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    stop_signal().await?;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    following.abort();
    let _ = following.await;
    front.drain(config.http.drain_timeout).await;
    finish(ingest, writer, config.http.drain_timeout).await;
    Ok(())
}

/// What goes on beside serving, until it is dropped.
fn beside(
    serving: &Arc<Serving>,
    status: &Arc<Status>,
    lock_newest_bytes: u64,
) -> [AbortOnDropHandle<()>; 2] {
    let showing = tokio::spawn(progress::run(Arc::clone(serving), Arc::clone(status)));
    let keeping = tokio::spawn(newest::run(Arc::clone(serving), lock_newest_bytes));
    [showing, keeping].map(AbortOnDropHandle::new)
}

/// Where the store is, and the guard of a temporary one.
enum Place {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Place {
    fn of(config: &Config) -> Result<Self, Failed> {
        match &config.data_dir {
            Some(dir) => Ok(Self::Given(dir.clone())),
            None => tempfile::Builder::new()
                .prefix("neve-dev-")
                .tempdir()
                .map(Self::Temporary)
                .map_err(Failed::Temporary),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

/// Where blocks come from, ready to be asked.
struct Upstreams {
    endpoints: Vec<Endpoint>,
    /// Whether the last of them is mirrored.
    mirror: bool,
    network: Option<Network>,
    tls: rustls::ClientConfig,
    /// Keeps the development chain running.
    _dev: Option<DevnetThread>,
}

impl Upstreams {
    async fn of(source: &Source) -> Result<Self, Failed> {
        match source {
            Source::Upstream { endpoints, mirror, network, ca } => Ok(Self {
                endpoints: endpoints.clone(),
                mirror: *mirror,
                network: *network,
                tls: client_config(ca.as_deref()).map_err(Failed::Tls)?,
                _dev: None,
            }),
            Source::Dev { rate } => {
                let chain =
                    dev::start(*rate).await.map_err(|error| Failed::Dev(error.to_string()))?;
                let endpoint = Endpoint::parse(&chain.base_url()).map_err(Failed::Dev)?;
                let tls = client_config(None).map_err(Failed::Tls)?;
                let endpoints = vec![endpoint];
                Ok(Self { endpoints, mirror: false, network: None, tls, _dev: Some(chain) })
            }
        }
    }

    /// The addresses without what may be a key.
    fn shown(&self) -> String {
        let shown: Vec<_> = self.endpoints.iter().map(Endpoint::shown).collect();
        shown.join(", ")
    }
}

fn open(config: &Config, dir: &Path) -> Result<Opened, Failed> {
    let expected = match &config.source {
        Source::Upstream { network: Some(network), .. } => Some(network.identity()),
        _ => None,
    };
    Ok(neve_store::open(dir, neve_store::Options { expected, ..config.store })?)
}

fn describe_store(serving: &Serving, dir: &Path) {
    let usage = serving.reader.usage();
    let (segments, bytes) = (usage.segments, Human(usage.disk_bytes));
    let dir = dir.display();
    if let Some(range) = serving.reader.range() {
        let (first, head) = (range.start(), range.end());
        info!(%dir, first, head, segments, %bytes, "the store is open");
    } else {
        info!(%dir, "the store is open and empty");
    }
}

/// What to ask to see something.
const CURL_OPTIONS: &str = r#"-H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",false]}'"#;

/// The listeners and the threads behind them.
struct Front {
    shared: Shared,
    addresses: Vec<SocketAddr>,
    accepting: Vec<tokio::task::JoinHandle<Workers>>,
    drain: watch::Sender<bool>,
}

impl Front {
    /// Binds and starts; from here on requests are answered.
    async fn start(
        config: &Config,
        serving: &Arc<Serving>,
        admin: impl FnOnce(&[Arc<Tally>], &Arc<AtomicUsize>) -> Admin,
    ) -> Result<Self, Failed> {
        let tallies: Vec<_> =
            (0..config.http.threads).map(|_| <[Arc<Tally>; 2]>::default()).collect();
        let connections = Arc::new(AtomicUsize::new(0));
        let admin = Arc::new(admin(tallies.as_flattened(), &connections));
        let (drain, draining) = watch::channel(false);
        let serving = Arc::clone(serving);
        let (limits, http) = (config.limits, &config.http);
        let mirrors = (http.mirrors_max > 0).then(|| Mirrors {
            serving: Arc::clone(&serving),
            dir: admin.data_dir.clone(),
            room: Arc::new(Semaphore::new(http.mirrors_max)),
            drain: draining.clone(),
        });
        let shared = Shared {
            serving,
            admin,
            filters: Arc::new(Filters::new(limits.filters_max, limits.filters_bytes_max)),
            bodies: Room::new(limits.bodies_bytes_max),
            messages: Room::new(http.ws.messages_bytes_max),
            limits,
            http: http.clone(),
            connections,
            drain: draining,
            mirrors,
        };
        let mut front = Self { shared, addresses: Vec::new(), accepting: Vec::new(), drain };
        let role = Role::Rpc { admin: http.admin_listen.is_none() };
        front.listen(http.listen, role, &tallies).await?;
        if let Some(address) = http.admin_listen {
            front.listen(address, Role::Admin, &[Default::default()]).await?;
        }
        Ok(front)
    }

    async fn listen(
        &mut self,
        address: SocketAddr,
        role: Role,
        tallies: &[[Arc<Tally>; 2]],
    ) -> Result<(), Failed> {
        let failed = |error| Failed::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        self.addresses.push(listener.local_addr().map_err(failed)?);
        let workers = Workers::start(&self.shared, role, tallies)?;
        let shared = self.shared.clone();
        self.accepting.push(tokio::spawn(async move {
            workers.accept(listener, &shared).await;
            workers
        }));
        Ok(())
    }

    /// Says where it is, on standard output: this is what was asked for.
    #[allow(clippy::print_stdout, reason = "the answer to the command, not a log line")]
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
        print!("{text}");
        let _ = io::Write::flush(&mut io::stdout()); // nobody may be reading
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
            warn!(left, "connections did not end in time and are cut");
        }
    }
}

async fn stop_signal() -> Result<(), Failed> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => info!("SIGTERM"),
        _ = interrupt.recv() => info!("SIGINT"),
    }
    Ok(())
}

/// Lets the writer store what waits, and sync.
async fn finish(ingest: Ingest, writer: JoinHandle<()>, limit: Duration) {
    drop(ingest);
    let joined = tokio::task::spawn_blocking(move || writer.join());
    match timeout(limit, joined).await {
        Ok(Ok(Ok(()))) => info!("stopped"),
        Ok(_) => error!("the writer panicked"),
        Err(_) => warn!("the writer did not finish in time; what is not synced is asked for again"),
    }
}
