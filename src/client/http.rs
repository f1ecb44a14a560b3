//! HTTP to another server: connections, and requests with the headers that it wants.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connector::connector;
use super::peer_text::PeerText;
use super::secrets::remember;
use crate::config::{Address, Endpoint, UpstreamHeaders};

/// Value of `User-Agent`.
pub(crate) const AGENT: &str = concat!("neve/", env!("CARGO_PKG_VERSION"));

/// Connections of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connections {
    pub(crate) connect_timeout: Duration,
    /// Bytes that a connection reads at a time, and keeps while it is idle. Left to itself hyper
    /// grows it to 400 kB for each connection.
    pub(crate) read_bytes: Option<usize>,
    /// Time after which an idle connection closes.
    pub(crate) idle_timeout: Duration,
    /// Idle connections that stay open.
    pub(crate) idle_max: usize,
}

/// A client to one server. Clones share connections.
#[derive(Clone)]
pub(crate) struct HttpClient {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Address,
    headers: UpstreamHeaders,
}

impl HttpClient {
    /// A client to an upstream; nothing is connected yet. From now on no text shows its keys.
    pub(crate) fn new(
        endpoint: &Endpoint,
        tls: rustls::ClientConfig,
        connections: Connections,
    ) -> Self {
        remember(endpoint);
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(connections.idle_timeout)
            .pool_max_idle_per_host(connections.idle_max);
        connections.read_bytes.map(|bytes| builder.http1_read_buf_exact_size(bytes));
        let http = builder.build(connector(tls, connections.connect_timeout));
        Self { http, base: endpoint.rpc.clone(), headers: endpoint.headers.clone() }
    }

    /// Sends a request, and returns its response when the head has come. hyper sends it again only
    /// if none of it was sent. `path` replaces the path of the server's address. The headers of the
    /// settings go along.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: Option<&PathAndQuery>,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<Response<Incoming>, Error> {
        let mut uri = self.base.reveal().clone().into_parts();
        if let Some(path) = path {
            uri.path_and_query = Some(path.clone());
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_parts(uri).expect("an address with another path");
        request.headers_mut().extend(headers);
        self.headers.add_to(request.headers_mut());
        self.http.request(request).await
    }
}

/// The whole story of an error, which hyper tells one level at a time.
pub(crate) fn whole_story(error: &dyn StdError) -> PeerText {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text.into()
}
