//! Start of logging.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::thread;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

use super::filter::filter;
use super::output::{LogOutput, start_queue};
use super::repeats::Unrepeated;
use crate::config::settings::{LogConfig, LogFormat};

/// Starts logging for a program that serves: no thread waits for standard error.
pub(crate) fn queued(config: &LogConfig) -> LogLevels {
    let queue = start_queue();
    let levels = start(config);
    if let Err(error) = queue {
        tracing::warn!(%error, "log without a queue");
    }
    panic::set_hook(Box::new(log_panic));
    levels
}

/// Logs a panic. The hook of the standard library would wait for the reader of standard error.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let place = panic.location().map(ToString::to_string);
    // Captures one only if RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    let backtrace =
        (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let error = panic.payload_as_str().unwrap_or("no text");
    tracing::error!(error, thread = thread.name(), place, backtrace, "thread panicked");
}

/// Starts logging to standard error.
pub(crate) fn start(config: &LogConfig) -> LogLevels {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(config))
        .with_writer(|| LogOutput)
        .log_internal_errors(false) // it would panic where standard error is closed
        .with_ansi(has_color(io::stderr().is_terminal(), env::var_os("NO_COLOR")));
    let (levels, started) = match config.format {
        LogFormat::Text => {
            let builder = builder.with_target(false).map_event_format(Unrepeated::new);
            let builder = builder.with_filter_reloading();
            (LogLevels::new(builder.reload_handle()), builder.try_init())
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).map_event_format(Unrepeated::new);
            let builder = builder.with_filter_reloading();
            (LogLevels::new(builder.reload_handle()), builder.try_init())
        }
    };
    if let Err(error) = started {
        let _ = writeln!(io::stderr(), "neve: logging is set up already: {error}"); // or nowhere
    }
    levels
}

/// True if lines have colors: on a terminal, unless the variable says no (no-color.org).
fn has_color(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.is_none_or(|text| text.is_empty())
}

/// The levels of the log, to change while neve runs.
pub(crate) struct LogLevels(Box<dyn Fn(EnvFilter) + Send + Sync>);

impl LogLevels {
    fn new<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        // It fails only if the log is gone, and then there is nothing to filter.
        Self(Box::new(move |filter| drop(handle.reload(filter))))
    }

    /// Sets the levels of these settings.
    pub(crate) fn set(&self, config: &LogConfig) {
        (self.0)(filter(config));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe, stdout};
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    const CHILD: &str = "NEVE_TEST_PANICS";

    /// Panics in a process of its own, whose standard error has no reader.
    fn panic_unread() {
        let config = LogConfig {
            format: LogFormat::Text,
            level: None,
            filter: None,
            access: None,
            access_queue_bytes_max: 0,
            request_ids: false,
        };
        let _levels = queued(&config);
        for _ in 0..100 {
            let text = "x".repeat(4096); // a pipe has space for 64 KiB
            let _ = thread::spawn(move || panic!("{text}")).join();
        }
        writeln!(stdout(), "went on").unwrap();
    }

    #[test]
    fn color_is_for_terminals_whose_user_wants_it() {
        let text = |text: &str| Some(OsString::from(text));
        assert!(has_color(true, None) && has_color(true, text("")));
        assert!(!has_color(true, text("1")) && !has_color(true, text("0")));
        assert!(!has_color(false, None));
    }

    #[test]
    fn panicking_thread_does_not_wait_for_the_reader_of_the_log() {
        if env::var_os(CHILD).is_some() {
            return panic_unread();
        }
        let name =
            "observe::log::start::tests::panicking_thread_does_not_wait_for_the_reader_of_the_log";
        let (_unread, error) = pipe().unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").stderr(error);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let (done, said) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            let _ = output.read_to_string(&mut text);
            let _ = done.send(text);
        });
        let said = said.recv_timeout(Duration::from_mins(1));
        let _ = child.kill();
        let _ = child.wait();
        assert!(said.expect("it ended").contains("went on"));
    }
}
