//! The real binary, as a child process in a fresh directory.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::client::Client;
use super::node::wait::{Miss, Pauses, wait_until};

/// Longest time of any act of the server, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_mins(5);
/// Longest wait for threads that run when no other one wants to: a busy machine starves them.
const NICE_LIMIT: Duration = Duration::from_mins(15);

/// Addresses, and what to try.
const GREETING_LINES: usize = 5;

/// A directory for a test, in the target directory: /tmp is memory on many machines.
pub(crate) fn fresh_dir() -> TempDir {
    let dir = tempfile::Builder::new().prefix("neve-").tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    dir.expect("cargo's directory for test files can be written")
}

/// Runs the binary to its end, which must come soon.
pub(crate) fn run(arguments: &[&str]) -> Output {
    run_with(&[], arguments)
}

/// Runs the binary with these variables set.
pub(crate) fn run_with(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = command();
    command.envs(variables.iter().copied());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary starts");
    let pid = Pid::from_child(&child);
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let late = waiting.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if late {
            let _ = kill_process(pid, Signal::KILL);
        }
        late
    });
    let output = child.wait_with_output().expect("it is our child");
    drop(done);
    assert!(!guard.join().expect("the guard does not panic"), "neve {arguments:?} did not end");
    output
}

/// The binary with these arguments.
pub(crate) fn command_of(arguments: &[&str]) -> Command {
    let mut command = command();
    command.args(arguments);
    command
}

fn command() -> Command {
    command_by(&[])
}

/// Variable with the program to test instead of cargo's: a path, perhaps after an emulator and a blank.
pub(crate) const PROGRAM: &str = "NEVE_TEST_PROGRAM";

/// The binary, started by a command that becomes it.
pub(crate) fn command_by(starter: &[&str]) -> Command {
    let program = std::env::var(PROGRAM).unwrap_or_else(|_| env!("CARGO_BIN_EXE_neve").to_owned());
    let mut whole = starter.iter().copied().chain(program.split(' '));
    let mut command = Command::new(whole.next().expect("the binary is one"));
    command.args(whole);
    // Settings of the machine must not leak into tests.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NEVE_")) {
        command.env_remove(name);
    }
    command.env("RUST_LOG", "info");
    command.env("NEVE_CONFIG", "none"); // so must its file
    command
}

/// A running `neve serve`.
pub(crate) struct Neve {
    child: Child,
    log: PathBuf,
    /// Address of the main listener.
    pub(crate) address: SocketAddr,
    /// Address of its full /health and its /metrics; the main address if they are nowhere else.
    pub(crate) admin: SocketAddr,
    /// Standard output of its start.
    pub(crate) greeting: String,
}

