//! `neve serve`: the one place where store, follower, writer and servers meet.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::OptionFuture;
use metrics_exporter_prometheus::PrometheusHandle;
use neve_store::{Opened, Writer};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error, info, warn};

use super::following::Following;
use super::reload::{FLUSH_WITHIN, ReadFiles, Reload};
use super::start::{
    Inherited, Listeners, Parts, StartError, StoreDir, Upstreams, describe_store, finish,
    open_and_log, service_manager, serving_of,
};
#[cfg(feature = "archive")]
use crate::archive::read::ReadThread;
#[cfg(feature = "archive")]
use crate::archive::write::Pusher;
use crate::config;
use crate::config::settings::{
    AccessTarget, AllSettings, Config, UpstreamConfig, warn_without_effect,
};
use crate::config::{RelayRule, SettingsSource};
use crate::http::keys::{self, LiveKeys};
use crate::ingest::{Ingest, memory_lock, scrubber};
use crate::observe::{self, Admin, MetricsPage, head_age, process, progress};
use crate::rpc::methods::Below;
use crate::shared::Serving;

/// Time for work on blocking threads that still runs when all else has ended, and least time for the writer.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT.
pub fn run(config: Config, source: SettingsSource) -> ExitCode {
    // Before the first thread: it changes the environment.
    let inherited = Inherited::take();
    let levels = observe::log::queued(&config.log);
    // Lines of the log wait in a queue: they are written at any end of this function.
    let _flush = observe::log::FlushAtEnd(FLUSH_WITHIN);
    config::warn_of_unknown::<AllSettings>();
    warn_without_effect(&config.values);
    process::raise_descriptors(); // the limit on connections depends on it
    let reload = Reload::new(source, &config, levels);
    match run_in_runtime(config, inherited, reload) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(%error, "cannot serve");
            ExitCode::FAILURE
        }
    }
}

fn run_in_runtime(config: Config, inherited: Inherited, reload: Reload) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve(config, inherited, reload));
    runtime.shutdown_timeout(ENDING_MAX); // a read of a stalled mount may never end
    served
}

async fn serve(config: Config, inherited: Inherited, mut reload: Reload) -> Result<(), StartError> {
    let mut signals = Signals::new()?;
    // Before anything is opened: without mincore(2) each read would wait for the disk.
    neve_store::residency::check_kernel().map_err(StartError::Mincore)?;
    let place = StoreDir::of(&config)?;
    let rules = config.misses.relay.as_ref().map_or(&[][..], |relay| &relay.rules[..]);
    let (mut parts, (ingest, writer)) = begin(&config, &place, rules, &mut reload).await?;
    // Before the threads: handles that they make earlier would count into nothing.
    let metrics = observe::metrics::install();
    // Guards here and below: reading, pushing and the work beside end with this function.
    let (below, _archive) = archive(&parts, &config, &place)?;
    let state = (&mut reload, metrics.clone());
    let front = listen(&parts, (&config, &place), (below, inherited), state).await?;
    let _beside = beside(&parts, &config, &reload, metrics);
    scrub(&parts.serving, &place, &reload, config.background_nice)?;
    let mut following = Following::start(parts.follower(&config, ingest.clone()));
    let _telling = tell_service_manager(&parts, &front);
    while let Some(chain) = signals.next(&mut reload, rules).await {
        following = following.again(&mut parts, &config, chain, (&ingest, &mut reload)).await;
    }
    end(following, front, (ingest, writer), &reload).await;
    Ok(())
}

/// The way to the writer thread, and the thread.
type Writing = (Ingest, thread::JoinHandle<()>);

/// Reads the upstreams, opens the store, and starts its writer.
async fn begin(
    config: &Config,
    place: &StoreDir,
    rules: &[RelayRule],
    reload: &mut Reload,
) -> Result<(Parts, Writing), StartError> {
    let chain = Upstreams::of(&config.source, rules).await?;
    reload.header_files.clone_from(&chain.header_files);
    let (serving, writer) = open_store(config, place)?;
    if chain.endpoints.is_empty() {
        // A replica without upstreams never hears of a head: its tags are misses with a reason of
        // their own.
        serving.freshness.follow_nobody();
    }
    let parts = Parts::of(config, place, chain, &serving, &reload.rates)?;
    // The writer before the listeners: what the settings of the store refuse must end the start
    // before a client connects.
    let writing =
        parts.writing(writer, config.retention, config.fsync_interval, config.unpacked_bytes)?;
    Ok((parts, writing))
}

