//! Answers to requests that carry nothing to answer, in the node's words.

use std::borrow::Cow;
use std::fmt::Display;

use hyper::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_VERSION,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

use super::hosts::BadHost;
use crate::body::ResponseBody;

/// Refusal of a request, as the client gets it.
pub(crate) struct ErrorResponse {
    status: StatusCode,
    text: Cow<'static, str>,
    /// Methods that the path has, if the refusal is of the method (RFC 9110, 15.5.6).
    allow: Option<&'static str>,
}

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

impl ErrorResponse {
    pub(crate) const METHOD: Self = Self::of_method("method not allowed\n", "GET, POST");
    pub(crate) const USE_GET: Self = Self::of_method("method not allowed, use GET\n", "GET");
    pub(crate) const USE_GET_OR_HEAD: Self =
        Self::of_method("method not allowed, use GET\n", "GET, HEAD");
    pub(crate) const NOT_FOUND: Self = Self::new(StatusCode::NOT_FOUND, "404 page not found\n");
    pub(crate) const NO_SUCH_CHAIN: Self = Self::new(StatusCode::NOT_FOUND, "");
    pub(crate) const HEADERS: Self = Self::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "431 Request Header Fields Too Large: more than 100 headers",
    );
    pub(crate) const BAD_REQUEST: Self = Self::new(StatusCode::BAD_REQUEST, "400 Bad Request");
    pub(crate) const TRANSFER_ENCODING: Self =
        Self::new(StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding");
    pub(crate) const EXPECTATION: Self = Self::new(StatusCode::EXPECTATION_FAILED, "");
    pub(crate) const HOSTS: Self =
        Self::new(StatusCode::BAD_REQUEST, "400 Bad Request: too many Host headers");
    pub(crate) const HANDSHAKE_BODY: Self =
        Self::new(StatusCode::BAD_REQUEST, "a WebSocket handshake has no body\n");
    pub(crate) const MEDIA_TYPE: Self = Self::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "invalid content type, only application/json is supported\n",
    );

    pub(crate) const NOT_RELAYED: Self =
        Self::new(StatusCode::FORBIDDEN, "relay: no JSON-RPC call, or one that is never relayed\n");

    pub(crate) const NO_MEMORY: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "memory for clients is used up; try again later\n",
    );

    /// Refusal for a client whose request was not read.
    pub(crate) const NO_MEMORY_RAW: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
        Connection: close\r\nContent-Length: 47\r\nRetry-After: 1\r\n\r\n\
        memory for clients is used up; try again later\n";

    /// Refusal of a connection, of which nothing was read.
    pub(crate) const CONNECTIONS_RAW: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
        Connection: close\r\nRetry-After: 1\r\nContent-Length: 21\r\n\r\n\
        too many connections\n";

    pub(crate) const FAILED: Self =
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n");
    pub(crate) const BUSY: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many requests wait for an answer; try again later\n",
    );

    /// A client may half-close its connection and still read: what it reads must be no success.
    pub(crate) const GONE: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "the client closed its side before the response was ready\n",
    );

    const fn new(status: StatusCode, text: &'static str) -> Self {
        Self { status, text: Cow::Borrowed(text), allow: None }
    }

    const fn of_method(text: &'static str, allow: &'static str) -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self { status, text: Cow::Borrowed(text), allow: Some(allow) }
    }

    pub(crate) fn too_long(len: u64, limit: u64) -> Self {
        let text = format!("content length too large ({len}>{limit})\n").into();
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, text, allow: None }
    }

    pub(crate) fn host(bad: BadHost) -> Self {
        match bad {
            BadHost::Missing => {
                Self::new(StatusCode::BAD_REQUEST, "400 Bad Request: missing required Host header")
            }
            BadHost::Malformed => {
                Self::new(StatusCode::BAD_REQUEST, "400 Bad Request: malformed Host header")
            }
            BadHost::NotAllowed => Self::new(StatusCode::FORBIDDEN, "invalid host specified\n"),
        }
    }

    /// No upstream gave a response.
    pub(crate) fn relay(status: StatusCode, why: impl Display) -> Self {
        Self { status, text: format!("{why}\n").into(), allow: None }
    }

    /// An answer to what is no WebSocket handshake, as gorilla/websocket gives it.
    pub(crate) fn handshake(status: StatusCode) -> Response<ResponseBody> {
        let text = format!("{}\n", status.canonical_reason().unwrap_or_default()).into();
        let allow = (status == StatusCode::METHOD_NOT_ALLOWED).then_some("GET");
        let mut response = Self { status, text, allow }.response();
        let headers = response.headers_mut();
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        // gorilla/websocket leaves the connection open, also after a 400.
        headers.remove(CONNECTION);
        response
    }

    /// True if the connection closes behind it.
    pub(crate) fn closes(&self) -> bool {
        closes(self.status)
    }

    /// The answer, as Go writes it.
    pub(crate) fn response(self) -> Response<ResponseBody> {
        let typed = !self.text.is_empty();
        // Go's `http.Error` ends a text with LF. Its server itself does not, and sends no `nosniff` either.
        let is_from_handler = self.text.ends_with('\n');
        let text = self.text.into_owned();
        let mut response = Response::new(ResponseBody::from(text.into_bytes()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if typed {
            headers.insert(CONTENT_TYPE, PLAIN);
        }
        if is_from_handler {
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        }
        headers.extend(self.allow.map(|methods| (ALLOW, HeaderValue::from_static(methods))));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if closes(self.status) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// After these the node closes the connection, because an unread body may follow.
fn closes(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::EXPECTATION_FAILED
            | StatusCode::BAD_REQUEST
            | StatusCode::NOT_IMPLEMENTED
    )
}

/// Each refusal: status, body, cause. docs/reference/errors.md has them.
#[cfg(test)]
pub(crate) fn table() -> Vec<(u16, String, &'static str)> {
    let all = [
        (ErrorResponse::BAD_REQUEST, "a path with a `%` that no two hexadecimal digits follow"),
        (ErrorResponse::HOSTS, "more than one `Host`"),
        (ErrorResponse::host(BadHost::Missing), "a request of HTTP/1.1 without `Host`"),
        (ErrorResponse::HEADERS, "more than 100 headers, over HTTP/2"),
        (ErrorResponse::host(BadHost::Malformed), "a `Host` that is none"),
        (ErrorResponse::host(BadHost::NotAllowed), "a `Host` that `--allowed-hosts` does not name"),
        (
            ErrorResponse::HANDSHAKE_BODY,
            "a WebSocket handshake with a `Content-Length` above 0, or with a `Transfer-Encoding`",
        ),
        (ErrorResponse::GONE, "a client that half-closes before a response that takes a while"),
        (ErrorResponse::NOT_FOUND, "no such path on this listener"),
        (ErrorResponse::NO_SUCH_CHAIN, "`Avalanche-Api-Route` names another chain"),
        (
            ErrorResponse::METHOD,
            "`PUT`, `DELETE` or `CONNECT` to a path of JSON-RPC other than `/`",
        ),
        (ErrorResponse::USE_GET_OR_HEAD, "another method than `GET` to a page for operators"),
        (ErrorResponse::too_long(6_000_000, 5_242_880), "a body over `--body-bytes-max`"),
        (ErrorResponse::MEDIA_TYPE, "a media type that is not JSON"),
        (
            ErrorResponse::NOT_RELAYED,
            "a `POST` to a path of `--relay-paths` without calls, or with one of admin, personal or \
             keystore",
        ),
        (ErrorResponse::EXPECTATION, "an `Expect` without `100-continue`"),
        (
            ErrorResponse::TRANSFER_ENCODING,
            "a `Transfer-Encoding` that ends with `chunked` and has another coding too",
        ),
        (ErrorResponse::FAILED, "neve failed; the log has the reason"),
        (
            ErrorResponse::NO_MEMORY,
            "beyond `--client-bytes-total-max` or `--client-bytes-address-max`",
        ),
        (
            ErrorResponse::BUSY,
            "beyond `--queued-requests-total-max` or `--queued-requests-address-max`",
        ),
    ];
    let row = |(refusal, cause): (ErrorResponse, &'static str)| {
        (refusal.status.as_u16(), refusal.text.trim_end().to_owned(), cause)
    };
    all.into_iter().map(row).collect()
}

#[test]
fn refusal_of_a_method_names_the_methods_of_the_path() {
    let handshake = ErrorResponse::handshake(StatusCode::METHOD_NOT_ALLOWED);
    let known = [ErrorResponse::METHOD, ErrorResponse::USE_GET, ErrorResponse::USE_GET_OR_HEAD];
    let [rpc, get, page] = known.map(ErrorResponse::response);
    let all = [rpc, get, page, handshake];
    let allowed = all.map(|response| response.headers().get(ALLOW).cloned());
    assert_eq!(
        allowed,
        ["GET, POST", "GET", "GET, HEAD", "GET"].map(|text| Some(HeaderValue::from_static(text)))
    );
    assert_eq!(ErrorResponse::NOT_FOUND.response().headers().get(ALLOW), None);
}

#[test]
fn raw_refusals_have_the_length_of_their_text() {
    for raw in [ErrorResponse::NO_MEMORY_RAW, ErrorResponse::CONNECTIONS_RAW] {
        let raw = str::from_utf8(raw).unwrap();
        let (head, text) = raw.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", text.len())), "{head}");
    }
}
