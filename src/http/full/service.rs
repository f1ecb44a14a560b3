//! Requests on the full path: reads each one, and answers it by its kind.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONNECTION, HeaderMap, HeaderValue, LOCATION};
use hyper::{Method, Request, Response, StatusCode, Version};

use super::head_refusal::head_refusal;
use super::non_rpc::NonRpc;
use super::request_body::{Unread, Whole, read, read_unwanted};
use crate::body::{AcceptEncoding, ResponseBody};
use crate::config::settings::{Deadlines, WsLimits};
use crate::http::Gone;
use crate::http::access::{self, Access, AccessEntry, CalledMethods};
use crate::http::admit::{Cors, ErrorResponse, Policy};
use crate::http::answer::Responder;
use crate::http::keys::{ClientKey, KeyPrefix, KeyRefusal, LiveKeys};
use crate::http::mirror::MirrorEndpoint;
use crate::http::relay::{RelayPaths, Relayer};
use crate::http::response::{HttpBody, NO_STORE, whole};
use crate::http::socket::IdleState;
use crate::http::ws::Upgrade;
use crate::observe::{Admin, Pages, page};
use crate::rpc::{Calls, LONG_BODY, Rpc, RpcResponse};
use crate::shared::{Began, ClientAddress, Work, add};

/// Answers requests of one thread's connections.
pub(crate) struct Service {
    pub(crate) responder: Arc<Responder>,
    pub(crate) policy: Policy,
    pub(crate) admin: Arc<Admin>,
    /// Pages for operators that this listener has.
    pub(crate) pages: Pages,
    pub(crate) deadlines: Deadlines,
    pub(crate) header_bytes_max: usize,
    /// Streams of a connection of HTTP/2.
    pub(crate) connection_streams_max: u32,
    pub(crate) ws: WsLimits,
    /// Endpoint for mirrors, if any.
    pub(crate) mirrors: Option<MirrorEndpoint>,
    /// Keys of clients, if they need one.
    pub(crate) keys: Option<LiveKeys>,
    /// Access log and ids of requests, if any is on.
    pub(crate) access: Option<Access>,
    /// The relay of misses, if any.
    pub(crate) relay: Option<Relayer>,
    /// Other paths of the node that are relayed.
    pub(crate) relay_paths: RelayPaths,
}

/// Client of a connection of the full path.
pub(crate) struct Client {
    pub(crate) address: ClientAddress,
    pub(crate) quiet: Arc<IdleState>,
    /// Entry of its request, if requests have one.
    pub(crate) entry: Option<Arc<AccessEntry>>,
    /// True if a cache may store the response to its request.
    is_cacheable: bool,
}

impl Service {
    /// The client of a request.
    pub(super) fn client(
        &self,
        request: &Request<Incoming>,
        address: ClientAddress,
        quiet: Arc<IdleState>,
    ) -> Client {
        let entry = self.access.as_ref().map(|access| access.begin(request, address));
        let is_cacheable = matches!(*request.method(), Method::GET | Method::HEAD);
        Client { address, quiet, entry, is_cacheable }
    }

