//! The command: settings in, findings out.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{Access, access};

use super::report::{Finding, exit_code, text};
use super::{front, machine, node, plan, storage};
use crate::commands::config::written;
use crate::config::settings::{AccessTarget, AllSettings, Config, without_effect};
use crate::config::{ConfigError, SettingsSource, unknown_variables};
use crate::http::keys::KeyRing;
use crate::observe::process;

/// Words besides the settings.
pub struct DoctorArgs<'a> {
    /// True for JSON lines.
    pub json: bool,
    /// True for estimates instead of checks.
    pub plan: bool,
    /// Address of a front that is to be checked too.
    pub front: Option<&'a str>,
}

/// Checks the settings, the upstreams, this machine and a front, or estimates what the settings take.
/// Prints a line for each check or estimate.
///
/// # Errors
/// The exit code is 1 after a warning, and 2 after a problem.
pub fn run(source: Result<SettingsSource, ConfigError>, args: &DoctorArgs<'_>) -> ExitCode {
    let findings = match source.and_then(|source| Ok((Config::of(source.read()?)?, source))) {
        Ok((config, _)) if args.plan => plan::plan(&config),
        Ok((config, source)) => look(&config, &source, args.front),
        Err(wrong) => vec![Finding::problem("settings", wrong.to_string(), "correct it")],
    };
    match written(io::stdout().write_all(text(&findings, args.json).as_bytes())) {
        ExitCode::SUCCESS => exit_code(&findings),
        unwritten => unwritten,
    }
}

fn look(config: &Config, source: &SettingsSource, front: Option<&str>) -> Vec<Finding> {
    // neve raises its own limit in the same way.
    process::raise_descriptors();
    let mut findings = vec![settings(source)];
    findings.extend(without_effect(&config.values).into_iter().map(idle));
    findings.extend(node::check(config));
    #[cfg(feature = "archive")]
    findings.extend(super::archive::check(config));
    findings.extend(named_files(config));
    findings.extend(storage::check(config));
    findings.extend(machine::check(config));
    findings.extend(front.into_iter().flat_map(|url| front::check(config, url)));
    findings
}

/// Checks files that settings name, and without which neve does not start.
fn named_files(config: &Config) -> Vec<Finding> {
    let keys = config.http.keys.as_deref().map(|file| match KeyRing::read(file) {
        Ok(ring) => Finding::ok("keys", format!("{}: {} API keys", file.display(), ring.len())),
        Err(why) => {
            let text = format!("{}: {why}", config.values.named("keys"));
            Finding::problem("keys", text, "correct the file, or let neve's user read it")
        }
    });
    let log = match &config.log.access {
        Some(AccessTarget::File(path)) => Some(match appendable(path) {
            Ok(()) => Finding::ok("access-log", format!("{} can be written", path.display())),
            Err(error) => {
                let text = format!("{}: cannot open: {error}", config.values.named("access-log"));
                Finding::problem("access-log", text, "name a file that neve's user may write")
            }
        }),
        _ => None,
    };
    keys.into_iter().chain(log).collect()
}

/// Checks that lines can be appended to a file. Neither is it opened, as a pipe without a reader would wait, nor made.
fn appendable(path: &Path) -> io::Result<()> {
    match path.metadata() {
        Ok(file) if file.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(access(path, Access::WRITE_OK)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            tempfile::tempfile_in(dir.unwrap_or(Path::new("."))).map(drop)
        }
        Err(error) => Err(error),
    }
}

/// A setting that has no effect without another one.
fn idle(named: String) -> Finding {
    Finding::warning("settings", named, "add that one, or remove this one")
}

fn settings(source: &SettingsSource) -> Finding {
    let unknown = unknown_variables::<AllSettings>();
    // A misspelled variable has no effect, and nothing else would say so.
    if !unknown.is_empty() {
        let text = format!("unknown variables: {}", unknown.join(", "));
        return Finding::warning("settings", text, "correct or remove them");
    }
    match source.file() {
        Some(file) => Finding::ok("settings", format!("{}, flags, variables", file.display())),
        None => Finding::ok("settings", "flags and variables; no file"),
    }
}
