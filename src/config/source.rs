//! Reads settings: the command line, the variables, and the file that they name.

use std::env;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use tracing::warn;

use super::args::command;
use super::error::ConfigError;
use super::file::{DEFAULT_PATH, SettingsFile};
use super::setting::{Group, Setting, Tables, variable};
use super::values::Values;

/// Unknown variables that are named; more are counted.
const NAMED_MAX: usize = 16;
/// Most edits to the name of a setting that it may be meant for.
const EDITS_MAX: usize = 3;
/// Longer names are cut.
const NAME_LEN_MAX: usize = 64;

/// Source of all settings. The flags and variables stay as they were at the start; the file is read
/// again by each [`SettingsSource::read`].
#[derive(Debug, Clone)]
pub struct SettingsSource {
    groups: &'static [Group],
    matches: ArgMatches,
    file: Option<PathBuf>,
}

impl SettingsSource {
    /// Takes the arguments of a command and finds the file. The default file is read if it exists
    /// and no development chain is wanted.
    ///
    /// # Errors
    /// `--config` names a file beside `--dev`.
    pub fn new(groups: &'static [Group], matches: ArgMatches) -> Result<Self, ConfigError> {
        let dev = matches.get_one::<String>("dev").is_some_and(|on| on == "true");
        let named = matches.get_one::<String>("config").map(String::as_str);
        let file = match named {
            Some("none") => None,
            Some(path) if dev => {
                let named = format!("--config {path}");
                let why = "cannot be used with --dev; use none".to_owned();
                return Err(ConfigError::Value { named, why });
            }
            Some(path) => Some(PathBuf::from(path)),
            // A development chain takes no upstream, and the file of this machine may name one.
            None if dev => None,
            None => default_file()?,
        };
        Ok(Self { groups, matches, file })
    }

    /// Reads the file and returns all values.
    ///
    /// # Errors
    /// The file cannot be read, or a setting is wrong.
    pub fn read(&self) -> Result<Values, ConfigError> {
        let file = self.file.as_deref().map(|path| SettingsFile::read(path, self.groups));
        Values::new(self.groups, Some(&self.matches), file.transpose()?.as_ref())
    }

    /// Returns the path of the file, if one is read.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// Tells whether the settings of a command want a log of JSON lines, as far as that can be told: another
/// setting may be wrong.
pub fn wants_json_log(groups: &'static [Group], matches: &ArgMatches) -> bool {
    // Flags and variables win over the file, which need not be read then.
    if let Some(format) = matches.get_one::<String>(FORMAT) {
        return format == JSON;
    }
    let source = SettingsSource::new(groups, matches.clone()).ok();
    let file = source.and_then(|source| SettingsFile::read(source.file()?, groups).ok());
    file.and_then(|file| file.get(FORMAT)).is_some_and(|entry| entry.texts == [JSON])
}

/// Setting of the form of log lines, and the value for JSON.
const FORMAT: &str = "log-format";
const JSON: &str = "json";

/// Finds the default file. A folder that neve's user may not search could hold one.
fn default_file() -> Result<Option<PathBuf>, ConfigError> {
    match Path::new(DEFAULT_PATH).try_exists() {
        Ok(found) => Ok(found.then(|| DEFAULT_PATH.into())),
        Err(error) => Err(ConfigError::File(format!(
            "cannot read {DEFAULT_PATH}: {error}; let neve's user read it, or use --config none"
        ))),
    }
}

/// Settings whose values changed in the file, by what happens to them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In force from now on.
    pub reloaded: Vec<&'static str>,
    /// In force after the next start.
    pub needs_restart: Vec<&'static str>,
}

impl Changes {
    /// Compares the values in force with newer ones.
    pub fn between(current: &Values, newer: &Values) -> Self {
        let (live, rest): (Vec<&Setting>, Vec<&Setting>) =
            current.changes(newer).into_iter().partition(|setting| setting.reloads);
        let names = |settings: Vec<&'static Setting>| {
            settings.into_iter().map(|setting| setting.name).collect()
        };
        Self { reloaded: names(live), needs_restart: names(rest) }
    }
}

