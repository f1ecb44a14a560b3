//! Parse, dispatch, exit code.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use neve::cli::{Cli, Command};
use neve::config::Config;
use neve::{serve, verify};

/// What quiet connections give back goes back to the system: docs/DECISIONS.md.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Wrong usage, as in sysexits.h: it must not look like a finding of `verify`.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match cli.command {
        Command::Serve(args) => match Config::from_args(*args) {
            Ok(config) => serve::run(config),
            Err(wrong) => {
                eprintln!("neve: {wrong}");
                ExitCode::from(USAGE)
            }
        },
        Command::Verify(args) => verify::run(&args),
    }
}

/// Prints what clap has to say: help and version are no errors.
fn explain(error: &clap::Error) -> ExitCode {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let _ = error.print(); // there is nowhere else to say it
    if asked_for { ExitCode::SUCCESS } else { ExitCode::from(USAGE) }
}
