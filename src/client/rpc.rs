//! The client to a node: one JSON-RPC call over HTTP, with every wait bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use metrics::counter;
use neve_jsonrpc::{RpcError, envelope};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::connector::connector;
use super::peer_text::PeerText;
use crate::config::settings::FetchConfig;
use crate::config::{Address, Endpoint, UpstreamHeaders};
use crate::shared::Status;

/// Value of `User-Agent`.
pub(crate) const AGENT: &str = concat!("neve/", env!("CARGO_PKG_VERSION"));
/// Room that an answer gets before it comes, at most.
const BODY_BYTES_EXPECTED_MAX: u64 = 2 << 20;
/// What stands around a result in an answer of its own, with an id of two digits.
const ENVELOPE_BYTES: usize = envelope::PREFIX.len()
    + envelope::RESULT.len()
    + envelope::SUFFIX.len()
    + envelope::NEWLINE.len()
    + 2;
/// What a connection reads at a time, and keeps while it is idle. Left to itself hyper grows it to
/// 400 kB for each connection.
const READ_BYTES: usize = 64 << 10;
/// The longest that a Retry-After is believed.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

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
        /// Status.
        status: StatusCode,
        /// Time to wait.
        after: Option<Duration>,
    },
    /// It does not hold what was asked for: how a neve says so.
    #[error("not held there: {0}")]
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
        /// Code.
        code: i64,
        /// Message.
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

    /// True if another question might be answered.
    pub(crate) fn is_about_the_question(&self) -> bool {
        use CallError::{InvalidJson, NotServed, Rpc, Status, TooLarge};
        matches!(self, NotServed(_) | Status(..) | TooLarge(_) | InvalidJson(_) | Rpc { .. })
    }

    /// True if the upstream does not know the method.
    pub(crate) fn is_no_method(&self) -> bool {
        matches!(self, Self::Rpc { code, .. } if *code == i64::from(RpcError::NO_NOTIFICATIONS.code))
    }
}

/// What v1.14 says of heights above its head; v1.15 says `null`.
const BEYOND_HEAD: &str = "cannot query unfinalized data";

/// The `result` of a call, as sent. `None` is `null`.
pub(crate) type CallResult = Result<Option<Bytes>, CallError>;

type HttpClient = HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client to one upstream. Clones share connections.
#[derive(Clone)]
pub(crate) struct RpcClient {
    http: HttpClient,
    uri: Address,
    headers: UpstreamHeaders,
    config: FetchConfig,
    ids: Arc<AtomicU64>,
    /// What an answer takes, as far as can be told from the last ones.
    body_bytes: Arc<AtomicU64>,
    status: Arc<Status>,
}

