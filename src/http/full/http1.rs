//! Connections of HTTP/1 on the full path: hyper serves all requests that are not plain. A connection that begins
//! with the preface of HTTP/2 goes to [`http2`].
//!
//! hyper keeps 14 kB for each connection, most of it buffers. Most connections of a public endpoint
//! are idle. So a connection that was idle for a second leaves hyper and goes to the event loop,
//! where it takes very little.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use arc_swap::ArcSwap;
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::http2;
use super::service::{Client, Service, closing_unless};
use crate::body::ConnectionWakes;
use crate::http::response::HttpBody;
use crate::http::socket::{HyperSocket, IdleState};
use crate::http::ws::{Accepted, Upgrade};
use crate::http::{ConnectionGuard, Handoff, OpenConnection, ToFast, draining, ws};
use crate::shared::ClientAddress;

/// State of a connection after some requests.
enum ConnectionEnd {
    /// Nothing is left: the connection is closed.
    Nothing,
    /// A WebSocket, and the bytes that hyper read behind its handshake.
    WebSocket(Box<(Accepted, HyperSocket)>, Bytes),
    /// An idle connection, which is still open.
    Idle(Box<HyperSocket>),
}

/// Serves a connection until it closes or is idle. When neve drains, it ends after the response in
/// flight. Each request has the service that is in `place` when it comes.
pub(crate) async fn serve(
    moved: OpenConnection,
    place: &Arc<ArcSwap<Service>>,
    mut drain: watch::Receiver<bool>,
    handoff: &Handoff,
) {
    if moved.is_new && http2::begins(&moved.read) {
        // Boxed, as the other rare ways below: otherwise the future of each connection has space for it.
        return Box::pin(http2::serve(moved, place, drain)).await;
    }
    // The service is not kept: an old one would keep its connections to upstreams.
    let (socket, counted) = match socket_of(moved, &place.load_full()) {
        Ok(made) => made,
        Err(error) => return warn!(%error, "cannot serve a connection"),
    };
    match talk(socket, place, &mut drain).await {
        ConnectionEnd::Nothing => {}
        ConnectionEnd::WebSocket(opened, read) => {
            Box::pin(run_websocket(*opened, read, place, drain)).await;
        }
        ConnectionEnd::Idle(socket) => give_back(*socket, counted, handoff),
    }
}

/// Makes hyper's socket of a connection, with the settings of `service`.
fn socket_of(
    moved: OpenConnection,
    service: &Service,
) -> io::Result<(HyperSocket, ConnectionGuard)> {
    let OpenConnection { stream, read, sent, address, proxied, held, counted, .. } = moved;
    let stream = TcpStream::from_std(stream)?;
    let counters = Arc::clone(&service.responder.rpc.counters);
    let memory = Arc::clone(&service.responder.rpc.memory);
    let socket =
        HyperSocket::new(stream, sent.into(), address, service.deadlines, counters, memory);
    let socket = socket.with_read(read).proxied(proxied).header_bytes_max(service.header_bytes_max);
    Ok((socket.holding(held), counted))
}

/// Serves a WebSocket that begins with the bytes `read`.
async fn run_websocket(
    (accepted, socket): (Accepted, HyperSocket),
    read: Bytes,
    place: &Arc<ArcSwap<Service>>,
    drain: watch::Receiver<bool>,
) {
    debug!(client = ?accepted.client, "WebSocket opened");
    let service = place.load_full();
    let (responder, relay) = (&*service.responder, service.relay.as_ref());
    ws::run(accepted, (socket, read), responder, service.ws, relay, drain).await;
}

/// Gives an idle connection back to the fast path.
fn give_back(socket: HyperSocket, counted: ConnectionGuard, handoff: &Handoff) {
    match socket.leave(counted) {
        Ok(moved) => handoff.bring(ToFast::Connection(moved)),
        Err(error) => warn!(%error, "cannot serve a connection"),
    }
}

