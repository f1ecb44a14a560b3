//! Admission of accepted connections: the address of a client, and the share of that address.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::open_connection::Arrived;
use crate::http::admit::ErrorResponse;
use crate::http::clients::proxy_protocol::Begin;
use crate::http::clients::{Proxies, Seats, proxy_protocol};

/// A connection with its header of the PROXY protocol, if one came.
type ProxiedConnection = Option<(TcpStream, SocketAddr, Begin)>;

/// Admits connections of one listener.
pub(crate) struct ConnectionAdmission {
    proxies: Proxies,
    seats: Arc<Seats>,
    /// Connections that must begin with a header of the PROXY protocol.
    telling: JoinSet<ProxiedConnection>,
}

impl ConnectionAdmission {
    /// Makes one that admits so many connections of an address, and any number of these proxies.
    pub(crate) fn new(connections_address_max: usize, proxies: Proxies) -> Self {
        let seats = Seats::new(connections_address_max);
        Self { proxies, seats, telling: JoinSet::new() }
    }

    /// Sets the most connections of an address.
    pub(crate) fn set_address_max(&self, connections_address_max: usize) {
        self.seats.set_most(connections_address_max);
    }

    /// Number of connections that are not admitted yet.
    pub(crate) fn waiting(&self) -> usize {
        self.telling.len()
    }

    /// Admits a connection, unless its address has its share or its client is not known yet.
    pub(crate) fn admit(&mut self, stream: TcpStream, from: SocketAddr) -> Option<Arrived> {
        // Any other peer could name any client, so its own address counts.
        if !self.proxies.trust(from.ip()) {
            return self.seat(stream, from, Bytes::new());
        }
        if self.proxies.speak_proxy_protocol() {
            // The header may be seconds away, and the acceptor takes other connections meanwhile.
            self.telling.spawn(listen(stream, from));
            return None;
        }
        // Each request names its own client, so the connection counts for no address.
        let (address, proxied) = (from.ip().into(), true);
        arrived(stream, |stream| Arrived {
            stream,
            read: Bytes::new(),
            address,
            proxied,
            seat: None,
        })
    }

    /// Returns the next connection whose client became known; pending while there is none.
    pub(crate) async fn next(&mut self) -> Option<Arrived> {
        let Some(told) = self.telling.join_next().await else {
            return std::future::pending().await;
        };
        let (stream, from, begin) = told.ok().flatten()?;
        // Only the address counts. The port is that of the proxy, and stands in log lines.
        let client = begin.client.map_or(from, |client| SocketAddr::new(client, from.port()));
        self.seat(stream, client, begin.rest)
    }

    fn seat(&self, stream: TcpStream, client: SocketAddr, read: Bytes) -> Option<Arrived> {
        let address = client.ip().into();
        let Some(seat) = self.seats.take(address) else {
            refuse(&stream, client);
            return None;
        };
        let (proxied, seat) = (false, Some(seat));
        arrived(stream, |stream| Arrived { stream, read, address, proxied, seat })
    }
}

async fn listen(stream: TcpStream, from: SocketAddr) -> ProxiedConnection {
    match proxy_protocol::read(&stream).await {
        Ok(begin) => Some((stream, from, begin)),
        Err(error) => {
            debug!(%from, %error, "connection of a proxy refused");
            None
        }
    }
}

fn arrived(
    stream: TcpStream,
    with: impl FnOnce(std::net::TcpStream) -> Arrived,
) -> Option<Arrived> {
    // After a failure Nagle's algorithm stays on, which is slower but correct.
    let _ = stream.set_nodelay(true);
    // Out of this runtime: each thread of a worker watches it by a poller of its own.
    match stream.into_std() {
        Ok(stream) => Some(with(stream)),
        Err(error) => {
            warn!(%error, "cannot serve a connection");
            None
        }
    }
}

/// Sends the error of too many connections, as far as the socket takes it, and closes.
pub(crate) fn refuse(stream: &TcpStream, from: SocketAddr) {
    debug!(%from, "too many connections");
    // The buffer of a new socket is empty, so this short text goes out without a wait.
    let _ = stream.try_write(ErrorResponse::CONNECTIONS_RAW);
}
