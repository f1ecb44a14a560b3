//! Start of logging.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

use super::filter::filter;
use super::output::{LogOutput, start_queue};
use crate::config::settings::{LogConfig, LogFormat};

/// Starts logging for a program that serves: no thread waits for standard error.
pub(crate) fn queued(config: &LogConfig) -> LogLevels {
    let queue = start_queue();
    let levels = start(config);
    if let Err(error) = queue {
        tracing::warn!(%error, "log without a queue");
    }
    levels
}

/// Starts logging to standard error.
pub(crate) fn start(config: &LogConfig) -> LogLevels {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(config))
        .with_writer(|| LogOutput)
        .log_internal_errors(false) // it would panic where standard error is closed
        .with_ansi(io::stderr().is_terminal());
    let (levels, started) = match config.format {
        LogFormat::Text => {
            let builder = builder.with_target(false).with_filter_reloading();
            (LogLevels::new(builder.reload_handle()), builder.try_init())
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            (LogLevels::new(builder.reload_handle()), builder.try_init())
        }
    };
    if let Err(error) = started {
        let _ = writeln!(io::stderr(), "neve: logging is set up already: {error}"); // or nowhere
    }
    levels
}

/// The levels of the log, to change while neve runs.
pub(crate) struct LogLevels(Box<dyn Fn(EnvFilter) + Send + Sync>);

impl LogLevels {
    fn new<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        // It fails only if the log is gone, and then there is nothing to filter.
        Self(Box::new(move |filter| drop(handle.reload(filter))))
    }

    /// Sets the levels of these settings.
    pub(crate) fn set(&self, config: &LogConfig) {
        (self.0)(filter(config));
    }
}
