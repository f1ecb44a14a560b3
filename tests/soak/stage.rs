//! The chain, the neve that follows it and its mirror, and the phase that all threads look at.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use neve_devnet::{Config, DevnetThread, Signatures};
use tempfile::TempDir;

use crate::liar::Liar;
use crate::support::client::Client;
use crate::support::neve::{LIMIT, Neve, fresh_dir};
use crate::support::node::wait::{Miss, wait_until};

/// Blocks a second.
const RATE: f64 = 8.0;
/// Heights when it begins.
const HEAD: u64 = 300;
/// Blocks that are kept: more than come while anything is restarted.
const RETAIN: &str = "400";
/// Ports that the system does not give to clients.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// Time of a quiet or an attacked phase.
pub(crate) const TURN: Duration = Duration::from_secs(4);
/// Time for clients and servers to recover from an attack.
const SETTLE: Duration = Duration::from_secs(1);
/// Between looks at the clock.
const PAUSE: Duration = Duration::from_millis(20);

/// Phase of the soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Clients that mean well only.
    Quiet,
    /// Attackers besides. It takes turns with the quiet phase, so that both meet the same machine.
    Attacked,
    /// Attackers have just ended: nothing is measured.
    Settling,
    /// Attackers and restarts.
    Restarts,
    /// No more blocks: subscribers get what is left, all others stop.
    Last,
    /// All clients stop.
    Over,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::Quiet, Self::Attacked, Self::Settling, Self::Restarts, Self::Last, Self::Over];

    pub(crate) fn has_attackers(self) -> bool {
        matches!(self, Self::Attacked | Self::Restarts)
    }
}

/// Names the source or its mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Source,
    Mirror,
}

/// Process of the source or of the mirror, over its restarts.
pub(crate) struct Server {
    dir: TempDir,
    arguments: Vec<String>,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    pid: AtomicU32,
    neve: Mutex<Option<Neve>>,
}

/// All that threads share.
pub(crate) struct Stage {
    pub(crate) devnet: DevnetThread,
    /// Another upstream of the source.
    pub(crate) liar: Arc<Liar>,
    source: Server,
    mirror: Server,
    phase: AtomicU8,
    /// The last height of all, once there is one.
    last: AtomicU64,
}

/// A listener on a free port, which no other process takes as long as the listener is there.
fn free_port() -> TcpListener {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS))).ok();
    std::iter::repeat_with(listen).take(1000).flatten().next().expect("there is a free port")
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let [address, admin] =
            [free_port(), free_port()].map(|listener| listener.local_addr().expect("it listens"));
        let dir = fresh_dir();
        let store = dir.path().join("store").display().to_string();
        let (listen, admin_listen) = (address.to_string(), admin.to_string());
        let fixed =
            ["serve", "--listen", &listen, "--admin-listen", &admin_listen, "--data-dir", &store];
        let store =
            ["--disk-reserve-bytes", "1MiB", "--retain-blocks", RETAIN, "--segment-blocks", "64"];
        let rest = ["--segment-bytes", "4MiB", "--serve-mirrors", "--drain-timeout", "2s"];
        let senders = ["--recover-senders", "never", "--fsync-interval", "200ms"];
        let all = [&fixed[..], &store, &rest, &senders, more].concat();
        let arguments = all.into_iter().map(str::to_owned).collect();
        let server =
            Self { dir, arguments, address, admin, pid: AtomicU32::new(0), neve: Mutex::default() };
        server.begin();
        server
    }

    /// Starts it, again or at first.
    pub(crate) fn begin(&self) {
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        let neve = Neve::spawn(self.dir.path(), &arguments);
        self.pid.store(neve.pid(), Ordering::Relaxed);
        *self.neve.lock().expect("no thread panics with it") = Some(neve);
    }

    /// Takes neve out, for the caller that ends it.
    pub(crate) fn take(&self) -> Neve {
        self.pid.store(0, Ordering::Relaxed);
        let neve = self.neve.lock().expect("no thread panics with it").take();
        neve.expect("it runs")
    }

    /// Returns its process, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// Waits until it serves a height.
    pub(crate) fn wait_for_head(&self, height: u64) {
        let look = || {
            let health = Client::new(self.admin).get("/health").json();
            let head = health["blocks"]["head"].as_u64();
            if head >= Some(height) { Ok(()) } else { Err(Miss::NotYet(health.to_string())) }
        };
        wait_until(&format!("height {height}"), LIMIT, look).unwrap_or_else(|why| panic!("{why}"));
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Stage {
    pub(crate) fn start(unix_ms: u64) -> Self {
        let mut config = Config::dev(RATE, unix_ms).with_head(HEAD);
        config.chain = config.chain.ending_at(unix_ms, HEAD);
        config.chain.signatures = Signatures::Filler;
        let devnet = DevnetThread::start(config).expect("loopback has free ports");
        let liar = Liar::start(devnet.address());
        let (url, other) = (devnet.base_url(), format!("http://{}", liar.address));
        let source = Server::start(&["--upstream", &url, "--upstream", &other, "--start", "0"]);
        source.wait_for_head(HEAD);
        let url = format!("http://{}", source.address);
        let mirror = Server::start(&["--mirror-from", &url]);
        mirror.wait_for_head(HEAD);
        let (phase, last) = (AtomicU8::new(Phase::Quiet as u8), AtomicU64::new(u64::MAX));
        Self { devnet, liar, source, mirror, phase, last }
    }

    pub(crate) fn server(&self, place: Place) -> &Server {
        match place {
            Place::Source => &self.source,
            Place::Mirror => &self.mirror,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// The last height of all, once there is one.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Has quiet and attacked phases take turns until then, or until a thread failed.
    pub(crate) fn alternate(&self, until: Instant) {
        let turns = [(Phase::Quiet, TURN), (Phase::Attacked, TURN), (Phase::Settling, SETTLE)];
        for (turn, (phase, time)) in turns.into_iter().cycle().enumerate() {
            self.liar.lie(turn / turns.len() % 2 == 1);
            if Instant::now() >= until || self.phase() >= Phase::Restarts {
                return;
            }
            // Only a thread that failed changes the phase besides.
            let turn = |before| (before < Phase::Restarts as u8).then_some(phase as u8);
            let _ = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, turn);
            self.wait_in(phase, Instant::now() + time);
        }
    }

    /// Has a phase go on until then, or until a thread failed.
    pub(crate) fn pass(&self, phase: Phase, until: Instant) {
        self.liar.lie(true);
        self.enter(phase);
        self.wait_in(phase, until);
    }

    fn wait_in(&self, phase: Phase, until: Instant) {
        while Instant::now() < until && self.phase() == phase {
            thread::park_timeout(PAUSE);
        }
    }

    /// Makes no more blocks, waits until both serve all of them, and lets the subscribers end.
    pub(crate) fn finish(&self) {
        self.liar.lie(false);
        self.devnet.set_rate(0.0);
        self.enter(Phase::Last);
        let mut last = self.devnet.accepted();
        loop {
            thread::park_timeout(Duration::from_millis(500)); // several times what a block takes
            let now = self.devnet.accepted();
            if std::mem::replace(&mut last, now) == now && self.devnet.latest() == now {
                break;
            }
        }
        self.last.store(last, Ordering::Release);
    }

    /// A phase after the measured ones never comes back: one that a panic ended stays ended.
    fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// Ends all threads if the one that has it panics.
    pub(crate) fn ends_when_dropped(&self) -> Guard<'_> {
        Guard(self)
    }
}

/// Ends everything if its thread panics.
pub(crate) struct Guard<'s>(&'s Stage);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.enter(Phase::Over);
        }
    }
}
