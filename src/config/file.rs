//! The file of settings: TOML with flat keys, spelled as the flags.

mod bounded;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

pub(crate) use self::bounded::read_text;
use super::error::ConfigError;
use super::setting::{Group, Setting, split};

/// File that `neve serve` reads if no other one is named.
pub(super) const DEFAULT_PATH: &str = "/etc/neve/neve.toml";

/// Bytes of the file.
const BYTES_MAX: u64 = 1 << 20;

/// Settings of a file.
#[derive(Debug, Clone)]
pub struct SettingsFile {
    path: Arc<str>,
    entries: BTreeMap<&'static str, (Vec<String>, usize)>,
}

/// A setting in the file.
pub(super) struct FileEntry {
    pub(super) texts: Vec<String>,
    pub(super) path: Arc<str>,
    pub(super) line: usize,
}

impl SettingsFile {
    /// Reads a file of at most 1 MiB.
    ///
    /// # Errors
    /// All mistakes, one a line, each with file and line: no TOML, an unknown key with the nearest
    /// known one, a value that the setting does not allow.
    pub fn read(path: &Path, groups: &'static [Group]) -> Result<Self, ConfigError> {
        let shown = path.display();
        let failed = |why: &str| ConfigError::File(format!("cannot read {shown}: {why}"));
        let text = read_text(path, BYTES_MAX).map_err(|why| failed(&why))?;
        Self::parse(&shown.to_string(), &text, groups)
    }

    fn parse(path: &str, text: &str, groups: &'static [Group]) -> Result<Self, ConfigError> {
        let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
        let table = DeTable::parse(text).map_err(|error| {
            let at = line(error.span().map_or(0, |span| span.start));
            ConfigError::File(format!("{path}:{at}: no TOML: {}", error.message()))
        })?;
        let (mut entries, mut mistakes) = (BTreeMap::new(), Vec::new());
        for (key, value) in table.get_ref() {
            let at = line(key.span().start);
            match entry(key.get_ref(), value.get_ref(), groups) {
                Ok((setting, texts)) => drop(entries.insert(setting.name, (texts, at))),
                // All of them at once, or a file with three would need three starts.
                Err(why) => mistakes.push((at, why)),
            }
        }
        if mistakes.is_empty() {
            Ok(Self { path: path.into(), entries })
        } else {
            Err(refused(path, mistakes))
        }
    }

    /// Returns the entry of a setting.
    pub(super) fn get(&self, name: &str) -> Option<FileEntry> {
        let (texts, line) = self.entries.get(name)?;
        Some(FileEntry { texts: texts.clone(), path: Arc::clone(&self.path), line: *line })
    }
}

/// Makes one error of mistakes, each with its line.
fn refused(path: &str, mut mistakes: Vec<(usize, String)>) -> ConfigError {
    // By lines: the table has the order of its keys.
    mistakes.sort();
    let lines = mistakes.iter().map(|(at, why)| format!("{path}:{at}: {why}"));
    ConfigError::File(lines.collect::<Vec<_>>().join("\n"))
}

/// Reads a key and its value.
fn entry(
    key: &str,
    value: &DeValue<'_>,
    groups: &'static [Group],
) -> Result<(&'static Setting, Vec<String>), String> {
    let mut settings = groups.iter().flat_map(|group| group.settings);
    let Some(setting) = settings.find(|setting| setting.name == key) else {
        return Err(format!("unknown key {}; nearest: {}", shown(key), nearest(key, groups)));
    };
    if setting.flag_only {
        return Err(format!("{key} is a flag only; remove this line"));
    }
    let wrong = || format!("{key}: no value of the right type; write {}", form(setting));
    let texts = texts(setting, value).ok_or_else(wrong)?;
    for text in &texts {
        setting.kind.check(text).map_err(|why| {
            // The error goes to a terminal or a log.
            let value = if setting.kind.secret { "..." } else { &shown(text) };
            format!("{key} = {value}: {why}")
        })?;
    }
    Ok((setting, texts))
}

/// Types of values that a setting may have.
fn form(setting: &Setting) -> &'static str {
    match (setting.kind.switch, setting.kind.many) {
        (true, _) => "true or false",
        (_, true) => "a string, or a list of strings",
        _ => "a string or a number",
    }
}

fn texts(setting: &Setting, value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::Boolean(on) if setting.kind.switch => Some(vec![on.to_string()]),
        _ if setting.kind.switch => None,
        DeValue::Array(items) if setting.kind.many => {
            items.iter().map(|item| scalar(item.get_ref())).collect()
        }
        value => Some(split(setting, &scalar(value)?)),
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Integer(number) if number.radix() == 16 => Some(format!("0x{}", number.as_str())),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// Returns the known key that is most like this one.
fn nearest(key: &str, groups: &'static [Group]) -> &'static str {
    let settings = groups.iter().flat_map(|group| group.settings);
    let known = settings.filter(|setting| !setting.flag_only).map(|setting| setting.name);
    let key = shown(key); // so that a long key costs no more
    known.min_by_key(|name| strsim::osa_distance(&key, name)).unwrap_or_default()
}

/// Cuts and escapes a text of the file.
fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests;