impl Neve {
    /// Starts `neve serve` on the store in `dir` and waits for its address.
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::start_by(&[], dir, arguments)
    }

    /// Starts it by a command that becomes the binary.
    pub(crate) fn start_by(starter: &[&str], dir: &Path, arguments: &[&str]) -> Self {
        fs::create_dir_all(dir).expect("a store's directory can be made");
        let store = dir.join("store").display().to_string();
        let fixed = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &store,
            "--disk-reserve-bytes",
            "1MiB",
        ];
        Self::spawn_by(starter, dir, &[&fixed, arguments].concat())
    }

    /// Starts the binary with just these arguments.
    pub(crate) fn spawn(dir: &Path, arguments: &[&str]) -> Self {
        Self::spawn_by(&[], dir, arguments)
    }

    fn spawn_by(starter: &[&str], dir: &Path, arguments: &[&str]) -> Self {
        let log = dir.join("neve.log");
        let file = File::options().create(true).append(true).open(&log).expect("a log can be made");
        let mut command = command_by(starter);
        // Other programs use the machine, and what is packed, scrubbed and pushed is waited for.
        command.env("NEVE_BACKGROUND_NICE", "0");
        command.args(arguments).stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let Some(Ok(first)) = lines.next() else {
            let _ = child.wait();
            panic!("neve {arguments:?} did not start:\n{}", tail(&log));
        };
        let address =
            first.split("http://").nth(1).and_then(|rest| rest.split('/').next()?.parse().ok());
        // A socket in the file system has none.
        let address = address.or_else(|| first.contains("unix:").then_some(([0; 4], 0).into()));
        let address = address.unwrap_or_else(|| panic!("no address in {first:?}"));
        let rest = lines.map_while(Result::ok).take(GREETING_LINES - 1);
        let greeting = std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n");
        let health = greeting.lines().find_map(|line| line.strip_prefix("health "));
        let health = health.map(str::trim);
        let is_socket = health.is_some_and(|line| line.starts_with("unix:"));
        let health = health.and_then(|line| line.strip_prefix("http://"));
        let admin = health.and_then(|rest| rest.strip_suffix("/health")?.parse().ok());
        let admin = admin.or_else(|| is_socket.then_some(([0; 4], 0).into()));
        let admin = admin.unwrap_or_else(|| panic!("no address of /health in {greeting:?}"));
        Self { child, log, address, admin, greeting }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// A client of the admin listener.
    pub(crate) fn admin(&self) -> Client {
        Client::new(self.admin)
    }

    pub(crate) fn health(&self) -> Value {
        self.admin().get("/health").json()
    }

    /// Returns the log until now.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until `look` finds something.
    pub(crate) fn wait<T>(&self, what: &str, look: impl FnMut(&Value) -> Option<T>) -> T {
        self.wait_within(LIMIT, what, look)
    }

    /// Waits in the same way for the work of a thread of the lowest priority, as the packer is.
    pub(crate) fn wait_for_nice<T>(&self, what: &str, look: impl FnMut(&Value) -> Option<T>) -> T {
        self.wait_within(NICE_LIMIT, what, look)
    }

    fn wait_within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut look: impl FnMut(&Value) -> Option<T>,
    ) -> T {
        let look = || {
            let health = self.health();
            look(&health).ok_or_else(|| Miss::NotYet(health.to_string()))
        };
        wait_until(what, limit, look).unwrap_or_else(|why| panic!("{why}\n{}", tail(&self.log)))
    }

    /// Waits until `/ready` answers 200. The head is served a moment earlier.
    pub(crate) fn wait_until_ready(&self) {
        self.wait("readiness", |_| (self.admin().get("/ready").status == 200).then_some(()));
    }

    /// Waits until the head is at least `height`. The time starts anew with each head.
    pub(crate) fn wait_for_head(&self, height: u64) {
        let (mut head, mut pauses) = (None, Pauses::default());
        while head < Some(height) {
            head = self.wait(&format!("head {height}, beyond {head:?}"), |health| {
                let now = health["blocks"]["head"].as_u64();
                (now > head).then_some(now)
            });
            if head < Some(height) {
                pauses.pause();
            }
        }
    }

    /// Waits until its log says `text`.
    pub(crate) fn wait_for_log(&self, text: &str) {
        let look = || {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            if log.contains(text) { Ok(()) } else { Err(Miss::NotYet(tail(&self.log))) }
        };
        wait_until(&format!("{text:?} in the log"), LIMIT, look)
            .unwrap_or_else(|why| panic!("{why}"));
    }

    /// Returns the value of a metric; the series is as the page has it.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        self.metric_text(series)?.parse().ok()
    }

    /// A counter's value, zero while it has not counted anything.
    pub(crate) fn count(&self, series: &str) -> u64 {
        self.metric_text(series).map_or(0, |text| text.parse().expect("counters are whole"))
    }

    fn metric_text(&self, series: &str) -> Option<String> {
        let page = self.admin().get("/metrics").text();
        page.lines().find_map(|line| Some(line.strip_prefix(series)?.strip_prefix(' ')?.to_owned()))
    }

    /// Waits until a counter has this value. Some things are counted when a client has seen them already.
    pub(crate) fn wait_for_count(&self, series: &str, value: u64) {
        self.wait(series, |_| (self.count(series) >= value).then_some(()));
        assert_eq!(self.count(series), value, "{series}");
    }

    /// Processor time that all its threads have taken since it was started (proc(5), `stat`).
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        // Linux has shown a hundred a second since 2.6, whatever it counts itself.
        Duration::from_millis(10 * ticks.map(|ticks| ticks.expect("a number")).sum::<u64>())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the process is ours and not yet waited for");
    }

    /// Ends it as an operator would; returns its exit code and how long it took.
    pub(crate) fn stop(mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        self.signal(Signal::TERM);
        let look = || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            _ => Err(Miss::NotYet("it runs".to_owned())),
        };
        let status = wait_until("the end of neve", LIMIT, look);
        (status.unwrap_or_else(|why| panic!("{why}\n{}", tail(&self.log))), start.elapsed())
    }

    /// Ends it as an operator would: well, and without cutting off connections that do not end.
    pub(crate) fn stop_in_time(self) {
        let log = self.log.clone();
        let (status, took) = self.stop();
        let log = tail(&log);
        let in_time = !log.contains("connections did not end in time");
        assert!(status.success() && in_time, "{status} after {took:?}:\n{log}");
    }

    /// Ends it as a power cut would, as far as a process can tell.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Neve {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the end of neve's log:\n{}", tail(&self.log));
        }
    }
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
