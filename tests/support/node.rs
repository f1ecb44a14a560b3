//! A real avalanchego as a network of one node on loopback: start, stop, start again.

// Says that all of this is test code, where a panic is the finding.
#![cfg(test)]
#![allow(dead_code, reason = "every test binary includes this file and none uses all of it")]

mod binary;
mod config;
pub(crate) mod rpc;
pub(crate) mod wait;

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

pub(crate) use binary::binary;
pub(crate) use config::Options;
use config::Ports;
use wait::{Miss, wait_until};

/// Ready takes 0.4 to 1.6 s on a quiet machine.
const READY_LIMIT: Duration = Duration::from_mins(3);
/// A stop takes 0.1 to 2 s; one that takes longer is ended the hard way.
const STOP_LIMIT: Duration = Duration::from_mins(1);
/// Two processes may be handed the same free port; the later one tries again.
const STARTS_MAX: usize = 3;
/// Lines of the log that a failure shows.
const LOG_TAIL_LINES: usize = 30;
/// Some lines hold a whole configuration.
const LOG_LINE_CHARS: usize = 400;

/// A running (or stopped) node. Dropping it ends the process and removes its directory.
pub(crate) struct Node {
    dir: TempDir,
    binary: PathBuf,
    ports: Ports,
    options: Options,
    /// `None` while stopped. Behind a lock so that a test can stop a node that a feeder borrows.
    child: Mutex<Option<Child>>,
}

impl Node {
    /// Starts a node on a chain of its own and waits until its C-chain answers.
    ///
    /// # Panics
    /// If there is no binary or the node does not get ready; the log's end is in the message.
    pub(crate) fn start(options: Options) -> Self {
        let binary = binary();
        let mut node = Self::prepare(binary, options);
        for _ in 1..STARTS_MAX {
            match node.launch() {
                Ok(()) => return node,
                Err(why) if why.contains("address already in use") => node.ports = free_ports(),
                Err(why) => panic!("{why}"),
            }
        }
        node.launch().unwrap_or_else(|why| panic!("{why}"));
        node
    }

    /// A node with its files in place, not yet running.
    fn prepare(binary: PathBuf, options: Options) -> Self {
        // In the target directory: /tmp is memory on many machines.
        let dir = tempfile::Builder::new().prefix("node-").tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        let dir = dir.expect("cargo's directory for test files can be written");
        config::write_files(dir.path(), &options);
        Self { dir, binary, ports: free_ports(), options, child: Mutex::new(None) }
    }

    /// Ends the process as an operator would, with SIGTERM, and keeps data and ports.
    /// Does nothing when stopped already.
    pub(crate) fn stop(&self) {
        self.end(Signal::TERM);
    }

    /// Ends the process as a power cut would, with SIGKILL, and keeps data and ports.
    pub(crate) fn kill(&self) {
        self.end(Signal::KILL);
    }

