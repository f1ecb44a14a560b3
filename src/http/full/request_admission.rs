//! Admission on the full path: requests that carry JSON-RPC, and the others.

use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request};

use super::head_refusal::host_of;
use super::non_rpc::NonRpc;
use super::service::Service;
use crate::http::admit::{ErrorResponse, Route, check_json, route};
use crate::http::mirror::MirrorEndpoint;
use crate::http::ws::Upgrade;
use crate::observe::page;

/// Asks a node for another chain than the path names; there is none here.
const API_ROUTE: HeaderName = HeaderName::from_static("avalanche-api-route");

impl Service {
    /// Checks that the request carries JSON-RPC, in the node's order (avalanchego,
    /// `api/server/server.go` and `router.go`; libevm, `rpc/http.go`).
    pub(super) fn admit(&self, request: &Request<Incoming>) -> Result<(), NonRpc> {
        let headers = request.headers();
        // A server that has an authority in the request line ignores `Host` (RFC 9112, 3.2.2).
        let named = request.uri().authority().map(|authority| host_of(authority).as_bytes());
        let host = named.or_else(|| headers.get(HOST).map(HeaderValue::as_bytes));
        let refused = |refusal| {
            if self.is_rpc(request) { NonRpc::Refused(refusal) } else { NonRpc::Away(refusal) }
        };
        self.policy.check_host(host).map_err(refused)?;
        if headers.contains_key(API_ROUTE) {
            return Err(refused(ErrorResponse::NO_SUCH_CHAIN));
        }
        if let Some(path) = self.relay_paths.of(request.uri()) {
            return Err(NonRpc::Relayed(path.clone()));
        }
        self.admit_by_route(request)
    }

    /// Checks that the request has a path and a method of JSON-RPC.
    fn admit_by_route(&self, request: &Request<Incoming>) -> Result<(), NonRpc> {
        match route(request.uri().path(), &self.policy.rpc_paths) {
            Route::WebSocket if self.policy.rpc_here => Err(websocket(request)),
            Route::Rpc { root: true } if self.policy.rpc_here && Upgrade::is_wanted(request) => {
                Err(websocket(request))
            }
            // The root has other uses by other methods: the status page, and WebSockets.
            Route::Rpc { root }
                if self.policy.rpc_here && (!root || request.method() == Method::POST) =>
            {
                self.carries_json(request)
            }
            Route::Rpc { root: true } if page::is_wanted(request.method(), request.headers()) => {
                Err(NonRpc::Page)
            }
            Route::Rest if self.policy.rpc_here => Err(NonRpc::Rest),
            Route::Moved(path) => Err(NonRpc::Moved(path)),
            Route::Other(path) if self.mirrors_here() && MirrorEndpoint::knows(path) => {
                Err(NonRpc::Mirror)
            }
            _ => Err(self.elsewhere(request.method(), request.uri().path())),
        }
    }

    /// True if a request is JSON-RPC by its method and its path, also if it is refused.
    pub(super) fn is_rpc(&self, request: &Request<Incoming>) -> bool {
        let route = route(request.uri().path(), &self.policy.rpc_paths);
        let is_post = request.method() == Method::POST;
        self.policy.rpc_here && is_post && matches!(route, Route::Rpc { .. })
    }

    fn mirrors_here(&self) -> bool {
        self.policy.rpc_here && self.mirrors.is_some()
    }

    fn carries_json(&self, request: &Request<Incoming>) -> Result<(), NonRpc> {
        let (method, uri) = (request.method(), request.uri());
        let len = request.body().size_hint().exact();
        // libevm returns 200 without a body to such a request, for health checks.
        if method == Method::GET && len == Some(0) && uri.query().is_none_or(str::is_empty) {
            return Err(NonRpc::Empty);
        }
        let limit = self.responder.rpc.limits.body_bytes_max;
        let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
        check_json(method, len, limit, content_type).map_err(NonRpc::Refused)
    }

    fn elsewhere(&self, method: &Method, path: &str) -> NonRpc {
        let known = self.pages.has(path);
        match *method {
            Method::GET | Method::HEAD if known => NonRpc::Admin,
            _ if known => ErrorResponse::USE_GET_OR_HEAD.into(),
            _ => ErrorResponse::NOT_FOUND.into(),
        }
    }
}

/// Refuses a handshake that has a body, without waiting for the body. The node reads such a body as frames, so a front and
/// neve could disagree where it ends.
fn websocket(request: &Request<Incoming>) -> NonRpc {
    // Other methods are refused after their bodies were read.
    let is_handshake = request.method() == Method::GET && Upgrade::is_wanted(request);
    if is_handshake && !request.body().is_end_stream() {
        return ErrorResponse::HANDSHAKE_BODY.into();
    }
    NonRpc::WebSocket
}
