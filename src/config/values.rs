//! Values of all settings with their origins: a flag, a variable, the file, or the default, in this
//! order of precedence.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{ArgMatches, ValueEnum};

use super::endpoint::AddressArg;
use super::error::ConfigError;
use super::file::SettingsFile;
use super::setting::{Group, Setting, split, variable};
use super::units::{ByteCount, Count, DurationArg};

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag,
    /// A variable of the environment.
    Variable,
    /// A line of the file.
    File {
        /// Path, as given.
        path: Arc<str>,
        /// Line, from 1.
        line: usize,
    },
    /// The setting was not given: its default holds.
    Default,
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable => f.write_str("variable"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value as given: one text, or those of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    texts: Vec<String>,
    origin: Origin,
}

/// Values of all settings.
#[derive(Debug, Clone)]
pub struct Values {
    groups: &'static [Group],
    given: BTreeMap<&'static str, Given>,
}

impl Values {
    /// Takes each setting from the flags and variables of `matches`, else from `file`, else its default.
    ///
    /// # Errors
    /// The first value that its setting does not allow.
    pub fn new(
        groups: &'static [Group],
        matches: Option<&ArgMatches>,
        file: Option<&SettingsFile>,
    ) -> Result<Self, ConfigError> {
        let settings = groups.iter().flat_map(|group| group.settings);
        let given = settings.map(|setting| (setting.name, given(setting, matches, file)));
        let values = Self { groups, given: given.collect() };
        for setting in values.settings() {
            for text in values.texts(setting.name) {
                setting.kind.check(text).map_err(|why| values.wrong(setting.name, text, why))?;
            }
        }
        Ok(values)
    }

