//! A worker: a thread for plain requests, and one with a runtime for all other requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use arc_swap::ArcSwap;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use super::drain::draining;
use super::listener::{Role, Shared};
use super::open_connection::{
    Answered, Arrived, ConnectionGuard, Handoff, OpenConnection, ToFast, ToFull, UnsentResponse,
    Waited,
};
use crate::http::admit::Policy;
use crate::http::answer::Responder;
use crate::http::clients::Proxies;
use crate::http::fast::{EventLoop, FastService};
use crate::http::full::{Service, serve};
use crate::http::relay::RelayShared;
use crate::http::response::on_disk_thread;
use crate::observe::Pages;
use crate::rpc::Rpc;
use crate::rpc::cursors::Replays;
use crate::rpc::methods::Fetched;
use crate::shared::ThreadCounters;

/// Time for reads of the disk in flight when the thread ends.
const ENDING_MAX: Duration = Duration::from_secs(1);
/// Threads of each worker that read from disk: the rest of a response, or segments for mirrors.
const WAITING_THREADS: usize = 16;

/// Two threads that serve connections.
pub(crate) struct Worker {
    handoff: Handoff,
    /// Number of connections that either thread has.
    open: Arc<AtomicUsize>,
    threads: [JoinHandle<()>; 2],
    /// Services of the threads, and the counters of both.
    fast: Arc<ArcSwap<FastService>>,
    full: Arc<ArcSwap<Service>>,
    counters: [Arc<ThreadCounters>; 2],
}

impl Worker {
    /// Starts the threads, each with counters of its own.
    pub(crate) fn start(
        at: usize,
        shared: &Shared,
        role: Role,
        counters: &[Arc<ThreadCounters>; 2],
    ) -> io::Result<Self> {
        // Unbounded: a connection has one message on its way at most, and connections are bounded.
        let (leaving, left) = mpsc::unbounded_channel();
        let fast = Arc::new(ArcSwap::from_pointee(fast_service(shared, role, &counters[0])));
        let full = Arc::new(ArcSwap::from_pointee(full_service(shared, role, &counters[1])));
        let (event_loop, handoff) = EventLoop::new(Arc::clone(&fast), leaving)?;
        let full_loop = FullLoop::new(&full, shared, &handoff);
        let runtime = runtime()?;
        let [short, long] = role.thread_names();
        let spawn = |name: &str| thread::Builder::new().name(format!("{name}-{at}"));
        let threads = [
            spawn(short).spawn(move || event_loop.run())?,
            spawn(long).spawn(move || full_loop.run(runtime, left))?,
        ];
        let (open, counters) = (Arc::default(), counters.clone());
        Ok(Self { handoff, open, threads, fast, full, counters })
    }

    /// Gives both threads services with the settings of `shared`. Requests that come have them. A connection
    /// that the full path has keeps its time-outs, and a WebSocket all that it began with.
    pub(crate) fn renew(&self, shared: &Shared, role: Role) {
        let [short, long] = &self.counters;
        // Both before the message: the event loop takes the new service when the message comes.
        self.fast.store(Arc::new(fast_service(shared, role, short)));
        self.full.store(Arc::new(full_service(shared, role, long)));
        self.handoff.bring(ToFast::Renewed);
    }

