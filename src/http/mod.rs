//! Serving: workers that do nothing else, each with its own connections.
//!
//! One task accepts and hands each connection to the worker that has the fewest, so that work is
//! spread evenly at any number of connections, whichever of them end; from then on a connection
//! stays with its worker. A worker is two threads
//! (`worker`): one answers plain requests in a loop of its own (`lanes`), and what is anything else
//! goes to the other one, which has a runtime and hyper (`connection`).

mod answer;
mod body;
mod connection;
mod copied;
mod cors;
mod door;
mod encoded;
mod etag;
mod fees;
mod filters;
mod head;
mod hosts;
mod lane;
mod lanes;
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
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
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
use crate::room::Room;
use crate::serving::Serving;
use crate::tally::Tally;
use worker::Worker;

/// A pause after the process ran out of descriptors: trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all listeners share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) serving: Arc<Serving>,
    pub(crate) admin: Arc<Admin>,
    pub(crate) filters: Arc<Filters>,
    /// Of bodies that are on their way.
    pub(crate) bodies: Arc<Room>,
    /// Of messages over WebSocket.
    pub(crate) messages: Arc<Room>,
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

/// The serving threads.
pub(crate) struct Workers(Vec<Worker>);

impl Workers {
    /// Starts a worker for each two tallies.
    pub(crate) fn start(
        shared: &Shared,
        role: Role,
        tallies: &[[Arc<Tally>; 2]],
    ) -> io::Result<Self> {
        let start = |(at, tallies)| Worker::start(at, shared, role, tallies);
        tallies.iter().enumerate().map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Accepts until drained, and hands connections out.
    pub(crate) async fn accept(&self, listener: TcpListener, shared: &Shared) {
        let mut drain = shared.drain.clone();
        for turn in (0..self.0.len()).cycle() {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = draining(&mut drain) => return,
            };
            match accepted {
                Ok((stream, from)) if self.open() >= shared.limits.connections_max => {
                    debug!(%from, "too many connections");
                    refuse(&stream);
                }
                Ok((stream, _)) => hand_out(self.least(turn), stream, shared),
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// How many connections they have.
    fn open(&self) -> usize {
        self.0.iter().map(Worker::open).sum()
    }

    /// The worker that has the fewest connections; of several, the next from `turn` on.
    fn least(&self, turn: usize) -> &Worker {
        let (before, from) = self.0.split_at(turn);
        let least = from.iter().chain(before).min_by_key(|worker| worker.open());
        least.expect("there is a worker, or it would not be its turn")
    }

    /// Lets the threads end once their connections have.
    pub(crate) fn join(self) {
        self.0.into_iter().for_each(Worker::join);
    }
}

fn hand_out(to: &Worker, stream: TcpStream, shared: &Shared) {
    // A failure leaves Nagle's algorithm on: slower, and correct.
    let _ = stream.set_nodelay(true);
    match stream.into_std() {
        Ok(stream) => to.take(stream, &shared.connections),
        Err(error) => warn!(%error, "cannot serve a connection"),
    }
}

/// Says why, as far as the socket takes it at once, and closes.
fn refuse(stream: &TcpStream) {
    let text = "too many connections\n";
    let head = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n";
    let reply = format!("{head}Content-Length: {}\r\n\r\n{text}", text.len());
    let _ = stream.try_write(reply.as_bytes());
}