impl RpcClient {
    /// A client to an upstream; nothing is connected yet.
    pub(crate) fn new(
        endpoint: &Endpoint,
        tls: rustls::ClientConfig,
        config: FetchConfig,
        status: Arc<Status>,
    ) -> Self {
        let http = HyperClient::builder(TokioExecutor::new())
            .http1_read_buf_exact_size(READ_BYTES)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_mins(1))
            .pool_max_idle_per_host(config.concurrency * 2)
            .build(connector(tls, config.connect_timeout));
        let (uri, headers) = (endpoint.rpc.clone(), endpoint.headers.clone());
        let (ids, body_bytes) = (Arc::default(), Arc::default());
        Self { http, uri, headers, config, ids, body_bytes, status }
    }

    /// Calls `method` with `params`, which is a JSON array.
    pub(crate) async fn call(&self, method: &'static str, params: &str) -> CallResult {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let mut body = Vec::with_capacity(128);
        request(&mut body, id, method, params);
        let result = self.post(body, 1).await.and_then(|answer| result(&answer));
        result.inspect_err(|error| count(method, error))
    }

    /// Calls `method` once for each of `params`, in one batch; answers in the same order.
    pub(crate) async fn batch(
        &self,
        method: &'static str,
        params: &[String],
    ) -> Result<Vec<Option<Bytes>>, CallError> {
        let first = self.ids.fetch_add(params.len() as u64, Ordering::Relaxed);
        let mut body = Vec::with_capacity(128 * params.len());
        for (at, params) in params.iter().enumerate() {
            body.push(if at == 0 { b'[' } else { b',' });
            request(&mut body, first + at as u64, method, params);
        }
        body.push(b']');
        let answer = self.post(body, 1).await;
        let results = answer.and_then(|answer| split_batch(&answer, first, params.len()));
        results.inspect_err(|error| count(method, error))
    }

    /// Calls two methods with the same first parameter in one batch.
    pub(crate) async fn pair(
        &self,
        calls: [(&'static str, &str); 2],
    ) -> Result<[CallResult; 2], CallError> {
        let first = self.ids.fetch_add(2, Ordering::Relaxed);
        let mut body = Vec::with_capacity(256);
        body.push(b'[');
        request(&mut body, first, calls[0].0, calls[0].1);
        body.push(b',');
        request(&mut body, first + 1, calls[1].0, calls[1].1);
        body.push(b']');
        let answer = self.post(body, 2).await;
        let results = answer.and_then(|answer| split_pair(&answer, first));
        let results = results.inspect_err(|error| count(calls[0].0, error))?;
        let results = results.map(|result| self.within_bounds(result?));
        for (result, (method, _)) in results.iter().zip(calls) {
            let _ = result.as_ref().inspect_err(|error| count(method, error));
        }
        Ok(results)
    }

    /// Each answer of a pair is bounded like one that comes alone.
    fn within_bounds(&self, result: Option<Bytes>) -> CallResult {
        let limit = self.config.response_bytes_max;
        let alone = |result: &Bytes| result.len() + ENVELOPE_BYTES;
        match result.as_ref().map(alone) {
            Some(len) if len > limit => Err(CallError::TooLarge(limit)),
            _ => Ok(result),
        }
    }

    async fn post(&self, body: Vec<u8>, answers: usize) -> Result<Bytes, CallError> {
        let limit = self.config.request_timeout;
        let answer = tokio::time::timeout(limit, self.exchange(body, answers)).await;
        answer.unwrap_or(Err(CallError::TimedOut(limit)))
    }

    async fn exchange(&self, body: Vec<u8>, answers: usize) -> Result<Bytes, CallError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.reveal().clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT)
            .body(Full::new(Bytes::from(body)))
            .expect("an address that was parsed and headers that are constants");
        self.headers.add_to(request.headers_mut());
        let response = self.http.request(request).await.map_err(|error| unreachable(&error))?;
        let (head, body) = response.into_parts();
        let limit = self.config.response_bytes_max.saturating_mul(answers);
        let body = self.read(Limited::new(body, limit)).await;
        if head.status != StatusCode::OK {
            return Err(refused(head.status, &head.headers, &body.unwrap_or_default()));
        }
        let body = body?;
        self.status.heard();
        counter!("neve_upstream_received_bytes_total").increment(body.len() as u64);
        Ok(body)
    }

    /// The whole body in one piece. Each frame is copied at once: kept until the end, each would
    /// keep a connection's whole buffer.
    async fn read(&self, mut body: Limited<Incoming>) -> Result<Bytes, CallError> {
        let usual = || self.body_bytes.load(Ordering::Relaxed);
        let expected = body.size_hint().exact().unwrap_or_else(usual);
        let expected = expected.min(BODY_BYTES_EXPECTED_MAX);
        let mut bytes = Vec::with_capacity(expected as usize);
        while let Some(frame) = body.frame().await {
            let limit = self.config.response_bytes_max;
            let frame = frame.map_err(|error| too_long(error.as_ref(), limit))?;
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        // Between the mean and the largest of late: what is too short is moved, what is too long
        // is kept with the answer.
        let (len, before) = (bytes.len() as u64, self.body_bytes.load(Ordering::Relaxed));
        let next = if len > before {
            len.min(BODY_BYTES_EXPECTED_MAX)
        } else {
            before - (before - len) / 8
        };
        self.body_bytes.store(next, Ordering::Relaxed);
        // The record keeps it until it is written: what was taken too much goes back at once.
        bytes.shrink_to_fit();
        Ok(Bytes::from(bytes))
    }
}

/// An answer with another status than 200.
fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> CallError {
    let start = PeerText::from_bytes(body);
    let not_here = || memchr::memmem::find(body, RpcError::NOT_AVAILABLE.as_bytes()).is_some();
    match status {
        StatusCode::MISDIRECTED_REQUEST => CallError::NotServed(start),
        _ if not_here() => CallError::NotServed(start),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            CallError::Throttled { status, after: retry_after(headers, SystemTime::now()) }
        }
        _ => CallError::Status(status, start),
    }
}

/// Counts a call that failed. That a height is not there is no failure.
fn count(method: &'static str, error: &CallError) {
    if error.is_absent() && method.starts_with("eth_get") {
        return;
    }
    let reason = error.reason();
    counter!("neve_upstream_call_errors_total", "method" => method, "reason" => reason)
        .increment(1);
}

