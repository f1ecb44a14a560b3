//! Reload of settings at SIGHUP. Only the file is read again. Flags and variables stay as they were
//! and still win. A setting that cannot change while neve runs is named in the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{info, warn};

use super::start::{StartError, Upstreams, connections_limits};
use crate::client::remember;
use crate::config::settings::{ClientLimits, Config, LiveRates, LiveReady, Rates, UpstreamConfig};
use crate::config::{Changes, ConfigError, Endpoint, SettingsSource, UpstreamHeaders, Values};
use crate::http::access::{Access, Sink};
use crate::http::keys::{KeyRing, LiveKeys};
use crate::http::listener::Reloaded;
use crate::observe::access_log::AccessLog;
use crate::observe::log::LogLevels;

/// Time that the lines of each log may take at the end.
pub(super) const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Settings of the upstreams that are followed.
const SOURCE: [&str; 5] =
    ["upstream", "upstream-ws", "upstream-header-file", "upstream-ca", "mirror-from"];

/// Headers that were read again, for the requests to an upstream.
type ReadHeaders = (PathBuf, Endpoint, Result<UpstreamHeaders, String>);

/// Files that were read again.
pub(crate) enum ReadFiles {
    /// The settings, if they have a file, and the headers of the upstreams in force.
    Settings(Option<Box<Result<Config, ConfigError>>>, Vec<ReadHeaders>),
    /// The files of other upstreams, which the settings name.
    Upstreams(Box<Result<Upstreams, StartError>>),
}

/// The settings in force, and those that change with the file.
pub(crate) struct Reload {
    source: SettingsSource,
    values: Values,
    levels: LogLevels,
    pub(crate) ready: LiveReady,
    pub(crate) rates: LiveRates,
    /// Limits of clients and the relay, for all listeners.
    pub(crate) live: watch::Sender<Reloaded>,
    pub(crate) drain_timeout: Duration,
    /// True while another source of blocks is wanted than the one in force.
    pub(crate) source_due: bool,
    /// File of API keys, and the keys.
    keys: Option<(PathBuf, LiveKeys)>,
    /// Files of HTTP headers of upstreams, each with its endpoint.
    pub(crate) header_files: Vec<(PathBuf, Endpoint)>,
    /// The access log, which a rotation has opened anew.
    access_log: Option<Sink>,
}

impl Reload {
    /// Takes the settings of the start.
    pub(crate) fn new(source: SettingsSource, config: &Config, levels: LogLevels) -> Self {
        let limits = client_limits(config);
        note_few(config, &limits);
        Self {
            source,
            values: config.values.clone(),
            levels,
            ready: Arc::new(ArcSwap::from_pointee(config.ready)),
            rates: Arc::new(ArcSwap::from_pointee(Rates::of(config))),
            live: watch::Sender::new(Reloaded { limits, relay: None }),
            drain_timeout: config.http.drain_timeout,
            source_due: false,
            keys: None,
            header_files: Vec::new(),
            access_log: None,
        }
    }

    /// Opens the access log, if there is one. Its metrics need the recorder, so this comes after it.
    pub(crate) fn open_access_log(
        &mut self,
        config: &Config,
    ) -> Result<Option<Access>, StartError> {
        let log = &config.log;
        if let Some(target) = &log.access {
            let opened = AccessLog::open(target.clone(), log.access_queue_bytes_max);
            let named = || config.values.named("access-log");
            let failed = |error| StartError::Setting(named(), not_opened(&error));
            self.access_log = Some(Sink::new(opened.map_err(failed)?, log.format));
        }
        Ok(Access::new(self.access_log.clone(), log.request_ids))
    }

    /// Waits until the access log is written, but not for long.
    pub(crate) fn flush_access_log(&self) {
        if let Some(sink) = &self.access_log {
            sink.log().flush(FLUSH_WITHIN);
        }
    }

    /// Reads the file of API keys, if there is one.
    pub(crate) fn read_keys(&mut self, config: &Config) -> Result<Option<LiveKeys>, StartError> {
        let Some(file) = &config.http.keys else { return Ok(None) };
        let named = || config.values.named("keys");
        let ring = KeyRing::read(file).map_err(|why| StartError::Setting(named(), why))?;
        info!(file = %file.display(), keys = ring.len(), "API keys read");
        let keys = Arc::new(ArcSwap::from_pointee(ring));
        self.keys = Some((file.clone(), Arc::clone(&keys)));
        Ok(Some(keys))
    }

    /// Reads the file of API keys again. A wrong file changes nothing.
    fn reload_keys(file: &Path, keys: &LiveKeys) {
        match KeyRing::read(file) {
            Ok(ring) => {
                info!(file = %file.display(), keys = ring.len(), "API keys read");
                let ring = ring.continuing(&keys.load());
                keys.store(Arc::new(ring));
            }
            Err(error) => warn!(error, "API keys not reloaded"),
        }
    }

    /// Takes the HTTP headers that were read again. A wrong file changes nothing.
    fn reload_headers(read: Vec<ReadHeaders>) {
        for (file, endpoint, read) in read {
            let (file, upstream) = (file.display(), &*endpoint.name);
            match read {
                Ok(newer) => {
                    endpoint.headers.replace(&newer);
                    // Logs and pages must hide the new keys, too.
                    remember(&endpoint);
                    info!(%file, upstream, "upstream headers read");
                }
                Err(error) => warn!(%file, upstream, error, "upstream headers not reloaded"),
            }
        }
    }

