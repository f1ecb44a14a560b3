//! Requests whose responses are streamed to another side, over connections of their own.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Response};
use hyper_util::client::legacy::Error;

use super::http::{AGENT, Connections, HttpClient};
use crate::config::Endpoint;

/// Bytes that a connection reads at a time.
pub(crate) const STREAM_READ_BYTES: usize = 64 << 10;
/// Time after which an idle connection closes: less than any usual server takes, or requests would
/// meet the end of their connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle connections of each thread.
const IDLE_MAX: usize = 32;

/// A client to one upstream whose connections are one thread's.
#[derive(Clone)]
pub(crate) struct StreamClient {
    http: HttpClient,
}

impl StreamClient {
    /// A client to an upstream; nothing is connected yet.
    pub(crate) fn new(
        endpoint: &Endpoint,
        tls: rustls::ClientConfig,
        connect_timeout: Duration,
    ) -> Self {
        let (read_bytes, idle_timeout) = (Some(STREAM_READ_BYTES), IDLE_TIMEOUT);
        let connections =
            Connections { connect_timeout, read_bytes, idle_timeout, idle_max: IDLE_MAX };
        Self { http: HttpClient::new(endpoint, tls, connections) }
    }

    /// Sends a request: JSON by `POST`, or a `GET` without a body. `path` replaces the path of the
    /// upstream's address. Nothing of a client goes along but `body` and what is in `more`.
    pub(crate) async fn send(
        &self,
        path: Option<&PathAndQuery>,
        body: Option<Bytes>,
        more: HeaderMap,
    ) -> Result<Response<Incoming>, Error> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let agent = (USER_AGENT, HeaderValue::from_static(AGENT));
        let json = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let headers = [Some(agent), body.is_some().then_some(json)].into_iter().flatten();
        let more = more.into_iter().filter_map(|(name, value)| Some((name?, value)));
        let headers = headers.chain(more);
        self.http.send(method, path, headers, body.unwrap_or_default()).await
    }
}
