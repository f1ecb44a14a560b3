//! The command: settings in, lines out, once or again and again.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde_json::Value;
use tokio::time::sleep;

use super::admin_pages::AdminPages;
use super::lines::{CallCounts, WATCH_EVERY, page};
use super::metric_lines::call_lines;
use crate::commands::config::{USAGE, written};
use crate::config::settings::{AdminListen, HttpConfig};
use crate::config::{ConfigError, ListenAddress, SettingsSource};

/// Exit code if neve does not answer.
const UNREACHABLE: u8 = 2;
/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Prints the state of a running neve once, or once a second.
///
/// # Errors
/// The exit code is 1 if neve is not ready, 2 if it cannot be reached, and 64 after wrong usage.
pub fn run(source: Result<SettingsSource, ConfigError>, watch: bool) -> ExitCode {
    let address = source.map_err(|error| error.to_string()).and_then(|source| address(&source));
    let (code, shown) = match address {
        Ok(address) => (UNREACHABLE, shown(&address, watch)),
        Err(why) => (USAGE, Err(why)),
    };
    shown.unwrap_or_else(|why| {
        complain(&why);
        ExitCode::from(code)
    })
}

fn shown(address: &ListenAddress, watch: bool) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    runtime.block_on(show(address, watch))
}

/// Writes to standard error, which may be closed.
fn complain(why: &str) {
    let _ = writeln!(io::stderr(), "neve: {why}"); // there is nowhere else to say it
}

/// Returns the address of the listener that has the full /health.
fn address(source: &SettingsSource) -> Result<ListenAddress, String> {
    let read = source.read().and_then(|values| HttpConfig::of(&values));
    let http = read.map_err(|error| error.to_string())?;
    let on_main = http.listen.into_iter().next().filter(|_| http.admin_on_main);
    let address = match http.admin_listen {
        AdminListen::Given(address) | AdminListen::Default(address) => Some(address),
        AdminListen::Off => on_main,
    };
    let none = "no admin listener; start neve with --admin-listen HOST:PORT";
    let address = address.ok_or(none)?;
    // The settings do not tell which port the kernel chose for the running neve.
    if address.is_any_port() {
        return Err("the port is any free one; name it with --admin-listen HOST:PORT".to_owned());
    }
    Ok(address)
}

async fn show(address: &ListenAddress, watch: bool) -> Result<ExitCode, String> {
    let admin = AdminPages::at(address)?;
    let (mut before, mut was_there) = (None, false);
    loop {
        match admin.health().await {
            // It may be starting again.
            Err(why) if watch && was_there => {
                complain(&why);
                before = None;
            }
            health => {
                let health = health?;
                let (text, calls) = lines(&admin, &health, before).await;
                (before, was_there) = (calls, true);
                if let Some(code) = print(&text, &health, watch) {
                    return Ok(code);
                }
            }
        }
        sleep(WATCH_EVERY).await;
    }
}

/// Returns the lines of a look, and the calls that it has seen.
async fn lines(
    admin: &AdminPages,
    health: &Value,
    before: Option<CallCounts>,
) -> (String, Option<CallCounts>) {
    let metrics = admin.metrics().await;
    let metrics = metrics.as_deref();
    let calls = metrics.map(CallCounts::of);
    (page(health, calls, before) + &call_lines(metrics.unwrap_or_default()), calls)
}

/// Prints the lines of a look. Returns the exit code, unless another look follows.
fn print(text: &str, health: &Value, watch: bool) -> Option<ExitCode> {
    // In a file or a pipe the escape sequence would be text.
    let clear = if watch && io::stdout().is_terminal() { CLEAR } else { "" };
    let mut out = io::stdout();
    let printed = write!(out, "{clear}{text}").and_then(|()| out.flush());
    let is_closed = printed.is_err();
    let code = written(printed);
    if watch && !is_closed {
        return None;
    }
    let ready = health["status"] == "ok";
    Some(if ready || code != ExitCode::SUCCESS { code } else { ExitCode::FAILURE })
}
