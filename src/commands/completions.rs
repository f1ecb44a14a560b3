//! `neve completions`: completions of the command line for a shell.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Command;
use clap_complete::{Shell, generate};

use super::config::written;

/// Prints the completions of neve for a shell.
pub fn completions(mut command: Command, shell: Shell) -> ExitCode {
    // A write to standard output may fail, and the generator would end the program with a panic.
    let mut script = Vec::new();
    generate(shell, &mut command, "neve", &mut script);
    written(io::stdout().write_all(&script))
}
