//! The hot path: request, question, slices, reply.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};

use super::body::read;
use super::media_type;
use super::reply::{Builder, ReplyBody};
use super::rpc::{Reply, Rpc};
use crate::admin::Admin;
use crate::tally::add;

/// Says which heights are served, with each miss.
const SERVED: HeaderName = HeaderName::from_static("x-neve-served");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Answers requests of one worker's connections.
pub(crate) struct Service {
    pub(crate) rpc: Rpc,
    pub(crate) admin: Arc<Admin>,
    /// Whether this listener also answers /health, /ready and /metrics.
    pub(crate) admin_here: bool,
    /// Whether it answers JSON-RPC.
    pub(crate) rpc_here: bool,
    pub(crate) miss_status: StatusCode,
}

impl Service {
    /// Answers one request; nothing can fail but by an answer that says so.
    pub(crate) async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, Infallible> {
        add(&self.rpc.tally.requests, 1);
        let response = match self.route(&request) {
            Ok(()) => self.read_and_answer(request).await,
            Err(Turned::Empty) => plain_empty(),
            Err(Turned::Admin) => self.admin.respond(request.uri().path()),
            Err(Turned::Away(status, text)) => {
                add(&self.rpc.tally.refused, 1);
                refusal(status, text)
            }
        };
        add(&self.rpc.tally.bytes, response.body().len() as u64);
        Ok(response)
    }

    /// Checks that the request carries JSON-RPC, in the node's order and words (libevm,
    /// rpc/http.go, and the router before it).
    fn route(&self, request: &Request<Incoming>) -> Result<(), Turned> {
        let (method, uri) = (request.method(), request.uri());
        if !self.rpc_here || !matches!(uri.path(), "/" | "/ext/bc/C/rpc") {
            return Err(self.elsewhere(method, uri.path()));
        }
        let len = request.body().size_hint().exact();
        if method == Method::GET && len == Some(0) && uri.query().is_none_or(str::is_empty) {
            return Err(Turned::Empty);
        }
        if method == Method::PUT || method == Method::DELETE {
            let text = "method not allowed\n".into();
            return Err(Turned::Away(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        let limit = self.rpc.limits.body_bytes_max as u64;
        if let Some(len) = len.filter(|len| *len > limit) {
            let text = format!("content length too large ({len}>{limit})\n");
            return Err(Turned::Away(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
        if method != Method::OPTIONS && !media_type::is_json(content_type) {
            let text = "invalid content type, only application/json is supported\n".into();
            return Err(Turned::Away(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        Ok(())
    }

    fn elsewhere(&self, method: &Method, path: &str) -> Turned {
        let known = self.admin_here && Admin::knows(path);
        match *method {
            Method::GET | Method::HEAD if known => Turned::Admin,
            _ if known => {
                let text = "method not allowed, use GET\n".into();
                Turned::Away(StatusCode::METHOD_NOT_ALLOWED, text)
            }
            _ => Turned::Away(StatusCode::NOT_FOUND, "404 page not found\n".into()),
        }
    }

    async fn read_and_answer(&self, request: Request<Incoming>) -> Response<ReplyBody> {
        let limit = self.rpc.limits.body_bytes_max;
        match read(request.into_body(), limit).await {
            Ok(body) => self.answer(&body),
            // The body was cut or its chunks are malformed: what came of it is not JSON either.
            Err(_) => self.answer(b"{"),
        }
    }

    fn answer(&self, body: &[u8]) -> Response<ReplyBody> {
        match self.rpc.answer(body) {
            Reply::Answer(body) => with_type(Response::new(body), JSON),
            Reply::Miss(body) => self.miss(body),
        }
    }

    fn miss(&self, body: ReplyBody) -> Response<ReplyBody> {
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

/// A request that carries no JSON-RPC.
enum Turned {
    /// A health check that wants nothing.
    Empty,
    /// For the administrator.
    Admin,
    /// A mistake.
    Away(StatusCode, String),
}

fn plain_empty() -> Response<ReplyBody> {
    Response::new(Builder::default().finish())
}

fn with_type(mut response: Response<ReplyBody>, value: HeaderValue) -> Response<ReplyBody> {
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}

/// An answer in plain text, as Go's `http.Error` writes it.
fn refusal(status: StatusCode, text: String) -> Response<ReplyBody> {
    let mut response = with_type(Response::new(ReplyBody::from(Bytes::from(text))), PLAIN);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
