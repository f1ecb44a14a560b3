//! HTTP/2 without TLS, by prior knowledge (RFC 9113, 3.3). `Upgrade: h2c` is ignored.
//!
//! A connection stays here to its end. `--connection-streams-max` bounds its streams. Windows, which are reserved
//! when it opens, bound the bytes that a client sends ahead. `FrameMeter` bounds frames that make work without a
//! request. The other memory of a stream is reserved while the stream is open.

mod body;
mod clock;
mod line_time;
mod send_memory;
mod socket;
mod streams;

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use h2::Reason;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::{debug, warn};

use self::body::Responding;
use self::clock::{ConnectionClock, Look};
use self::line_time::LineTime;
use self::send_memory::{OWN_BYTES, SendMemory};
use self::socket::{Http2Socket, refused_before_settings};
use self::streams::{Http2Stream, OpenStream, OpenStreams, StreamExecutor};
use super::service::{Client, Service};
use crate::body::ResponseBody;
use crate::config::settings::Deadlines;
use crate::http::admit::{BadHost, ErrorResponse};
use crate::http::response::{HttpBody, whole};
use crate::http::socket::IdleState;
use crate::http::ws::Upgrade;
use crate::http::{ClientWait, HTTP2_PREFACE, OpenConnection, draining};
use crate::rpc::RpcResponse;
use crate::shared::{ClientAddress, Holder, ThreadCounters};

/// Bytes that a client may send ahead on one stream, and on all of a connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Bytes of a response that wait in hyper.
const SEND_BUFFER: usize = 64 << 10;
/// Bytes of the headers of a request, each with 32 more (RFC 9113, 6.5.2). hyper reads up to four before the
/// first is answered.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// Headers of a request, as many as over HTTP/1.
const HEADERS_MAX: usize = 100;
/// Streams of a connection that hyper resets for an error of the client. It keeps something of each for a while.
const STREAM_ERRORS_MAX: usize = 64;
/// Memory of an open stream besides its request: its task, and what hyper notes of it. 13 KiB were seen.
const STREAM_BYTES: usize = 16 << 10;
/// Memory of a frame that was read, which a single header keeps.
const FRAME_BYTES: usize = 16 << 10;
/// Memory of a header besides its text: its places in a map that doubles, and its name. 280 bytes were seen.
const HEADER_BYTES: usize = 400;
/// Memory of a connection besides streams, bodies and responses, which are counted apart.
const CONNECTION_BYTES: usize = CONNECTION_WINDOW as usize + OWN_BYTES;
/// SETTINGS, and GOAWAY with `ENHANCE_YOUR_CALM` and a text (RFC 9113, 6.5 and 6.8).
const NO_MEMORY: &[u8] = b"\0\0\0\x04\0\0\0\0\0\
    \0\0\x36\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b\
    memory for clients is used up; try again later";

/// True if a connection that begins with these bytes speaks HTTP/2.
pub(super) fn begins(read: &[u8]) -> bool {
    read.starts_with(HTTP2_PREFACE)
}

