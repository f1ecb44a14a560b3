//! The hot path: request, question, slices, reply.

use std::convert::Infallible;
use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, LOCATION, VARY,
};
use hyper::{Method, Request, Response, StatusCode};
use neve_store::residency;
use tokio::task::spawn_blocking;

use super::body::{Unread, Whole, read};
use super::cors::Cors;
use super::door::{Left, Question};
use super::encoded::Accepts;
use super::hosts::Hosts;
use super::media_type;
use super::mirror::{Mirrors, whole};
use super::out::Out;
use super::outgoing::Outgoing;
use super::plain::Persistence;
use super::refusal::Refusal;
use super::reply::{Builder, ReplyBody};
use super::route::{Route, route};
use super::rpc::{Calls, Reply, Rpc};
use crate::admin::Admin;
use crate::room::Room;
use crate::tally::add;
use crate::ws::{self, Upgrade};

/// Says which heights are served, with each miss.
const SERVED: HeaderName = HeaderName::from_static("x-neve-served");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// In Vary, of an answer that is there in several codings.
pub(super) const BY_CODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
/// Asks a node for another chain than the path names; there is none here.
const API_ROUTE: HeaderName = HeaderName::from_static("avalanche-api-route");
const CONTINUE: &[u8] = b"100-continue";

/// Answers requests of one thread's connections.
pub(crate) struct Service {
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) admin: Arc<Admin>,
    /// Whether this listener also answers /health, /ready and /metrics.
    pub(crate) admin_here: bool,
    /// Whether it answers JSON-RPC.
    pub(crate) rpc_here: bool,
    pub(crate) miss_status: StatusCode,
    pub(crate) hosts: Hosts,
    /// Paths of JSON-RPC besides the node's.
    pub(crate) rpc_paths: Arc<[String]>,
    pub(crate) head_bytes_max: usize,
    pub(crate) ws: ws::Limits,
    /// Of bodies that are on their way.
    pub(crate) bodies: Arc<Room>,
    /// Of messages over WebSocket.
    pub(crate) messages: Arc<Room>,
    /// What mirrors are given, if anything.
    pub(crate) mirrors: Option<Mirrors>,
}

impl Service {
    /// Answers one request; nothing can fail but by an answer that says so.
    pub(crate) async fn respond(
        &self,
        request: Request<Incoming>,
        upgrade: &Upgrade,
    ) -> Result<Response<Outgoing>, Infallible> {
        add(&self.rpc.tally.requests, 1);
        let response = match Cors::of(&request) {
            _ if expects_the_unknown(&request) => whole(Refusal::EXPECTATION.response()),
            Cors::Preflight(headers) => whole(preflight(headers)),
            cors => {
                let mut response = self.answer_or_turn_away(request, upgrade).await;
                cors.mark(response.headers_mut());
                response
            }
        };
        add(&self.rpc.tally.bytes, response.body().len() as u64);
        Ok(response)
    }

    async fn answer_or_turn_away(
        &self,
        request: Request<Incoming>,
        upgrade: &Upgrade,
    ) -> Response<Outgoing> {
        let turned = match (self.admit(&request), &self.mirrors) {
            (Ok(()), _) => return whole(self.read_and_answer(request).await),
            (Err(Turned::Mirror), Some(mirrors)) => {
                return mirrors.respond(&request.into_parts().0).await;
            }
            (Err(turned), _) => turned,
        };
        whole(match turned {
            Turned::Empty => plain_empty(),
            Turned::Admin => self.admin.respond(request.uri().path()),
            Turned::Rest => self.document(&request.into_parts().0).await,
            Turned::WebSocket => upgrade.accept(request),
            Turned::Moved(path) => moved(&path, request.uri().query()),
            Turned::Mirror => Refusal::NOT_FOUND.response(),
            Turned::Away(refusal) => {
                add(&self.rpc.tally.refused, 1);
                refusal.response()
            }
        })
    }

