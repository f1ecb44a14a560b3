//! The hot path: request, question, slices, reply.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::{Body, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, LOCATION, VARY,
};
use hyper::{Method, Request, Response, StatusCode};

use super::body::read;
use super::cors::Cors;
use super::encoded::Accepts;
use super::hosts::Hosts;
use super::media_type;
use super::refusal::Refusal;
use super::reply::{Builder, ReplyBody};
use super::route::{Route, route};
use super::rpc::{Reply, Rpc};
use crate::admin::Admin;
use crate::tally::add;
use crate::ws::{self, Upgrade};

/// Says which heights are served, with each miss.
const SERVED: HeaderName = HeaderName::from_static("x-neve-served");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Asks a node for another chain than the path names; there is none here.
const API_ROUTE: HeaderName = HeaderName::from_static("avalanche-api-route");
const CONTINUE: &[u8] = b"100-continue";

/// Answers requests of one worker's connections.
pub(crate) struct Service {
    pub(crate) rpc: Rpc,
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
}

impl Service {
    /// Answers one request; nothing can fail but by an answer that says so.
    pub(crate) async fn respond(
        &self,
        request: Request<Incoming>,
        upgrade: &Upgrade,
    ) -> Result<Response<ReplyBody>, Infallible> {
        add(&self.rpc.tally.requests, 1);
        let response = match Cors::of(&request) {
            _ if expects_the_unknown(&request) => Refusal::EXPECTATION.response(),
            Cors::Preflight(headers) => preflight(headers),
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
    ) -> Response<ReplyBody> {
        match self.admit(&request) {
            Ok(()) => self.read_and_answer(request).await,
            Err(Turned::Empty) => plain_empty(),
            Err(Turned::Admin) => self.admin.respond(request.uri().path()),
            Err(Turned::Rest) => self.document(&request),
            Err(Turned::WebSocket) => upgrade.accept(request),
            Err(Turned::Moved(path)) => moved(&path, request.uri().query()),
            Err(Turned::Away(refusal)) => {
                add(&self.rpc.tally.refused, 1);
                refusal.response()
            }
        }
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
            _ => Err(self.elsewhere(request.method(), request.uri().path())),
        }
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
        match read(request.into_body(), limit).await {
            Ok(body) => self.answer(&body, accepts),
            // The body was cut or its chunks are malformed: what came of it is not JSON either.
            Err(_) => self.answer(b"{", accepts),
        }
    }

    fn answer(&self, body: &[u8], accepts: Accepts) -> Response<ReplyBody> {
        match self.rpc.answer(body, accepts) {
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

/// Names the content coding, if there is one.
fn coded(mut response: Response<ReplyBody>) -> Response<ReplyBody> {
    if let Some(coding) = response.body().coding() {
        let headers = response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
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
