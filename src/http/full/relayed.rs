//! Requests that an upstream answers: calls, the rest of a batch, other paths of the node.

use hyper::body::{Body, Incoming};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode};

use super::request_body::{Unread, read};
use super::service::{Client, Service, closing_unless, plain_empty};
use crate::body::ResponseBody;
use crate::http::admit::ErrorResponse;
use crate::http::relay::{NotRelayed, rpc_request};
use crate::http::response::{HttpBody, whole};
use crate::http::while_here;
use crate::relay::{Failure, RelayRequest};
use crate::rpc::{Outbound, RpcResponse, Split};

impl Service {
    /// Has an upstream answer, until the client has gone.
    pub(super) async fn relay(
        &self,
        mut outbound: Outbound,
        client: &Client,
    ) -> Response<HttpBody> {
        outbound.count(&self.responder.rpc.tally);
        let request = rpc_request(&mut outbound, self.responder.rpc.serving.head().unwrap_or(0));
        match self.stream(request, client).await {
            Some(Ok(response)) => self.responder.relayed(response),
            Some(Err(NotRelayed::NoRoom)) => whole(ErrorResponse::NO_ROOM.response()),
            Some(Err(NotRelayed::Failure(failure))) => {
                whole(self.responder.not_relayed(&outbound, &failure))
            }
            None => whole(plain_empty()),
        }
    }

    /// Response of an upstream; nothing if the client has gone.
    async fn stream(
        &self,
        request: RelayRequest,
        client: &Client,
    ) -> Option<Result<Response<HttpBody>, NotRelayed>> {
        let Some(relay) = &self.relay else { return Some(Err(Failure::NoUpstream.into())) };
        let account = self.responder.rpc.memory.account(client.address);
        let streaming = relay.stream(request, client.address, account);
        while_here(streaming, || client.quiet.look_for_client()).await
    }

    /// Has an upstream answer a request for another path of the node.
    pub(super) async fn relay_path(
        &self,
        request: Request<Incoming>,
        path: PathAndQuery,
        client: &Client,
    ) -> Response<HttpBody> {
        let is_get = match *request.method() {
            Method::GET => true,
            Method::POST => false,
            _ => return closing_unless(false, whole(ErrorResponse::METHOD.response())),
        };
        let limit = self.responder.rpc.limits.body_bytes_max;
        if let Some(len) = request.body().size_hint().exact().filter(|len| *len > limit as u64) {
            let refusal = ErrorResponse::too_long(len, limit as u64);
            return closing_unless(false, whole(refusal.response()));
        }
        let account = self.responder.rpc.memory.account(client.address);
        let body = match read(request.into_body(), limit, account).await {
            Ok(body) if body.ended => body,
            Ok(_) => {
                let refusal = ErrorResponse::too_long(limit as u64 + 1, limit as u64);
                return closing_unless(false, whole(refusal.response()));
            }
            Err(Unread::Broken) => return closing_unless(false, whole(plain_empty())),
            Err(Unread::NoRoom) => {
                return closing_unless(false, whole(self.responder.response(RpcResponse::NoRoom)));
            }
        };
        let body = (!is_get).then(|| body.bytes.clone());
        let request = RelayRequest { path: Some(path), body, repeatable: is_get, head: 0 };
        match self.stream(request, client).await {
            Some(Ok(response)) => self.responder.relayed(response),
            Some(Err(why)) => whole(path_not_relayed(&why)),
            None => whole(plain_empty()),
        }
    }

    /// Has an upstream answer the rest of a batch, until the client has gone.
    pub(super) async fn fill(
        &self,
        mut split: Box<Split>,
        client: &Client,
    ) -> Response<ResponseBody> {
        split.outbound.count(&self.responder.rpc.tally);
        let Some(relay) = &self.relay else {
            return self.responder.response(RpcResponse::Split(split));
        };
        let account = self.responder.rpc.memory.account(client.address);
        let head = self.responder.rpc.serving.head().unwrap_or(0);
        let filling = relay.fill(split, client.address, account, head);
        match while_here(filling, || client.quiet.look_for_client()).await {
            Some(Some(mixed)) => self.responder.mixed(mixed),
            Some(None) => self.responder.response(RpcResponse::NoRoom),
            None => plain_empty(),
        }
    }
}

/// Says that no upstream gave a response for another path of the node.
fn path_not_relayed(why: &NotRelayed) -> Response<ResponseBody> {
    let failure = match why {
        NotRelayed::NoRoom => return ErrorResponse::NO_ROOM.response(),
        NotRelayed::Failure(failure) => failure,
    };
    ErrorResponse::relay(failure.status().unwrap_or(StatusCode::BAD_GATEWAY), failure).response()
}
