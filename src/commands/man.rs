//! `neve man` and `neve completions`: the manual page, and completions of the command line for a shell.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::config::written;

/// Prints the manual page of neve, with the settings of `neve serve`.
pub fn man(command: Command) -> ExitCode {
    let page = page(command);
    written(page.and_then(|page| io::stdout().write_all(&page)))
}

/// Prints the completions of neve for a shell.
pub fn completions(mut command: Command, shell: Shell) -> ExitCode {
    // A write to standard output may fail, and the generator would end the program with a panic.
    let mut script = Vec::new();
    generate(shell, &mut command, "neve", &mut script);
    written(io::stdout().write_all(&script))
}

fn page(mut command: Command) -> io::Result<Vec<u8>> {
    command.build();
    let serve = command.find_subcommand("serve").cloned();
    let whole = Man::new(command);
    let mut page = Vec::new();
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    whole.render_synopsis_section(&mut page)?;
    whole.render_description_section(&mut page)?;
    whole.render_subcommands_section(&mut page)?;
    if let Some(serve) = serve {
        let settings = Man::new(serve);
        settings.render_options_section(&mut page)?;
        settings.render_extra_section(&mut page)?;
    }
    Ok(page)
}
