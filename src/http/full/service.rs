//! The hot path: request, question, slices, reply.

use std::convert::Infallible;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode};
use neve_store::residency;

use super::request_body::{Unread, Whole, read, read_unwanted};
use crate::body::{AcceptEncoding, BodyBuilder, ResponseBody};
use crate::config::settings::WsLimits;
use crate::http::admit::{Cors, ErrorResponse, Hosts, Route, media_type, route};
use crate::http::clients::Proxies;
use crate::http::fast::{Persistence, ResponseWriter};
use crate::http::mirror::{MirrorEndpoint, whole};
use crate::http::relay::{RelayPaths, Relayer};
use crate::http::ws::Upgrade;
use crate::http::{
    Gone, HttpBody, IdleState, NotDone, Offload, OffloadedRequest, UnsentResponse, Waited,
};
use crate::observe::{Admin, Pages, page};
use crate::rpc::{Calls, LONG_BODY, Rpc, RpcResponse};
use crate::shared::lock::lock;
use crate::shared::{Began, ClientAddress, Work, add, has_gone};

/// Asks a node for another chain than the path names; there is none here.
const API_ROUTE: HeaderName = HeaderName::from_static("avalanche-api-route");
const CONTINUE: &[u8] = b"100-continue";

/// Answers requests of one thread's connections.
pub(crate) struct Service {
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) admin: Arc<Admin>,
    /// Pages for operators that this listener has.
    pub(crate) pages: Pages,
    /// True if it answers JSON-RPC.
    pub(crate) rpc_here: bool,
    pub(crate) miss_status: StatusCode,
    pub(crate) hosts: Hosts,
    /// Proxies that name their clients.
    pub(crate) proxies: Proxies,
    /// Paths of JSON-RPC besides the node's.
    pub(crate) rpc_paths: Arc<[String]>,
    pub(crate) header_bytes_max: usize,
    pub(crate) ws: WsLimits,
    /// Endpoint for mirrors, if any.
    pub(crate) mirrors: Option<MirrorEndpoint>,
    /// The relay of misses, if any.
    pub(crate) relay: Option<Relayer>,
    /// Other paths of the node that are relayed.
    pub(crate) relay_paths: RelayPaths,
    /// Threads for what must not hold up this one.
    pub(crate) offload: Arc<Offload>,
}

/// Client of a connection that is in hyper's hands.
pub(crate) struct Client {
    pub(crate) address: ClientAddress,
    pub(crate) quiet: Arc<IdleState>,
}

impl Service {
    /// Answers one request; nothing can fail but by an answer that says so.
    pub(crate) async fn respond(
        &self,
        mut request: Request<Incoming>,
        upgrade: &Upgrade,
        client: &Client,
    ) -> Result<Response<HttpBody>, Infallible> {
        add(&self.rpc.tally.requests, 1);
        let mut response = match self.cors(&request) {
            _ if expects_the_unknown(&request) => whole(ErrorResponse::EXPECTATION.response()),
            Cors::Preflight(headers) => {
                let ended = read_unwanted(&mut request).await;
                whole(closing_unless(ended, preflight(headers)))
            }
            cors => {
                let mut response = self.answer_or_turn_away(request, upgrade, client).await;
                cors.mark(response.headers_mut());
                response
            }
        };
        add(&self.rpc.tally.bytes, response.body().len() as u64);
        response.body_mut().charge(&self.rpc.memory, client.address);
        Ok(response)
    }

    /// Pages of other origins read JSON-RPC and documents, and nothing that is for operators or
    /// mirrors.
    fn cors(&self, request: &Request<Incoming>) -> Cors {
        let path = request.uri().path();
        if !self.rpc_here || Pages::All.has(path) || MirrorEndpoint::knows(path) {
            return Cors::Never;
        }
        Cors::of(request)
    }

    async fn answer_or_turn_away(
        &self,
        mut request: Request<Incoming>,
        upgrade: &Upgrade,
        client: &Client,
    ) -> Response<HttpBody> {
        let turned = match self.admit(&request) {
            Ok(()) => return self.read_and_answer(request, client).await,
            Err(NonRpc::Relayed(path)) => return self.relay_path(request, path, client).await,
            Err(turned) => turned,
        };
        // A refusal that closes the connection need not wait for the body.
        let ended = !turned.closes() && read_unwanted(&mut request).await;
        let response = self.answer_other(turned, ended, request, upgrade, client).await;
        closing_unless(ended, response)
    }

