//! Requests that carry no JSON-RPC.

use hyper::http::uri::PathAndQuery;

use crate::http::admit::ErrorResponse;

/// A request that carries no JSON-RPC.
pub(super) enum NonRpc {
    /// A health check that wants nothing.
    Empty,
    /// Asks for a page for operators that this listener has.
    Admin,
    /// Wants the status page.
    Page,
    /// Wants a document of a block.
    Rest,
    /// Wants, or should want, a WebSocket.
    WebSocket,
    /// Asks for segments or records, below `/mirror/v1/`.
    Mirror,
    /// For another path of the node.
    Relayed(PathAndQuery),
    /// A path that is written uncleanly: the clean one.
    Moved(String),
    /// A request that is refused.
    Away(ErrorResponse),
    /// A request of JSON-RPC that is refused.
    Refused(ErrorResponse),
}

impl NonRpc {
    /// True if the connection closes behind the answer in any case.
    pub(super) fn closes(&self) -> bool {
        matches!(self, Self::Away(refusal) | Self::Refused(refusal) if refusal.closes())
    }
}

impl From<ErrorResponse> for NonRpc {
    fn from(refusal: ErrorResponse) -> Self {
        Self::Away(refusal)
    }
}
