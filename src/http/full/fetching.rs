//! Requests that need more than is here: prices that an upstream gives, heights below the served range that another
//! place lends, or both.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;
use hyper::header::{HeaderValue, RETRY_AFTER};

use super::service::{Client, Service};
use crate::body::{AcceptEncoding, ResponseBody};
use crate::http::admit::ErrorResponse;
use crate::http::answer::{Responder, wants_of};
use crate::http::{NotDone, while_here};
use crate::rpc::{Rpc, RpcResponse};
use crate::shared::Began;

impl Service {
    /// Fetches what a body needs, and answers it. Each is fetched once: what does not come is a miss.
    pub(super) async fn answer_fetching(
        &self,
        mut reply: RpcResponse,
        body: &Bytes,
        accepts: AcceptEncoding,
        client: &Client,
        began: Began,
    ) -> Result<RpcResponse, Response<ResponseBody>> {
        let mut rpc = Arc::clone(&self.responder.rpc);
        loop {
            rpc = Arc::new(match reply {
                RpcResponse::Prices => rpc.with_prices(began).await,
                RpcResponse::Below => self.lent(&rpc, body, client).await?,
                miss @ RpcResponse::Miss(_) if rpc.fetched.try_again => {
                    return Err(self.come_again(miss));
                }
                reply => return Ok(reply),
            });
            reply = self.answer(&rpc, body, accepts, client, began).await?;
        }
    }

    /// Has the heights lent that a body names.
    async fn lent(
        &self,
        rpc: &Rpc,
        body: &Bytes,
        client: &Client,
    ) -> Result<Rpc, Response<ResponseBody>> {
        let Some(lender) = &self.responder.lender else {
            // Not reached: without a lender no reply is `Below`.
            return Err(self.responder.not_done(NotDone::Failed));
        };
        let Responder { rpc: own, offload, .. } = &*self.responder;
        let wants = wants_of(own, body, offload, client.address).await;
        let wants = wants.map_err(|not_done| self.responder.not_done(not_done))?;
        let lending = lender.lend(wants, client.address);
        let lent = while_here(lending, || client.quiet.look_for_client()).await;
        Ok(rpc.with_lent(lent.ok_or_else(|| ErrorResponse::GONE.response())?))
    }

    /// Response for a miss for which all places were taken: a second later the height may be lent.
    fn come_again(&self, miss: RpcResponse) -> Response<ResponseBody> {
        let mut response = self.responder.response(miss);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}