/// Returns the variables that begin with `NEVE_` and are no setting, with the setting that is meant, if one is near. A
/// misspelt one would otherwise be without effect and without a word.
pub(crate) fn unknown_variables<T: Tables>() -> Vec<String> {
    let set = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let set: Vec<_> = set.filter(|name| name.starts_with("NEVE_")).collect();
    // To build the whole command line takes longer than to parse it.
    if set.iter().all(|name| is_setting(T::GROUPS, name)) {
        return Vec::new();
    }
    let mut command = command::<T>();
    command.build();
    unknown(set.into_iter(), &known(&command), &flags(&command))
}

/// True for the variable of a setting, or of the file of settings.
fn is_setting(groups: &[Group], name: &str) -> bool {
    let mut settings = groups.iter().flat_map(|group| group.settings);
    name == "NEVE_CONFIG" || settings.any(|setting| setting.variable().as_deref() == Some(name))
}

/// Warns of them, once at the start. They are no error, because Kubernetes sets `NEVE_PORT` and others
/// for a service of the name `neve`.
pub(crate) fn warn_of_unknown<T: Tables>() {
    let mut unknown = unknown_variables::<T>();
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

/// Names that variables would have for words which are flags only.
fn flags(command: &Command) -> Vec<String> {
    let all = command.get_subcommands().flat_map(Command::get_arguments);
    all.filter(|arg| arg.get_env().is_none())
        .filter_map(|arg| Some(variable(arg.get_long()?)))
        .collect()
}

fn unknown(set: impl Iterator<Item = String>, known: &[String], flags: &[String]) -> Vec<String> {
    let mut unknown: Vec<_> =
        set.filter(|name| name.starts_with("NEVE_") && !known.contains(name)).collect();
    unknown.sort_unstable();
    unknown.iter().map(|name| with_nearest(name, known, flags)).collect()
}

fn with_nearest(name: &str, known: &[String], flags: &[String]) -> String {
    if flags.iter().any(|flag| flag == name) {
        return format!("{name} (is a flag only)");
    }
    let shown: String = name.chars().take(NAME_LEN_MAX).collect();
    let shown = shown.escape_debug();
    // As a whole, so that a long name costs no more.
    let shown = shown.to_string();
    let distance = |known: &&String| strsim::osa_distance(&shown, known);
    match known.iter().min_by_key(distance).filter(|known| distance(known) <= EDITS_MAX) {
        Some(nearest) => format!("{shown} (nearest: {nearest})"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn command() -> Command {
        let arg = |name: &'static str| Arg::new(name).long(name).env(name);
        let names = ["NEVE_LISTEN", "NEVE_IDLE_TIMEOUT"].map(arg);
        let flag = Arg::new("dev-rate").long("dev-rate");
        Command::new("neve").subcommand(Command::new("serve").args(names).arg(flag))
    }

    #[test]
    fn unknown_variable_is_named_with_the_nearest_setting() {
        let set = [
            "NEVE_IDLE_TIMOUT",
            "PATH",
            "NEVE_LISTEN",
            "NEVE_PORT_8545_TCP",
            "NEVE_DEV_RATE",
            "neve_listen",
        ];
        let (known, flags) = (known(&command()), flags(&command()));
        let found = unknown(set.into_iter().map(str::to_owned), &known, &flags);
        let expected = [
            "NEVE_DEV_RATE (is a flag only)",
            "NEVE_IDLE_TIMOUT (nearest: NEVE_IDLE_TIMEOUT)",
            "NEVE_PORT_8545_TCP",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn long_name_is_cut_and_escaped() {
        let name = format!("NEVE_\n{}", "x".repeat(1000));
        let found = unknown([name].into_iter(), &known(&command()), &flags(&command()));
        assert!(found[0].starts_with("NEVE_\\nx") && found[0].len() < 150, "{found:?}");
    }
}
