//! Refusals of keys, as clients get them.

use std::time::Duration;

use hyper::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use neve_jsonrpc::{Kind, Message, Request, RpcError, envelope, parse_at_most};

use crate::body::ResponseBody;
use crate::http::response::{JSON, not_stored, typed};

/// Code of an error about limits (EIP-1474).
const LIMIT_EXCEEDED: i32 = -32005;
/// Code of an error of the server.
const REFUSED: i32 = -32000;

/// Bytes of a response that has an error for each call. No memory is reserved for it.
const TEXT_LEN_MAX: usize = 256 << 10;
/// Bytes of an error besides the id of its call, at most.
const ERROR_LEN_MAX: usize = 128;

/// Refusal of a request because of its key. It names no key.
#[derive(Debug)]
pub(crate) struct KeyRefusal {
    status: StatusCode,
    error: RpcError,
    /// Time until the key may be used again.
    wait: Option<Duration>,
    /// Body of the response, once the calls are known.
    text: Option<Vec<u8>>,
}

impl KeyRefusal {
    /// The request names no key, or none of the file.
    pub(super) fn unknown() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, REFUSED, "API key: missing or unknown")
    }

    /// The key makes too many requests.
    pub(super) fn limited(wait: Duration) -> Self {
        let text = "API key: too many requests; try again later";
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, LIMIT_EXCEEDED, text);
        Self { wait: Some(wait), ..refusal }
    }

    /// The key may not call this.
    pub(super) fn method() -> Self {
        Self::new(StatusCode::FORBIDDEN, REFUSED, "API key: this method is not allowed")
    }

    fn new(status: StatusCode, code: i32, message: &'static str) -> Self {
        Self { status, error: RpcError { code, message: message.into() }, wait: None, text: None }
    }

    /// Adds an error for each call of a body, unless the ids are so long that one error stands for all.
    pub(super) fn of(mut self, body: &[u8], items_max: usize) -> Self {
        let request = parse_at_most(body, items_max);
        let is_batch = matches!(request, Request::Batch(_));
        // Ids are the client's, and escapes make them up to six times as long.
        let lens =
            calls(&request).map(|message| envelope::echoed_len(message.id()) + ERROR_LEN_MAX);
        if lens.sum::<usize>() > TEXT_LEN_MAX {
            return self;
        }
        let mut text = Vec::new();
        for message in calls(&request) {
            if is_batch {
                text.push(if text.is_empty() { b'[' } else { b',' });
            }
            envelope::error(&mut text, message.id(), &self.error);
        }
        if !text.is_empty() {
            text.extend_from_slice(if is_batch { b"]\n" } else { b"\n" });
            self.text = Some(text);
        }
        self
    }

    /// Text of the response: an error for each call, or one without an id.
    pub(crate) fn text(self) -> Vec<u8> {
        self.text.unwrap_or_else(|| {
            let mut text = Vec::new();
            envelope::error(&mut text, b"null", &self.error);
            text.push(b'\n');
            text
        })
    }

    /// Makes the response: a JSON-RPC error with HTTP 401, 403 or 429.
    pub(crate) fn response(self) -> Response<ResponseBody> {
        let (status, wait) = (self.status, self.wait);
        let mut response = not_stored(typed(status, JSON, ResponseBody::from(self.text())));
        let headers = response.headers_mut();
        if let Some(wait) = wait {
            // Rounded up: a client that comes back on time must not be refused again.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Messages of a body that get a response. Notifications get none (JSON-RPC 2.0, 4.1).
fn calls<'r, 'b>(request: &'r Request<'b>) -> impl Iterator<Item = &'r Message<'b>> {
    messages(request).filter(|message| matches!(message.kind(), Kind::Call | Kind::Invalid))
}

/// Messages of a body.
pub(super) fn messages<'r, 'b>(request: &'r Request<'b>) -> impl Iterator<Item = &'r Message<'b>> {
    let all: &[Message<'b>] = match request {
        Request::Single(message) => std::slice::from_ref(message),
        Request::Batch(messages) => messages,
        Request::Empty | Request::Malformed => &[],
    };
    all.iter()
}