    /// Checks that the request carries JSON-RPC, in the node's order (avalanchego,
    /// `api/server/server.go` and `router.go`; libevm, `rpc/http.go`).
    fn admit(&self, request: &Request<Incoming>) -> Result<(), Turned> {
        let headers = request.headers();
        let host = headers.get(HOST).map(HeaderValue::as_bytes);
        self.hosts.check(host).map_err(Refusal::host)?;
        if headers.contains_key(API_ROUTE) {
            return Err(Refusal::NO_SUCH_CHAIN.into());
        }
        match route(request.uri().path(), &self.rpc_paths) {
            Route::WebSocket if self.rpc_here => Err(Turned::WebSocket),
            Route::Rpc { root: true } if self.rpc_here && Upgrade::is_wanted(request) => {
                Err(Turned::WebSocket)
            }
            Route::Rpc { root } if self.rpc_here && (!root || request.method() == Method::POST) => {
                self.carries_json(request)
            }
            Route::Rest if self.rpc_here => Err(Turned::Rest),
            Route::Moved(path) => Err(Turned::Moved(path)),
            Route::Other(path) if self.mirrors_here() && Mirrors::knows(path) => {
                Err(Turned::Mirror)
            }
            _ => Err(self.elsewhere(request.method(), request.uri().path())),
        }
    }

    fn mirrors_here(&self) -> bool {
        self.rpc_here && self.mirrors.is_some()
    }

    fn carries_json(&self, request: &Request<Incoming>) -> Result<(), Turned> {
        let (method, uri) = (request.method(), request.uri());
        let len = request.body().size_hint().exact();
        if method == Method::GET && len == Some(0) && uri.query().is_none_or(str::is_empty) {
            return Err(Turned::Empty);
        }
        if method == Method::PUT || method == Method::DELETE {
            return Err(Refusal::METHOD.into());
        }
        let limit = self.rpc.limits.body_bytes_max as u64;
        if let Some(len) = len.filter(|len| *len > limit) {
            return Err(Refusal::too_long(len, limit).into());
        }
        let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
        if method != Method::OPTIONS && !media_type::is_json(content_type) {
            return Err(Refusal::MEDIA_TYPE.into());
        }
        Ok(())
    }

    fn elsewhere(&self, method: &Method, path: &str) -> Turned {
        let known = self.admin_here && Admin::knows(path);
        match *method {
            Method::GET | Method::HEAD if known => Turned::Admin,
            _ if known => Refusal::USE_GET.into(),
            _ => Refusal::NOT_FOUND.into(),
        }
    }

    async fn read_and_answer(&self, request: Request<Incoming>) -> Response<ReplyBody> {
        let accepts = Accepts::of(request.headers());
        let limit = self.rpc.limits.body_bytes_max;
        // If the body was cut or its chunks are malformed, what came of it is not JSON either.
        let body = match read(request.into_body(), limit, &self.bodies).await {
            Ok(body) => body,
            Err(Unread::Broken) => Whole::from(Bytes::from_static(b"{")),
            Err(Unread::NoRoom) => {
                add(&self.rpc.tally.refused, 1);
                return Refusal::NO_ROOM.response();
            }
        };
        let reply = match self.answer_now(&body.bytes, accepts) {
            Some(reply) => reply, // nearly always
            None => self.answer_elsewhere(body.bytes.clone(), accepts).await,
        };
        self.response(reply)
    }

    /// Answers JSON-RPC unless that takes the disk.
    pub(super) fn answer_now(&self, body: &[u8], accepts: Accepts) -> Option<Reply> {
        let answered = residency::if_sendable(|| self.rpc.answer(body, accepts));
        answered.map(|answered| self.counted(answered))
    }

    /// Answers it on a thread that may wait for the disk.
    pub(super) async fn answer_elsewhere(&self, body: Bytes, accepts: Accepts) -> Reply {
        add(&self.rpc.tally.handed_over, 1);
        let (rpc, request) = (Arc::clone(&self.rpc), body.clone());
        let answered = spawn_blocking(move || rpc.answer_waiting(&request, accepts)).await;
        // The pool takes nothing more when the server is about to end.
        self.counted(answered.unwrap_or_else(|_| self.rpc.answer(&body, accepts)))
    }