fn request(body: &mut Vec<u8>, id: u64, method: &str, params: &str) {
    let text =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}");
    body.extend_from_slice(text.as_bytes());
}

/// The whole story of an error, which hyper tells one level at a time.
fn unreachable(error: &dyn std::error::Error) -> CallError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    CallError::Unreachable(text.into())
}

fn too_long(error: &(dyn std::error::Error + Send + Sync + 'static), limit: usize) -> CallError {
    if error.is::<http_body_util::LengthLimitError>() {
        CallError::TooLarge(limit)
    } else {
        unreachable(error)
    }
}

/// Retry-After in either of its forms: seconds, or a date (RFC 9110, 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(after.min(RETRY_AFTER_MAX))
}

#[derive(Deserialize)]
struct RpcEnvelope<'a> {
    #[serde(default)]
    id: u64,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

/// The result in an answer's body: a slice of it, not a copy. The node's own form is taken apart
/// without reading the result, which is read, and strictly, by those who want it.
fn result(body: &Bytes) -> CallResult {
    if let Some(result) = known_form(body) {
        return Ok((&result[..] != b"null").then_some(result));
    }
    let answer: RpcEnvelope<'_> =
        serde_json::from_slice(body).map_err(|error| garbage(&error, body))?;
    answer.into_result(body)
}

/// `{"jsonrpc":"2.0","id":7,"result":` … `}` with or without a newline.
fn known_form(body: &Bytes) -> Option<Bytes> {
    let rest = body.strip_prefix(envelope::PREFIX)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let from = rest[digits..].strip_prefix(envelope::RESULT)?;
    let inside = from.strip_suffix(envelope::NEWLINE).unwrap_or(from);
    Some(body.slice_ref(inside.strip_suffix(envelope::SUFFIX)?))
}

impl RpcEnvelope<'_> {
    fn into_result(self, body: &Bytes) -> CallResult {
        match self.error {
            Some(ErrorBody { code, message }) => {
                Err(CallError::Rpc { code, message: message.into() })
            }
            None => Ok(self.result.map(|result| body.slice_ref(result.get().as_bytes()))),
        }
    }
}

fn garbage(error: &serde_json::Error, body: &[u8]) -> CallError {
    let start = String::from_utf8_lossy(&body[..body.len().min(100)]);
    // The error has the upstream's text in it, too.
    CallError::InvalidJson(PeerText::new(&format!(
        "{} in {start}",
        PeerText::new(&error.to_string())
    )))
}

/// The two results of a batch of two. The node's own form is taken apart by looking for where the
/// second answer begins: inside a string its quotes would be escaped, and whoever sends it
/// elsewhere sends what is no block.
fn split_pair(body: &Bytes, first: u64) -> Result<[CallResult; 2], CallError> {
    if let Some(pair) = known_pair(body, first) {
        return Ok(pair);
    }
    let mut results = answers_by_id(body, first, 2)?;
    let second = results.pop().unwrap_or(Ok(None));
    Ok([results.pop().unwrap_or(Ok(None)), second])
}

fn known_pair(body: &Bytes, first: u64) -> Option<[CallResult; 2]> {
    let inside = body.strip_suffix(envelope::NEWLINE).unwrap_or(body);
    let inside = inside.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut second = Vec::with_capacity(64);
    envelope::write_prefix(&mut second, (first + 1).to_string().as_bytes());
    let at = memchr::memmem::find(inside, &second)?;
    let (one, two) = (inside[..at].strip_suffix(b",")?, &inside[at..]);
    let slice = |answer: &[u8]| {
        let result = known_form(&body.slice_ref(answer))?;
        Some(Ok((&result[..] != b"null").then_some(result)))
    };
    let id = one.strip_prefix(envelope::PREFIX)?;
    id.starts_with(format!("{first},").as_bytes()).then_some(())?;
    Some([slice(one)?, slice(two)?])
}

/// The results of a batch whose ids run from `first`, whatever order they came in.
fn split_batch(body: &Bytes, first: u64, count: usize) -> Result<Vec<Option<Bytes>>, CallError> {
    answers_by_id(body, first, count)?.into_iter().collect()
}

fn answers_by_id(body: &Bytes, first: u64, count: usize) -> Result<Vec<CallResult>, CallError> {
    let answers: Vec<RpcEnvelope<'_>> =
        serde_json::from_slice(body).map_err(|error| garbage(&error, body))?;
    let mut results: Vec<_> = (0..count).map(|_| None).collect();
    for answer in answers {
        let at = answer.id.checked_sub(first).map(|at| at as usize).filter(|at| *at < count);
        let at = at.ok_or_else(|| CallError::InvalidJson("an answer with another id".into()))?;
        results[at] = Some(answer.into_result(body));
    }
    let missing = results.iter().filter(|result| result.is_none()).count();
    if missing > 0 {
        let why = format!("{missing} of {count} answers of a batch are missing");
        return Err(CallError::InvalidJson(why.into()));
    }
    Ok(results.into_iter().flatten().collect())
}

