//! Responses to JSON-RPC, with the HTTP headers that name their source.

use std::cell::RefCell;

use hyper::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::responder::Responder;
use crate::body::ResponseBody;
use crate::http::admit::ErrorResponse;
use crate::http::response::{HttpBody, JSON, NO_STORE, coded, not_stored, typed};
use crate::relay::Failure;
use crate::rpc::{Mixed, Outbound, RpcResponse};

/// Says which heights are served, with each miss.
const SERVED: HeaderName = HeaderName::from_static("x-neve-served");
/// Says where a response comes from.
const NEVE: HeaderName = HeaderName::from_static("x-neve");
/// Counts the calls of a batch that neither neve nor an upstream answered.
const MISSES: HeaderName = HeaderName::from_static("x-neve-misses");
/// Names the newest served height.
const HEAD: HeaderName = HeaderName::from_static("x-neve-head");
/// Says that the upstream of a relayed response lacks the newest served height, as far as neve
/// knows.
const BEHIND: HeaderName = HeaderName::from_static("x-neve-upstream");

/// Source of a response.
#[derive(Clone, Copy)]
enum Source {
    /// neve answered from its store.
    Hit,
    /// No server answered: a full node must be asked.
    Miss,
    /// An upstream answered.
    Relay,
    /// neve, and for other calls of the batch another source, or none.
    Mixed,
}

impl Source {
    fn value(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Relay => "relay",
            Self::Mixed => "mixed",
        })
    }
}

impl Responder {
    /// Makes the response to JSON-RPC that neve answers itself.
    pub(crate) fn response(&self, reply: RpcResponse) -> Response<ResponseBody> {
        match reply {
            RpcResponse::Served(body) => {
                let mut response = typed(StatusCode::OK, JSON, body);
                self.name_source(response.headers_mut(), Source::Hit);
                coded(response)
            }
            RpcResponse::Miss(body) => {
                let mut response = self.miss(body);
                self.name_source(response.headers_mut(), Source::Miss);
                response
            }
            RpcResponse::Mixed(mixed) => self.mixed(mixed),
            // Both are relayed earlier, by the full path. Here the thread cannot wait for an upstream.
            RpcResponse::Relay(call) => self.not_relayed(&call, &Failure::NoUpstream),
            RpcResponse::Split(split) => self.not_relayed(&split.outbound, &Failure::NoUpstream),
            // The full path has fetched both by now, once for a request.
            RpcResponse::Prices | RpcResponse::Below => self.named(ErrorResponse::BUSY.response()),
            RpcResponse::NoMemory => self.named(ErrorResponse::NO_MEMORY.response()),
        }
    }

    /// Marks a JSON-RPC response as one without a source, unless it has one already.
    pub(crate) fn named<B>(&self, mut response: Response<B>) -> Response<B> {
        if !response.headers().contains_key(NEVE) {
            self.name_source(response.headers_mut(), Source::Miss);
        }
        response
    }

    /// Response to a batch that was split.
    pub(crate) fn mixed(&self, mixed: Mixed) -> Response<ResponseBody> {
        let mut response = not_stored(typed(StatusCode::OK, JSON, mixed.body));
        let headers = response.headers_mut();
        if mixed.misses > 0 {
            headers.insert(MISSES, HeaderValue::from(mixed.misses));
        }
        if mixed.behind {
            headers.insert(BEHIND, HeaderValue::from_static("behind"));
        }
        let source = match mixed {
            Mixed { answered: false, .. } => Source::Miss,
            Mixed { own: false, misses: 0, .. } => Source::Relay,
            Mixed { .. } => Source::Mixed,
        };
        self.name_source(headers, source);
        coded(response)
    }

    /// Makes a miss: status, headers and body say that a full node must be asked.
    pub(crate) fn miss(&self, body: ResponseBody) -> Response<ResponseBody> {
        let mut response = not_stored(typed(self.miss_status, JSON, body));
        let headers = response.headers_mut();
        if let Some(range) = self.rpc.serving.reader.range() {
            let text = format!("{:#x}-{:#x}", range.start(), range.end());
            headers.extend(HeaderValue::try_from(text).ok().map(|value| (SERVED, value)));
        }
        response
    }

    /// Names an upstream as the source of a response; `behind` if it lacks the newest served height.
    pub(crate) fn relayed(
        &self,
        mut response: Response<HttpBody>,
        behind: bool,
    ) -> Response<HttpBody> {
        let headers = response.headers_mut();
        if behind {
            headers.insert(BEHIND, HeaderValue::from_static("behind"));
        }
        headers.insert(CACHE_CONTROL, NO_STORE);
        self.name_source(headers, Source::Relay);
        response
    }

    /// Makes the response for a call that no upstream answered.
    pub(crate) fn not_relayed(&self, call: &Outbound, failure: &Failure) -> Response<ResponseBody> {
        let mut response = self.miss(ResponseBody::from(call.error(&failure.error())));
        if let Some(status) = failure.status() {
            *response.status_mut() = status;
        }
        let headers = response.headers_mut();
        // Both pass: a place becomes free, or an upstream comes back.
        if matches!(failure, Failure::Limited | Failure::NoUpstream) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        self.name_source(headers, Source::Miss);
        response
    }

    fn name_source(&self, headers: &mut HeaderMap, source: Source) {
        headers.insert(NEVE, source.value());
        if let Some(value) = self.rpc.serving.head().and_then(head_value) {
            headers.insert(HEAD, value);
        }
    }
}

thread_local! {
    /// Text of the last head, which is written once and then shared.
    static NEWEST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// Value of `x-neve-head`.
fn head_value(head: u64) -> Option<HeaderValue> {
    NEWEST.with_borrow_mut(|newest| {
        if newest.as_ref().is_none_or(|(known, _)| *known != head) {
            let value = HeaderValue::try_from(format!("{head:#x}")).ok()?;
            *newest = Some((head, value));
        }
        newest.as_ref().map(|(_, value)| value.clone())
    })
}
