//! Reasons why an upstream gave no response, as clients and metrics see them.

use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use neve_jsonrpc::RpcError;

/// Code of an error about limits (EIP-1474).
const LIMIT_EXCEEDED: i32 = -32005;
/// Code of an error of the server.
const INTERNAL: i32 = -32603;

/// Meaning of a response that was none, for the upstream that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// The upstream works: the call is at fault.
    Call,
    /// The upstream works, and others are asked first for a while.
    Doubt,
    /// The upstream does not work.
    Upstream,
    /// Noted already, or no response at all.
    Noted,
}

/// Reason why an upstream gave no response. It names no upstream: an address may hold a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// No upstream is known to work.
    #[error("relay: no upstream answers now; try again later")]
    NoUpstream,
    /// A limit of relayed requests, or one of the upstream.
    #[error("relay: too many requests; try again later")]
    Limited,
    /// No connection, or it broke.
    #[error("relay: the upstream cannot be reached")]
    Unreachable,
    /// The response did not come in time.
    #[error("request timed out")]
    TimedOut,
    /// Another status than 200.
    #[error("relay: the upstream answered with HTTP {0}")]
    Status(u16),
    /// The response is longer than `--relay-response-bytes-max`.
    #[error("relay: the response is longer than {0} bytes")]
    TooLong(usize),
    /// The response is not JSON.
    #[error("relay: the upstream's response is not JSON")]
    NotJson,
    /// The response has neither a length nor chunks: its end cannot be told from a cut.
    #[error("relay: the upstream's response has no length")]
    NoLength,
    /// The response repeats a key of the upstream.
    #[error("relay: the upstream's response has a secret in it and is not passed on")]
    Secret,
    /// The request came through this neve before, or through too many others.
    #[error("header not found: the request was relayed in a loop; {}", RpcError::NOT_AVAILABLE)]
    Loop,
    /// The upstream is a neve that does not have it.
    #[error("header not found: the upstream does not have it; {}", RpcError::NOT_AVAILABLE)]
    NotServed,
}

impl Failure {
    /// Fails for the head of a response that is none. A node answers JSON-RPC with 200 and JSON; at another path any
    /// status may be its answer.
    pub(super) fn check_head(
        status: StatusCode,
        headers: &HeaderMap,
        is_rpc: bool,
    ) -> Result<(), Self> {
        match status {
            StatusCode::OK => {}
            // APIs other than JSON-RPC answer with statuses of their own.
            status if !is_rpc && is_answer(status) => {}
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                return Err(Self::Limited);
            }
            StatusCode::MISDIRECTED_REQUEST => return Err(Self::NotServed),
            status => return Err(Self::Status(status.as_u16())),
        }
        let json = headers.get(CONTENT_TYPE).is_some_and(|value| is_json(value.as_bytes()));
        // A coding was not asked for, and in coded bytes no key of an upstream would be found.
        if is_rpc && !json || headers.contains_key(CONTENT_ENCODING) {
            return Err(Self::NotJson);
        }
        // Such a body ends with its connection: a cut one would look whole.
        if has_end(headers) { Ok(()) } else { Err(Self::NoLength) }
    }

    /// A short label, for the metric.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::NoUpstream => "no_upstream",
            Self::Limited => "limited",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timeout",
            Self::Status(_) => "http_status",
            Self::TooLong(_) => "too_large",
            Self::NotJson => "invalid_json",
            Self::NoLength => "no_length",
            Self::Secret => "secret",
            Self::Loop => "loop",
            Self::NotServed => "not_served",
        }
    }

    /// Returns its meaning for the upstream whose response it was. A response that is too long follows from
    /// the call, and so do statuses about its text, which a client chooses; another one below 500 may.
    pub(super) fn blame(self) -> Blame {
        match self {
            // With blame for these statuses one client could have the calls of all others sent elsewhere.
            Self::TooLong(_)
            | Self::NotServed
            | Self::Loop
            | Self::Status(400 | 413 | 414 | 415 | 422 | 431) => Blame::Call,
            Self::Status(status) if status < 500 => Blame::Doubt,
            Self::Secret => Blame::Doubt, // most likely the key is wrong
            Self::Limited | Self::NoUpstream | Self::TimedOut => Blame::Noted,
            Self::Unreachable | Self::Status(_) | Self::NotJson | Self::NoLength => Blame::Upstream,
        }
    }

    /// Status of the response to the client; `None` for that of a miss.
    pub(crate) fn status(self) -> Option<StatusCode> {
        match self {
            Self::NoUpstream => Some(StatusCode::SERVICE_UNAVAILABLE),
            Self::Limited => Some(StatusCode::TOO_MANY_REQUESTS),
            Self::TimedOut => Some(StatusCode::GATEWAY_TIMEOUT),
            Self::Unreachable
            | Self::Status(_)
            | Self::TooLong(_)
            | Self::NotJson
            | Self::NoLength
            | Self::Secret => Some(StatusCode::BAD_GATEWAY),
            Self::NotServed | Self::Loop => None,
        }
    }

    /// The error in the response.
    pub(crate) fn error(self) -> RpcError {
        let code = match self {
            Self::Limited => LIMIT_EXCEEDED,
            Self::TimedOut => RpcError::TIMED_OUT.code,
            Self::TooLong(_) => RpcError::RESPONSE_TOO_LARGE.code,
            Self::NotServed | Self::Loop => -32000,
            Self::NoUpstream
            | Self::Unreachable
            | Self::Status(_)
            | Self::NotJson
            | Self::NoLength
            | Self::Secret => INTERNAL,
        };
        RpcError { code, message: self.to_string().into() }
    }
}

/// True if a node may mean this status for its client.
fn is_answer(status: StatusCode) -> bool {
    let error = status.is_client_error() || status.is_server_error();
    error && status != StatusCode::TOO_MANY_REQUESTS
}

/// True if a response has a length, or is in chunks and nothing else. With any other coding of the
/// transfer hyper takes the end of the connection for that of the body, or passes it on coded.
fn has_end(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => headers.contains_key(CONTENT_LENGTH),
        (Some(only), None) => only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

fn is_json(value: &[u8]) -> bool {
    let media = value.split(|byte| *byte == b';').next().unwrap_or_default();
    media.trim_ascii().eq_ignore_ascii_case(b"application/json")
}
