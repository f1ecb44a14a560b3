//! Requests whose responses are streamed to another side, over connections of their own.
//!
//! hyper's connections, kept here: hyper-util's pool finds them by the address, which it hashes twice
//! for each request, and prepares a connection besides for the case that none is kept.

mod gathered;

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::{Instant, sleep};
use tower_service::Service;

use self::gathered::Gathered;
use super::connector::connector;
use super::http::AGENT;
use super::secrets::remember;
use crate::body::ConnectionWakes;
use crate::config::Endpoint;
use crate::shared::lock::lock;

/// Memory of one read of a connection, at most.
pub(crate) const STREAM_READ_BYTES: usize = 64 << 10;
/// Bound of a response's head, and of the bytes for which hyper makes room before a read. Its buffer begins with 8 KiB,
/// which the allocator's thread cache has, and doubles: it has less than twice this.
const READ_AHEAD_BYTES: usize = STREAM_READ_BYTES / 2;
/// Time after which an idle connection closes: less than any usual server takes, or requests would
/// meet the end of their connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Idle connections of each thread.
const IDLE_MAX: usize = 32;

type RequestSender = SendRequest<Full<Bytes>>;

/// Reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// No connection: nothing was sent.
    #[error("cannot connect")]
    Connect(#[source] Box<dyn StdError + Send + Sync>),
    #[error("no response")]
    Request(#[from] hyper::Error),
}

impl StreamError {
    /// True if nothing was sent.
    pub(crate) fn is_connect(&self) -> bool {
        matches!(self, Self::Connect(_))
    }
}

/// A client to one upstream whose connections are one thread's. Clones share connections.
#[derive(Clone)]
pub(crate) struct StreamClient {
    connector: HttpsConnector<HttpConnector>,
    endpoint: Arc<Endpoint>,
    /// Value of `Host`.
    host: HeaderValue,
    idle: Arc<Mutex<Idle>>,
}

/// Connections without a request, the last used one at the end.
#[derive(Default)]
struct Idle {
    all: Vec<(RequestSender, Instant)>,
    /// True while a task closes old ones.
    swept: bool,
}

impl Idle {
    fn take(&mut self) -> Option<RequestSender> {
        // The newest: the server has had least time to close it.
        let (sender, since) = self.all.pop()?;
        if sender.is_closed() || since.elapsed() >= IDLE_TIMEOUT {
            self.sweep();
            return self.all.pop().map(|(sender, _)| sender);
        }
        Some(sender)
    }

    /// Closes connections that are old.
    fn sweep(&mut self) {
        self.all.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < IDLE_TIMEOUT);
    }
}

impl StreamClient {
    /// A client to an upstream; nothing is connected yet. From now on no text shows its keys.
    pub(crate) fn new(
        endpoint: &Endpoint,
        tls: rustls::ClientConfig,
        connect_timeout: Duration,
    ) -> Self {
        remember(endpoint);
        let (connector, host) = (connector(tls, connect_timeout), host(endpoint.rpc.reveal()));
        Self { connector, endpoint: Arc::new(endpoint.clone()), host, idle: Arc::default() }
    }

    /// Sends a request: JSON by `POST`, or a `GET` without a body. `path` takes the place of the chain's in
    /// the upstream's address. Nothing of a client goes along but `body` and what is in `more`. It is sent
    /// again only if a kept connection had ended before any of it was sent.
    pub(crate) async fn send(
        &self,
        path: Option<&PathAndQuery>,
        body: Option<Bytes>,
        more: impl IntoIterator<Item = (Option<HeaderName>, HeaderValue)>,
    ) -> Result<Response<Incoming>, StreamError> {
        let mut request = self.request(path, body, more);
        loop {
            let kept = lock(&self.idle).take();
            let is_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                // Boxed: each request would have space for it, and move it.
                None => Box::pin(self.connect()).await?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.keep(sender);
                    return Ok(response);
                }
                Err(mut error) => match error.take_message().filter(|_| is_kept) {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
    }

    fn request(
        &self,
        path: Option<&PathAndQuery>,
        body: Option<Bytes>,
        more: impl IntoIterator<Item = (Option<HeaderName>, HeaderValue)>,
    ) -> Request<Full<Bytes>> {
        let is_post = body.is_some();
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.uri_mut() = self.uri(path);
        let headers = request.headers_mut();
        // A connection of hyper adds none by itself.
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if is_post {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.method_mut() = Method::POST;
        }
        let headers = request.headers_mut();
        headers.extend(more.into_iter().filter_map(|(name, value)| Some((name?, value))));
        self.endpoint.headers.add_to(headers);
        request
    }

    fn uri(&self, path: Option<&PathAndQuery>) -> Uri {
        let path = match path {
            Some(path) => self.endpoint.node_path(path.path()), // the settings were checked for it
            None => self.endpoint.rpc.reveal().path_and_query().cloned(),
        };
        path.map_or_else(Uri::default, Uri::from)
    }

    async fn connect(&self) -> Result<RequestSender, StreamError> {
        let mut connector = self.connector.clone();
        poll_fn(|context| connector.poll_ready(context)).await.map_err(StreamError::Connect)?;
        let connecting = connector.call(self.endpoint.rpc.reveal().clone());
        let stream = connecting.await.map_err(StreamError::Connect)?;
        let mut builder = Builder::new();
        // The second bound holds for heads: the buffer grows by doubling, beyond the first one.
        builder.max_buf_size(READ_AHEAD_BYTES).max_header_size(READ_AHEAD_BYTES);
        let shaken = builder.handshake(Gathered(stream)).await;
        let (sender, mut connection) =
            shaken.map_err(|error| StreamError::Connect(error.into()))?;
        let mut wakes = ConnectionWakes::default();
        // Its error reaches the request.
        tokio::spawn(poll_fn(move |context| {
            Pin::new(&mut connection).poll(&mut wakes.context(context))
        }));
        Ok(sender)
    }

    /// Keeps a connection once its response has been read.
    fn keep(&self, mut sender: RequestSender) {
        if sender.is_ready() {
            return insert(&self.idle, sender); // nearly always
        }
        // Weak: a response that is read for long must not keep the other connections open.
        let idle = Arc::downgrade(&self.idle);
        tokio::spawn(async move {
            if sender.ready().await.is_ok()
                && let Some(idle) = idle.upgrade()
            {
                insert(&idle, sender);
            }
        });
    }
}

fn insert(idle: &Arc<Mutex<Idle>>, sender: RequestSender) {
    let mut locked = lock(idle);
    // The connection closes: as many are kept as a burst can use.
    if locked.all.len() >= IDLE_MAX {
        return;
    }
    locked.all.push((sender, Instant::now()));
    if !std::mem::replace(&mut locked.swept, true) {
        tokio::spawn(sweep(Arc::downgrade(idle)));
    }
}

/// Closes old connections until there are none.
async fn sweep(idle: Weak<Mutex<Idle>>) {
    loop {
        sleep(IDLE_TIMEOUT).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle = lock(&idle);
        idle.sweep();
        idle.swept = !idle.all.is_empty();
        if !idle.swept {
            return;
        }
    }
}

/// Host and port of an address, the port only if it is not the usual one.
fn host(uri: &Uri) -> HeaderValue {
    let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    let name = uri.host().unwrap_or_default();
    let port = uri.port_u16().filter(|port| *port != usual);
    let text = port.map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
    HeaderValue::try_from(text).expect("the host of an address")
}
