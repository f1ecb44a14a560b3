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

/// Returns the section of commands. The commands have no pages of their own, as `neve-serve(1)`, that it could name.
fn commands(whole: &Man) -> io::Result<Vec<u8>> {
    let mut section = Vec::new();
    whole.render_subcommands_section(&mut section)?;
    let text = String::from_utf8_lossy(&section).replace("neve\\-", "neve ").replace("(1)", "");
    let hint =
        ".PP\n\\fBneve\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR shows the arguments of a command.\n";
    Ok((text + hint).into_bytes())
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
    page.extend(commands(&whole)?);
    if let Some(serve) = serve {
        let settings = Man::new(serve);
        settings.render_options_section(&mut page)?;
        settings.render_extra_section(&mut page)?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::AllSettings;

    #[test]
    fn page_names_no_page_that_is_not_installed() {
        let page =
            String::from_utf8(page(crate::config::command::<AllSettings>()).unwrap()).unwrap();
        assert!(page.contains("\nneve serve\n"), "{page:.3000}");
        assert!(!page.contains("neve\\-serve(1)"));
        assert!(page.contains("shows the arguments of a command"));
    }
}
