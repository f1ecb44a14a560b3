//! A connection in hyper's hands, for whatever is not a plain request.
//!
//! hyper keeps 14 kB for each connection that it serves, most of it buffers. Most connections of a
//! public endpoint are kept and say nothing; so one that has been quiet for a second is taken out
//! of hyper's hands, and waits where a connection takes next to nothing (`lanes`).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::door::{Come, Door, Moved};
use super::service::Service;
use super::socket::{Patience, Socket};
use crate::ws::{self, Upgrade};

/// How things stand with a connection; its socket and whoever serves it share it.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// A request is being answered.
    answering: AtomicBool,
    /// Nobody needs buffers for it now.
    parked: AtomicBool,
}

impl Quiet {
    /// Called when nothing was sent or came for a while.
    pub(super) fn park(&self) {
        // Relaxed: both sides are the same task.
        let busy = self.answering.load(Ordering::Relaxed);
        self.parked.store(!busy, Ordering::Relaxed);
    }

    /// It is not quiet: it goes on, and ends as any other does.
    fn goes_on(&self) {
        self.answering.store(true, Ordering::Relaxed);
        self.parked.store(false, Ordering::Relaxed);
    }

    /// Whether the socket must be left as it is, though whoever had it is done.
    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
    }
}

/// What is left of a connection after some requests.
enum Left {
    /// Nothing.
    Nothing,
    /// A WebSocket.
    WebSocket(OnUpgrade),
    /// A connection that is quiet, and still open.
    Quiet(Socket),
}

/// Serves a connection until it closes, until it has answered what it is answering when it is to
/// end, or until it is quiet.
pub(super) async fn serve(
    moved: Moved,
    service: &Arc<Service>,
    patience: Patience,
    mut drain: watch::Receiver<bool>,
    door: &Door,
) {
    let Moved { stream, read, sent, counted } = moved;
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => return warn!(%error, "cannot serve a connection"),
    };
    let socket = Socket::new(stream, sent.into(), patience, Arc::clone(&service.rpc.tally));
    match talk(socket.with_read(read), service, &mut drain).await {
        Left::Nothing => {}
        Left::WebSocket(upgraded) => {
            ws::run(upgraded, &service.rpc, service.ws, &service.messages, drain).await;
        }
        Left::Quiet(quiet) => match quiet.leave(counted) {
            Ok(moved) => door.bring(Come::Connection(moved)),
            Err(error) => warn!(%error, "cannot serve a connection"),
        },
    }
}

/// Answers requests until there are none for a while.
async fn talk(
    mut socket: Socket,
    service: &Arc<Service>,
    drain: &mut watch::Receiver<bool>,
) -> Left {
    let (upgrade, quiet) = (Arc::new(Upgrade::default()), Arc::new(Quiet::default()));
    socket.tell(Arc::clone(&quiet));
    let respond = service_fn(|request: Request<Incoming>| {
        let (service, upgrade) = (Arc::clone(service), Arc::clone(&upgrade));
        let quiet = Arc::clone(&quiet);
        async move {
            quiet.answering.store(true, Ordering::Relaxed);
            let response = service.respond(request, &upgrade).await;
            quiet.answering.store(false, Ordering::Relaxed);
            response
        }
    });
    let mut connection = builder(service).serve_connection(socket, respond).with_upgrades();
    let mut draining = pin!(draining(drain));
    let mut told = false;
    let ended = poll_fn(|context| {
        let polled = Pin::new(&mut connection).poll(context);
        if polled.is_ready() || told {
            return polled;
        }
        told = quiet.is_parked() || draining.as_mut().poll(context).is_ready();
        if !told {
            return Poll::Pending;
        }
        Pin::new(&mut connection).graceful_shutdown();
        let polled = Pin::new(&mut connection).poll(context);
        if polled.is_pending() {
            quiet.goes_on(); // an answer is under way
        }
        polled
    })
    .await;
    if let Err(error) = &ended {
        debug!(%error, "a connection ended early");
    }
    if let Some(upgraded) = upgrade.take() {
        return Left::WebSocket(upgraded);
    }
    let parts = connection.into_parts().filter(|_| ended.is_ok() && quiet.is_parked());
    parts.map_or(Left::Nothing, |parts| Left::Quiet(parts.io.with_read(parts.read_buf)))
}

/// What hyper is told. `pipeline_flush` stays off: it would copy every answer into one buffer.
fn builder(service: &Service) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // Who has sent all his requests and says so still wants the answers. In turn hyper does not
    // look, while it answers, whether the client has gone.
    builder.header_read_timeout(None).max_buf_size(service.head_bytes_max).half_close(true);
    builder
}

/// Waits until connections are to end.
pub(crate) async fn draining(drain: &mut watch::Receiver<bool>) {
    let _ = drain.wait_for(|drain| *drain).await; // that nobody can say so any more says it too
}
