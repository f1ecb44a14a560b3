//! Requests on the full path: reads each one, and answers it by its kind.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONNECTION, HeaderMap, HeaderValue, LOCATION};
use hyper::{Method, Request, Response, StatusCode, Version};

use super::head_refusal::head_refusal;
use super::non_rpc::NonRpc;
use super::request_body::read_unwanted;
use crate::body::{AcceptEncoding, ResponseBody};
use crate::config::settings::{Deadlines, WsLimits};
use crate::http::access::{self, Access, AccessEntry};
use crate::http::admit::{Cors, ErrorResponse, Policy};
use crate::http::answer::Responder;
use crate::http::keys::{ClientKey, KeyPrefix, KeyRefusal, LiveKeys};
use crate::http::mirror::MirrorEndpoint;
use crate::http::relay::{RelayPaths, Relayer};
use crate::http::response::{HttpBody, NO_STORE, whole};
use crate::http::socket::IdleState;
use crate::http::ws::Upgrade;
use crate::observe::{Admin, Pages, page};
use crate::rpc::RpcResponse;
use crate::shared::{ClientAddress, add};

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
        // First: from here on the path has no key in it.
        let key = self.noted_key(&mut request, client);
        let response = match (head_refusal(&request), self.cors(&request)) {
            (Some(refusal), _) => self.named_if(self.is_rpc(&request), self.refused(refusal)),
            (None, _) if is_about_server(&request) => {
                whole(behind_body(plain_empty(), &mut request, client).await)
            }
            // A browser sends a preflight without the key, so it gets its answer without one.
            (None, Cors::Preflight(headers)) => {
                whole(behind_body(preflight(headers), &mut request, client).await)
            }
            (None, cors) => {
                let response = match key {
                    Ok(key) => self.answer_or_turn_away(request, upgrade, client, key).await,
                    Err(refusal) => self.refuse_key(refusal, &mut request, client).await,
                };
                marked(&cors, response)
            }
        };
        Ok(self.finish(response, client))
    }

    /// Takes the key out of a request, and notes its name in the access log.
    fn noted_key(
        &self,
        request: &mut Request<Incoming>,
        client: &Client,
    ) -> Result<Option<ClientKey>, KeyRefusal> {
        let key = self.key(request);
        if let (Some(entry), Ok(Some(key))) = (&client.entry, &key) {
            entry.note_key(key.name());
        }
        key
    }

    /// Refuses a request for its key.
    async fn refuse_key(
        &self,
        refusal: KeyRefusal,
        request: &mut Request<Incoming>,
        client: &Client,
    ) -> Response<HttpBody> {
        let ended = read_unwanted(request, &client.quiet).await;
        closing_unless(ended, self.named_if(self.is_rpc(request), refusal.response()))
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
        let Err(turned) = self.admit(&request) else {
            let response = self.read_and_answer(request, client, key).await;
            return self.responder.named(response);
        };
        if let Some(refusal) = other_refusal(key.as_ref(), &request, &turned) {
            return behind_body(whole(refusal.response()), &mut request, client).await;
        }
        if let NonRpc::Relayed(path) = turned {
            return Box::pin(self.relay_path(request, path, client, key)).await;
        }
        // A refusal that closes the connection need not wait for the body.
        let ended = !turned.closes() && read_unwanted(&mut request, &client.quiet).await;
        let response = self.answer_other(turned, ended, request, (upgrade, key), client).await;
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
        let Some(body) = self.read_body(request.into_body(), client).await else {
            let refusal = self.responder.response(RpcResponse::NoMemory);
            return closing_unless(false, whole(refusal));
        };
        client.quiet.note_read();
        self.note_calls(&body.bytes, client).await;
        if let Some(key) = key
            && let Err(refused) = Box::pin(self.admit_key(key, &body.bytes, client)).await
        {
            return closing_unless(body.ended, whole(refused));
        }
        let response = self.answer_body(&body.bytes, accepts, hops, client).await;
        closing_unless(body.ended, response)
    }
}

/// Refusal of a request that carries no JSON-RPC, if the client's key does not allow it. A WebSocket is not
/// refused here: each of its messages counts. Nor is a relayed path, whose calls count once its body is read.
fn other_refusal(
    key: Option<&ClientKey>,
    request: &Request<Incoming>,
    turned: &NonRpc,
) -> Option<KeyRefusal> {
    use NonRpc::{Away, Refused, Relayed, WebSocket};
    // The key of a health check was admitted when it was taken.
    let key = key.filter(|_| !Service::is_check(request))?;
    if matches!(turned, WebSocket | Relayed(_) | Away(_) | Refused(_)) {
        return None;
    }
    key.admit_other().err()
}

/// Returns a response behind the body of its request, which is not wanted.
async fn behind_body<B>(
    response: Response<B>,
    request: &mut Request<Incoming>,
    client: &Client,
) -> Response<B> {
    let ended = read_unwanted(request, &client.quiet).await;
    closing_unless(ended, response)
}

/// Marks a response with the pages that may read it.
fn marked(cors: &Cors, mut response: Response<HttpBody>) -> Response<HttpBody> {
    // gorilla/websocket writes its own head for a handshake.
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        cors.mark(response.headers_mut());
    }
    response
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
