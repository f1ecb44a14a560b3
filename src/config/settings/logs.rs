//! neve's own log, and that of its clients' requests.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;

use crate::config::error::ConfigError;
use crate::config::setting::{Group, SWITCH, Setting, bytes, one_of, text};
use crate::config::values::Values;

/// Settings of the log.
pub(super) const LOGS: Group = Group {
    title: "Log",
    settings: &[
        Setting::new("log-format", one_of::<LogFormat>("text|json"), "Format of log lines, and of --access-log.")
            .or("text"),
        Setting::new(
            "log-level",
            one_of::<LogLevel>("error|warn|info|debug|trace"),
            "Least level of neve's own log lines. A level in --log-filter overrides it.",
        )
        .otherwise("info")
        .reloads(),
        Setting::new(
            "log-filter",
            text::<LogLineFilter>("FILTER"),
            "Least level of log lines, also by module: `info`, `warn,neve::fetch=debug`, where \
             libraries log errors only unless named: `info,h2=debug`. Without it and without \
             --log-level, the variable RUST_LOG has the filter.",
        )
        .otherwise("--log-level")
        .reloads(),
        Setting::new(
            "access-log",
            text::<AccessTarget>("FILE|stdout"),
            "File with a line for each request to the main listener and each WebSocket message, \
             which neve opens again after SIGHUP. All requests then take the full path, which uses more CPU.",
        ),
        Setting::new(
            "access-log-queue-bytes-max",
            bytes("4KiB", "1GiB"),
            "Memory of lines that are not written to --access-log yet. Beyond it: lines are dropped, \
             and counted.",
        )
        .or("4MiB"),
        Setting::new(
            "request-ids",
            SWITCH,
            "Return the x-request-id of a request, or make one; relayed requests go on with their \
             traceparent. All requests then take the full path, which uses more CPU.",
        ),
    ],
};

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Least level of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// A person must act.
    Error,
    /// Something is wrong, and neve goes on.
    Warn,
    /// A state changed.
    Info,
    /// Each request or height.
    Debug,
    /// Everything that the code tells.
    Trace,
}

impl LogLevel {
    /// Name in a filter.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Place of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessTarget {
    /// Standard output of the process.
    Stdout,
    /// A file, or a named pipe.
    File(PathBuf),
}

impl FromStr for AccessTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err("no file; write a path, or stdout"),
            "stdout" | "-" => Ok(Self::Stdout),
            path => Ok(Self::File(path.into())),
        }
    }
}

/// A filter of log lines in the form of `RUST_LOG`.
struct LogLineFilter;

impl FromStr for LogLineFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = "write info, or warn,neve::fetch=debug";
        // A bare word that is no level would be a module, and switch all others off.
        if let Some(part) = text.split(',').find(|part| is_no_level(part)) {
            return Err(format!("{part:?} is no level; {hint}"));
        }
        let parsed = tracing_subscriber::EnvFilter::try_new(text);
        parsed.map(|_| Self).map_err(|error| format!("{error}; {hint}"))
    }
}

fn is_no_level(part: &str) -> bool {
    // The library takes an empty word for `error`.
    let is_level = part.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    part.is_empty() || !part.contains('=') && !is_level
}

/// Settings of the log.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Format of lines.
    pub format: LogFormat,
    /// Least level, if it was given.
    pub level: Option<LogLevel>,
    /// Least levels by module, if they were given.
    pub filter: Option<String>,
    /// Place of the access log, if there is one.
    pub access: Option<AccessTarget>,
    /// Bytes of lines that wait for it.
    pub access_queue_bytes_max: usize,
    /// True if requests have ids, and relayed ones go on with their trace.
    pub request_ids: bool,
}

impl LogConfig {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        Ok(Self {
            format: values.word("log-format")?,
            level: values.words("log-level")?.pop(),
            filter: values.get("log-filter")?,
            access: values.get("access-log")?,
            access_queue_bytes_max: values.bytes("access-log-queue-bytes-max")?,
            request_ids: values.switch("request-ids"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::LogLineFilter;

    #[test]
    fn filter_that_would_switch_the_log_off_by_a_slip_is_refused() {
        for wrong in ["", "wran", "info,", "debgu,neve=info", "neve=loud"] {
            let refused = wrong.parse::<LogLineFilter>().err();
            let refused = refused.unwrap_or_else(|| panic!("{wrong:?} is accepted"));
            assert!(refused.contains("write info"), "{refused}");
        }
        for right in ["info", "warn,neve::fetch=debug", "off", "WARN"] {
            assert!(right.parse::<LogLineFilter>().is_ok(), "{right}");
        }
    }
}
