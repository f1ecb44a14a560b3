//! Requests for heights below the served range, which another place lends.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;
use hyper::header::{HeaderValue, RETRY_AFTER};

use super::service::{Client, Service};
use crate::body::{AcceptEncoding, ResponseBody};
use crate::http::admit::ErrorResponse;
use crate::http::while_here;
use crate::rpc::RpcResponse;
use crate::shared::Began;

impl Service {
    /// Has the heights lent that a body names, and answers it. What is not lent is a miss.
    pub(super) async fn answer_lent(
        &self,
        body: &Bytes,
        accepts: AcceptEncoding,
        client: &Client,
        began: Began,
    ) -> Result<RpcResponse, Response<ResponseBody>> {
        let rpc = &self.responder.rpc;
        let Some(lender) = &self.responder.lender else { return Ok(RpcResponse::Below) };
        let wants = self.responder.wants(body, client.address).await;
        let wants = wants.map_err(|not_done| self.responder.not_done(not_done))?;
        let lending = lender.lend(wants, client.address);
        let lent = while_here(lending, || client.quiet.look_for_client()).await;
        let lent = lent.ok_or_else(|| ErrorResponse::GONE.response())?;
        let try_again = lent.try_again;
        let lending = Arc::new(rpc.with_lent(lent));
        let reply = self.answer_by(lending, body.clone(), accepts, client, began).await?;
        // All places were taken: a second later the height may be lent.
        if try_again && matches!(reply, RpcResponse::Miss(_)) {
            let mut response = self.responder.response(reply);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return Err(response);
        }
        Ok(reply)
    }
}