    /// Answers a request that carries no JSON-RPC; `ended` if its body was read to the end.
    async fn answer_other(
        &self,
        turned: NonRpc,
        ended: bool,
        request: Request<Incoming>,
        upgrade: &Upgrade,
        client: &Client,
    ) -> Response<HttpBody> {
        let turned = match (turned, &self.mirrors) {
            (NonRpc::Mirror, Some(mirrors)) => {
                return mirrors.respond(&request.into_parts().0, client.address).await;
            }
            (turned, _) => turned,
        };
        whole(match turned {
            // Bytes of the body would be taken for frames.
            NonRpc::WebSocket if !ended => ErrorResponse::handshake(StatusCode::BAD_REQUEST),
            NonRpc::Empty => plain_empty(),
            NonRpc::Admin => self.admin.respond(request.uri().path(), self.pages),
            NonRpc::Page => status_page(),
            NonRpc::Rest => self.document(&request.into_parts().0, client.address).await,
            NonRpc::WebSocket => upgrade.accept(request, client.address),
            NonRpc::Moved(path) => moved(&path, request.uri().query()),
            NonRpc::Mirror | NonRpc::Relayed(_) => ErrorResponse::NOT_FOUND.response(),
            NonRpc::Away(refusal) => {
                let response = refusal.response();
                self.rpc.tally.refuse(response.status().as_u16());
                response
            }
        })
    }

    /// Checks that the request carries JSON-RPC, in the node's order (avalanchego,
    /// `api/server/server.go` and `router.go`; libevm, `rpc/http.go`).
    fn admit(&self, request: &Request<Incoming>) -> Result<(), NonRpc> {
        let headers = request.headers();
        let mut hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
        let host = hosts.next();
        if hosts.next().is_some() {
            return Err(ErrorResponse::HOSTS.into());
        }
        self.hosts.check(host).map_err(ErrorResponse::host)?;
        if headers.contains_key(API_ROUTE) {
            return Err(ErrorResponse::NO_SUCH_CHAIN.into());
        }
        if let Some(path) = self.relay_paths.of(request.uri()) {
            return Err(NonRpc::Relayed(path.clone()));
        }
        match route(request.uri().path(), &self.rpc_paths) {
            Route::WebSocket if self.rpc_here => Err(NonRpc::WebSocket),
            Route::Rpc { root: true } if self.rpc_here && Upgrade::is_wanted(request) => {
                Err(NonRpc::WebSocket)
            }
            Route::Rpc { root } if self.rpc_here && (!root || request.method() == Method::POST) => {
                self.carries_json(request)
            }
            Route::Rpc { root: true } if page::is_wanted(request.method(), request.headers()) => {
                Err(NonRpc::Page)
            }
            Route::Rest if self.rpc_here => Err(NonRpc::Rest),
            Route::Moved(path) => Err(NonRpc::Moved(path)),
            Route::Other(path) if self.mirrors_here() && MirrorEndpoint::knows(path) => {
                Err(NonRpc::Mirror)
            }
            _ => Err(self.elsewhere(request.method(), request.uri().path())),
        }
    }

    fn mirrors_here(&self) -> bool {
        self.rpc_here && self.mirrors.is_some()
    }

    fn carries_json(&self, request: &Request<Incoming>) -> Result<(), NonRpc> {
        let (method, uri) = (request.method(), request.uri());
        let len = request.body().size_hint().exact();
        if method == Method::GET && len == Some(0) && uri.query().is_none_or(str::is_empty) {
            return Err(NonRpc::Empty);
        }
        if method == Method::PUT || method == Method::DELETE {
            return Err(ErrorResponse::METHOD.into());
        }
        let limit = self.rpc.limits.body_bytes_max as u64;
        if let Some(len) = len.filter(|len| *len > limit) {
            return Err(ErrorResponse::too_long(len, limit).into());
        }
        let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
        if method != Method::OPTIONS && !media_type::is_json(content_type) {
            return Err(ErrorResponse::MEDIA_TYPE.into());
        }
        Ok(())
    }

