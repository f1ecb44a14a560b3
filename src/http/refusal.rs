//! Answers to requests that carry nothing to answer, in the node's words.

use std::borrow::Cow;

use bytes::Bytes;
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_VERSION, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

use super::hosts::BadHost;
use super::reply::ReplyBody;

/// What is wrong, as the client is told.
pub(crate) struct Refusal {
    status: StatusCode,
    text: Cow<'static, str>,
}

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

impl Refusal {
    pub(super) const METHOD: Self =
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    pub(super) const USE_GET: Self =
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed, use GET\n");
    pub(super) const NOT_FOUND: Self = Self::new(StatusCode::NOT_FOUND, "404 page not found\n");
    pub(super) const NO_SUCH_CHAIN: Self = Self::new(StatusCode::NOT_FOUND, "");
    pub(super) const EXPECTATION: Self = Self::new(StatusCode::EXPECTATION_FAILED, "");
    pub(super) const MEDIA_TYPE: Self = Self::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "invalid content type, only application/json is supported\n",
    );

    pub(super) const NO_ROOM: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "request bodies take all the memory that they may; try again later\n",
    );

    const fn new(status: StatusCode, text: &'static str) -> Self {
        Self { status, text: Cow::Borrowed(text) }
    }

    pub(super) fn too_long(len: u64, limit: u64) -> Self {
        let text = format!("content length too large ({len}>{limit})\n").into();
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, text }
    }

    pub(super) fn host(bad: BadHost) -> Self {
        match bad {
            BadHost::Malformed => {
                Self::new(StatusCode::BAD_REQUEST, "400 Bad Request: malformed Host header")
            }
            BadHost::NotAllowed => Self::new(StatusCode::FORBIDDEN, "invalid host specified\n"),
        }
    }

    /// An answer to what is no WebSocket handshake, as gorilla/websocket gives it.
    pub(crate) fn handshake(status: StatusCode) -> Response<ReplyBody> {
        let text = format!("{}\n", status.canonical_reason().unwrap_or_default()).into();
        let mut response = Self { status, text }.response();
        let headers = response.headers_mut();
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.remove(CONNECTION);
        response
    }

    /// The answer, as Go's `http.Error` writes it.
    pub(super) fn response(self) -> Response<ReplyBody> {
        let typed = !self.text.is_empty();
        let text = self.text.into_owned();
        let mut response = Response::new(ReplyBody::from(Bytes::from(text)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if typed {
            headers.insert(CONTENT_TYPE, PLAIN);
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        }
        if closes(self.status) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// After these the node closes: a body that nobody wants may follow.
fn closes(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::EXPECTATION_FAILED | StatusCode::BAD_REQUEST
    )
}
