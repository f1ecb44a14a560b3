//! Pages made from the tables: `docs/reference/settings.md`, `docs/reference/cli.md`, and
//! `packaging/neve.toml`.

use std::fmt::Write;

use clap::Command;

use super::setting::{Group, Setting, Unit};

const SETTINGS_HEAD: &str = "\
# Settings

This page is generated from the tables in `src/config/settings`. `UPDATE=1 cargo test --lib generated` rewrites it.

Each setting is a flag, a variable and a key of the file: `--retain-bytes 50GiB`, `NEVE_RETAIN_BYTES=50GiB`,
`retain-bytes = \"50GiB\"`. A flag overrides a variable, a variable the file, the file the default.
`neve config print` shows each value with its origin. `neve config check FILE` checks a file.
\"SIGHUP\" says whether neve reads a changed value of the file after SIGHUP; others need a restart.
One that is \"flag only\" has no variable and no key.
";

/// Returns the text of docs/reference/settings.md.
pub fn settings_table(groups: &[Group]) -> String {
    let mut page = SETTINGS_HEAD.to_owned();
    for group in groups {
        let _ = writeln!(page, "\n## {}\n", group.title);
        page.push_str(
            "| setting | values | default | SIGHUP | meaning |\n| --- | --- | --- | --- | --- |\n",
        );
        for setting in group.settings {
            page.push_str(&row(setting));
        }
    }
    page
}

fn row(setting: &Setting) -> String {
    let values = match (setting.kind.switch, setting.kind.allowed()) {
        (true, _) => "true, false".to_owned(),
        (_, allowed) if allowed.is_empty() => code(setting.kind.shown),
        (_, allowed) => allowed,
    };
    let many = if setting.kind.many { ", a list" } else { "" };
    let default = match (setting.otherwise, setting.default) {
        (Some(text), _) => text.to_owned(),
        (None, Some(text)) => code(text),
        (None, None) if setting.kind.switch => code("false"),
        (None, None) => "none".to_owned(),
    };
    let reloads = match (setting.flag_only, setting.reloads) {
        (true, _) => "flag only",
        (_, true) => "reload",
        _ => "restart",
    };
    let (name, help) = (setting.name, escape(setting.help));
    let default = escape(&default);
    format!("| `{name}` | {values}{many} | {default} | {reloads} | {help} |\n")
}

fn code(text: &str) -> String {
    format!("`{}`", escape(text))
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*")
}

/// Returns the text of docs/reference/cli.md.
pub fn command_line(mut command: Command) -> String {
    let mut page = "# Command line\n\nThis page is generated from the code. \
         `UPDATE=1 cargo test --lib generated` rewrites it.\n"
        .to_owned();
    // Gives the commands below it their whole names.
    command.build();
    describe(&mut page, &mut command, true);
    page
}

/// Writes the help of a command and of those below it. The settings stand on their own page.
fn describe(page: &mut String, command: &mut Command, long: bool) {
    let name = command.get_bin_name().unwrap_or("neve").to_owned();
    let has_settings = command.get_arguments().any(|arg| arg.get_id() == "config");
    let help =
        if long && !has_settings { command.render_long_help() } else { command.render_help() };
    let help = help.to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    let _ = writeln!(page, "\n## `{name}`\n\n```text\n{}\n```", lines.join("\n").trim_end());
    if has_settings {
        page.push_str("\nAll settings: [settings.md](settings.md).\n");
    }
    // clap's own `help` says what `--help` says.
    for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
        describe(page, inner, long);
    }
}

/// Returns packaging/neve.toml: all keys with their defaults, as comments.
pub fn example_file(groups: &[Group]) -> String {
    let mut page = "# Settings of neve: copy this file to /etc/neve/neve.toml and remove the # of a line to set it.\n\
         # Each line has the default, or an example if it says so. Generated from the code.\n"
        .to_owned();
    for group in groups {
        let mut settings = group.settings.iter().filter(|setting| !setting.flag_only).peekable();
        if settings.peek().is_none() {
            continue;
        }
        let _ = writeln!(page, "\n## {}", group.title);
        for setting in settings {
            let _ = writeln!(page, "\n# {}", setting.help);
            page.push_str(&assignment(setting));
        }
    }
    page
}

fn assignment(setting: &Setting) -> String {
    let name = setting.name;
    match (setting.kind.switch, setting.default, setting.otherwise) {
        (true, ..) => format!("#{name} = false\n"),
        (_, Some(default), _) => format!("#{name} = {}\n", toml_value(setting, default)),
        (.., Some(text)) => {
            format!("# Default: {text}. For example:\n#{name} = {}\n", example(setting))
        }
        _ => format!("# For example:\n#{name} = {}\n", example(setting)),
    }
}

fn toml_value(setting: &Setting, text: &str) -> String {
    let count = setting.kind.bounds.is_some_and(|bounds| bounds.unit == Unit::Count);
    // Rust quotes these texts as TOML does.
    if count { text.to_owned() } else { format!("{text:?}") }
}

/// Sensible values of settings whose default is computed, or which have none.
const EXAMPLES: &[(&str, &str)] = &[
    ("relay-to", "*@0-49999999=http://archive.example:9650"),
    ("archive", "s3://bucket/c-chain"),
    ("archive-endpoint", "http://127.0.0.1:7070"),
    (
        "archive-anchor",
        "69000000:0x0000000000000000000000000000000000000000000000000000000000000000",
    ),
    ("archive-sign-key", "/etc/neve/archive-key.pem"),
    ("segment-bytes", "128MiB"),
    ("retain-bytes", "20GiB"),
    ("retain-blocks", "1000000"),
    ("retain-age", "7d"),
    ("relay-paths", "/ext/info"),
    ("upstream-ws", "ws://127.0.0.1:9650/ext/bc/C/ws"),
    ("upstream-header-file", "/etc/neve/upstream-headers"),
    ("upstream-ca", "/etc/neve/upstream-ca.pem"),
    ("upstream-requests-per-second", "20"),
    ("mirror-from", "http://neve.example:8545"),
    ("start", "latest"),
    ("backfill-to", "none"),
    ("prove-threads", "4"),
    ("threads", "4"),
    ("client-bytes-address-max", "64MiB"),
    ("connections-address-max", "2500"),
    ("filters-address-max", "2500"),
    ("ready-age-max", "60s"),
    ("log-level", "info"),
];

/// A value that is allowed, for a setting without a fixed default.
fn example(setting: &Setting) -> String {
    if let Some((_, text)) = EXAMPLES.iter().find(|(name, _)| *name == setting.name) {
        return toml_value(setting, text);
    }
    if let Some(bounds) = &setting.kind.bounds {
        return toml_value(setting, bounds.min);
    }
    let words = setting.kind.words.map(|words| words());
    let word = words.and_then(|words| words.into_iter().next());
    format!("{:?}", word.as_deref().unwrap_or_else(|| placeholder(setting.kind.shown)))
}

fn placeholder(shown: &str) -> &'static str {
    match shown.split('|').next().unwrap_or_default() {
        "URL" => "http://127.0.0.1:9650",
        "DIR" => "/var/lib/neve",
        "FILE" => "/etc/neve/file",
        "ADDRESS" => "127.0.0.1:8549",
        "CIDR" => "127.0.0.1",
        "PATH" => "/rpc",
        "OBJECT.KEY" => "block.newKey",
        "FILTER" => "info",
        _ => "",
    }
}