/// Answers requests until none comes for a while.
async fn talk(
    mut socket: HyperSocket,
    place: &Arc<ArcSwap<Service>>,
    drain: &mut watch::Receiver<bool>,
) -> ConnectionEnd {
    let (upgrade, quiet) = (Arc::new(Upgrade::default()), Arc::new(IdleState::default()));
    socket.tell(Arc::clone(&quiet));
    let named = socket.client();
    let respond = service_fn(|request: Request<Incoming>| {
        quiet.note_body(request.body().size_hint().exact());
        quiet.note_old_http(request.version() == Version::HTTP_10);
        let (service, upgrade) = (place.load_full(), Arc::clone(&upgrade));
        let client = client_of(&service, &request, named, &quiet);
        // Before the first poll: hyper reads at once what is there of the body.
        client.quiet.note_answering(true);
        async move { answer(&service, request, &upgrade, &client).await }
    });
    // Not `with_upgrades`: after a request with any `Upgrade` hyper would keep the socket at the end, and return it to no caller.
    let mut connection = builder(&place.load()).serve_connection(TokioIo::new(socket), respond);
    let mut draining = pin!(draining(drain));
    let (mut told, mut wakes) = (false, ConnectionWakes::default());
    let ended = poll_fn(|context| {
        let polled = Pin::new(&mut connection).poll(&mut wakes.context(context));
        if polled.is_ready() || told {
            return polled;
        }
        // hyper would close an idle connection at once, and a request on its way would fail. So its
        // graceful shutdown waits until the connection was idle for a while.
        if !quiet.is_closing() && draining.as_mut().poll(context).is_ready() {
            quiet.close_after_next();
        }
        // Told once: a second graceful shutdown would close a connection that goes on.
        told = quiet.is_parked();
        if !told {
            return Poll::Pending;
        }
        Pin::new(&mut connection).graceful_shutdown();
        let polled = Pin::new(&mut connection).poll(&mut wakes.context(context));
        if polled.is_pending() {
            quiet.unpark(); // a response is in flight
        }
        polled
    })
    .await;
    if let Err(error) = &ended {
        debug!(%error, "connection ended early");
    }
    let parts = connection.into_parts();
    let (socket, read) = (parts.io.into_inner(), parts.read_buf);
    match upgrade.take() {
        // The client may not have the whole 101, so no frame can follow it.
        Some(_) if ended.is_err() => ConnectionEnd::Nothing,
        Some(accepted) => ConnectionEnd::WebSocket(Box::new((accepted, socket)), read),
        None => left(&quiet, socket, &read, ended).await,
    }
}

/// Client of a request: the one that the connection names, or the header of a front.
fn client_of(
    service: &Service,
    request: &Request<Incoming>,
    (named, proxied): (ClientAddress, bool),
    quiet: &Arc<IdleState>,
) -> Client {
    // By request: a front sends requests of many clients over one connection.
    let address = if proxied { service.policy.proxies.client(request.headers()) } else { None };
    if proxied {
        quiet.note_client(address);
    }
    service.client(request, address.unwrap_or(named), Arc::clone(quiet))
}

/// Answers a request, and notes whether the connection goes on afterwards.
async fn answer(
    service: &Service,
    request: Request<Incoming>,
    upgrade: &Upgrade,
    client: &Client,
) -> Result<Response<HttpBody>, Infallible> {
    let response = service.respond(request, upgrade, client).await;
    client.quiet.note_answering(false);
    let closes = response.as_ref().is_ok_and(|response| closes(response.headers()));
    client.quiet.note_unread(closes);
    response.map(|response| closing_if(client.quiet.is_closing(), response))
}

/// Takes a socket that hyper left: an idle one goes on, any other one closes.
async fn left(
    quiet: &IdleState,
    socket: HyperSocket,
    read: &[u8],
    ended: hyper::Result<()>,
) -> ConnectionEnd {
    if quiet.ends_with_connection() && ended.as_ref().is_err_and(hyper::Error::is_user) {
        socket.reset(); // a body broke off, and it may have had no length
        return ConnectionEnd::Nothing;
    }
    if ended.is_ok() && quiet.is_parked() {
        // A copy: hyper's buffer may have the capacity of a whole request head.
        let read = Bytes::copy_from_slice(read);
        return ConnectionEnd::Idle(Box::new(socket.with_read(read)));
    }
    // The client may still be sending. A close with unread bytes would reset the connection, and the
    // client could lose the response.
    if quiet.is_unread() || socket.is_refused() || ended.is_err_and(|error| error.is_parse()) {
        socket.linger().await;
    }
    ConnectionEnd::Nothing
}

/// Marks a response whose connection closes, unless it becomes a WebSocket.
fn closing_if(closing: bool, response: Response<HttpBody>) -> Response<HttpBody> {
    let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    closing_unless(!closing || upgraded, response)
}

fn closes(headers: &HeaderMap) -> bool {
    headers.get(CONNECTION).is_some_and(|value| value == "close")
}

/// Makes the settings of hyper. `pipeline_flush` stays off: it would copy every response into one buffer.
fn builder(service: &Service) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // A client that closed its sending half still wants the responses (`half_close`). In turn hyper
    // does not notice while it answers that a client has gone: see `gone`.
    // No header timeout: the socket has all clocks (`crate::http::socket`).
    builder.header_read_timeout(None).max_buf_size(service.header_bytes_max).half_close(true);
    builder
}
