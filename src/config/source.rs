//! Reads settings: the command line, the variables, and the file that they name.

use std::path::{Path, PathBuf};

use clap::ArgMatches;

use super::error::ConfigError;
use super::file::{DEFAULT_PATH, SettingsFile};
use super::setting::{Group, Setting};
use super::values::Values;

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
        let dev = matches.get_flag("dev");
        let named = matches.get_one::<String>("config").map(String::as_str);
        let file = match named {
            Some("none") => None,
            Some(path) if dev => {
                let named = format!("--config {path}");
                let why = "cannot be used with --dev; use none".to_owned();
                return Err(ConfigError::Value { named, why });
            }
            Some(path) => Some(PathBuf::from(path)),
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

    /// Returns the file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

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
