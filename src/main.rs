//! Parse, dispatch, exit code.

#![forbid(unsafe_code)]

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use neve::commands::config::USAGE;
use neve::commands::doctor::{self, DoctorArgs};
use neve::commands::{self, export, import, inspect, repair, serve, status, verify};
#[cfg(feature = "archive")]
use neve::config::ArchiveArgs;
use neve::config::settings::{AllSettings, Config, GROUPS};
use neve::config::{
    ConfigError, ExportArgs, GetArgs, ImportArgs, InspectArgs, SettingsSource, Values, VerifyArgs,
    command, wants_json_log,
};
use serde_json::json;

/// Allocator that returns memory of quiet connections to the kernel: docs/decisions/0023.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut command = command::<AllSettings>();
    let matches = command.try_get_matches_from_mut(env::args_os());
    match matches.map_err(|error| explain(&error)) {
        Ok(matches) => dispatch(command, &matches),
        Err(code) => code,
    }
}

fn dispatch(command: Command, matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("serve", given)) => configured(given, Config::of, serve::run),
        Some(("repair", given)) => {
            configured(given, Config::of_repair, |config, _| repair::run(config))
        }
        Some(("doctor", given)) => examine(given),
        Some(("status", given)) => status::run(source(given), given.get_flag("watch")),
        Some(("verify", given)) => parsed(VerifyArgs::of(given), verify::run),
        Some(("inspect", given)) => parsed(InspectArgs::of(given), inspect::run),
        #[cfg(feature = "archive")]
        Some(("archive", given)) => parsed(ArchiveArgs::of(given), commands::archive::run),
        Some(("get", given)) => parsed(GetArgs::of(given), export::get),
        Some(("export", given)) => parsed(ExportArgs::of(given), export::export),
        Some(("import", given)) => import_lines(given),
        Some(("config", given)) => configure(given),
        Some(("keys", given)) => hash_key(given),
        Some(("man", _)) => commands::man::man(command),
        Some(("completions", given)) => complete(command, given),
        _ => ExitCode::from(USAGE), // clap asks for a command
    }
}

/// Runs a command whose arguments are its own, and not settings.
fn parsed<A>(args: Result<A, clap::Error>, run: fn(&A) -> ExitCode) -> ExitCode {
    match args {
        Ok(args) => run(&args),
        Err(error) => explain(&error),
    }
}

fn examine(given: &ArgMatches) -> ExitCode {
    let front = given.get_one::<String>("front").map(String::as_str);
    let (json, plan) = (given.get_flag("json"), given.get_flag("plan"));
    doctor::run(source(given), &DoctorArgs { json, plan, front })
}

fn hash_key(given: &ArgMatches) -> ExitCode {
    match given.subcommand() {
        Some(("hash", given)) => match given.get_one::<String>("name") {
            Some(name) => commands::keys::hash(name),
            None => ExitCode::from(USAGE), // clap asks for a name
        },
        _ => ExitCode::from(USAGE), // clap asks for a command
    }
}

fn complete(command: Command, given: &ArgMatches) -> ExitCode {
    match given.get_one("shell") {
        Some(shell) => commands::man::completions(command, *shell),
        None => ExitCode::from(USAGE), // clap asks for a shell
    }
}

fn configure(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("print", given)) => match source(given).and_then(|source| source.read()) {
            Ok(values) => commands::config::print_config(&values),
            Err(error) => refuse(&error),
        },
        Some(("check", given)) => match given.get_one::<PathBuf>("file") {
            Some(file) => commands::config::check_config(file),
            None => ExitCode::from(USAGE), // clap asks for a file
        },
        _ => ExitCode::from(USAGE), // clap asks for a command
    }
}

fn import_lines(given: &ArgMatches) -> ExitCode {
    let args = ImportArgs::of(given);
    let config = source(given).and_then(|source| Config::of_import(source.read()?));
    match config {
        Ok(config) => import::run(&config, &args),
        Err(wrong) => refuse(&wrong),
    }
}

fn source(matches: &ArgMatches) -> Result<SettingsSource, ConfigError> {
    SettingsSource::new(GROUPS, matches.clone())
}

fn configured(
    matches: &ArgMatches,
    of: fn(Values) -> Result<Config, ConfigError>,
    run: fn(Config, SettingsSource) -> ExitCode,
) -> ExitCode {
    let configured = source(matches).and_then(|source| {
        let config = of(source.read()?)?;
        Ok((config, source))
    });
    match configured {
        Ok((config, source)) => run(config, source),
        Err(wrong) if wants_json_log(GROUPS, matches) => {
            // The log begins by the settings, which are wrong, so this line is made by hand.
            let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
            let text = wrong.to_string();
            let line =
                json!({ "timestamp": time, "level": "ERROR", "message": text, "target": "neve" });
            let _ = writeln!(io::stderr(), "{line}"); // there is nowhere else to say it
            ExitCode::from(USAGE)
        }
        Err(wrong) => refuse(&wrong),
    }
}

fn refuse(wrong: &ConfigError) -> ExitCode {
    complain(&wrong.to_string());
    ExitCode::from(USAGE)
}

/// Writes to standard error, which may be closed.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "neve: {text}"); // there is nowhere else to say it
}

/// Prints what clap has to say: help and version are no errors.
fn explain(error: &clap::Error) -> ExitCode {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    match error.print() {
        // A reader that closes the pipe has what it wanted.
        Err(failed) if asked_for && failed.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("cannot write to standard output: {failed}"));
            ExitCode::FAILURE
        }
        _ if asked_for => ExitCode::SUCCESS,
        _ => ExitCode::from(USAGE), // if it was not written, there is nowhere else to say it
    }
}
