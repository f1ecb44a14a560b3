//! Requests that an upstream answers: calls, the rest of a batch, other paths of the node.

use std::pin::pin;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::HeaderMap;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode};

use super::request_body::{Unread, Whole, read};
use super::service::{Client, Service, closing_unless};
use crate::body::ResponseBody;
use crate::http::NotDone;
use crate::http::admit::ErrorResponse;
use crate::http::keys::{ClientKey, KeyRefusal};
use crate::http::relay::{CallOrigin, NotFilled, NotRelayed, Relayed, Relayer, rpc_request};
use crate::http::response::{HttpBody, whole};
use crate::relay::{Failure, Hops, RelayRequest};
use crate::rpc::{CallFacts, Filling, LONG_BODY, Mixed, Outbound, RpcResponse, Split};
use crate::shared::{Began, Class, Holder};

impl Service {
    /// Has an upstream answer, until the client has gone.
    pub(super) async fn relay(
        &self,
        mut outbound: Outbound,
        hops: Result<Hops, Failure>,
        client: &Client,
        began: Began,
    ) -> Response<HttpBody> {
        let calls = outbound.count(&self.responder.rpc.counters);
        let hops = match hops {
            Ok(hops) => hops,
            Err(failure) => return whole(self.responder.not_relayed(&outbound, &failure)),
        };
        let origin = self.origin(client, hops);
        let streamed = self.stream(rpc_request(&mut outbound, &origin), &origin, client).await;
        // Until the head of the response: the body goes at the pace of the client.
        calls.time(&self.responder.rpc.counters, began.elapsed());
        self.relayed_or(streamed, |why| self.calls_not_relayed(&outbound, why))
    }

    /// Says that no upstream gave a response to calls.
    fn calls_not_relayed(&self, outbound: &Outbound, why: &NotRelayed) -> Response<ResponseBody> {
        match why {
            NotRelayed::NoMemory => ErrorResponse::NO_MEMORY.response(),
            NotRelayed::Failure(failure) => self.responder.not_relayed(outbound, failure),
        }
    }

    /// Makes the response of an upstream that of neve. `refusal` stands in its place if there is none.
    fn relayed_or(
        &self,
        streamed: Option<Result<Relayed, NotRelayed>>,
        refusal: impl FnOnce(&NotRelayed) -> Response<ResponseBody>,
    ) -> Response<HttpBody> {
        match streamed {
            Some(Ok(relayed)) => self.responder.relayed(relayed.response, relayed.behind),
            Some(Err(why)) => whole(refusal(&why)),
            None => whole(ErrorResponse::GONE.response()),
        }
    }

    /// Way of a request, unless it may not be relayed.
    pub(super) fn hops(&self, headers: &HeaderMap) -> Result<Hops, Failure> {
        self.relay.as_ref().map_or_else(|| Ok(Hops::default()), |relay| relay.hops(headers))
    }