/// Joins results into the array that one call for all of them would have given.
pub(crate) fn join(results: &[Bytes]) -> Bytes {
    let len = results.iter().map(|result| result.len() + 1).sum::<usize>() + 2;
    let mut joined = BytesMut::with_capacity(len);
    joined.extend_from_slice(b"[");
    for (at, result) in results.iter().enumerate() {
        if at > 0 {
            joined.extend_from_slice(b",");
        }
        joined.extend_from_slice(result);
    }
    joined.extend_from_slice(b"]");
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_slices_of_the_body() {
        let of = |text: &'static str| result(&Bytes::from_static(text.as_bytes()));
        let node = of("{\"jsonrpc\":\"2.0\",\"id\":12,\"result\":{\"a\":[1]}}\n").unwrap();
        assert_eq!(node.as_deref(), Some(&b"{\"a\":[1]}"[..]));
        let other = of("{\"id\": 1, \"result\": \"0x1\", \"jsonrpc\": \"2.0\"}").unwrap();
        assert_eq!(other.as_deref(), Some(&b"\"0x1\""[..]));
        assert_eq!(of("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}\n").unwrap(), None);
        let error =
            of("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"no\"}}");
        assert!(error.unwrap_err().is_no_method());
        for bad in ["", "{", "<html>", "[]", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"x\""] {
            assert!(matches!(of(bad), Err(CallError::InvalidJson(_))), "{bad}");
        }
    }

    #[test]
    fn a_batch_is_sorted_by_id_and_must_be_complete() {
        let split = |text: &'static str| split_batch(&Bytes::from_static(text.as_bytes()), 5, 2);
        let good = split("[{\"id\":6,\"result\":2},{\"id\":5,\"result\":null}]").unwrap();
        assert_eq!(good, [None, Some(Bytes::from_static(b"2"))]);
        for bad in [
            "[]",
            "[{\"id\":5,\"result\":1}]",
            "[{\"id\":7,\"result\":1}]",
            "{}",
            "[{\"id\":5,\"result\":1},{\"id\":5,\"result\":1}]",
            "[{\"id\":5,\"result\":1},{\"id\":6,\"error\":{\"code\":1,\"message\":\"no\"}}]",
        ] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pair_is_taken_apart_in_any_form() {
        let one = |id: u64, result: &str| {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
        };
        let split = |text: String| split_pair(&Bytes::from(text), 5);
        let (block, receipts) = (r#"{"a":"}],[{"}"#, "[{},{}]");
        let expected = [Some(Bytes::from(block)), Some(Bytes::from(receipts))];
        for text in [
            format!("[{},{}]\n", one(5, block), one(6, receipts)),
            format!("[{},{}]", one(5, block), one(6, receipts)),
            format!("[{},{}]", one(6, receipts), one(5, block)),
            format!("[ {} , {} ]", one(5, block), one(6, receipts)),
        ] {
            let found = split(text.clone()).unwrap().map(Result::unwrap);
            assert_eq!(found, expected, "{text}");
        }
        let null = split(format!("[{},{}]\n", one(5, "null"), one(6, "null"))).unwrap();
        assert_eq!(null.map(Result::unwrap), [None, None]);
        let no_method = "{\"id\":6,\"error\":{\"code\":-32601,\"message\":\"no\"}}";
        let [first, second] = split(format!("[{},{no_method}]", one(5, "{}"))).unwrap();
        assert!(first.is_ok() && second.unwrap_err().is_no_method());
        for bad in ["", "[]", "{}", &format!("[{}]", one(5, "1")), &one(5, "1")] {
            assert!(split(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, hyper::header::HeaderValue::from_static(text));
            retry_after(&headers, now)
        };
        assert_eq!(of("120"), Some(Duration::from_mins(2)));
        assert_eq!(of("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_mins(1)));
        assert_eq!(of("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(of("999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!(of("soon"), None);
    }

    #[test]
    fn what_is_not_held_is_told_by_the_status_or_by_the_words() {
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

    #[test]
    fn joined_results_are_an_array() {
        assert_eq!(join(&[]), "[]");
        assert_eq!(join(&[Bytes::from_static(b"1"), Bytes::from_static(b"{}")]), "[1,{}]");
    }
}
