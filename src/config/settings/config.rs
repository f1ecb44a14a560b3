//! All settings: the table, and the settings as meant. Checking a value does nothing else: no file is
//! opened and nothing is connected.

mod without_effect;

use std::path::PathBuf;
use std::time::Duration;

use neve_store::{Options, Retention};

pub(crate) use self::without_effect::warn_without_effect;
pub use self::without_effect::without_effect;

use super::health::{HEALTH, ReadyConfig};
use super::ingest::{BackfillTarget, INGEST, backfill, start};
use super::limits::{CLIENTS, Limits, REQUESTS};
use super::listen::{HttpConfig, LISTEN};
use super::logs::{LOGS, LogConfig};
use super::mirror::{ARCHIVE, ArchiveConfig, MIRROR};
use super::relay::{MISSES, MissConfig};
use super::store::{RETENTION, STORE, options, retention};
use super::upstream::{DEVELOPMENT, FetchConfig, UPSTREAM, UpstreamConfig};
use super::websocket::WEBSOCKET;
use crate::config::args::command;
use crate::config::error::ConfigError;
use crate::config::setting::{Group, Tables};
use crate::config::source::SettingsSource;
use crate::config::units::{ByteCount, StartAt};
use crate::config::values::Values;

/// All settings, in the order of the help.
pub const GROUPS: &[Group] = &[
    STORE,
    RETENTION,
    UPSTREAM,
    MIRROR,
    ARCHIVE,
    INGEST,
    LISTEN,
    MISSES,
    REQUESTS,
    CLIENTS,
    WEBSOCKET,
    HEALTH,
    LOGS,
    DEVELOPMENT,
];

/// The tables of all settings, for the command line.
#[derive(Debug)]
pub struct AllSettings;

impl Tables for AllSettings {
    const GROUPS: &'static [Group] = GROUPS;
}

/// Settings of `neve serve`.
#[derive(Debug)]
pub struct Config {
    /// Directory of the store; `None` for a temporary one.
    pub data_dir: Option<PathBuf>,
    /// Source of blocks.
    pub source: UpstreamConfig,
    /// Archive that segments come from.
    pub archive: Option<ArchiveConfig>,
    /// First height of an empty store.
    pub start: StartAt,
    /// Lowest height of backfill.
    pub backfill: BackfillTarget,
    /// Settings of the listeners and connections.
    pub http: HttpConfig,
    /// Treatment of misses, and the relay.
    pub misses: MissConfig,
    /// Limits of clients.
    pub limits: Limits,
    /// Options of the store.
    pub store: Options,
    /// Rule of retention.
    pub retention: Retention,
    /// Newest bytes that stay unpacked; `None`: nothing is packed.
    pub unpacked_bytes: Option<u64>,
    /// Newest bytes of the store that stay in memory.
    pub lock_newest_bytes: u64,
    /// Pace of the scrubber; `None`: there is none.
    pub scrub_bytes_per_second: Option<u64>,
    /// Nice value of threads that pack, scrub and push.
    pub background_nice: i32,
    /// Time between two fsyncs.
    pub fsync_interval: Duration,
    /// Settings of fetching from upstreams.
    pub fetch: FetchConfig,
    /// Conditions of /ready.
    pub ready: ReadyConfig,
    /// neve's own log.
    pub log: LogConfig,
    /// The values as given, with their origins.
    pub values: Values,
}

impl Config {
    /// Checks the values against each other.
    ///
    /// # Errors
    /// The first setting that does not go with the others.
    pub fn of(values: Values) -> Result<Self, ConfigError> {
        Self::with(UpstreamConfig::of, values)
    }

    /// Checks the values of `neve repair`.
    ///
    /// # Errors
    /// The first setting that does not go with the others.
    pub fn of_repair(values: Values) -> Result<Self, ConfigError> {
        Self::of(values).map_err(|error| match error {
            ConfigError::NoSource => ConfigError::NoRepairSource,
            error => error,
        })
    }

    /// Checks the values of `neve import`, which asks no upstream.
    ///
    /// # Errors
    /// The first setting that does not go with the others, or no directory for the store.
    pub fn of_import(values: Values) -> Result<Self, ConfigError> {
        Self::with(UpstreamConfig::none, values)
    }

    fn with(
        source: fn(&Values) -> Result<UpstreamConfig, ConfigError>,
        values: Values,
    ) -> Result<Self, ConfigError> {
        let retention = retention(&values)?;
        let ByteCount(lock_newest_bytes) = values.of("lock-newest-bytes")?;
        let ByteCount(scrub_bytes_per_second) = values.of("scrub-bytes-per-second")?;
        let unpacked: ByteCount = values.of("unpacked-bytes")?;
        let config = Self {
            http: HttpConfig::of(&values)?,
            misses: MissConfig::of(&values)?,
            limits: Limits::of(&values)?,
            store: options(&values, retention)?,
            fetch: FetchConfig::of(&values)?,
            backfill: backfill(&values)?,
            archive: ArchiveConfig::of(&values)?,
            ready: ReadyConfig::of(&values)?,
            log: LogConfig::of(&values)?,
            retention,
            unpacked_bytes: unpacked.0,
            lock_newest_bytes: lock_newest_bytes.unwrap_or(0),
            scrub_bytes_per_second,
            background_nice: values.count("background-nice")?,
            fsync_interval: values.duration("fsync-interval")?,
            data_dir: values.get("data-dir")?,
            start: start(&values)?,
            source: source(&values)?,
            values,
        };
        // Only a development chain may lose its blocks with the process.
        if config.data_dir.is_none() && matches!(config.source, UpstreamConfig::Upstream { .. }) {
            return Err(ConfigError::NoDataDir);
        }
        Ok(config)
    }
}

impl Config {
    /// Takes the flags of `neve serve`: for tests and for programs beside neve.
    ///
    /// # Errors
    /// A mistake in the usage, or a wrong setting.
    pub fn from_flags(flags: &[&str]) -> Result<(Self, SettingsSource), String> {
        Self::by(Self::of, flags)
    }

    /// Takes the flags of `neve serve` for a command that asks no upstream.
    ///
    /// # Errors
    /// Flags that are none, or the first setting that does not go with the others.
    pub fn without_upstream(flags: &[&str]) -> Result<Self, String> {
        Self::by(Self::of_import, flags).map(|(config, _)| config)
    }

    fn by(
        of: fn(Values) -> Result<Self, ConfigError>,
        flags: &[&str],
    ) -> Result<(Self, SettingsSource), String> {
        let words = ["neve", "serve"].iter().chain(flags);
        let matches =
            command::<AllSettings>().try_get_matches_from(words).map_err(|e| e.to_string())?;
        let serve = matches.subcommand_matches("serve").ok_or("no settings, but help")?;
        let given = SettingsSource::new(GROUPS, serve.clone()).and_then(|source| {
            let config = of(source.read()?)?;
            Ok((config, source))
        });
        given.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
