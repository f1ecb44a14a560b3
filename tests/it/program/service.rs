//! neve as a service: sockets that another process keeps, and what it tells the service manager.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;

use crate::support::client::read;
use crate::support::corpus::MAIN;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::recorded::Recorded;

/// A socket that this process keeps, and neve may serve.
struct Kept {
    listener: TcpListener,
    variables: [String; 2],
}

impl Kept {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // It has one number here and there; no LISTEN_PID names one process only.
        fcntl_setfd(&listener, FdFlags::empty()).unwrap();
        let first = format!("LISTEN_FDS_FIRST_FD={}", listener.as_raw_fd());
        Self { listener, variables: ["LISTEN_FDS=1".to_owned(), first] }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn start(&self, dir: &Path, arguments: &[&str]) -> Neve {
        let [sockets, first] = &self.variables;
        Neve::start_by(&["env", sockets, first], dir, arguments)
    }
}

/// Time that a stopping neve waits for a request on an idle connection.
const DRAIN_IDLE: Duration = Duration::from_secs(1);

/// A client that closes its connection when the server says so. It never asks twice on a connection that it used in time.
struct Strict {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
    /// Time of the connection or its last response, and the time from then until the last request was sent.
    last: Instant,
    idle: Duration,
}

impl Strict {
    fn new(address: SocketAddr) -> Self {
        Self { address, stream: None, last: Instant::now(), idle: Duration::ZERO }
    }

    fn block_number(&mut self) -> std::io::Result<u16> {
        match self.ask() {
            Err(_) if self.idle >= DRAIN_IDLE => {
                self.stream = None;
                self.ask()
            }
            asked => asked,
        }
    }

