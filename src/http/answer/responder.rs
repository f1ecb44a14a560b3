//! Answers to JSON-RPC that neither wait nor take long, for both paths.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Response, StatusCode};

use super::lender::Lender;
use crate::body::ResponseBody;
use crate::http::admit::ErrorResponse;
use crate::http::{NotDone, Offload};
use crate::rpc::methods::Want;
use crate::rpc::{Calls, LONG_BODY, Rpc, RpcResponse};
use crate::shared::{Began, Class, ClientAddress};

/// Answers JSON-RPC for one thread.
pub(crate) struct Responder {
    pub(crate) rpc: Arc<Rpc>,
    pub(crate) miss_status: StatusCode,
    /// Threads for work that must not hold up this one.
    pub(crate) offload: Arc<Offload>,
    /// Lender of heights below the served range, if there is one.
    pub(crate) lender: Option<Lender>,
}

impl Responder {
    /// Counts the calls of a response whose work began at `began`.
    pub(crate) fn counted(
        &self,
        (reply, calls): (RpcResponse, Calls),
        began: Began,
    ) -> RpcResponse {
        calls.count(&self.rpc.counters, began.elapsed());
        reply
    }

    /// Makes the response for offloaded work without a result.
    pub(crate) fn not_done(&self, why: NotDone) -> Response<ResponseBody> {
        let response = match why {
            NotDone::Full => ErrorResponse::BUSY.response(),
            NotDone::Failed => ErrorResponse::FAILED.response(),
        };
        self.rpc.counters.refuse(response.status().as_u16());
        response
    }
}

/// Returns the blocks below the served range that the calls of a body name. A long body is read on another
/// thread.
pub(crate) async fn wants_of(
    rpc: &Arc<Rpc>,
    body: &Bytes,
    offload: &Offload,
    address: ClientAddress,
) -> Result<Vec<Want>, NotDone> {
    // To parse a longer body would hold up the connections of this thread.
    if body.len() <= LONG_BODY {
        return Ok(rpc.wants(body));
    }
    let (rpc, body) = (Arc::clone(rpc), body.clone());
    offload.run(Class::Search, address, move || rpc.wants(&body)).await
}
