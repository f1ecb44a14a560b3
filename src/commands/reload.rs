//! Reload of settings at SIGHUP. Only the file is read again. Flags and variables stay as they were
//! and still win. A setting that cannot change while neve runs is named in the log.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tracing::{info, warn};

use crate::config::settings::{Config, LiveRates, LiveReady, Rates};
use crate::config::{Changes, SettingsSource, Values};
use crate::observe::metrics::LogLevels;

/// The settings in force, and those that change with the file.
pub(crate) struct Reload {
    source: SettingsSource,
    values: Values,
    levels: LogLevels,
    pub(crate) ready: LiveReady,
    pub(crate) rates: LiveRates,
    pub(crate) drain_timeout: Duration,
}

impl Reload {
    /// Takes the settings of the start.
    pub(crate) fn new(source: SettingsSource, config: &Config, levels: LogLevels) -> Self {
        Self {
            source,
            values: config.values.clone(),
            levels,
            ready: Arc::new(ArcSwap::from_pointee(config.ready)),
            rates: Arc::new(ArcSwap::from_pointee(Rates::of(config))),
            drain_timeout: config.http.drain_timeout,
        }
    }

    /// Reads the file again and says in the log what changed. A wrong file changes nothing.
    pub(crate) fn run(&mut self) {
        let Some(file) = self.source.file().map(|file| file.display().to_string()) else {
            return warn!("no settings file at the start; restart neve to read one");
        };
        match self.source.read().and_then(Config::of) {
            Ok(newer) => self.take(&newer, &file),
            Err(error) => warn!(%error, "settings not reloaded"),
        }
    }

    fn take(&mut self, newer: &Config, file: &str) {
        let changes = Changes::between(&self.values, &newer.values);
        self.ready.store(Arc::new(newer.ready));
        self.rates.store(Arc::new(Rates::of(newer)));
        self.drain_timeout = newer.http.drain_timeout;
        self.values.replace(&changes.reloaded, &newer.values);
        info!(file, reloaded = %changes.reloaded.join(", "), "settings reloaded");
        if !changes.needs_restart.is_empty() {
            warn!(settings = %changes.needs_restart.join(", "), "settings need a restart");
        }
        if changes.reloaded.contains(&"log-filter") {
            self.levels.set(&newer.log);
        }
    }
}
