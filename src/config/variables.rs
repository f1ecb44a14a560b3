//! Variables whose name begins with `NEVE_` and that are no setting. They are named once, at the start:
//! a misspelt one would otherwise be without effect and without a word. They are no error, because
//! Kubernetes sets `NEVE_PORT` and others for a service of the name `neve`.

use std::env;

use clap::Command;
use tracing::warn;

/// More are counted, and not named.
const NAMED_MAX: usize = 16;
/// Longer names are cut.
const NAME_LEN_MAX: usize = 64;

/// Returns all that are set, with the nearest setting of each.
pub(crate) fn unknown_variables(command: &Command) -> Vec<String> {
    let set = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    unknown(set, &known(command))
}

/// Warns of all that are set.
pub(crate) fn warn_of_unknown(command: &Command) {
    let mut unknown = unknown_variables(command);
    if unknown.is_empty() {
        return;
    }
    let more = unknown.len().saturating_sub(NAMED_MAX);
    unknown.truncate(NAMED_MAX);
    warn!(variables = unknown.join(", "), more, "unknown variables");
}

/// Variables that are settings.
fn known(command: &Command) -> Vec<String> {
    let all = command.get_subcommands().flat_map(Command::get_arguments);
    let mut known: Vec<_> =
        all.filter_map(|arg| Some(arg.get_env()?.to_string_lossy().into_owned())).collect();
    known.sort_unstable();
    known.dedup();
    known
}

fn unknown(set: impl Iterator<Item = String>, known: &[String]) -> Vec<String> {
    let mut unknown: Vec<_> =
        set.filter(|name| name.starts_with("NEVE_") && !known.contains(name)).collect();
    unknown.sort_unstable();
    unknown.iter().map(|name| with_nearest(name, known)).collect()
}

fn with_nearest(name: &str, known: &[String]) -> String {
    let shown: String = name.chars().take(NAME_LEN_MAX).collect();
    let shown = shown.escape_debug();
    // As a whole, so that a long name costs no more.
    let distance = |known: &&String| strsim::osa_distance(&shown.to_string(), known);
    match known.iter().min_by_key(distance) {
        Some(nearest) => format!("{shown} (nearest: {nearest})"),
        None => shown.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn command() -> Command {
        let arg = |name: &'static str| Arg::new(name).long(name).env(name);
        let names = ["NEVE_LISTEN", "NEVE_IDLE_TIMEOUT"].map(arg);
        Command::new("neve").subcommand(Command::new("serve").args(names))
    }

    #[test]
    fn unknown_variable_is_named_with_the_nearest_setting() {
        let set = ["NEVE_IDLE_TIMOUT", "PATH", "NEVE_LISTEN", "NEVE_PORT", "neve_listen"];
        let found = unknown(set.into_iter().map(str::to_owned), &known(&command()));
        assert_eq!(found[0], "NEVE_IDLE_TIMOUT (nearest: NEVE_IDLE_TIMEOUT)");
        assert!(found[1].starts_with("NEVE_PORT (nearest: NEVE_"), "{found:?}");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn long_name_is_cut_and_escaped() {
        let name = format!("NEVE_\n{}", "x".repeat(1000));
        let found = unknown([name].into_iter(), &known(&command()));
        assert!(found[0].starts_with("NEVE_\\nx") && found[0].len() < 150, "{found:?}");
    }
}