    /// Returns all settings, in the order of the help.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        self.groups.iter().flat_map(|group| group.settings)
    }

    fn given(&self, name: &str) -> &Given {
        self.given.get(name).expect("the table has the setting")
    }

    /// Returns the texts of a setting: none if it has neither a value nor a fixed default.
    pub fn texts(&self, name: &str) -> &[String] {
        &self.given(name).texts
    }

    /// Returns the origin of a value.
    pub fn origin(&self, name: &str) -> &Origin {
        &self.given(name).origin
    }

    /// Returns true if a value was given: it is not the default.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.given(name).origin != Origin::Default
    }

    /// Returns the value of a setting as a person may see it.
    pub fn shown(&self, name: &str) -> Option<String> {
        let texts = self.texts(name);
        (!texts.is_empty()).then(|| {
            let shown = texts.iter().map(|text| self.shown_text(name, text));
            shown.collect::<Vec<_>>().join(",")
        })
    }

    fn shown_text(&self, name: &str, text: &str) -> String {
        let secret = self.settings().any(|setting| setting.name == name && setting.kind.secret);
        if secret { AddressArg::from(text).to_string() } else { text.to_owned() }
    }

    /// Names a setting with its value and origin: `--start x (flag)`, `NEVE_START=x (variable)`.
    pub fn named(&self, name: &str) -> String {
        self.named_value(name, &self.shown(name).unwrap_or_default())
    }

    fn named_value(&self, name: &str, value: &str) -> String {
        match self.origin(name) {
            Origin::Variable => format!("{}={value} (variable)", variable(name)),
            origin => format!("--{name} {value} ({origin})"),
        }
    }

    /// Returns the error for one text of a setting.
    pub(super) fn wrong(&self, name: &str, text: &str, why: impl Into<String>) -> ConfigError {
        let named = self.named_value(name, &self.shown_text(name, text));
        ConfigError::Value { named, why: why.into() }
    }

    /// Reads the share of one address in a whole, which is at least `least`: by default a quarter, rounded up.
    pub(super) fn share(
        &self,
        name: &'static str,
        whole_name: &'static str,
        least: usize,
    ) -> Result<usize, ConfigError> {
        let whole: usize = self.count(whole_name)?;
        match self.get::<usize>(name)? {
            None => Ok(whole.div_ceil(4)),
            Some(share) if share <= whole => Ok(share),
            Some(_) => {
                self.refuse(name, format!("allowed: {least} to {whole}, which is --{whole_name}"))
            }
        }
    }

    /// Returns the error for the whole value of a setting.
    pub(super) fn refuse<T>(&self, name: &str, why: impl Into<String>) -> Result<T, ConfigError> {
        Err(ConfigError::Value { named: self.named(name), why: why.into() })
    }

    /// Reads a value that may be missing.
    pub(super) fn get<T: FromStr<Err: Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, ConfigError> {
        Ok(self.list(name)?.into_iter().next())
    }

    /// Reads a value that is there, as the setting has a default.
    pub(super) fn of<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, ConfigError> {
        Ok(self.get(name)?.expect("the setting has a default"))
    }

    /// Reads a list: empty if there is neither a value nor a fixed default.
    pub(super) fn list<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Vec<T>, ConfigError> {
        let parse = |text: &String| {
            text.parse().map_err(|error: T::Err| self.wrong(name, text, error.to_string()))
        };
        self.texts(name).iter().map(parse).collect()
    }

    /// Reads a word, or a list of words.
    pub(super) fn words<T: ValueEnum>(&self, name: &str) -> Result<Vec<T>, ConfigError> {
        let parse =
            |text: &String| T::from_str(text, false).map_err(|why| self.wrong(name, text, why));
        self.texts(name).iter().map(parse).collect()
    }

    /// Reads a word that has a default.
    pub(super) fn word<T: ValueEnum>(&self, name: &str) -> Result<T, ConfigError> {
        Ok(self.words(name)?.pop().expect("the setting has a default"))
    }

    /// Reads a number that has a default.
    pub(super) fn count<T: TryFrom<u64>>(&self, name: &str) -> Result<T, ConfigError> {
        let Count(count) = self.of(name)?;
        T::try_from(count).or_else(|_| self.refuse(name, "too large for this machine"))
    }

    /// Reads a number of bytes that are held in memory, so that there is a bound.
    pub(super) fn bytes(&self, name: &str) -> Result<usize, ConfigError> {
        let ByteCount(bytes) = self.of(name)?;
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes.map_or_else(|| self.refuse(name, "no bound"), Ok)
    }

    /// Reads a length of time that has a default.
    pub(super) fn duration(&self, name: &str) -> Result<std::time::Duration, ConfigError> {
        Ok(self.of::<DurationArg>(name)?.0)
    }

    /// Returns true if a switch is on.
    pub(super) fn switch(&self, name: &str) -> bool {
        self.texts(name).iter().any(|text| text == "true")
    }

    /// Takes the values of these settings from another set.
    pub(crate) fn replace(&mut self, names: &[&'static str], newer: &Self) {
        for name in names {
            self.given.insert(name, newer.given(name).clone());
        }
    }

    /// Returns the settings whose values differ.
    pub(crate) fn changes(&self, newer: &Self) -> Vec<&'static Setting> {
        // As typed: another spelling of the same value counts as a change, which does no harm.
        let differs = |setting: &&Setting| self.texts(setting.name) != newer.texts(setting.name);
        self.settings().filter(differs).collect()
    }
}

fn given(setting: &Setting, matches: Option<&ArgMatches>, file: Option<&SettingsFile>) -> Given {
    let source = matches.and_then(|matches| Some((matches, matches.value_source(setting.name)?)));
    let origin = match source {
        Some((_, ValueSource::CommandLine)) => Some(Origin::Flag),
        Some((_, ValueSource::EnvVariable)) => Some(Origin::Variable),
        _ => None,
    };
    // clap's own default is no origin: a value of the file comes before it.
    if let (Some((matches, _)), Some(origin)) = (source, origin) {
        return Given { texts: typed(setting, matches), origin };
    }
    if let Some(entry) = file.and_then(|file| file.get(setting.name)) {
        let origin = Origin::File { path: entry.path, line: entry.line };
        return Given { texts: entry.texts, origin };
    }
    let default = setting.default.map(|text| split(setting, text)).unwrap_or_default();
    Given { texts: default, origin: Origin::Default }
}

fn typed(setting: &Setting, matches: &ArgMatches) -> Vec<String> {
    matches.get_many::<String>(setting.name).into_iter().flatten().cloned().collect()
}
