//! A worker: a thread for plain requests, and one with a runtime for all that they are not.

use std::io;
use std::net::TcpStream;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tracing::warn;

use super::connection::{draining, serve};
use super::door::{Come, Counted, Door, Leave, Left, Moved, Wait};
use super::lanes::Lanes;
use super::rpc::Rpc;
use super::service::Service;
use super::socket::Patience;
use super::{Role, Shared};
use crate::tally::Tally;

/// Threads of each worker that may wait for the disk; a request that must waits for one of them.
const WAITING_THREADS: usize = 16;

/// Two threads that serve connections.
pub(super) struct Worker {
    door: Door,
    /// Its open connections.
    open: Arc<AtomicUsize>,
    threads: [JoinHandle<()>; 2],
}

impl Worker {
    /// Starts the threads, each with a tally of its own.
    pub(super) fn start(
        at: usize,
        shared: &Shared,
        role: Role,
        [short, long]: &[Arc<Tally>; 2],
    ) -> io::Result<Self> {
        let (leaving, left) = mpsc::unbounded_channel();
        let patience = shared.http.patience;
        let lanes_service = Arc::new(service(shared, role, short));
        let (lanes, door) = Lanes::new(lanes_service, patience, leaving)?;
        let long = Long {
            service: Arc::new(service(shared, role, long)),
            patience,
            drain: shared.drain.clone(),
            door: door.clone(),
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(WAITING_THREADS).build()?;
        let spawn = |name: &str| thread::Builder::new().name(format!("{name}-{at}"));
        let threads = [
            spawn("http").spawn(move || lanes.run())?,
            spawn("hyper").spawn(move || runtime.block_on(long.run(left)))?,
        ];
        Ok(Self { door, open: Arc::default(), threads })
    }

    /// How many connections it has.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Serves a connection that was just opened, and counts it among those of the process.
    pub(super) fn take(&self, stream: TcpStream, connections: &Arc<AtomicUsize>) {
        let counted = Counted::new(&self.open, connections);
        self.door.bring(Come::Connection(Moved::new(stream, counted)));
    }

    /// Lets the threads end once their connections have.
    pub(super) fn join(self) {
        self.door.bring(Come::Last);
        for thread in self.threads {
            if thread.join().is_err() {
                warn!("a serving thread panicked");
            }
        }
    }
}

/// What answers the requests of one thread.
pub(super) fn service(shared: &Shared, role: Role, tally: &Arc<Tally>) -> Service {
    Service {
        rpc: Arc::new(Rpc {
            serving: Arc::clone(&shared.serving),
            status: Arc::clone(&shared.admin.status),
            filters: Arc::clone(&shared.filters),
            limits: shared.limits,
            tally: Arc::clone(tally),
        }),
        admin: Arc::clone(&shared.admin),
        admin_here: role != Role::Rpc { admin: false },
        rpc_here: role != Role::Admin,
        miss_status: shared.http.miss_status,
        hosts: shared.http.hosts.clone(),
        rpc_paths: Arc::clone(&shared.http.rpc_paths),
        head_bytes_max: shared.http.head_bytes_max,
        ws: shared.http.ws,
        bodies: Arc::clone(&shared.bodies),
        messages: Arc::clone(&shared.messages),
        mirrors: shared.mirrors.clone(),
    }
}

/// The thread with a runtime.
struct Long {
    service: Arc<Service>,
    patience: Patience,
    drain: watch::Receiver<bool>,
    door: Door,
}

impl Long {
    /// Serves what leaves the short way until there is no more to come, and then what is left.
    async fn run(self, mut left: mpsc::UnboundedReceiver<Leave>) {
        let drain = own(self.drain, self.door.clone());
        let mut open = JoinSet::new();
        while let Some(leave) = left.recv().await {
            while open.try_join_next().is_some() {}
            let (service, door) = (Arc::clone(&self.service), self.door.clone());
            match leave {
                Leave::Connection(moved) => {
                    let (patience, drain) = (self.patience, drain.clone());
                    open.spawn(async move { serve(moved, &service, patience, drain, &door).await });
                }
                Leave::Disk(key, stream, wait) => {
                    open.spawn(async move {
                        let done =
                            AssertUnwindSafe(wait_for(&service, stream, wait)).catch_unwind();
                        // Whatever happened: the connection waits for this.
                        door.bring(Come::Answer(key, done.await.unwrap_or_default()));
                    });
                }
            }
        }
        while open.join_next().await.is_some() {}
    }
}

/// What is left of an answer when it was waited for and sent as far as that goes at once; nothing if
/// it cannot be made or sent.
async fn wait_for(service: &Arc<Service>, stream: TcpStream, wait: Wait) -> Option<Left> {
    match wait {
        Wait::Answer(question) => service.answer_and_send(question, stream).await,
        Wait::Send(out) => spawn_blocking(move || Left { stream, out }.send()).await.ok()?,
    }
}

/// The same, for this thread: every request of hyper's looks at it, which locks it. Tells the other
/// thread too.
fn own(mut drain: watch::Receiver<bool>, door: Door) -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    tokio::spawn(async move {
        draining(&mut drain).await;
        door.bring(Come::Drain);
        tell.send_replace(true);
        tell.closed().await; // what comes now is to be told too
    });
    told
}
