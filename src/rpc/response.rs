//! Response to a body, or to a frame of a WebSocket.

use neve_jsonrpc::{Message, RpcError, envelope};
use neve_store::residency::Cold;

use super::outbound::Outbound;
use super::split::{Mixed, Split};
use crate::body::ResponseBody;
use crate::rpc::cursors::UndoLog;

/// Response to a body.
pub(crate) enum RpcResponse {
    /// The node's answer.
    Served(ResponseBody),
    /// A full node must be asked. The body says so too.
    Miss(ResponseBody),
    /// A batch that neve answers in part: the rest is refused.
    Mixed(Mixed),
    /// An upstream must be asked.
    Relay(Outbound),
    /// A batch that neve answers in part: an upstream must be asked for the rest.
    Split(Box<Split>),
    /// Nothing yet: prices must be requested before.
    Prices,
    /// Nothing yet: heights below the served range must be lent before.
    Below,
    /// Nothing: the client, or all clients together, use too much memory.
    NoMemory,
}

impl RpcResponse {
    /// Returns the response to a batch, or the calls for an upstream. If neve answered none of them, the
    /// batch goes to the upstream whole, because that response can be streamed.
    pub(super) fn of_batch(mut split: Split, messages: &[Message<'_>]) -> Result<Self, Cold> {
        split.outbound.end();
        if !split.outbound.is_empty() {
            // Calls that go to upstreams of their own have several responses, which must be joined.
            if split.is_left_whole(messages) && !split.outbound.is_parted() {
                return Ok(Self::Relay(Outbound::batch(messages)));
            }
            return Ok(Self::Split(Box::new(split)));
        }
        // No call went to an upstream, so the batch has no gaps and can be finished at once.
        let (misses, answered) = (split.refused, split.served > 0);
        let body = split.finish()?;
        Ok(match misses {
            0 => Self::Served(body),
            _ => Self::Mixed(Mixed { body, misses, answered, own: true, behind: false }),
        })
    }

    /// Takes the changes that were made for it, of which no client will know.
    pub(crate) fn take_changes(&mut self) -> UndoLog {
        match self {
            Self::Split(split) => split.take_changes(),
            _ => UndoLog::default(), // `settle` has undone them, or there are none
        }
    }

    /// True if an upstream or the archive must be asked.
    pub(crate) fn needs_upstream(&self) -> bool {
        matches!(self, Self::Relay(_) | Self::Split(_) | Self::Prices | Self::Below)
    }
}

/// Response to a frame of a WebSocket.
pub(crate) enum WsResponse {
    /// A response that is sent as a message.
    Served(ResponseBody),
    /// No message: all of the frame was notifications or responses.
    Nothing,
    /// An upstream must be asked.
    Relay(Outbound),
    /// An upstream must be asked for the rest of a batch.
    Split(Box<Split>),
    /// Nothing yet: prices must be requested before.
    Prices,
    /// Nothing yet: heights below the served range must be lent before.
    Below,
    /// A response, if any, and then the end of the connection.
    Last(Option<ResponseBody>),
    /// Nothing: the response cannot stand in a text frame.
    NotUtf8,
    /// Nothing: the client, or all clients together, use too much memory.
    NoMemory,
}

/// A text frame. An id that is not UTF-8 cannot be echoed in one.
pub(crate) fn framed(mut body: ResponseBody) -> WsResponse {
    body.end_line();
    // The node echoes it all the same. RFC 6455, 8.1, has a client fail the connection then.
    if body.is_utf8() { WsResponse::Served(body) } else { WsResponse::NotUtf8 }
}

/// Response to a client that has gone.
pub(super) fn unheard() -> RpcResponse {
    RpcResponse::Miss(ResponseBody::default())
}

/// Makes an error that the node sends without its encoder, and so without a newline.
pub(super) fn lone_error(id: &[u8], error: &RpcError) -> ResponseBody {
    let mut out = Vec::new();
    envelope::error(&mut out, id, error);
    ResponseBody::from(out)
}