    /// Reads the files again on a thread that may wait for them, as serving must not.
    pub(crate) fn read(&self) -> JoinHandle<ReadFiles> {
        let (source, keys, log) = (self.source.clone(), self.keys.clone(), self.access_log.clone());
        let header_files = self.header_files.clone();
        spawn_blocking(move || {
            // Before the settings: a mistake in their file must not keep a revoked key alive.
            if let Some((file, keys)) = keys {
                Self::reload_keys(&file, &keys);
            }
            if let Some(sink) = log {
                // A rotation moves the file and then sends SIGHUP.
                sink.log().reopen();
            }
            let settings =
                source.file().is_some().then(|| Box::new(source.read().and_then(Config::of)));
            let with_headers = |(file, endpoint): (PathBuf, Endpoint)| {
                let read = UpstreamHeaders::read(&file);
                (file, endpoint, read)
            };
            ReadFiles::Settings(settings, header_files.into_iter().map(with_headers).collect())
        })
    }

    /// Takes the files that were read, and says in the log what changed. A wrong file changes nothing. Returns the
    /// source of blocks if another one is wanted.
    pub(crate) fn take(
        &mut self,
        settings: Option<Box<Result<Config, ConfigError>>>,
        headers: Vec<ReadHeaders>,
    ) -> Option<UpstreamConfig> {
        let Some(file) = self.source.file().map(|file| file.display().to_string()) else {
            Self::reload_headers(headers);
            let has_files = self.keys.is_some() || !self.header_files.is_empty();
            // With one of them SIGHUP had an effect: no warning then.
            if !has_files && self.access_log.is_none() {
                warn!(next = "restart neve to read one", "no settings file at the start");
            }
            return None;
        };
        match *settings? {
            Ok(newer) => self.replace(newer, &file, headers),
            Err(error) => {
                warn!(%error, "settings not reloaded");
                None
            }
        }
    }

    fn replace(
        &mut self,
        newer: Config,
        file: &str,
        headers: Vec<ReadHeaders>,
    ) -> Option<UpstreamConfig> {
        let changes = Changes::between(&self.values, &newer.values);
        let limits = client_limits(&newer);
        self.set_live(&newer, &limits);
        // The others stay as they are, so that the next reload names them again.
        self.values.replace(&changes.reloaded, &newer.values);
        tell(&changes, file, (&newer, &limits));
        if changes.reloaded.iter().any(|name| matches!(*name, "log-filter" | "log-level")) {
            self.levels.set(&newer.log);
        }
        // One that could not be used is tried again: the cause may be gone.
        self.source_due |= changes.reloaded.iter().any(|name| SOURCE.contains(name));
        self.newer_source(newer.source, &changes, headers)
    }

    /// Puts settings into force that need no restart.
    fn set_live(&mut self, newer: &Config, limits: &ClientLimits) {
        self.ready.store(Arc::new(newer.ready));
        self.rates.store(Arc::new(Rates::of(newer)));
        // Each change has all threads make a new service, so an equal value changes nothing.
        self.live.send_if_modified(|live| std::mem::replace(&mut live.limits, *limits) != *limits);
        self.drain_timeout = newer.http.drain_timeout;
    }

    /// Returns the source of blocks if another one is wanted. Else takes the headers that were read.
    fn newer_source(
        &self,
        source: UpstreamConfig,
        changes: &Changes,
        headers: Vec<ReadHeaders>,
    ) -> Option<UpstreamConfig> {
        // A header file goes to an upstream by its place, that of a rule included. With the rules of the start it
        // would go to another upstream, and so would its secret.
        let rules_wait = changes.needs_restart.contains(&"relay-to");
        if rules_wait && (self.source_due || !self.header_files.is_empty()) {
            warn!(setting = "relay-to", "upstreams and headers need a restart");
        } else if self.source_due {
            return Some(source); // whose files are read: the earlier upstreams never get what is in them now
        } else {
            Self::reload_headers(headers);
        }
        None
    }
}

/// Names the settings that changed, and those that wait for a restart.
fn tell(changes: &Changes, file: &str, (newer, limits): (&Config, &ClientLimits)) {
    let reloaded = Some(changes.reloaded.join(", ")).filter(|names| !names.is_empty());
    info!(file, reloaded = reloaded.map(tracing::field::display), "settings reloaded");
    // At each SIGHUP it would be no news.
    if changes.reloaded.contains(&"connections-max") {
        note_few(newer, limits);
    }
    if !changes.needs_restart.is_empty() {
        warn!(settings = %changes.needs_restart.join(", "), "settings need a restart");
    }
}

/// Limits of clients, with no more connections than descriptors allow.
fn client_limits(config: &Config) -> ClientLimits {
    let limits = connections_limits(config.limits, config.archive.is_some());
    ClientLimits { limits, ..ClientLimits::of(config) }
}

/// Warns of fewer connections than the settings allow.
fn note_few(config: &Config, limits: &ClientLimits) {
    let most = limits.limits.connections_max;
    if most < config.limits.connections_max {
        warn!(connections_max = most, "few descriptors, fewer connections");
    }
}

fn not_opened(error: &io::Error) -> String {
    format!("cannot open: {error}; name a file that neve's user may write, or stdout")
}