    /// Returns the way to the thread of the fast path.
    pub(crate) fn handoff(&self) -> Handoff {
        self.handoff.clone()
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Serves a connection that was just opened, and counts it among those of the process.
    pub(crate) fn take(&self, arrived: Arrived, connections: &Arc<AtomicUsize>) {
        let counted = ConnectionGuard::new(&self.open, connections);
        self.handoff.bring(ToFast::Connection(OpenConnection::new(arrived, counted)));
    }

    /// Lets the threads end once their connections have.
    pub(crate) fn join(self) {
        // The event loop ends, and with it the channel on which the other thread waits.
        self.handoff.bring(ToFast::Last);
        for thread in self.threads {
            if thread.join().is_err() {
                warn!("serving thread panicked");
            }
        }
    }
}

/// Makes what the thread of the fast path has.
pub(crate) fn fast_service(
    shared: &Shared,
    role: Role,
    counters: &Arc<ThreadCounters>,
) -> FastService {
    let (responder, policy) = (Arc::new(responder(shared, counters)), policy(shared, role));
    FastService { responder, policy, deadlines: shared.http.deadlines }
}

/// Makes what the thread of the full path has.
fn full_service(shared: &Shared, role: Role, counters: &Arc<ThreadCounters>) -> Service {
    let relay = shared.relay.as_ref().filter(|_| role != Role::Admin);
    Service {
        responder: Arc::new(responder(shared, counters)),
        policy: policy(shared, role),
        admin: Arc::clone(&shared.admin),
        pages: if role == (Role::Rpc { admin: false }) { Pages::Public } else { Pages::All },
        deadlines: shared.http.deadlines,
        header_bytes_max: shared.http.header_bytes_max,
        connection_streams_max: shared.http.connection_streams_max,
        ws: shared.http.ws,
        mirrors: shared.mirrors.clone(),
        // The admin listener is for operators: it needs no key, writes no access lines, and relays
        // nothing.
        keys: shared.keys.clone().filter(|_| role != Role::Admin),
        access: shared.access.clone().filter(|_| role != Role::Admin),
        relay: relay.map(RelayShared::for_thread),
        relay_paths: relay.map(RelayShared::paths).unwrap_or_default(),
    }
}

fn responder(shared: &Shared, counters: &Arc<ThreadCounters>) -> Responder {
    Responder {
        rpc: Arc::new(Rpc {
            serving: Arc::clone(&shared.serving),
            status: Arc::clone(&shared.admin.status),
            filters: Arc::clone(&shared.filters),
            caches: Arc::clone(&shared.caches),
            limits: shared.limits,
            memory: Arc::clone(&shared.memory),
            counters: Arc::clone(counters),
            replays: Replays::default(),
            misses: shared.misses.clone(),
            below: shared.lender.as_ref().map(|lender| Arc::clone(&lender.below)),
            fetched: Fetched::default(),
        }),
        miss_status: shared.http.miss_status,
        offload: Arc::clone(&shared.offload),
        lender: shared.lender.clone(),
    }
}

fn policy(shared: &Shared, role: Role) -> Policy {
    let config = &shared.http;
    Policy {
        rpc_here: role != Role::Admin,
        // Only the full path checks keys, writes access lines and serves an operator's pages.
        fast_here: role != Role::Admin && shared.keys.is_none() && shared.access.is_none(),
        hosts: shared.hosts.clone(),
        proxies: Proxies::of(config),
        rpc_paths: Arc::clone(&config.rpc_paths),
    }
}

/// Makes the runtime of a thread of the full path.
fn runtime() -> io::Result<Runtime> {
    let mut runtime = Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(WAITING_THREADS).build()
}

/// The thread with a runtime.
struct FullLoop {
    service: Arc<ArcSwap<Service>>,
    drain: watch::Receiver<bool>,
    handoff: Handoff,
}

impl FullLoop {
    fn new(service: &Arc<ArcSwap<Service>>, shared: &Shared, handoff: &Handoff) -> Self {
        let (service, drain) = (Arc::clone(service), shared.drain.clone());
        Self { service, drain, handoff: handoff.clone() }
    }

    /// Serves on the calling thread until the last connection has ended.
    fn run(self, runtime: Runtime, left: mpsc::UnboundedReceiver<ToFull>) {
        runtime.block_on(self.serve(left));
        runtime.shutdown_timeout(ENDING_MAX); // a stalled disk holds a thread for ever
    }

    /// Serves connections that leave the fast path, until no more come and the last ones have ended.
    async fn serve(self, mut left: mpsc::UnboundedReceiver<ToFull>) {
        let drain = own(self.drain, self.handoff.clone());
        let mut open = JoinSet::new();
        while let Some(leave) = left.recv().await {
            // A set keeps tasks that ended until they are joined: it would grow for ever.
            while open.try_join_next().is_some() {}
            let handoff = self.handoff.clone();
            match leave {
                ToFull::Connection(moved) => {
                    let (service, drain) = (Arc::clone(&self.service), drain.clone());
                    open.spawn(async move { serve(moved, &service, drain, &handoff).await });
                }
                ToFull::Unsent(key, left) => {
                    open.spawn(send_unsent(key, left, handoff));
                }
            }
        }
        while open.join_next().await.is_some() {}
    }
}

/// Sends the rest of a response that is not in memory, and gives its connection back to the fast path.
async fn send_unsent(key: usize, left: UnsentResponse, handoff: Handoff) {
    // After any outcome, a panic too: the connection waits for this message.
    let left = on_disk_thread(move || left.send()).await.ok().flatten();
    let answered = Answered::from(left.map(Waited::Unsent));
    handoff.bring(ToFast::Answer(key, Some(answered)));
}

/// Returns a copy of the signal to drain for this thread: every request of hyper's reads it, which
/// locks it. Tells the other thread too.
fn own(mut drain: watch::Receiver<bool>, handoff: Handoff) -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    tokio::spawn(async move {
        draining(&mut drain).await;
        handoff.bring(ToFast::Drain);
        tell.send_replace(true);
        tell.closed().await; // what comes now is to be told too
    });
    told
}