    /// Stops the node if it runs and starts it again with the same data, ports and options.
    ///
    /// # Panics
    /// If the node does not get ready; the log's end is in the message.
    pub(crate) fn restart(&self) {
        self.stop();
        self.launch().unwrap_or_else(|why| panic!("{why}"));
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.http)
    }

    /// Returns the URL of the C-chain's JSON-RPC.
    pub(crate) fn http_url(&self) -> String {
        format!("{}/ext/bc/C/rpc", self.base_url())
    }

    /// Returns the URL of the C-chain's WebSocket.
    pub(crate) fn ws_url(&self) -> String {
        format!("ws://127.0.0.1:{}/ext/bc/C/ws", self.ports.http)
    }

    /// The process id, or `None` while stopped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Waits for something that this node should bring about. A crash ends the wait; a stop does
    /// not, as the test may start the node again meanwhile.
    ///
    /// # Panics
    /// When the wait fails: says what was waited for, and shows the end of the node's log.
    pub(crate) fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> Result<T, Miss>,
    ) -> T {
        let look = || look().map_err(|miss| self.crash().map_or(miss, Miss::Never));
        wait_until(what, limit, look).unwrap_or_else(|why| panic!("{}", self.with_log(&why)))
    }

    /// Runs a test body that has this long. When time is up the node is killed, on which whatever
    /// the body waits for fails as well.
    ///
    /// # Panics
    /// If the body does, or if time was up.
    pub(crate) fn within(&self, limit: Duration, body: impl FnOnce() + Send) {
        let (working, over) = mpsc::channel::<()>();
        let work = || {
            let _dropped_at_the_end = working;
            body();
        };
        std::thread::scope(|scope| {
            let work = scope.spawn(work);
            let late = over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if late {
                eprintln!("{}", self.with_log(&format!("the test is not done after {limit:?}")));
                self.kill();
            }
            work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert!(!late, "the test took longer than {limit:?}");
        });
    }

    /// `why`, and below it the errors in the node's log and the log's end.
    pub(crate) fn with_log(&self, why: &str) -> String {
        let log = std::fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let (before, tail) = lines.split_at(lines.len().saturating_sub(LOG_TAIL_LINES));
        let is_error = |line: &&&str| line.contains(" ERROR ") || line.contains(" FATAL ");
        let errors = before.iter().filter(is_error).take(LOG_TAIL_LINES);
        let shown: Vec<String> =
            errors.chain(tail).map(|line| line.chars().take(LOG_LINE_CHARS).collect()).collect();
        format!("{why}\n--- from {} ---\n{}", self.log_path().display(), shown.join("\n"))
    }

    /// Starts the process and waits until `eth_chainId` answers.
    fn launch(&self) -> Result<(), String> {
        *self.child() = Some(self.spawn());
        let ready = wait_until("the node's eth_chainId", READY_LIMIT, || self.is_ready());
        ready.map_err(|why| self.with_log(&why)).inspect_err(|_| self.kill())
    }

    /// The bare process, in the test's own process group so that Ctrl-C reaches it too.
    fn spawn(&self) -> Child {
        let log = self.open_log();
        let twin = log.try_clone().expect("an open file can be duplicated");
        Command::new(&self.binary)
            .args(config::flags(self.dir.path(), self.ports, &self.options))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(twin)
            .spawn()
            .unwrap_or_else(|why| panic!("{} cannot be run: {why}", self.binary.display()))
    }

    /// Looks once if the C-chain answers; a process that has ended never will.
    fn is_ready(&self) -> Result<(), Miss> {
        let answer = rpc::try_call(&self.http_url(), "eth_chainId", &json!([]));
        answer.map(|_| ()).map_err(|why| self.crash().map_or(Miss::NotYet(why), Miss::Never))
    }

    /// Says in words that the process ended though the test did not end it.
    fn crash(&self) -> Option<String> {
        let status = self.child().as_mut()?.try_wait().ok()??;
        Some(format!("avalanchego ended by itself with {status}"))
    }

    /// Signals exactly our own child, which cannot be another process: it is not yet reaped.
    fn end(&self, signal: Signal) {
        let Some(mut child) = self.child().take() else { return };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // Fails only if it has ended by itself, which is what is wanted.
        let _ = kill_process(pid.expect("a pid is positive and fits i32"), signal);
        let ended = wait_until("the node's end", STOP_LIMIT, || match child.try_wait() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Miss::NotYet("still running".to_owned())),
            Err(why) => Err(Miss::Never(why.to_string())),
        });
        if ended.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The log, to be written on behind what earlier runs left.
    fn open_log(&self) -> File {
        let path = self.log_path();
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    }

    /// Standard output and error of every run of this node.
    fn log_path(&self) -> PathBuf {
        self.dir.path().join("node.log")
    }

    /// The child, also after a panic elsewhere: it must still be ended.
    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// True if the binary in use has the Helicon upgrade, so that `helicon_after` has an effect.
pub(crate) fn knows_helicon() -> bool {
    binary::knows_helicon(&binary())
}

/// Two different ports that are free at this moment.
fn free_ports() -> Ports {
    let bind = || TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    // Both are held until both are known, else they could be the same one.
    let (http, staking) = (bind(), bind());
    let port = |socket: &TcpListener| socket.local_addr().expect("a bound socket").port();
    Ports { http: port(&http), staking: port(&staking) }
}
