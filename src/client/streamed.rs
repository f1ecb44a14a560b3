//! Requests whose responses are streamed to another side, over connections of their own.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as HyperClient, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connector::connector;
use super::rpc::AGENT;
use crate::config::{Address, Endpoint, UpstreamHeaders};

/// Bytes that a connection reads at a time.
pub(crate) const STREAM_READ_BYTES: usize = 64 << 10;
/// Time after which an idle connection closes: less than any usual server takes, or requests would
/// meet the end of their connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle connections of each thread.
const IDLE_MAX: usize = 32;

/// A client to one upstream whose connections are one thread's.
pub(crate) struct StreamClient {
    http: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Address,
    headers: UpstreamHeaders,
}

impl StreamClient {
    /// A client to an upstream; nothing is connected yet.
    pub(crate) fn new(
        endpoint: &Endpoint,
        tls: rustls::ClientConfig,
        connect_timeout: Duration,
    ) -> Self {
        // hyper sends a request again only if none of it was sent.
        let http = HyperClient::builder(TokioExecutor::new())
            .http1_read_buf_exact_size(STREAM_READ_BYTES)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector(tls, connect_timeout));
        Self { http, uri: endpoint.rpc.clone(), headers: endpoint.headers.clone() }
    }

    /// Sends a request: JSON by `POST`, or a `GET` without a body. `path` replaces the path of the
    /// upstream's address. Nothing of a client goes along but `body`.
    pub(crate) async fn send(
        &self,
        path: Option<&PathAndQuery>,
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>, Error> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut uri = self.uri.reveal().clone().into_parts();
        if let Some(path) = path {
            uri.path_and_query = Some(path.clone());
        }
        let uri = Uri::from_parts(uri).expect("an address with another path");
        let request = Request::builder().method(method).uri(uri).header(USER_AGENT, AGENT);
        let request = match &body {
            Some(_) => request.header(CONTENT_TYPE, "application/json"),
            None => request,
        };
        let mut request = request
            .body(Full::new(body.unwrap_or_default()))
            .expect("an address that was parsed and headers that are constants");
        self.headers.add_to(request.headers_mut());
        self.http.request(request).await
    }
}
