//! The command: settings in, findings out.

use std::io::{self, Write};
use std::process::ExitCode;

use super::report::{Finding, exit_code, text};
use super::{front, machine, node, plan, storage};
use crate::commands::config::written;
use crate::config::settings::{Config, GROUPS};
use crate::config::{self, ConfigError, SettingsSource, unknown_variables};
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
    findings.extend(node::check(config));
    #[cfg(feature = "archive")]
    findings.extend(super::archive::check(config));
    findings.extend(storage::check(config));
    findings.extend(machine::check(config));
    findings.extend(front.into_iter().flat_map(|url| front::check(config, url)));
    findings
}

fn settings(source: &SettingsSource) -> Finding {
    let unknown = unknown_variables(&config::command(GROUPS));
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