    /// Answers a plain request on a thread that may wait for the disk, and sends there as much as goes
    /// at once; returns what is left, or nothing if that failed. It is counted when the client may have
    /// it already.
    pub(super) async fn answer_and_send(
        self: &Arc<Self>,
        question: Question,
        stream: TcpStream,
    ) -> Option<Left> {
        let tally = &self.rpc.tally;
        add(&tally.handed_over, 1);
        let service = Arc::clone(self);
        let work = move || {
            let Question { body, accepts, persistence } = question;
            let (reply, calls) = service.rpc.answer_waiting(&body, accepts);
            let out = Box::new(service.uncounted(reply, persistence));
            (out.body_len(), calls, Left { stream, out }.send())
        };
        let (body_len, calls, left) = spawn_blocking(work).await.ok()?;
        calls.count(tally);
        add(&tally.bytes, body_len as u64);
        left
    }

    /// The answer to a plain request, head and all.
    pub(super) fn out(&self, reply: Reply, persistence: Persistence) -> Out {
        let out = self.uncounted(reply, persistence);
        add(&self.rpc.tally.bytes, out.body_len() as u64);
        out
    }

    /// The same, not counted: only one thread may count.
    fn uncounted(&self, reply: Reply, persistence: Persistence) -> Out {
        match reply {
            Reply::Answer(body) if body.coding().is_none() => Out::plain(body, persistence),
            reply => Out::new(self.response(reply), persistence),
        }
    }

    fn counted(&self, (reply, calls): (Reply, Calls)) -> Reply {
        calls.count(&self.rpc.tally);
        reply
    }

    pub(super) fn response(&self, reply: Reply) -> Response<ReplyBody> {
        match reply {
            Reply::Answer(body) => coded(with_type(Response::new(body), JSON)),
            Reply::Miss(body) => self.miss(body),
        }
    }

    /// Says by status and headers that a full node must be asked; the body says so too.
    pub(super) fn miss(&self, body: ReplyBody) -> Response<ReplyBody> {
        let mut response = with_type(Response::new(body), JSON);
        *response.status_mut() = self.miss_status;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(range) = self.rpc.serving.reader.range() {
            let text = format!("{}-{}", range.start(), range.end());
            headers.extend(HeaderValue::try_from(text).ok().map(|value| (SERVED, value)));
        }
        response
    }
}

/// Go's server refuses this before anything else looks at the request.
fn expects_the_unknown(request: &Request<Incoming>) -> bool {
    let expect = request.headers().get(EXPECT);
    expect.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(CONTINUE))
}

/// A request that carries no JSON-RPC.
enum Turned {
    /// A health check that wants nothing.
    Empty,
    /// For the administrator.
    Admin,
    /// Wants a document of a block.
    Rest,
    /// Wants, or should want, a WebSocket.
    WebSocket,
    /// From a mirror.
    Mirror,
    /// Written uncleanly.
    Moved(String),
    /// A mistake.
    Away(Refusal),
}

impl From<Refusal> for Turned {
    fn from(refusal: Refusal) -> Self {
        Self::Away(refusal)
    }
}

fn plain_empty() -> Response<ReplyBody> {
    Response::new(Builder::default().finish())
}

fn preflight(headers: HeaderMap) -> Response<ReplyBody> {
    let mut response = plain_empty();
    *response.headers_mut() = headers;
    response
}

fn moved(path: &str, query: Option<&str>) -> Response<ReplyBody> {
    let mut response = plain_empty();
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    // A path that came in a request line can stand in a header.
    let location = HeaderValue::try_from(format!("{path}{query}")).ok();
    response.headers_mut().extend(location.map(|location| (LOCATION, location)));
    response
}

/// Names the content coding, if there is one. Nobody may keep the answer to a POST, so it is said
/// only then that it depends on the request.
fn coded(response: Response<ReplyBody>) -> Response<ReplyBody> {
    let mut response = name_coding(response);
    if response.body().coding().is_some() {
        response.headers_mut().append(VARY, BY_CODING);
    }
    response
}

pub(super) fn name_coding(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    if let Some(coding) = response.body().coding() {
        let name = HeaderValue::from_static(coding.name());
        response.headers_mut().insert(CONTENT_ENCODING, name);
    }
    response
}

pub(super) fn with_type(
    mut response: Response<ReplyBody>,
    value: HeaderValue,
) -> Response<ReplyBody> {
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}
