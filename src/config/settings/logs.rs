//! neve's own log.

use clap::ValueEnum;

use crate::config::error::ConfigError;
use crate::config::setting::{Group, Setting, one_of, text};
use crate::config::values::Values;

/// Settings of the log.
pub(super) const LOGS: Group = Group {
    title: "Log",
    settings: &[
        Setting::new("log-format", one_of::<LogFormat>("text|json"), "Format of log lines.")
            .or("text"),
        Setting::new(
            "log-filter",
            text::<LogFilter>("FILTER"),
            "Least level of log lines, also by module: `info`, `warn,neve::fetch=debug`. The \
             variable RUST_LOG overrides the default.",
        )
        .otherwise("info")
        .reloads(),
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

/// A filter of log lines in the form of `RUST_LOG`.
struct LogFilter;

impl std::str::FromStr for LogFilter {
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
    /// Least levels, if they were given.
    pub filter: Option<String>,
}

impl LogConfig {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        Ok(Self { format: values.word("log-format")?, filter: values.get("log-filter")? })
    }
}

#[cfg(test)]
mod tests {
    use super::LogFilter;

    #[test]
    fn filter_that_would_switch_the_log_off_by_a_slip_is_refused() {
        for wrong in ["", "wran", "info,", "debgu,neve=info", "neve=loud"] {
            let refused = wrong.parse::<LogFilter>().err();
            let refused = refused.unwrap_or_else(|| panic!("{wrong:?} is accepted"));
            assert!(refused.contains("write info"), "{refused}");
        }
        for right in ["info", "warn,neve::fetch=debug", "off", "WARN"] {
            assert!(right.parse::<LogFilter>().is_ok(), "{right}");
        }
    }
}
