//! Errors in the node's words.

use std::borrow::Cow;

use crate::method::Rules;
use crate::text::quote;

/// A JSON-RPC error: the `code` and the `message` of an error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    /// The code.
    pub code: i32,
    /// The message.
    pub message: Cow<'static, str>,
}

impl RpcError {
    /// How all that neve says of what it does not hold ends, whatever the HTTP status
    /// (`--miss-status`).
    pub const NOT_HERE: &'static str = "requested data is not available here";
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

    /// The same since Helicon (avalanchego, vms/saevm/blocks/access.go).
    pub const NEITHER_HELICON: Self =
        Self::fixed(-32000, "rpc.BlockNumberOrHash carrying neither number nor hash");
    /// Parameters that are neither absent nor null nor an array.
    pub(crate) const NON_ARRAY: Self = Self::fixed(-32602, "non-array args");

    /// `eth_getLogs` by a block hash that no block has.
    pub const UNKNOWN_BLOCK: Self = Self::fixed(-32000, "unknown block");
    /// A range of logs that can be seen to be none: both ends are numbers above 0 and the first
    /// is the higher one, or it begins with `pending` and ends elsewhere. Since Helicon also what
    /// [`Self::FROM_ABOVE_TO`] is before.
    pub const INVALID_RANGE: Self = Self::fixed(-32000, "invalid block range params");
    /// More than four positions of topics. `eth_getLogs` in both versions; filters and
    /// subscriptions of logs since Helicon only.
    pub const TOO_MANY_TOPICS: Self = Self::fixed(-32000, "exceed max topics");
    /// A filter or a subscription of logs that begins after its end, or has ends that do not go
    /// together, before Helicon.
    pub const FROM_ABOVE_TO: Self =
        Self::fixed(-32000, "invalid from and to block combination: from > to");
    /// No such filter: `eth_getFilterChanges` and `eth_getFilterLogs` with an id that is unknown
    /// or expired, and `eth_getFilterLogs` with one that is not of logs. (`eth_uninstallFilter`
    /// answers `false`.)
    pub const FILTER_NOT_FOUND: Self = Self::fixed(-32000, "filter not found");
    /// `eth_unsubscribe` with an id that this connection has no subscription of. Over HTTP none.
    pub const SUBSCRIPTION_NOT_FOUND: Self = Self::fixed(-32000, "subscription not found");

    const fn fixed(code: i32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message) }
    }

    /// Wrong parameters.
    pub(crate) fn params(message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: -32602, message: message.into() }
    }

    /// What a method says, with the code of everything that methods say.
    pub(crate) fn method(message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: -32000, message: message.into() }
    }

    /// A reference that names no block, where the node goes by it.
    pub fn neither(rules: Rules) -> Self {
        match rules {
            Rules::BeforeHelicon => Self::NEITHER,
            Rules::Helicon => Self::NEITHER_HELICON,
        }
    }

    /// The namespace has no such subscription.
    pub(crate) fn no_subscription(name: &str, namespace: &str) -> Self {
        let name = quote(name.as_bytes());
        let message = format!("no {name} subscription in {namespace} namespace");
        Self { code: -32601, message: message.into() }
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
