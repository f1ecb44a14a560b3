//! `neve man`: the manual page.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;

use super::config::written;

/// Prints the manual page of neve, with the settings of `neve serve`.
pub fn man(command: Command) -> ExitCode {
    let page = page(command);
    written(page.and_then(|page| io::stdout().write_all(&page)))
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
