//! The node's front: connections, and what comes over them.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioTimer;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tracing::debug;

use super::http;
use super::shared::{CONNECTIONS_MAX, Shared};
use super::socket::{self, Fuse, Socket};
use crate::counters::add;
use crate::faults::Fault;

/// Time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between attempts to accept or to listen again.
const RETRY: Duration = Duration::from_millis(20);

/// Serves until it is to end: then all connections end with it.
pub(crate) async fn serve(listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut shutdown = shared.shutdown.clone();
    let mut listener = Some(listener);
    loop {
        let run = phase(listener.take(), address, &shared);
        tokio::select! {
            _ = shutdown.wait_for(|end| *end) => return,
            next = run => listener = next,
        }
    }
}

/// Listens until the fault [`Fault::Refuse`] begins, or refuses until it ends. Returns the next listener.
async fn phase(
    listener: Option<TcpListener>,
    address: SocketAddr,
    shared: &Arc<Shared>,
) -> Option<TcpListener> {
    let mut changes = shared.node.faults.changes();
    let Some(listener) = listener else { return refuse(address, shared).await };
    let mut connections = JoinSet::new();
    loop {
        if shared.refuses() {
            return None; // with it end the connections
        }
        tokio::select! {
            _ = changes.changed() => {}
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => open(stream, shared, &mut connections),
                Err(error) => pause_after(&error).await,
            }
        }
    }
}

/// Refuses connections until the fault ends. Returns the next listener.
async fn refuse(address: SocketAddr, shared: &Shared) -> Option<TcpListener> {
    // Only to count the use: `refuses` looks without.
    shared.node.faults.strikes(&Fault::Refuse, &[]);
    shared.node.faults.until_cleared(&Fault::Refuse).await;
    listen_again(address).await
}

/// Waits before the next attempt to accept a connection.
async fn pause_after(error: &io::Error) {
    debug!(%error, "cannot accept a connection");
    tokio::time::sleep(RETRY).await;
}

async fn listen_again(address: SocketAddr) -> Option<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            debug!(%error, %address, "cannot listen again");
            tokio::time::sleep(RETRY).await;
            None
        }
    }
}

fn open(stream: TcpStream, shared: &Arc<Shared>, connections: &mut JoinSet<()>) {
    add(&shared.counters.connections);
    if shared.node.faults.strikes(&Fault::Reset, &[]) {
        return socket::reset(&stream);
    }
    if connections.len() < CONNECTIONS_MAX {
        // A failure leaves Nagle's algorithm on: slower, and correct.
        let _ = stream.set_nodelay(true);
        connections.spawn(connection(stream, Arc::clone(shared)));
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let fuse = Fuse::default();
    let socket = Socket::new(stream, fuse.clone());
    let service = service_fn(|request| http::respond(Arc::clone(&shared), fuse.clone(), request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(socket, service)
        .with_upgrades();
    if let Err(error) = pin!(served).await {
        debug!(%error, "a connection ended early");
    }
}

/// Listens at an address.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
