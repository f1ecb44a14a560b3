//! Filter of log lines. A level without a module is for neve's own lines. Libraries say what clients
//! and upstreams do wrong, for each connection, so that a client would write the log.

use std::env;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::settings::LogConfig;

/// Level of neve's lines if neither the settings nor the environment have a filter.
const DEFAULT: &str = "info";

/// Returns the filter of the settings; without one, that of `RUST_LOG`.
pub(super) fn filter(config: &LogConfig) -> EnvFilter {
    let given = given(config).map(|text| EnvFilter::new(of_neve(&text)));
    let of_variable = || {
        let text = env::var(EnvFilter::DEFAULT_ENV).ok()?;
        // A variable of other programs too: a wrong one must not keep neve from starting.
        EnvFilter::try_new(of_neve(&text)).ok()
    };
    given.or_else(of_variable).unwrap_or_else(|| EnvFilter::new(of_neve(DEFAULT)))
}

/// The level and the filter of the settings. Of two levels for one module the last wins, so the filter goes
/// behind.
fn given(config: &LogConfig) -> Option<String> {
    let level = config.level.map(|level| level.name().to_owned());
    let given: Vec<_> = [level, config.filter.clone()].into_iter().flatten().collect();
    (!given.is_empty()).then(|| given.join(","))
}

/// Gives the levels without a module to neve and its crates, whose names all begin so. Libraries keep
/// their errors, unless the filter names them.
fn of_neve(filter: &str) -> String {
    // The library takes an empty word for `error`.
    let words = filter.split(',').map(str::trim).filter(|word| !word.is_empty());
    let (mut levels, mut modules) = (vec![], vec![]);
    for word in words {
        match word.parse::<LevelFilter>() {
            Ok(LevelFilter::OFF) => levels.push(word.to_owned()),
            Ok(level) => levels.push(format!("error,neve={level}")),
            Err(_) => modules.push(word.to_owned()),
        }
    }
    // The last directive for a module wins: what the filter says of neve itself goes behind.
    levels.append(&mut modules);
    levels.join(",")
}

#[cfg(test)]
mod tests {
    use super::{given, of_neve};
    use crate::config::settings::{Config, LogConfig};

    fn config(flags: &[&str]) -> LogConfig {
        Config::from_flags(&[&["--config=none", "--dev"], flags].concat()).unwrap().0.log
    }

    #[test]
    fn filter_goes_behind_the_level_so_that_it_wins() {
        let text = |flags: &[&str]| given(&config(flags));
        assert_eq!(text(&[]), None);
        assert_eq!(text(&["--log-level", "debug"]).as_deref(), Some("debug"));
        assert_eq!(text(&["--log-filter", "warn"]).as_deref(), Some("warn"));
        let both = ["--log-level=debug", "--log-filter=neve::fetch=trace,warn"];
        assert_eq!(text(&both).as_deref(), Some("debug,neve::fetch=trace,warn"));
        let filter = super::filter(&config(&["--log-level=debug", "--log-filter=warn"]));
        assert_eq!(filter.to_string(), "neve=warn,error");
        let filter = super::filter(&config(&["--log-level=trace"]));
        assert_eq!(filter.to_string(), "neve=trace,error");
    }

    #[test]
    fn level_without_a_module_is_for_neve_alone() {
        for (given, filter) in [
            ("info", "error,neve=info"),
            ("warn,neve::fetch=debug", "error,neve=warn,neve::fetch=debug"),
            ("TRACE,h2=trace", "error,neve=trace,h2=trace"),
            ("off", "off"),
            ("neve_store=debug", "neve_store=debug"),
            ("neve=debug,warn", "error,neve=warn,neve=debug"),
            (" info , ", "error,neve=info"),
            ("neve::fetch=trace,off", "off,neve::fetch=trace"),
            ("", ""),
        ] {
            assert_eq!(of_neve(given), filter);
        }
    }
}
