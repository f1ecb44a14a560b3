//! Serving: threads that do nothing else, each with its own runtime and its own connections.
//!
//! One task accepts and hands connections out in turn, so that work is spread evenly at any
//! number of connections; from then on a connection stays with its worker.

mod answer;
mod body;
mod connection;
mod cors;
mod encoded;
mod etag;
mod fees;
mod filters;
mod head;
mod hosts;
mod lane;
mod logs;
mod media_type;
mod mirror;
mod node;
mod out;
mod outgoing;
mod plain;
mod raw;
mod refusal;
mod reply;
mod rest;
mod rest_path;
mod route;
mod rpc;
mod sending;
mod service;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

pub(crate) use connection::draining;
pub(crate) use hosts::Hosts;
pub(crate) use mirror::Mirrors;
pub(crate) use refusal::Refusal;
pub(crate) use reply::ReplyBody;
pub(crate) use rpc::{Calls, Frame, Rpc};
pub(crate) use socket::{Patience, Socket};

use crate::admin::Admin;
use crate::config::{HttpConfig, Limits};
use crate::filters::Filters;
use crate::serving::Serving;
use crate::tally::Tally;
use connection::serve;
use service::Service;

/// A pause after the process ran out of descriptors: trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Threads of each worker that may wait for the disk; a request that must waits for one of them.
const WAITING_THREADS: usize = 16;

/// What all listeners share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) serving: Arc<Serving>,
    pub(crate) admin: Arc<Admin>,
    pub(crate) filters: Arc<Filters>,
    pub(crate) limits: Limits,
    pub(crate) http: HttpConfig,
    pub(crate) connections: Arc<AtomicUsize>,
    /// Turns true when connections are to end.
    pub(crate) drain: watch::Receiver<bool>,
    /// What mirrors are given, if anything.
    pub(crate) mirrors: Option<Mirrors>,
}

/// What one listener is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// JSON-RPC, and the administrator's paths if they have no listener of their own.
    Rpc {
        /// Whether /health, /ready and /metrics are here.
        admin: bool,
    },
    /// The administrator's paths only.
    Admin,
}

/// A thread that serves connections.
struct Worker {
    connections: mpsc::UnboundedSender<std::net::TcpStream>,
    thread: thread::JoinHandle<()>,
}

/// The serving threads.
pub(crate) struct Workers(Vec<Worker>);

impl Workers {
    /// Starts a thread for each tally.
    pub(crate) fn start(shared: &Shared, role: Role, tallies: &[Arc<Tally>]) -> io::Result<Self> {
        let start = |(at, tally): (usize, &Arc<Tally>)| {
            let (connections, incoming) = mpsc::unbounded_channel();
            let (shared, tally) = (shared.clone(), Arc::clone(tally));
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().max_blocking_threads(WAITING_THREADS);
            let runtime = runtime.build()?;
            let thread = thread::Builder::new()
                .name(format!("http-{at}"))
                .spawn(move || runtime.block_on(serve_all(shared, role, tally, incoming)))?;
            Ok(Worker { connections, thread })
        };
        tallies.iter().enumerate().map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Accepts until drained, and hands connections out in turn.
    pub(crate) async fn accept(&self, listener: TcpListener, shared: &Shared) {
        let mut drain = shared.drain.clone();
        for turn in (0..self.0.len()).cycle() {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = draining(&mut drain) => return,
            };
            match accepted {
                Ok((stream, from)) => self.hand_out(turn, stream, from, shared),
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn hand_out(&self, turn: usize, stream: TcpStream, from: SocketAddr, shared: &Shared) {
        if shared.connections.load(Ordering::Relaxed) >= shared.limits.connections_max {
            debug!(%from, "too many connections");
            refuse(&stream);
            return;
        }
        // A failure leaves Nagle's algorithm on: slower, and correct.
        let _ = stream.set_nodelay(true);
        match stream.into_std() {
            // A worker ends only after this task: the stream is not lost.
            Ok(stream) => drop(self.0[turn].connections.send(stream)),
            Err(error) => warn!(%error, "cannot serve a connection"),
        }
    }

    /// Lets the threads end once their connections have.
    pub(crate) fn join(self) {
        for Worker { connections, thread } in self.0 {
            drop(connections);
            if thread.join().is_err() {
                warn!("a serving thread panicked");
            }
        }
    }
}

/// Says why, as far as the socket takes it at once, and closes.
fn refuse(stream: &TcpStream) {
    let text = "too many connections\n";
    let head = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n";
    let reply = format!("{head}Content-Length: {}\r\n\r\n{text}", text.len());
    let _ = stream.try_write(reply.as_bytes());
}

/// Serves what comes until there is no more to come, and then what is left.
async fn serve_all(
    shared: Shared,
    role: Role,
    tally: Arc<Tally>,
    mut incoming: mpsc::UnboundedReceiver<std::net::TcpStream>,
) {
    let service = Arc::new(Service {
        rpc: Arc::new(Rpc {
            serving: Arc::clone(&shared.serving),
            status: Arc::clone(&shared.admin.status),
            filters: Arc::clone(&shared.filters),
            limits: shared.limits,
            tally: Arc::clone(&tally),
        }),
        admin: Arc::clone(&shared.admin),
        admin_here: role != Role::Rpc { admin: false },
        rpc_here: role != Role::Admin,
        miss_status: shared.http.miss_status,
        hosts: shared.http.hosts.clone(),
        rpc_paths: Arc::clone(&shared.http.rpc_paths),
        head_bytes_max: shared.http.head_bytes_max,
        ws: shared.http.ws,
        mirrors: shared.mirrors.clone(),
    });
    let drain = own(shared.drain.clone());
    let mut open = JoinSet::new();
    while let Some(stream) = incoming.recv().await {
        while open.try_join_next().is_some() {}
        let connection = Counted::new(&shared.connections);
        match TcpStream::from_std(stream) {
            Ok(stream) => {
                let socket = Socket::new(stream, shared.http.patience, Arc::clone(&tally));
                let (service, drain) = (Arc::clone(&service), drain.clone());
                open.spawn(async move {
                    let _connection = connection;
                    serve(socket, &service, drain).await;
                });
            }
            Err(error) => warn!(%error, "cannot serve a connection"),
        }
    }
    while open.join_next().await.is_some() {}
}

/// The same, for this thread: every request looks at it, which locks it.
fn own(mut drain: watch::Receiver<bool>) -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    tokio::spawn(async move {
        draining(&mut drain).await;
        tell.send_replace(true);
        tell.closed().await; // what comes now is to be told too
    });
    told
}

/// An open connection, as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