    fn elsewhere(&self, method: &Method, path: &str) -> NonRpc {
        let known = self.pages.has(path);
        match *method {
            Method::GET | Method::HEAD if known => NonRpc::Admin,
            _ if known => ErrorResponse::USE_GET.into(),
            _ => ErrorResponse::NOT_FOUND.into(),
        }
    }

    async fn read_and_answer(
        &self,
        request: Request<Incoming>,
        client: &Client,
    ) -> Response<HttpBody> {
        let accepts = AcceptEncoding::of(request.headers());
        let limit = self.rpc.limits.body_bytes_max;
        // If the body was cut or its chunks are malformed, what came of it is not JSON either.
        let account = self.rpc.memory.account(client.address);
        let body = match read(request.into_body(), limit, account).await {
            Ok(body) => body,
            Err(Unread::Broken) => Whole::from(Bytes::from_static(b"{")),
            Err(Unread::NoRoom) => {
                return closing_unless(false, whole(self.response(RpcResponse::NoRoom)));
            }
        };
        let reply = match self.answer_if_resident(&body.bytes, accepts, client.address) {
            Some(reply) => Ok(reply), // nearly always
            None => self.answer_offloaded(body.bytes.clone(), accepts, client).await,
        };
        let response = match reply {
            Ok(RpcResponse::Relay(outbound)) => self.relay(outbound, client).await,
            Ok(RpcResponse::Split(split)) => whole(self.fill(split, client).await),
            Ok(reply) => whole(self.response(reply)),
            Err(response) => whole(response),
        };
        closing_unless(body.ended, response)
    }

    /// Answers JSON-RPC unless that takes the disk, or long.
    pub(crate) fn answer_if_resident(
        &self,
        body: &[u8],
        accepts: AcceptEncoding,
        address: ClientAddress,
    ) -> Option<RpcResponse> {
        if body.len() > LONG_BODY {
            return None;
        }
        let work = Work::here(self.rpc.limits.work);
        let answered = residency::if_sendable(|| self.rpc.answer(body, accepts, address, &work));
        answered.map(|answered| self.counted(answered))
    }

    /// Answers it on a thread that may wait for the disk, or says why it is not answered.
    async fn answer_offloaded(
        &self,
        body: Bytes,
        accepts: AcceptEncoding,
        client: &Client,
    ) -> Result<RpcResponse, Response<ResponseBody>> {
        add(&self.rpc.tally.handed_over, 1);
        let (rpc, class, began) = (Arc::clone(&self.rpc), self.rpc.class(&body), Began::now());
        let gone = Gone::default();
        let flag = gone.flag();
        let address = client.address;
        let answering = self.offload.run(class, address, move || {
            let has_gone = || flag.load(Ordering::Relaxed);
            let work = Work::elsewhere(rpc.limits.work, began, &has_gone);
            rpc.answer_waiting(&body, accepts, address, &work)
        });
        match gone.watch(answering, || client.quiet.look_for_client()).await {
            Ok(Some(answered)) => Ok(self.counted(answered)),
            Ok(None) => Err(plain_empty()), // nobody is there to read it
            Err(not_done) => Err(self.not_done(not_done)),
        }
    }

    /// Says that offloaded work has no result.
    pub(crate) fn not_done(&self, why: NotDone) -> Response<ResponseBody> {
        let response = match why {
            NotDone::Full => ErrorResponse::BUSY.response(),
            NotDone::Failed => ErrorResponse::FAILED.response(),
        };
        self.rpc.tally.refuse(response.status().as_u16());
        response
    }

