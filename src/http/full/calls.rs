//! Calls of a request on the full path: reads and admits its body, and answers it here, on a thread that may wait, or
//! by an upstream.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;

use super::request_body::{Unread, Whole, read};
use super::service::{Client, Service};
use crate::body::{AcceptEncoding, ResponseBody};
use crate::http::Gone;
use crate::http::access::CalledMethods;
use crate::http::admit::ErrorResponse;
use crate::http::answer::Responder;
use crate::http::keys::{ClientKey, KeyRefusal};
use crate::http::response::{HttpBody, whole};
use crate::relay::{Failure, Hops};
use crate::rpc::{Calls, LONG_BODY, Rpc, RpcResponse};
use crate::shared::{Began, Work, add};

impl Service {
    /// Reads the body of a request; `None` if clients use too much memory.
    pub(super) async fn read_body(&self, body: Incoming, client: &Client) -> Option<Whole> {
        let limit = self.responder.rpc.limits.body_bytes_max;
        let account = self.responder.rpc.memory.account(client.address);
        match read(body, limit, account).await {
            Ok(body) => Some(body),
            Err(Unread::Broken) => Some(Whole::broken()),
            Err(Unread::NoMemory) => None,
        }
    }

    /// Notes the calls of a body for the access log, if it has a line for the request.
    pub(super) async fn note_calls(&self, body: &Bytes, client: &Client) {
        if let Some(entry) = client.entry.as_ref().filter(|entry| entry.is_logged()) {
            let Responder { rpc, offload, .. } = &*self.responder;
            let called = CalledMethods::read(rpc, offload, body, client.address).await;
            entry.note_body(body.len(), called);
        }
    }

    /// Answers a body that was read.
    pub(super) async fn answer_body(
        &self,
        body: &Bytes,
        accepts: AcceptEncoding,
        hops: Result<Hops, Failure>,
        client: &Client,
    ) -> Response<HttpBody> {
        // Not before: the time in which a client sends its body is no time of a call.
        let began = Began::now();
        let rpc = &self.responder.rpc;
        let reply = match self.answer(rpc, body, accepts, client, began).await {
            // Boxed: hyper has space for this future from the first byte of a connection on.
            Ok(needs @ (RpcResponse::Prices | RpcResponse::Below)) => {
                Box::pin(self.answer_fetching(needs, body, accepts, client, began)).await
            }
            reply => reply,
        };
        match reply {
            Ok(reply) => self.complete(reply, hops, client, began).await,
            Err(response) => whole(response),
        }
    }

    /// Makes the response to JSON-RPC. An upstream answers the calls that neve has left to it.
    async fn complete(
        &self,
        reply: RpcResponse,
        hops: Result<Hops, Failure>,
        client: &Client,
        began: Began,
    ) -> Response<HttpBody> {
        match reply {
            RpcResponse::Relay(outbound) => {
                Box::pin(self.relay(outbound, hops, client, began)).await
            }
            RpcResponse::Split(split) => {
                whole(Box::pin(self.fill(split, hops, client, began)).await)
            }
            reply => whole(self.responder.response(reply)),
        }
    }

    /// Admits a body by the client's key. Another thread parses a long body, as when it is answered.
    pub(super) async fn admit_key(
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
        // Lent heights are packed, which takes long.
        if !rpc.fetched.has_lent
            && let Ok(reply) = rpc.answer_if_resident(body, accepts, client.address, count)
        {
            return Ok(reply); // nearly always
        }
        self.answer_offloaded(Arc::clone(rpc), body.clone(), accepts, client, began).await
    }

    /// Answers a body by `rpc` on a thread that may wait for the disk, or says why it is not answered.
    async fn answer_offloaded(
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
        let has_gone = gone.for_work();
        let address = client.address;
        let answering = self.responder.offload.run(class, address, move || {
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
