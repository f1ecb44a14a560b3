//! Errors in the node's words.

use std::borrow::Cow;

/// A JSON-RPC error: the `code` and the `message` of an error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    /// The code.
    pub code: i32,
    /// The message.
    pub message: Cow<'static, str>,
}

impl RpcError {
    /// The body is not JSON.
    pub const PARSE: Self = Self::fixed(-32700, "parse error");
    /// The message is no call.
    pub const INVALID_REQUEST: Self = Self::fixed(-32600, "invalid request");
    /// A batch without messages.
    pub const EMPTY_BATCH: Self = Self::fixed(-32600, "empty batch");
    /// A batch with too many messages.
    pub const BATCH_TOO_LARGE: Self = Self::fixed(-32600, "batch too large");
    /// The answers of a batch before this one were too long.
    pub const RESPONSE_TOO_LARGE: Self = Self::fixed(-32003, "response too large");
    /// A subscription over HTTP.
    pub const NO_NOTIFICATIONS: Self = Self::fixed(-32601, "notifications not supported");
    /// A block reference that is an object with neither number nor hash, or null.
    pub const NEITHER: Self =
        Self::fixed(-32000, "invalid arguments; neither block nor hash specified");

    const fn fixed(code: i32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message) }
    }

    /// Wrong parameters.
    pub(crate) fn params(message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: -32602, message: message.into() }
    }

    /// The node has no such method.
    pub fn no_method(name: &str) -> Self {
        let message = format!("the method {name} does not exist/is not available");
        Self { code: -32601, message: message.into() }
    }
}

/// Why a message has no [`crate::Query`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoQuery {
    /// The node would answer with this error, whatever it holds.
    Error(RpcError),
    /// The node would answer `null`, whatever it holds.
    Null,
    /// The method is not one of ours: a full node must be asked.
    NotServed,
}

impl From<RpcError> for NoQuery {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}