    /// Answers a plain request on a thread that may wait for the disk, and sends there as much as
    /// goes at once; returns what is left, or nothing if that failed. It is counted when the client
    /// may have it already. A request that is to be relayed comes back.
    pub(crate) async fn answer_and_send(
        self: &Arc<Self>,
        question: OffloadedRequest,
        stream: TcpStream,
    ) -> Option<Waited> {
        let tally = &self.rpc.tally;
        add(&tally.handed_over, 1);
        let (class, began) = (self.rpc.class(question.body()), Began::now());
        let (service, address, persistence) =
            (Arc::clone(self), question.address, question.persistence);
        let socket = Arc::new(Mutex::new(Some(stream)));
        let handed = Arc::clone(&socket);
        let work = move || {
            let stream = take(&handed)?;
            let gone = || has_gone(&stream);
            let work = Work::elsewhere(service.rpc.limits.work, began, &gone);
            let (body, accepts) = (question.body(), question.accepts);
            let (reply, calls) = service.rpc.answer_waiting(body, accepts, address, &work)?;
            if reply.needs_upstream() {
                return Some((0, calls, Some(Waited::Unanswered(stream, question.request))));
            }
            let out = Box::new(service.uncounted(reply, persistence));
            let len = out.body_len();
            Some((len, calls, UnsentResponse { stream, out }.send().map(Waited::Unsent)))
        };
        let answering = self.offload.run(class, address, work);
        match answering.await {
            Ok(Some((body_len, calls, waited))) => {
                calls.count(tally);
                add(&tally.bytes, body_len as u64);
                waited
            }
            Ok(None) | Err(NotDone::Failed) => None,
            Err(NotDone::Full) => {
                let out = Box::new(ResponseWriter::new(self.not_done(NotDone::Full), persistence));
                UnsentResponse { stream: take(&socket)?, out }.send().map(Waited::Unsent)
            }
        }
    }

    /// The answer to a plain request, head and all.
    pub(crate) fn out(&self, reply: RpcResponse, persistence: Persistence) -> ResponseWriter {
        let out = self.uncounted(reply, persistence);
        add(&self.rpc.tally.bytes, out.body_len() as u64);
        out
    }

    /// Writes a response without counting it: only one thread may count.
    fn uncounted(&self, reply: RpcResponse, persistence: Persistence) -> ResponseWriter {
        match reply {
            RpcResponse::Answer(body) if body.coding().is_none() => {
                ResponseWriter::plain(body, persistence, self.rpc.serving.head())
            }
            reply => ResponseWriter::new(self.response(reply), persistence),
        }
    }

    fn counted(&self, (reply, calls): (RpcResponse, Calls)) -> RpcResponse {
        calls.count(&self.rpc.tally);
        reply
    }
}

/// Takes the socket from whoever did not use it.
fn take(socket: &Mutex<Option<TcpStream>>) -> Option<TcpStream> {
    lock(socket).take()
}

/// Go's server refuses this before anything else looks at the request.
fn expects_the_unknown(request: &Request<Incoming>) -> bool {
    let expect = request.headers().get(EXPECT);
    expect.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(CONTINUE))
}

/// A request that carries no JSON-RPC.
enum NonRpc {
    /// A health check that wants nothing.
    Empty,
    /// For the administrator.
    Admin,
    /// Wants the status page.
    Page,
    /// Wants a document of a block.
    Rest,
    /// Wants, or should want, a WebSocket.
    WebSocket,
    /// From a mirror.
    Mirror,
    /// For another path of the node.
    Relayed(PathAndQuery),
    /// Written uncleanly.
    Moved(String),
    /// A mistake.
    Away(ErrorResponse),
}

impl NonRpc {
    /// True if the connection closes behind the answer in any case.
    fn closes(&self) -> bool {
        matches!(self, Self::Away(refusal) if refusal.closes())
    }
}

impl From<ErrorResponse> for NonRpc {
    fn from(refusal: ErrorResponse) -> Self {
        Self::Away(refusal)
    }
}

/// Says that the connection closes, unless the request was read to its end. hyper would read the
/// rest while it sends the response, and then what comes behind: a refusal of that goes out in the
/// midst of the body under way.
pub(super) fn closing_unless<B>(ended: bool, mut response: Response<B>) -> Response<B> {
    if !ended {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pub(super) fn plain_empty() -> Response<ResponseBody> {
    Response::new(BodyBuilder::default().finish())
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

fn moved(path: &str, query: Option<&str>) -> Response<ResponseBody> {
    let mut response = plain_empty();
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    // A path that came in a request line can stand in a header.
    let location = HeaderValue::try_from(format!("{path}{query}")).ok();
    response.headers_mut().extend(location.map(|location| (LOCATION, location)));
    response
}