    /// Answers one request. A failure is a response too.
    pub(crate) async fn respond(
        &self,
        mut request: Request<Incoming>,
        upgrade: &Upgrade,
        client: &Client,
    ) -> Result<Response<HttpBody>, Infallible> {
        add(&self.responder.rpc.counters.requests, 1);
        let key = self.key(&mut request); // first: from here on the path has no key in it
        if let (Some(entry), Ok(Some(key))) = (&client.entry, &key) {
            entry.note_key(key.name());
        }
        let response = match (head_refusal(&request), self.cors(&request)) {
            (Some(refusal), _) => self.named_if(self.is_rpc(&request), self.refused(refusal)),
            (None, _) if is_about_server(&request) => {
                let ended = read_unwanted(&mut request, &client.quiet).await;
                whole(closing_unless(ended, plain_empty()))
            }
            // A browser sends a preflight without the key, so it gets its answer without one.
            (None, Cors::Preflight(headers)) => {
                let ended = read_unwanted(&mut request, &client.quiet).await;
                whole(closing_unless(ended, preflight(headers)))
            }
            (None, cors) => {
                let mut response = match key {
                    Ok(key) => self.answer_or_turn_away(request, upgrade, client, key).await,
                    Err(refusal) => {
                        let ended = read_unwanted(&mut request, &client.quiet).await;
                        let response = self.named_if(self.is_rpc(&request), refusal.response());
                        closing_unless(ended, response)
                    }
                };
                // gorilla/websocket writes its own head for a handshake.
                if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    cors.mark(response.headers_mut());
                }
                response
            }
        };
        Ok(self.finish(response, client))
    }

    /// Refuses a request before anything of it is read but its headers.
    pub(super) fn refuse(
        &self,
        refusal: Response<ResponseBody>,
        client: &Client,
    ) -> Response<HttpBody> {
        add(&self.responder.rpc.counters.requests, 1);
        self.responder.rpc.counters.refuse(refusal.status().as_u16());
        self.finish(whole(refusal), client)
    }

    /// Marks the response to a JSON-RPC request as one that neither neve nor an upstream answered.
    fn named_if(&self, is_rpc: bool, response: Response<ResponseBody>) -> Response<HttpBody> {
        whole(if is_rpc { self.responder.named(response) } else { response })
    }

    /// Counts a response, notes it in the access log, and has its bytes counted as they are sent.
    pub(super) fn finish(
        &self,
        mut response: Response<HttpBody>,
        client: &Client,
    ) -> Response<HttpBody> {
        let rpc = &self.responder.rpc;
        rpc.counters.respond(response.status().as_u16());
        response.body_mut().charge(&rpc.counters, &rpc.memory, client.address);
        // A cache keeps responses that do not forbid it, many refusals among them (RFC 9110, 15.1).
        if client.is_cacheable && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().entry(CACHE_CONTROL).or_insert(NO_STORE);
        }
        match &client.entry {
            Some(entry) => access::answer(entry, response),
            None => response,
        }
    }

    /// Pages of other origins read JSON-RPC and documents, and nothing that is for operators or
    /// mirrors.
    fn cors(&self, request: &Request<Incoming>) -> Cors {
        let path = request.uri().path();
        if !self.policy.rpc_here || Pages::All.has(path) || MirrorEndpoint::knows(path) {
            return Cors::Never;
        }
        Cors::of(request)
    }

    async fn answer_or_turn_away(
        &self,
        mut request: Request<Incoming>,
        upgrade: &Upgrade,
        client: &Client,
        key: Option<ClientKey>,
    ) -> Response<HttpBody> {
        let turned = match self.admit(&request) {
            Ok(()) => {
                let response = self.read_and_answer(request, client, key).await;
                return self.responder.named(response);
            }
            Err(turned) => turned,
        };
        // The key of a health check was admitted when it was taken.
        let counted = key.as_ref().filter(|_| !Self::is_check(&request));
        if let Some(refusal) = other_refusal(counted, &turned) {
            let ended = read_unwanted(&mut request, &client.quiet).await;
            return closing_unless(ended, whole(refusal.response()));
        }
        let turned = match turned {
            NonRpc::Relayed(path) => {
                return Box::pin(self.relay_path(request, path, client, key)).await;
            }
            turned => turned,
        };
        // A refusal that closes the connection need not wait for the body.
        let ended = !turned.closes() && read_unwanted(&mut request, &client.quiet).await;
        let upgrade = (upgrade, key);
        let response = self.answer_other(turned, ended, request, upgrade, client).await;
        closing_unless(ended, response)
    }

    /// Answers a request that carries no JSON-RPC; `ended` if its body was read to the end.
    async fn answer_other(
        &self,
        turned: NonRpc,
        ended: bool,
        request: Request<Incoming>,
        (upgrade, key): (&Upgrade, Option<ClientKey>),
        client: &Client,
    ) -> Response<HttpBody> {
        let turned = match (turned, &self.mirrors) {
            (NonRpc::Mirror, Some(mirrors)) => {
                return mirrors.respond(&request.into_parts().0, client.address, key).await;
            }
            (turned, _) => turned,
        };
        whole(match turned {
            // Bytes of the body would be taken for frames.
            NonRpc::WebSocket if !ended => ErrorResponse::handshake(StatusCode::BAD_REQUEST),
            NonRpc::Empty => plain_empty(),
            NonRpc::Admin => self.page(request.uri().path(), key.as_ref(), client),
            NonRpc::Page => status_page(),
            NonRpc::Rest => self.responder.document(&request.into_parts().0, client.address).await,
            NonRpc::WebSocket => {
                let access = client.entry.as_ref().map(|entry| entry.messages());
                let hops = self.hops(request.headers());
                upgrade.accept(&request, client.address, key, access, hops)
            }
            NonRpc::Moved(path) => moved(KeyPrefix::of(&request), &path, request.uri().query()),
            // Mirrors are not served here, and the caller has answered relayed paths.
            NonRpc::Mirror | NonRpc::Relayed(_) => ErrorResponse::NOT_FOUND.response(),
            NonRpc::Away(refusal) => self.refused(refusal),
            NonRpc::Refused(refusal) => self.responder.named(self.refused(refusal)),
        })
    }

    /// Counts a refusal, and returns its response.
    pub(super) fn refused(&self, refusal: ErrorResponse) -> Response<ResponseBody> {
        let response = refusal.response();
        self.responder.rpc.counters.refuse(response.status().as_u16());
        response
    }

    async fn read_and_answer(
        &self,
        request: Request<Incoming>,
        client: &Client,
        key: Option<ClientKey>,
    ) -> Response<HttpBody> {
        let accepts = AcceptEncoding::of(request.headers());
        let hops = self.hops(request.headers());
        let limit = self.responder.rpc.limits.body_bytes_max;
        let account = self.responder.rpc.memory.account(client.address);
        let body = match read(request.into_body(), limit, account).await {
            Ok(body) => body,
            Err(Unread::Broken) => Whole::broken(),
            Err(Unread::NoMemory) => {
                return closing_unless(
                    false,
                    whole(self.responder.response(RpcResponse::NoMemory)),
                );
            }
        };
        client.quiet.note_read();
        if let Some(entry) = client.entry.as_ref().filter(|entry| entry.is_logged()) {
            let Responder { rpc, offload, .. } = &*self.responder;
            let called = CalledMethods::read(rpc, offload, &body.bytes, client.address).await;
            entry.note_body(body.bytes.len(), called);
        }
        if let Some(key) = key
            && let Err(refused) = Box::pin(self.admit_key(key, &body.bytes, client)).await
        {
            return closing_unless(body.ended, whole(refused));
        }
        // Not before: the time in which a client sends its body is no time of a call.
        let began = Began::now();
        let rpc = &self.responder.rpc;
        let reply = match self.answer(rpc, &body.bytes, accepts, client, began).await {
            // Boxed: hyper has space for this future from the first byte of a connection on.
            Ok(needs @ (RpcResponse::Prices | RpcResponse::Below)) => {
                Box::pin(self.answer_fetching(needs, &body.bytes, accepts, client, began)).await
            }
            reply => reply,
        };
        let response = match reply {
            Ok(RpcResponse::Relay(outbound)) => {
                Box::pin(self.relay(outbound, hops, client, began)).await
            }
            Ok(RpcResponse::Split(split)) => {
                whole(Box::pin(self.fill(split, hops, client, began)).await)
            }
            Ok(reply) => whole(self.responder.response(reply)),
            Err(response) => whole(response),
        };
        closing_unless(body.ended, response)
    }

    /// Admits a body by the client's key. Another thread parses a long body, as when it is answered.
    async fn admit_key(
        &self,
        key: ClientKey,
        body: &Bytes,
        client: &Client,
    ) -> Result<(), Response<ResponseBody>> {
        let (rpc, body) = (&self.responder.rpc, body.clone());
        let items_max = rpc.limits.batch_items_max;
        if body.len() <= LONG_BODY {
            return key.admit(&body, items_max).map_err(KeyRefusal::response);
        }
        let class = rpc.class(&body);
        let admitting =
            self.responder.offload.run(class, client.address, move || key.admit(&body, items_max));
        match admitting.await {
            Ok(admitted) => admitted.map_err(KeyRefusal::response),
            Err(not_done) => Err(self.responder.not_done(not_done)),
        }
    }

    /// Answers JSON-RPC by `rpc`, or says why it is not answered.
    pub(super) async fn answer(
        &self,
        rpc: &Arc<Rpc>,
        body: &Bytes,
        accepts: AcceptEncoding,
        client: &Client,
        began: Began,
    ) -> Result<RpcResponse, Response<ResponseBody>> {
        let count = |calls: Calls| calls.count(&self.responder.rpc.counters, began.elapsed());
        match rpc.answer_if_resident(body, accepts, client.address, count) {
            Ok(reply) => Ok(reply), // nearly always
            Err(_) => {
                self.answer_offloaded(Arc::clone(rpc), body.clone(), accepts, client, began).await
            }
        }
    }

    /// Answers a body by `rpc` on a thread that may wait for the disk, or says why it is not answered.
    pub(super) async fn answer_offloaded(
        &self,
        rpc: Arc<Rpc>,
        body: Bytes,
        accepts: AcceptEncoding,
        client: &Client,
        began: Began,
    ) -> Result<RpcResponse, Response<ResponseBody>> {
        add(&self.responder.rpc.counters.handed_over, 1);
        let class = rpc.class(&body);
        let gone = Gone::default();
        let flag = gone.flag();
        let address = client.address;
        let answering = self.responder.offload.run(class, address, move || {
            let has_gone = || flag.load(Ordering::Relaxed);
            let work = Work::elsewhere(rpc.limits.work, began, &has_gone);
            rpc.answer_waiting(&body, accepts, address, &work)
        });
        match gone.watch(answering, || client.quiet.look_for_client()).await {
            Ok(Some(answered)) => Ok(self.responder.counted(answered, began)),
            Ok(None) => Err(ErrorResponse::GONE.response()),
            Err(not_done) => Err(self.responder.not_done(not_done)),
        }
    }
}