    fn ask(&mut self) -> std::io::Result<u16> {
        self.idle = Duration::ZERO;
        if self.stream.is_none() {
            self.stream = Some(BufReader::new(TcpStream::connect(self.address)?));
            self.last = Instant::now();
        }
        let stream = self.stream.as_mut().expect("it is connected");
        stream.get_ref().set_read_timeout(Some(LIMIT))?;
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
        let sent = write!(stream.get_mut(), "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        self.idle = self.last.elapsed();
        sent?;
        let response = read(stream, false)?;
        self.last = Instant::now();
        if response.header("connection") == Some("close") {
            self.stream = None;
        }
        Ok(response.status)
    }
}

#[test]
fn restart_with_a_kept_socket_fails_no_request() {
    let (node, dir, kept) = (Recorded::start(MAIN), fresh_dir(), Kept::new());
    let start = || kept.start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    let neve = start();
    assert_eq!(neve.address, kept.address());
    neve.wait_for_head(339);
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ask = || {
        let mut client = Strict::new(kept.address());
        while !over.load(Ordering::Relaxed) {
            let status = client.block_number();
            assert!(matches!(status, Ok(200)), "{status:?}");
            asked.fetch_add(1, Ordering::Relaxed);
        }
    };
    let ask_on = |more: usize, clients: &[thread::ScopedJoinHandle<'_, ()>]| {
        let until = asked.load(Ordering::Relaxed) + more;
        while asked.load(Ordering::Relaxed) < until {
            assert!(clients.iter().all(|client| !client.is_finished()), "a request failed");
            thread::yield_now();
        }
    };
    let neve = thread::scope(|scope| {
        let clients = [(); 4].map(|()| scope.spawn(ask));
        ask_on(100, &clients);
        neve.stop_in_time();
        let neve = start();
        ask_on(100, &clients);
        over.store(true, Ordering::Relaxed);
        neve
    });
    neve.stop_in_time();
}

#[test]
fn idle_connection_gets_a_last_response_after_sigterm() {
    // A busy machine may delay the request until neve waits no longer.
    let is_in_time = (0..5).any(|_| gets_a_last_response());
    assert!(is_in_time, "no request came in time");
}

/// Returns false if the request came too late for a response.
fn gets_a_last_response() -> bool {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let neve = Neve::start(dir.path(), &["--upstream", &node.url(), "--start", "300"]);
    neve.wait_for_head(339);
    let mut client = Strict::new(neve.address);
    assert_eq!(client.block_number().unwrap(), 200);
    neve.signal(Signal::TERM);
    neve.wait_for_log("draining");
    // It asks as soon as neve drains, and neve waits for a second.
    let asked = client.ask();
    if asked.is_err() && client.idle >= DRAIN_IDLE {
        return false;
    }
    assert_eq!(asked.unwrap(), 200);
    assert!(client.stream.is_none(), "the response does not say that the connection closes");
    neve.stop_in_time();
    true
}

#[test]
fn development_chain_is_served_on_a_kept_socket_too() {
    let (dir, kept) = (fresh_dir(), Kept::new());
    let neve = kept.start(dir.path(), &["--dev"]);
    assert_eq!(neve.address, kept.address());
    neve.wait_for_head(1);
    let mut client = Strict::new(kept.address());
    // A head that is not there yet is a miss.
    neve.wait("an answer", |_| (client.block_number().unwrap() == 200).then_some(()));
    neve.stop_in_time();
    // The socket outlives it: a client waits in it for the next one.
    TcpStream::connect(kept.address()).unwrap();
}

#[test]
fn more_sockets_than_two_are_refused() {
    let dir = fresh_dir();
    let store = dir.path().join("store").display().to_string();
    let variables = [("LISTEN_FDS", "3"), ("LISTEN_FDS_FIRST_FD", "0")];
    let arguments = ["serve", "--dev", "--data-dir", &store];
    let output = crate::support::neve::run_with(&variables, &arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("(LISTEN_FDS): 3 were passed; allowed: at most 2"), "{said}");
}

/// The service manager's end of `NOTIFY_SOCKET`.
struct Manager(UnixDatagram);

impl Manager {
    /// Waits for a message that is this or has this line; returns the lines that came before it.
    fn wait_for(&self, line: &str) -> Vec<String> {
        let (mut before, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let len = self.0.recv(&mut buffer).unwrap_or_else(|why| panic!("{line}: {why}"));
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if text.trim_end() == line || text.lines().any(|told| told == line) {
                return before;
            }
            before.extend(text.lines().map(str::to_owned));
        }
    }
}

#[test]
fn service_manager_is_told_readiness_life_and_end() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    node.change(|state| state.hold = true);
    let path = dir.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    manager.0.set_read_timeout(Some(LIMIT)).unwrap();
    let variables =
        [format!("NOTIFY_SOCKET={}", path.display()), "WATCHDOG_USEC=200000".to_owned()];
    let starter = ["env", &variables[0], &variables[1]];
    let arguments = ["--upstream", &node.url(), "--start", "300", "--drain-timeout", "1h"];
    let neve = Neve::start_by(&starter, dir.path(), &arguments);
    manager.wait_for("EXTEND_TIMEOUT_USEC=30000000");
    node.change(|state| state.hold = false);
    let before = manager.wait_for("READY=1");
    assert!(before.iter().all(|line| !line.starts_with("WATCHDOG")), "{before:?}");
    neve.wait_for_head(339);
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    neve.signal(Signal::TERM);
    // TimeoutStopSec= of the unit is shorter.
    manager.wait_for("STOPPING=1\nEXTEND_TIMEOUT_USEC=7205000000");
    neve.stop_in_time();
}

/// systemd would end the start of a large store, and give neve up after five quick failures.
#[test]
fn unit_neither_ends_a_long_start_nor_gives_neve_up() {
    let unit = include_str!("../../../packaging/systemd/neve.service");
    for line in ["TimeoutStartSec=infinity", "StartLimitIntervalSec=0", "Restart=on-failure"] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn store_is_synced_at_the_end_without_time_for_responses() {
    let (node, dir) = (Recorded::start(MAIN), fresh_dir());
    let arguments = ["--upstream", &node.url(), "--start", "300", "--drain-timeout", "0s"];
    let neve = Neve::start(dir.path(), &arguments);
    neve.wait_for_head(339);
    neve.signal(Signal::TERM);
    neve.wait_for_log("INFO neve stopped");
    let log = neve.log();
    assert!(!log.contains("writer did not finish"), "{log}");
}
