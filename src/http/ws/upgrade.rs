//! From a request to a WebSocket (RFC 6455, 4.2), refused as gorilla/websocket refuses.

use std::sync::Mutex;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::body::ResponseBody;
use crate::http::access::MessageAccess;
use crate::http::admit::ErrorResponse;
use crate::http::keys::ClientKey;
use crate::relay::{Failure, Hops};
use crate::shared::ClientAddress;
use crate::shared::lock::lock;

/// Use of a connection: HTTP to its end, or a WebSocket from some request on.
#[derive(Default)]
pub(crate) struct Upgrade(Mutex<Option<Accepted>>);

/// A WebSocket that a connection goes on as.
pub(crate) struct Accepted {
    /// Client that requested it.
    pub(crate) client: ClientAddress,
    /// The key that the client named, if it needs one.
    pub(crate) key: Option<ClientKey>,
    /// Entries of its messages, if they have any.
    pub(crate) access: Option<MessageAccess>,
    /// Neves that it came through, unless it may not go on.
    pub(crate) hops: Result<Hops, Failure>,
}

impl Upgrade {
    /// True if a request that may also be plain HTTP asks for a WebSocket.
    pub(crate) fn is_wanted<B>(request: &Request<B>) -> bool {
        let headers = request.headers();
        has_token(headers, &CONNECTION, "upgrade") && has_token(headers, &UPGRADE, "websocket")
    }

    /// Answers a handshake: 101, or a refusal as gorilla/websocket makes it.
    pub(crate) fn accept(
        &self,
        request: &Request<Incoming>,
        client: ClientAddress,
        key: Option<ClientKey>,
        access: Option<MessageAccess>,
        hops: Result<Hops, Failure>,
    ) -> Response<ResponseBody> {
        match accept_key(request) {
            Ok(accept) => {
                *lock(&self.0) = Some(Accepted { client, key, access, hops });
                switching(accept)
            }
            Err(status) => ErrorResponse::handshake(status),
        }
    }

    /// Takes the accepted WebSocket, if there is one.
    pub(crate) fn take(&self) -> Option<Accepted> {
        lock(&self.0).take()
    }
}

/// Checks a handshake, in the order of gorilla/websocket.
fn accept_key<B>(request: &Request<B>) -> Result<HeaderValue, StatusCode> {
    let headers = request.headers();
    // RFC 6455, 4.2.1: hyper would not go on as a WebSocket behind an older request.
    if !Upgrade::is_wanted(request) || request.version() < Version::HTTP_11 {
        return Err(StatusCode::BAD_REQUEST);
    }
    if request.method() != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map_or(&b""[..], HeaderValue::as_bytes);
    // RFC 6455 has 16 bytes in base64 for a key. gorilla/websocket 1.5.0 takes any text.
    if !has_token(headers, &SEC_WEBSOCKET_VERSION, "13") || key.is_empty() {
        return Err(StatusCode::BAD_REQUEST);
    }
    HeaderValue::try_from(derive_accept_key(key)).map_err(|_| StatusCode::BAD_REQUEST)
}

fn switching(key: HeaderValue) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, key);
    response
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(token))
}