/// Serves a connection until it closes. When neve drains, it finishes the open responses. A request uses the
/// service that is in `place` when it comes.
pub(super) async fn serve(
    moved: OpenConnection,
    place: &Arc<ArcSwap<Service>>,
    mut drain: watch::Receiver<bool>,
) {
    let service = place.load_full();
    let deadlines = service.deadlines;
    // Names for what is only held: the guards go with the connection, and not here.
    let OpenConnection { stream, read, address, proxied, held: _held, counted: _counted, .. } =
        moved;
    let account = service.responder.rpc.memory.account(address);
    let Some(_memory) = account.reserve(Holder::Head, CONNECTION_BYTES) else {
        let _ = (&stream).write(NO_MEMORY); // as far as it goes at once
        return debug!("no memory for HTTP/2 connection");
    };
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => return warn!(%error, "cannot serve a connection"),
    };
    let streams = Arc::new(OpenStreams::default());
    let memory = SendMemory::new(&service.responder.rpc.memory);
    let line = Arc::clone(memory.line());
    let write = ClientWait::Response.limit(deadlines);
    let socket = Http2Socket::new(stream, read, Arc::clone(&streams), line, write)
        .streams_max(service.connection_streams_max)
        .proxied(proxied);
    let mut clock = ConnectionClock::new(deadlines, Arc::clone(&streams), Arc::clone(&memory));
    let respond = service_fn(|request: Request<Incoming>| {
        let (service, memory) = (place.load_full(), Arc::clone(&memory));
        let open = streams.open();
        let named = if proxied { service.policy.proxies.client(request.headers()) } else { None };
        let address = named.unwrap_or(address);
        async move { respond(&service, request, address, memory, open).await }
    });
    let counters = Arc::clone(&service.responder.rpc.counters);
    let builder = builder(&service, deadlines, memory.line());
    drop(service); // an old one would keep its connections to upstreams
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), respond));
    let mut draining = pin!(draining(&mut drain));
    let mut told = false;
    let mut look = pin!(sleep_until(clock.next_look(Instant::now())));
    let ended = poll_fn(|context| {
        let drains = !told && draining.as_mut().poll(context).is_ready();
        // Told once: after GOAWAY a wait that runs out is not counted again.
        let counters = (!told).then_some(&*counters);
        let Some(closes) = is_to_close(&mut clock, look.as_mut(), context, counters) else {
            return Poll::Ready(Ok(()));
        };
        if (drains || closes) && !std::mem::replace(&mut told, true) {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    })
    .await;
    if let Err(error) = ended {
        ran_out(&error).into_iter().for_each(|wait| counters.time_out(wait.timeout()));
        debug!(%error, "connection of HTTP/2 ended early");
    }
}

/// Looks at the clock when it is time. True if the connection is to close; `None` if it is late. Counts the wait
/// that ran out, if there are counters.
fn is_to_close(
    clock: &mut ConnectionClock,
    mut timer: Pin<&mut Sleep>,
    context: &mut Context<'_>,
    counters: Option<&ThreadCounters>,
) -> Option<bool> {
    let mut closes = false;
    // A loop, because a timer that was reset wakes the task only once it is polled again.
    while timer.as_mut().poll(context).is_ready() {
        let now = Instant::now();
        match (clock.look(now), counters) {
            (Look::Closing(wait), Some(counters)) => {
                counters.time_out(wait.timeout());
                closes = true;
            }
            (Look::Closing(_), None) | (Look::Open, _) => {}
            (Look::Late, _) => return None,
        }
        timer.as_mut().reset(clock.next_look(now));
    }
    Some(closes)
}

/// Wait that the client let run out, if the connection ended so.
fn ran_out(error: &hyper::Error) -> Option<ClientWait> {
    if error.is_timeout() {
        return Some(ClientWait::Request); // a PING without an answer
    }
    let io = error.source()?.downcast_ref::<h2::Error>()?.get_io()?;
    (io.kind() == ErrorKind::TimedOut).then_some(ClientWait::Response)
}

