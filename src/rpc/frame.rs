//! Frames of a WebSocket.

use neve_jsonrpc::{Request, RpcError, envelope, syntax_error};
use neve_store::residency::Cold;

use super::call::Rpc;
use super::caller::{Caller, Calls, Transport};
use super::response::{RpcResponse, WsResponse, framed};
use super::split::Mixed;
use crate::body::{AcceptEncoding, ResponseBody};
use crate::rpc::cursors::Subscriptions;
use crate::shared::{ClientAddress, Stop, Work};

impl Rpc {
    /// A miss for all of a frame of a WebSocket, because the disk does not deliver.
    pub(crate) fn unreadable_frame(
        &self,
        body: &[u8],
        address: ClientAddress,
        work: &Work<'_>,
    ) -> (WsResponse, Calls) {
        let (reply, calls) = self.unreadable(body, AcceptEncoding::default(), address, work);
        (frame_of(reply), calls)
    }

    /// Answers a frame of a WebSocket; what has no newline over HTTP has one here.
    pub(crate) fn answer_frame(
        &self,
        body: &[u8],
        subscriptions: &mut Subscriptions,
        address: ClientAddress,
        work: &Work<'_>,
    ) -> Result<(WsResponse, Calls), Cold> {
        subscriptions.begin();
        // The client may have left while the message was in a queue.
        work.check();
        let account = self.memory.account(address);
        let mut caller = Caller::new(Transport::Socket(&mut *subscriptions), work, account);
        let reply = match self.parse_for(body, &caller) {
            None => Ok(RpcResponse::NoMemory),
            Some(Request::Empty) => return Ok((WsResponse::Last(None), caller.calls)),
            Some(Request::Malformed) => return Ok((malformed(body), caller.calls)),
            Some(Request::Single(message)) => self.single(&message, &mut caller),
            Some(Request::Batch(messages)) => self.batch(&messages, &mut caller),
        };
        // Another thread does all of it again.
        let (reply, calls) = self.settle(reply, caller).inspect_err(|_| subscriptions.undo())?;
        Ok((end_frame(reply, subscriptions, work), calls))
    }
}

/// Keeps or undoes the effects of a frame, and returns its response.
fn end_frame(reply: RpcResponse, subscriptions: &mut Subscriptions, work: &Work<'_>) -> WsResponse {
    // The client has gone, so the frame has no effect.
    if work.ended() == Some(Stop::Gone) {
        subscriptions.undo();
        return WsResponse::Last(None);
    }
    if keeps_effects(&reply) {
        subscriptions.keep();
    } else {
        subscriptions.undo();
    }
    frame_of(reply)
}

/// True if the calls of a frame have their effects.
fn keeps_effects(reply: &RpcResponse) -> bool {
    match reply {
        RpcResponse::Served(_) | RpcResponse::Mixed(_) | RpcResponse::Split(_) => true,
        // A batch is refused whole, so none of its calls may have an effect.
        RpcResponse::Miss(_)
        // The upstream gets the whole message, also the parts that neve has answered.
        | RpcResponse::Relay(_)
        // The frame comes again, with what it lacked.
        | RpcResponse::Below
        | RpcResponse::Prices
        | RpcResponse::NoMemory => false,
    }
}

/// The frame of a response. One without a body is not sent.
fn frame_of(reply: RpcResponse) -> WsResponse {
    match reply {
        RpcResponse::Served(body)
        | RpcResponse::Miss(body)
        | RpcResponse::Mixed(Mixed { body, .. }) => {
            if body.len() == 0 {
                WsResponse::Nothing
            } else {
                framed(body)
            }
        }
        RpcResponse::Relay(call) => WsResponse::Relay(call),
        RpcResponse::Split(split) => WsResponse::Split(split),
        RpcResponse::Prices => WsResponse::Prices,
        RpcResponse::Below => WsResponse::Below,
        RpcResponse::NoMemory => WsResponse::NoMemory,
    }
}

/// The last response, to a frame that is not JSON.
fn malformed(body: &[u8]) -> WsResponse {
    WsResponse::Last(syntax_error(body).map(not_json))
}

/// A frame that is not JSON, as the node says it over WebSocket: with Go's words.
fn not_json(words: String) -> ResponseBody {
    let error = RpcError { code: RpcError::PARSE.code, message: words.into() };
    let mut out = Vec::new();
    envelope::error(&mut out, b"null", &error);
    out.extend_from_slice(envelope::NEWLINE);
    out.into()
}
