//! Reasons why a call has no answer.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};
use metrics::counter;
use neve_jsonrpc::RpcError;

use super::http::whole_story;
use super::peer_text::PeerText;

/// The longest that a Retry-After is believed. Limits of public APIs are seconds. An upstream that
/// names an hour or a date in another century would silence neve, at the price of one request a minute.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// No connection, or it broke.
    #[error("cannot reach the upstream: {0}")]
    Unreachable(PeerText),
    /// The answer did not come in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The upstream wants to be asked later.
    #[error("HTTP {status}, try again {}", .after.map_or("later".into(), |t| format!("in {t:?}")))]
    Throttled {
        /// HTTP status of the response.
        status: StatusCode,
        /// Time to wait.
        after: Option<Duration>,
    },
    /// The upstream does not hold the data: a neve says it in this way.
    #[error("not served there: {0}")]
    NotServed(PeerText),
    /// Another status than 200.
    #[error("HTTP {0}: {1}")]
    Status(StatusCode, PeerText),
    /// The answer is longer than `--upstream-response-bytes-max`.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(usize),
    /// The body is not a JSON-RPC answer.
    #[error("not a JSON-RPC answer: {0}")]
    InvalidJson(PeerText),
    /// The upstream answered with an error.
    #[error("error {code}: {message}")]
    Rpc {
        /// Code of the JSON-RPC error.
        code: i64,
        /// Message of the JSON-RPC error.
        message: PeerText,
    },
}

impl CallError {
    /// A short label, for the metric.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::TimedOut(_) => "timeout",
            Self::Throttled { .. } => "throttled",
            Self::NotServed(_) => "not_served",
            Self::Status(..) => "http_status",
            Self::TooLarge(_) => "too_large",
            Self::InvalidJson(_) => "invalid_json",
            Self::Rpc { .. } => "rpc_error",
        }
    }

    /// True if the upstream does not have the height, or not yet, which is nothing wrong.
    pub(crate) fn is_absent(&self) -> bool {
        match self {
            Self::NotServed(_) => true,
            Self::Rpc { message, .. } => {
                let message = message.as_str();
                message == BEYOND_HEAD || message.ends_with(RpcError::NOT_AVAILABLE)
            }
            _ => false,
        }
    }

    /// True if another call might be answered.
    pub(crate) fn is_about_the_call(&self) -> bool {
        use CallError::{InvalidJson, NotServed, Rpc, Status, TooLarge};
        matches!(self, NotServed(_) | Status(..) | TooLarge(_) | InvalidJson(_) | Rpc { .. })
    }

    /// True if the upstream does not know the method.
    pub(crate) fn is_no_method(&self) -> bool {
        let no_method = i64::from(RpcError::NO_NOTIFICATIONS.code);
        matches!(self, Self::Rpc { code, .. } if *code == no_method)
    }
}

/// Text of v1.14 for heights above its head; v1.15 sends `null`.
const BEYOND_HEAD: &str = "cannot query unfinalized data";

/// The `result` of a call, as sent. `None` is `null`.
pub(crate) type CallResult = Result<Option<Bytes>, CallError>;

/// An answer with another status than 200.
pub(super) fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> CallError {
    let start = PeerText::from_bytes(body);
    let not_here = || memchr::memmem::find(body, RpcError::NOT_AVAILABLE.as_bytes()).is_some();
    match status {
        StatusCode::MISDIRECTED_REQUEST => CallError::NotServed(start),
        // Fronts send a miss on with another status: the words name it all the same.
        _ if not_here() => CallError::NotServed(start),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            CallError::Throttled { status, after: retry_after(headers, SystemTime::now()) }
        }
        _ => CallError::Status(status, start),
    }
}

/// Counts a call that failed. That a height is not there is no failure.
pub(super) fn count(method: &'static str, error: &CallError) {
    // A height that an upstream does not have yet is asked for again: usual at the head.
    if error.is_absent() && method.starts_with("eth_get") {
        return;
    }
    let reason = error.reason();
    counter!("neve_upstream_call_errors_total", "method" => method, "reason" => reason)
        .increment(1);
}

/// An error of a body that is bounded by `limit`.
pub(super) fn too_long(
    error: &(dyn std::error::Error + Send + Sync + 'static),
    limit: usize,
) -> CallError {
    if error.is::<http_body_util::LengthLimitError>() {
        CallError::TooLarge(limit)
    } else {
        CallError::Unreachable(whole_story(error))
    }
}

/// Retry-After in either of its forms: seconds, or a date (RFC 9110, 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // A date that has passed allows the next request at once.
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(after.min(RETRY_AFTER_MAX))
}

/// The innermost reason of an error: the others say that a request failed.
pub(crate) fn innermost(error: &dyn StdError) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, hyper::header::HeaderValue::from_static(text));
            retry_after(&headers, now)
        };
        assert_eq!(of("12"), Some(Duration::from_secs(12)));
        assert_eq!(of("Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(of("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        for long in ["61", "999999999", "Thu, 01 Jan 2099 00:00:00 GMT"] {
            assert_eq!(of(long), Some(Duration::from_mins(1)), "{long}");
        }
        assert_eq!(of("soon"), None);
    }

    #[test]
    fn absence_is_read_from_the_status_or_the_message() {
        let of = |status, body: &str| refused(status, &HeaderMap::new(), body.as_bytes());
        let not_here = format!("[{{\"error\":{{\"message\":\"{}\"}}}}]", RpcError::NOT_AVAILABLE);
        assert!(of(StatusCode::MISDIRECTED_REQUEST, "").is_absent());
        for status in [StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE] {
            assert!(of(status, &not_here).is_absent(), "{status}");
            assert!(!of(status, "no").is_absent(), "{status}");
        }
        let throttled = of(StatusCode::SERVICE_UNAVAILABLE, "no");
        assert!(matches!(throttled, CallError::Throttled { .. }));
        assert!(matches!(of(StatusCode::NOT_FOUND, "no"), CallError::Status(..)));
        let rpc = |message: String| CallError::Rpc { code: -32000, message: message.into() };
        assert!(rpc(format!("header not found; {}", RpcError::NOT_AVAILABLE)).is_absent());
        assert!(rpc(BEYOND_HEAD.to_owned()).is_absent() && !rpc(String::new()).is_absent());
    }
}
