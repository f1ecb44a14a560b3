//! `neve config print` and `neve config check`.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::config::settings::{Config, GROUPS, without_effect};
use crate::config::{ConfigError, Setting, SettingsFile, Values};

/// Exit code of wrong usage, as in sysexits.h: it must not look like a finding of `verify`.
pub const USAGE: u8 = 64;

/// Prints every setting with its value and its origin, in the form of the file.
pub fn print_config(values: &Values) -> ExitCode {
    written(writeln!(io::stdout(), "{}", lines(values)))
}

fn lines(values: &Values) -> String {
    let lines: Vec<_> = values.settings().map(|setting| line(values, setting)).collect();
    lines.join("\n")
}

fn line(values: &Values, setting: &Setting) -> String {
    let (name, origin) = (setting.name, values.origin(setting.name));
    let line = match (values.shown(name), setting.shown_default()) {
        (Some(value), _) if setting.kind.switch => format!("{name} = {value}  # {origin}"),
        (Some(value), _) => format!("{name} = {value:?}  # {origin}"),
        (None, _) if setting.kind.switch => format!("{name} = false  # {origin}"),
        (None, Some(text)) => format!("# {name}: {text}  # {origin}"),
        (None, None) => format!("# {name}: none  # {origin}"),
    };
    // No file may set it.
    if setting.flag_only && !line.starts_with('#') { format!("# {line}") } else { line }
}

/// Checks a file: its keys, its values, and the values against each other. Exit code 1 if one is wrong.
pub fn check_config(file: &Path) -> ExitCode {
    match check(file) {
        Ok(mut lines) => {
            lines.push(format!("{}: all keys and values are allowed", file.display()));
            written(writeln!(io::stdout(), "{}", lines.join("\n")))
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}"); // there is nowhere else to say it
            ExitCode::FAILURE
        }
    }
}

/// Returns the settings that have no effect without others, which may come from flags.
fn check(file: &Path) -> Result<Vec<String>, ConfigError> {
    let file = SettingsFile::read(file, GROUPS)?;
    let values = Values::new(GROUPS, None, Some(&file))?;
    let idle = without_effect(&values);
    match Config::of(values) {
        // The source of blocks and the directory may come from flags, too.
        Ok(_) | Err(ConfigError::NoSource | ConfigError::NoDataDir) => Ok(idle),
        Err(error) => Err(error),
    }
}

/// Returns the exit code after printing. A reader that closes the pipe has what it wanted.
pub(super) fn written(printed: io::Result<()>) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // There is nowhere else to say it.
            let _ = writeln!(io::stderr(), "neve: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn printed_settings_pass_the_check() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("neve.toml");
        let node = ["--data-dir", "/nowhere", "--upstream", "http://127.0.0.1:9650"];
        for flags in [&["--dev", "--dev-rate", "2"][..], &node] {
            let (config, _) = Config::from_flags(&[&["--config", "none"], flags].concat()).unwrap();
            fs::write(&file, lines(&config.values)).unwrap();
            assert_eq!(check(&file), Ok(Vec::new()));
        }
    }
}