/// Refusal of a request that carries no JSON-RPC, if the client's key does not allow it. A WebSocket is not
/// refused here: each of its messages counts. Nor is a relayed path, whose calls count once its body is read.
fn other_refusal(key: Option<&ClientKey>, turned: &NonRpc) -> Option<KeyRefusal> {
    use NonRpc::{Away, Refused, Relayed, WebSocket};
    let key = key.filter(|_| !matches!(turned, WebSocket | Relayed(_) | Away(_) | Refused(_)))?;
    key.admit_other().err()
}

/// Says that the connection closes, unless the request was read to its end. hyper would read the rest of
/// the request while it sends the response, and then the next request. If it refuses that one, the refusal
/// lands inside the body of the response.
pub(super) fn closing_unless<B>(ended: bool, mut response: Response<B>) -> Response<B> {
    if !ended {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// True if a request asks what the server can do at all: `OPTIONS *`.
fn is_about_server<B>(request: &Request<B>) -> bool {
    let is_http_1 = request.version() < Version::HTTP_2; // over HTTP/2 the node's router gets it
    is_http_1 && request.method() == Method::OPTIONS && request.uri().path() == "*"
}

fn plain_empty() -> Response<ResponseBody> {
    Response::new(ResponseBody::default())
}

fn status_page() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(page::PAGE.as_bytes().to_vec()));
    for (name, value) in page::HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn preflight(headers: HeaderMap) -> Response<ResponseBody> {
    let mut response = plain_empty();
    *response.headers_mut() = headers;
    response
}

fn moved(prefix: &str, path: &str, query: Option<&str>) -> Response<ResponseBody> {
    let mut response = plain_empty();
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    // A path that came in a request line can stand in a header.
    let location = HeaderValue::try_from(format!("{prefix}{path}{query}")).ok();
    response.headers_mut().extend(location.map(|location| (LOCATION, location)));
    response
}