/// Opens the store, tells what recovery did, and takes the chain and rules that its stamp names.
fn open_store(config: &Config, place: &StoreDir) -> Result<(Arc<Serving>, Writer), StartError> {
    let Opened { writer, reader, .. } = open_and_log(config, place.path())?;
    let serving = serving_of(reader, &writer);
    describe_store(&serving, place.path());
    Ok((serving, writer))
}

/// Starts the listeners, and says on standard output where they are.
async fn listen(
    parts: &Parts,
    (config, place): (&Config, &StoreDir),
    (below, inherited): (Option<Arc<dyn Below>>, Inherited),
    (reload, metrics): (&mut Reload, Option<PrometheusHandle>),
) -> Result<Listeners, StartError> {
    let keys = reload.read_keys(config)?;
    let admin = Admin {
        metrics: metrics.map(|recorder| metrics_page(recorder, keys.clone())),
        ready: Arc::clone(&reload.ready),
        ..parts.admin(config, place)
    };
    let access = reload.open_access_log(config)?;
    reload.live.send_modify(|live| live.relay = parts.relay(config));
    let live = (keys, access, reload.live.subscribe());
    let front = Listeners::start(config, below, live, inherited, admin).await?;
    // A program reads the lines of the access log there.
    if config.log.access != Some(AccessTarget::Stdout) {
        front.greet(&parts.chain, config);
    }
    Ok(front)
}

/// Starts the task that tells systemd of a first block, for which it waits.
fn tell_service_manager(parts: &Parts, front: &Listeners) -> AbortOnDropHandle<()> {
    let telling = service_manager::run(Arc::clone(&parts.serving), front.handoffs());
    AbortOnDropHandle::new(tokio::spawn(telling))
}

/// Starts the thread that reads the store again and again, at a pace that a reload may change.
fn scrub(serving: &Arc<Serving>, place: &StoreDir, reload: &Reload, nice: i32) -> io::Result<()> {
    let rates = Arc::clone(&reload.rates);
    let pace = move || rates.load().scrub;
    scrubber::start(Arc::clone(serving), place.path().to_owned(), pace, nice)
}

/// Ends following, the listeners and the writer, each within its time.
async fn end(following: Following, front: Listeners, (ingest, writer): Writing, reload: &Reload) {
    // `--drain-timeout` is about responses: the store has time for its sync without it, too.
    let finish_timeout = reload.drain_timeout.max(ENDING_MAX);
    service_manager::stopping(reload.drain_timeout + finish_timeout + ENDING_MAX);
    // First: heights that are fetched now would be stored, and wait for the drain.
    following.end().await;
    front.drain(reload.drain_timeout).await;
    finish(ingest, writer, finish_timeout).await;
    reload.flush_access_log();
}

fn metrics_page(recorder: PrometheusHandle, keys: Option<LiveKeys>) -> MetricsPage {
    let render = |keys: LiveKeys| -> Box<dyn Fn() -> String + Send + Sync> {
        Box::new(move || keys::render(&keys.load(), observe::help_of))
    };
    MetricsPage { recorder, keys: keys.map(render) }
}

/// Pushing and reading of an archive, which end in this order.
#[cfg(feature = "archive")]
type ArchiveGuards = (Option<Pusher>, Option<ReadThread>);

/// Starts to read an archive and to push to it, as the settings say, until the guards are dropped.
#[cfg(feature = "archive")]
fn archive(
    parts: &Parts,
    config: &Config,
    place: &StoreDir,
) -> Result<(Option<Arc<dyn Below>>, ArchiveGuards), StartError> {
    let (below, reading) = below(parts, config, place)?;
    Ok((below, (parts.pusher(config, place)?, reading)))
}

/// Heights below the served range that an archive has, and the thread that reads them.
#[cfg(feature = "archive")]
type BelowAndThread = (Option<Arc<dyn Below>>, Option<ReadThread>);