/// Answers a request of one stream. A stream that the client resets drops this. Without memory for a
/// response, and for a refusal, the stream is reset.
async fn respond(
    service: &Service,
    request: Request<Incoming>,
    address: ClientAddress,
    memory: Arc<SendMemory>,
    mut open: OpenStream,
) -> Result<Response<HttpBody>, h2::Error> {
    let account = service.responder.rpc.memory.account(address);
    let held = STREAM_BYTES + FRAME_BYTES + head_bytes(request.headers());
    let mut reserved = account.reserve(Holder::Head, held);
    // Only behind the reservation: the socket reads on once all open streams have begun.
    open.begin();
    let (stream, state) = (Http2Stream::current(), Arc::new(IdleState::default()));
    let client = service.client(&request, address, Arc::clone(&state));
    let is_head = request.method() == Method::HEAD;
    let no_memory = || service.responder.response(RpcResponse::NoMemory);
    let response = match &mut reserved {
        Some(reserved) => {
            // Without a body the client owes nothing, and has no clock.
            if !request.body().is_end_stream() {
                stream.reads(&state);
            }
            let response = answer(service, request, &client).await;
            // The head and the body of the request are gone by now.
            reserved.shrink_to(STREAM_BYTES);
            response
        }
        None => service.refuse(no_memory(), &client),
    };
    let mut response = head_only_if(is_head, response);
    let mut first = memory.take_first(address, response.body());
    // Without memory for the response there may still be some for a refusal, which is short.
    if first.is_none() && reserved.is_some() {
        response = head_only_if(is_head, service.finish(whole(no_memory()), &client));
        first = memory.take_first(address, response.body());
    }
    let first = first.ok_or(Reason::ENHANCE_YOUR_CALM)?;
    let responding = Responding { stream, memory, address, open, entry: client.entry };
    Ok(response.map(|body| responding.wrap(body, first, reserved)))
}

async fn answer(
    service: &Service,
    mut request: Request<Incoming>,
    client: &Client,
) -> Response<HttpBody> {
    // Over HTTP/1 the parser has this bound. Over HTTP/2 hyper bounds the bytes of headers only.
    if request.headers().len() > HEADERS_MAX {
        return service.refuse(ErrorResponse::HEADERS.response(), client);
    }
    if let Err(refusal) = name_host(&mut request) {
        return service.refuse(refusal.response(), client);
    }
    let Ok(response) = service.respond(request, &Upgrade::default(), client).await;
    response
}

/// Leaves out the body of a response to `HEAD`, which hyper does over HTTP/1 only. Its length stays.
fn head_only_if(is_head: bool, mut response: Response<HttpBody>) -> Response<HttpBody> {
    if !is_head {
        return response;
    }
    // A 304 has the length of the document, or none (RFC 9110, 8.6).
    let has_length = response.status() != StatusCode::NOT_MODIFIED;
    if let Some(len) = response.body().size_hint().exact().filter(|_| has_length) {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(len.into());
    }
    whole(Response::from_parts(response.into_parts().0, ResponseBody::default()))
}

/// Memory that the headers of a request take.
fn head_bytes(headers: &HeaderMap) -> usize {
    let text = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    headers.iter().map(|header| text(header) + HEADER_BYTES).sum()
}

/// Has `Host` name the authority, as HTTP/1 has it. Fails if they differ, or if the authority names a user (RFC 9113,
/// 8.3.1).
fn name_host(request: &mut Request<Incoming>) -> Result<(), ErrorResponse> {
    let Some(authority) = request.uri().authority() else { return Ok(()) };
    let malformed = || ErrorResponse::host(BadHost::Malformed);
    let value = HeaderValue::from_str(authority.as_str()).map_err(|_| malformed())?;
    if authority.as_str().contains('@') {
        return Err(malformed());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    if hosts.any(|host| !host.as_bytes().eq_ignore_ascii_case(value.as_bytes())) {
        return Err(ErrorResponse::HOSTS);
    }
    request.headers_mut().insert(HOST, value);
    Ok(())
}

fn builder(
    service: &Service,
    deadlines: Deadlines,
    line: &Arc<LineTime>,
) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor(deadlines, Arc::clone(line)));
    let streams_max = service.connection_streams_max;
    // A refused stream is an error, and its body another one.
    let errors_max = STREAM_ERRORS_MAX + 2 * refused_before_settings(streams_max) as usize;
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        // The cast is safe: at most 16 KiB.
        .max_header_list_size(service.header_bytes_max.min(HEADERS_BYTES_MAX) as u32)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_local_error_reset_streams(Some(errors_max))
        .keep_alive_interval(ClientWait::Request.limit(deadlines))
        // The answer waits behind all that the client has not read.
        .keep_alive_timeout(ClientWait::LastSlices.limit(deadlines));
    builder
}
