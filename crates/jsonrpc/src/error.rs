//! Errors in the node's words.

use std::borrow::Cow;

use crate::json::quote;
use crate::method::Rules;

/// A JSON-RPC error: the `code` and the `message` of an error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    /// Code of the error.
    pub code: i32,
    /// Text of the error.
    pub message: Cow<'static, str>,
}

impl RpcError {
    /// End of the message of each miss, whatever the HTTP status
    /// (`--miss-status`).
    pub const NOT_AVAILABLE: &'static str = "requested data is not available here";
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
    /// The call took too long (libevm, `rpc/errors.go`).
    pub const TIMED_OUT: Self = Self::fixed(-32002, "request timed out");
    /// A subscription over HTTP.
    pub const NO_NOTIFICATIONS: Self = Self::fixed(-32601, "notifications not supported");
    /// A block reference that is an object with neither number nor hash, or null.
    pub const NEITHER: Self =
        Self::fixed(-32000, "invalid arguments; neither block nor hash specified");

    /// The reference of [`Self::NEITHER`] since Helicon (avalanchego, vms/saevm/blocks/access.go).
    pub const NEITHER_HELICON: Self =
        Self::fixed(-32000, "rpc.BlockNumberOrHash carrying neither number nor hash");
    /// Parameters that are neither absent nor null nor an array.
    pub(crate) const NON_ARRAY: Self = Self::fixed(-32602, "non-array args");

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

    /// Every error with a fixed text, and its cause.
    pub const FIXED: [(Self, &'static str); 15] = [
        (Self::PARSE, "the body or message is not JSON"),
        (Self::INVALID_REQUEST, "the message is no call"),
        (Self::EMPTY_BATCH, "the batch has no messages"),
        (Self::BATCH_TOO_LARGE, "the batch has more than `--batch-items-max` messages"),
        (
            Self::RESPONSE_TOO_LARGE,
            "earlier results of the batch exceed `--batch-response-bytes-max`",
        ),
        (Self::TIMED_OUT, "the request took longer than `--request-duration-max`"),
        (Self::NO_NOTIFICATIONS, "a subscription over HTTP"),
        (Self::NON_ARRAY, "`params` is neither absent nor null nor an array"),
        (Self::NEITHER, "a block object without number and hash, before Helicon"),
        (Self::NEITHER_HELICON, "the same since Helicon"),
        (
            Self::INVALID_RANGE,
            "a range of logs that ends before it begins, or mixes `pending` with another end",
        ),
        (
            Self::FROM_ABOVE_TO,
            "a filter or subscription of logs that ends before it begins, before Helicon",
        ),
        (Self::TOO_MANY_TOPICS, "a filter of logs with more than four positions of topics"),
        (Self::FILTER_NOT_FOUND, "a filter that is gone, or is not of logs"),
        (Self::SUBSCRIPTION_NOT_FOUND, "`eth_unsubscribe` with an id that this connection has not"),
    ];

    const fn fixed(code: i32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message) }
    }

    /// Error about wrong parameters.
    pub(crate) fn params(message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: -32602, message: message.into() }
    }

    /// Error of a method, with the code of all errors that methods make.
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

    /// The namespace has no such subscription. Of both names at most 1 KiB is repeated.
    pub(crate) fn no_subscription(name: &str, namespace: &str) -> Self {
        let name = quote(cut(name, MESSAGE_BYTES_MAX).as_bytes());
        let namespace = cut(namespace, MESSAGE_BYTES_MAX);
        let message = format!("no {name} subscription in {namespace} namespace");
        Self { code: -32601, message: message.into() }
    }

    /// The node has no such method. Of its name at most 1 KiB is repeated.
    pub fn no_method(name: &str) -> Self {
        let name = cut(name, MESSAGE_BYTES_MAX);
        let message = format!("the method {name} does not exist/is not available");
        Self { code: -32601, message: message.into() }
    }
}

/// Bytes of a name that a miss repeats. Each item of a refused batch repeats it, so that one
/// message of megabytes would be answered by gigabytes.
const NAME_BYTES_MAX: usize = 64;

/// Bytes of an error's message. The node's own words are shorter; longer is a value of the
/// client's, which the node repeats whole.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// Returns the beginning of a method's name that is fit for a miss, with `...` behind it if it is
/// cut.
pub fn excerpt(name: &str) -> Cow<'_, str> {
    cut(name, NAME_BYTES_MAX)
}

/// Returns `text`, or as many of its characters as `max` bytes hold and `...`.
pub(crate) fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}...", &text[..text.floor_char_boundary(max)]))
}

/// Reason why a message has no [`crate::Query`].
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