#[cfg(feature = "archive")]
fn below(parts: &Parts, config: &Config, place: &StoreDir) -> Result<BelowAndThread, StartError> {
    if config.archive.is_none() {
        return Ok((None, None));
    }
    let thread = ReadThread::start()?;
    let Some(reader) = parts.below(config, place, thread.runtime())? else {
        return Ok((None, None));
    };
    thread.runtime().spawn(Arc::clone(&reader).run());
    Ok((Some(reader), Some(thread)))
}

#[cfg(not(feature = "archive"))]
#[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
fn archive(
    _: &Parts,
    _: &Config,
    _: &StoreDir,
) -> Result<(Option<Arc<dyn Below>>, ()), StartError> {
    Ok((None, ()))
}

/// Work beside serving, which ends when it is dropped.
fn beside(
    parts: &Parts,
    config: &Config,
    reload: &Reload,
    metrics: Option<PrometheusHandle>,
) -> [AbortOnDropHandle<()>; 5] {
    let (serving, status) = (&parts.serving, &parts.status);
    let showing = tokio::spawn(progress::run(Arc::clone(serving), Arc::clone(status)));
    let keeping = tokio::spawn(memory_lock::run(Arc::clone(serving), config.lock_newest_bytes));
    let aging = head_age::run(Arc::clone(serving), Arc::clone(status), Arc::clone(&reload.ready));
    let aging = tokio::spawn(aging);
    let starting =
        head_age::start(Arc::clone(serving), Arc::clone(status), Arc::clone(&reload.ready));
    let starting = tokio::spawn(starting);
    // Without upkeep the samples of histograms add up until the next scrape.
    let upkeep =
        tokio::spawn(observe::metrics::keep_up(observe::metrics::UPKEEP_EVERY, move || {
            let Some(metrics) = &metrics else { return };
            metrics.run_upkeep();
            debug!("histogram samples counted");
        }));
    [showing, keeping, aging, starting, upkeep].map(AbortOnDropHandle::new)
}

/// The signals of an operator, held from the start: none of them kills the process from then on.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// Files that are being read again.
    reading: Option<JoinHandle<ReadFiles>>,
    /// True if files are to be read again, once those are read.
    is_again: bool,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            reading: None,
            is_again: false,
        })
    }

    /// Waits for SIGTERM or SIGINT.
    async fn end(terminate: &mut Signal, interrupt: &mut Signal) {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM received"),
            _ = interrupt.recv() => info!("SIGINT received"),
        }
    }

    /// Waits for SIGTERM or SIGINT, and reloads settings at SIGHUP. Returns other upstreams that the settings
    /// name; `None` at the end.
    async fn next(&mut self, reload: &mut Reload, rules: &[RelayRule]) -> Option<Upstreams> {
        loop {
            if self.reading.is_none() && std::mem::take(&mut self.is_again) {
                self.reading = Some(reload.read());
            }
            tokio::select! {
                () = Self::end(&mut self.terminate, &mut self.interrupt) => return None,
                // A terminal sends it too when it closes: that is no wish to stop.
                _ = self.hangup.recv() => self.is_again = true,
                Some(read) = OptionFuture::from(self.reading.as_mut()) => {
                    self.reading = None;
                    // Files that are to be read again wait for the caller, who puts these upstreams into use.
                    if let Some(chain) = read.ok().and_then(|read| self.take(read, reload, rules)) {
                        return Some(chain);
                    }
                }
            }
        }
    }

    /// Takes files that were read. Begins to read those of other upstreams, or returns these.
    fn take(
        &mut self,
        read: ReadFiles,
        reload: &mut Reload,
        rules: &[RelayRule],
    ) -> Option<Upstreams> {
        match read {
            ReadFiles::Settings(settings, headers) => {
                let source = reload.take(settings, headers)?;
                self.reading = Some(read_upstreams(source, rules.to_vec()));
                None
            }
            ReadFiles::Upstreams(chain) => {
                chain.map_err(|error| warn!(%error, "upstreams not replaced")).ok()
            }
        }
    }
}

/// Reads the files of upstreams, which may take long, beside the tasks of this thread.
fn read_upstreams(source: UpstreamConfig, rules: Vec<RelayRule>) -> JoinHandle<ReadFiles> {
    tokio::spawn(
        async move { ReadFiles::Upstreams(Box::new(Upstreams::of(&source, &rules).await)) },
    )
}
