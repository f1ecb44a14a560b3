//! A running session: what it prints, and what it is told.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::Value;

use super::install::{self, Program};

/// The longest pause between two lines: sessions give up after a minute by themselves.
const LIMIT: Duration = Duration::from_secs(100);

/// Line of a session: the name of a step, and a value or an error.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) step: String,
    /// The line as it was printed, keys sorted.
    pub(super) text: String,
    parsed: Value,
}

impl Line {
    fn parse(text: &str) -> serde_json::Result<Self> {
        let parsed: Value = serde_json::from_str(text)?;
        let step = parsed["step"].as_str().expect("a line names its step").to_owned();
        Ok(Self { step, text: parsed.to_string(), parsed })
    }

    pub(super) fn value(&self) -> Option<&Value> {
        self.parsed.get("error").is_none().then_some(&self.parsed["value"])
    }

    /// True if a cache was asked that cannot have it.
    pub(super) fn is_miss(&self) -> bool {
        self.step.starts_with("miss: ")
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.chars().take(600).collect::<String>())
    }
}

/// A program at work. Dropping it ends it.
pub(super) struct Session {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    complaints: PathBuf,
}

impl Session {
    pub(super) fn start(program: &Program, flags: &[&str], addresses: &[&str]) -> Self {
        let complaints = tempfile::NamedTempFile::new_in(install::folder());
        let (file, complaints) =
            complaints.and_then(|file| Ok(file.keep()?)).expect("a log can be made");
        let mut child = spawn(program, flags, addresses, file);
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        // Ends with the session's output, or when the receiver is gone.
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let stdin = child.stdin.take();
        Self { name: program.name, child, stdin, lines, complaints }
    }

    /// Says something to it.
    pub(super) fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is piped");
        let told = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        told.unwrap_or_else(|why| panic!("{} does not listen: {why}\n{}", self.name, self.said()));
    }

    /// All lines up to and with this step.
    pub(super) fn read_to_step(&mut self, step: &str) -> Vec<Line> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &Line| line.step != step) {
            let Some(line) = self.next() else {
                panic!("{} ended before «{step}»\n{}", self.name, self.said());
            };
            lines.push(line);
        }
        lines
    }

    /// All other lines; it must end well.
    pub(super) fn read_to_end(mut self) -> Vec<Line> {
        let lines = std::iter::from_fn(|| self.next()).collect();
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{} ended with {status}\n{}", self.name, self.said());
        lines
    }

    fn next(&mut self) -> Option<Line> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => {
                Some(Line::parse(&line).unwrap_or_else(|why| {
                    panic!("{} says {line}: {why}\n{}", self.name, self.said())
                }))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("{} says nothing for {LIMIT:?}\n{}", self.name, self.said())
            }
        }
    }

    /// Returns its standard error.
    fn said(&self) -> String {
        std::fs::read_to_string(&self.complaints).unwrap_or_default()
    }
}

fn spawn(program: &Program, flags: &[&str], addresses: &[&str], complaints: File) -> Child {
    let mut command = Command::new(&program.binary);
    // A proxy of the machine is not for loopback.
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
    {
        command.env_remove(name);
    }
    command.args(&program.arguments).args(flags).args(addresses);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
    command.spawn().unwrap_or_else(|why| panic!("{}: {why}", program.name))
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.complaints);
    }
}