    fn origin(&self, client: &Client, hops: Hops) -> CallOrigin<'_> {
        let account = self.responder.rpc.memory.account(client.address);
        // Of an empty store no client has seen a head: any upstream will do.
        let head = self.responder.rpc.serving.newest_seen();
        let trace = client.entry.as_ref().map(|entry| entry.trace()).unwrap_or_default();
        CallOrigin::new(client.address, account, head).through(hops).in_trace(trace)
    }

    /// Response of an upstream; nothing if the client has gone.
    async fn stream(
        &self,
        request: RelayRequest,
        origin: &CallOrigin<'_>,
        client: &Client,
    ) -> Option<Result<Relayed, NotRelayed>> {
        let Some(relay) = &self.relay else { return Some(Err(Failure::NoUpstream.into())) };
        let streaming = pin!(relay.stream(request, origin, &client.quiet));
        relay.ticker().while_here(streaming, || client.quiet.look_for_client()).await
    }

    /// Has an upstream answer a request for another path of the node.
    pub(super) async fn relay_path(
        &self,
        request: Request<Incoming>,
        path: PathAndQuery,
        client: &Client,
        key: Option<ClientKey>,
    ) -> Response<HttpBody> {
        let hops = self.hops(request.headers());
        let calls = match self.body_for_path(request, client, key).await {
            Ok(calls) => calls,
            Err(refusal) => return whole(refusal),
        };
        // Only now: the body is read, so the connection can stay open.
        let hops = match hops {
            Ok(hops) => hops,
            Err(failure) => return whole(path_not_relayed(&failure.into())),
        };
        let origin = self.origin(client, hops);
        let streamed = self.stream(path_request(path, calls, &origin), &origin, client).await;
        self.relayed_or(streamed, path_not_relayed)
    }

    /// The body of a request for another path of the node, written anew; none of a `GET`. A refusal
    /// closes the connection if some of the body may be unread.
    async fn body_for_path(
        &self,
        request: Request<Incoming>,
        client: &Client,
        key: Option<ClientKey>,
    ) -> Result<Option<Outbound>, Response<ResponseBody>> {
        let is_get = match *request.method() {
            Method::GET => true,
            Method::POST => false,
            _ => return Err(closing_unless(false, ErrorResponse::METHOD.response())),
        };
        let body = self.read_for_path(request.into_body(), client).await?;
        client.quiet.note_read();
        // Read all the same: the next request begins behind it.
        if is_get {
            let admitted = key.map_or(Ok(()), |key| key.admit_other());
            return admitted.map(|()| None).map_err(KeyRefusal::response);
        }
        let calls = self.calls_for_path(&body.bytes, client, key).await?;
        let reserved = self.reserved(calls, client);
        reserved.map(Some).ok_or_else(|| self.responder.response(RpcResponse::NoMemory))
    }

    /// Reads a body for another path of the node whole, or refuses it.
    async fn read_for_path(
        &self,
        body: Incoming,
        client: &Client,
    ) -> Result<Whole, Response<ResponseBody>> {
        let limit = self.responder.rpc.limits.body_bytes_max;
        if let Some(len) = body.size_hint().exact().filter(|len| *len > limit as u64) {
            return Err(ErrorResponse::too_long(len, limit as u64).response());
        }
        let account = self.responder.rpc.memory.account(client.address);
        match read(body, limit, account).await {
            Ok(body) if body.ended => Ok(body),
            // Its length was not declared: it has one byte more at least.
            Ok(_) => Err(ErrorResponse::too_long(limit as u64 + 1, limit as u64).response()),
            Err(Unread::Broken) => Err(ErrorResponse::GONE.response()),
            Err(Unread::NoMemory) => {
                Err(closing_unless(false, self.responder.response(RpcResponse::NoMemory)))
            }
        }
    }

    /// Reserves memory for calls to another API of the node; `None` if clients use too much.
    fn reserved(&self, mut calls: Outbound, client: &Client) -> Option<Outbound> {
        let account = self.responder.rpc.memory.account(client.address);
        let reserved = account.reserve(Holder::Relay, calls.held())?;
        calls.keep(Some(reserved));
        Some(calls)
    }

    /// Reads calls to another API of the node, if the client's key allows them.
    async fn calls_for_path(
        &self,
        body: &Bytes,
        client: &Client,
        key: Option<ClientKey>,
    ) -> Result<Outbound, Response<ResponseBody>> {
        let (items_max, calls) = (self.responder.rpc.limits.batch_items_max, body.clone());
        let parse = move || {
            let admitted = key.map_or(Ok(()), |key| key.admit_other_api(&calls, items_max));
            admitted.map(|()| Outbound::of_other_api(&calls, items_max))
        };
        // To parse a longer body would hold up the connections of this thread.
        let parsed = if body.len() <= LONG_BODY {
            Ok(parse())
        } else {
            self.responder.offload.run(Class::Search, client.address, parse).await
        };
        let parsed = parsed.map_err(|why| self.responder.not_done(why))?;
        let calls = parsed.map_err(KeyRefusal::response)?;
        calls.ok_or_else(|| ErrorResponse::NOT_RELAYED.response())
    }

    /// Has an upstream answer the rest of a batch, until the client has gone.
    pub(super) async fn fill(
        &self,
        mut split: Box<Split>,
        hops: Result<Hops, Failure>,
        client: &Client,
        began: Began,
    ) -> Response<ResponseBody> {
        let calls = split.outbound.count(&self.responder.rpc.counters);
        let Some(relay) = &self.relay else {
            return self.responder.response(RpcResponse::Split(split));
        };
        let hops = match hops {
            Ok(hops) => hops,
            Err(failure) => return self.fill_with_error(*split, failure, client),
        };
        let mut changes = split.take_changes();
        let filled = self.filled(relay, split, hops, client).await;
        calls.time(&self.responder.rpc.counters, began.elapsed());
        if !matches!(filled, Some(Ok(_))) {
            changes.undo(&self.responder.rpc.filters); // the client may repeat the batch
        }
        self.filled_response(filled)
    }

    /// Batch whose rest an upstream has answered; nothing if the client has gone.
    async fn filled(
        &self,
        relay: &Relayer,
        split: Box<Split>,
        hops: Hops,
        client: &Client,
    ) -> Option<Result<Mixed, NotFilled>> {
        let (origin, offload) = (self.origin(client, hops), &*self.responder.offload);
        let filling = pin!(relay.fill(split, origin, offload));
        relay.ticker().while_here(filling, || client.quiet.look_for_client()).await
    }

    fn filled_response(&self, filled: Option<Result<Mixed, NotFilled>>) -> Response<ResponseBody> {
        match filled {
            Some(Ok(mixed)) => self.responder.mixed(mixed),
            Some(Err(NotFilled::NoMemory)) => self.responder.response(RpcResponse::NoMemory),
            Some(Err(NotFilled::NotDone)) => self.responder.not_done(NotDone::Failed),
            None => ErrorResponse::GONE.response(),
        }
    }

    /// Answers a batch whose rest may not be relayed: each call of the rest gets an error.
    fn fill_with_error(
        &self,
        mut split: Split,
        failure: Failure,
        client: &Client,
    ) -> Response<ResponseBody> {
        let mut changes = split.take_changes();
        let account = self.responder.rpc.memory.account(client.address);
        let mixed = split.fill(&[Filling::failed(failure.error())]);
        let Some(mixed) = mixed.and_then(|mixed| mixed.reserved(account)) else {
            changes.undo(&self.responder.rpc.filters);
            return self.responder.response(RpcResponse::NoMemory);
        };
        self.responder.mixed(mixed)
    }
}

/// Makes the request for another path of the node, with calls if it has a body.
fn path_request(
    path: PathAndQuery,
    mut calls: Option<Outbound>,
    origin: &CallOrigin<'_>,
) -> RelayRequest {
    RelayRequest {
        path: Some(path),
        body: calls.as_mut().map(|calls| std::mem::take(&mut calls.body).into()),
        // A GET only reads. What a POST does at another API is not known.
        repeatable: calls.is_none(),
        head: 0,
        sends: None,
        hops: origin.hops.clone(),
        trace: origin.trace.clone(),
        wants_response: false,
        calls: CallFacts::default(),
        address: origin.address,
        memory: calls.as_mut().and_then(Outbound::take_reservation),
        kept: None,
    }
}

/// Says that no upstream gave a response for another path of the node.
fn path_not_relayed(why: &NotRelayed) -> Response<ResponseBody> {
    let failure = match why {
        NotRelayed::NoMemory => return ErrorResponse::NO_MEMORY.response(),
        NotRelayed::Failure(failure) => failure,
    };
    ErrorResponse::relay(failure.status().unwrap_or(StatusCode::BAD_GATEWAY), failure).response()
}
