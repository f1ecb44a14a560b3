//! The client to a node: one JSON-RPC call over HTTP, with every wait bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, StatusCode};
use metrics::counter;
use neve_jsonrpc::envelope;

use super::error::{CallError, CallResult, count, refused, too_long};
use super::http::{AGENT, Connections, HttpClient, whole_story};
use super::results::{result, split_batch, split_pair};
use crate::config::Endpoint;
use crate::config::settings::FetchConfig;
use crate::shared::Status;

/// Space that an answer gets before it comes, at most.
const BODY_BYTES_EXPECTED_MAX: u64 = 2 << 20;
/// Bytes around a result in a response of its own, with an id of two digits.
const ENVELOPE_BYTES: usize = envelope::PREFIX.len()
    + envelope::RESULT.len()
    + envelope::SUFFIX.len()
    + envelope::NEWLINE.len()
    + 2;
/// Bytes that a connection reads at a time.
const READ_BYTES: usize = 64 << 10;
/// A client to one upstream. Clones share connections.
#[derive(Clone)]
pub(crate) struct RpcClient {
    http: HttpClient,
    config: FetchConfig,
    ids: Arc<AtomicU64>,
    /// Bytes that a response will likely take, by the last ones.
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
        let connections = Connections {
            connect_timeout: config.connect_timeout,
            read_bytes: Some(READ_BYTES),
            idle_timeout: Duration::from_mins(1),
            // A height may take two requests at once: block and receipts.
            idle_max: config.concurrency * 2,
        };
        let http = HttpClient::new(endpoint, tls, connections);
        let (ids, body_bytes) = (Arc::default(), Arc::default());
        Self { http, config, ids, body_bytes, status }
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
        // One bound for all: together they are the receipts of a block, or some headers.
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
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (USER_AGENT, HeaderValue::from_static(AGENT)),
        ];
        let sent = self.http.send(Method::POST, None, headers, Bytes::from(body)).await;
        let response = sent.map_err(|error| CallError::Unreachable(whole_story(&error)))?;
        let (head, body) = response.into_parts();
        let limit = self.config.response_bytes_max.saturating_mul(answers);
        let body = self.read(Limited::new(body, limit)).await;
        // The text of an error may name its reason, and lacks nothing if it cannot be read.
        if head.status != StatusCode::OK {
            return Err(refused(head.status, &head.headers, &body.unwrap_or_default()));
        }
        let body = body?;
        self.status.heard();
        counter!("neve_upstream_received_bytes_total").increment(body.len() as u64);
        Ok(body)
    }

    /// The whole body in one buffer. Each frame is copied at once: kept until the end, each would
    /// keep a connection's whole buffer.
    async fn read(&self, mut body: Limited<Incoming>) -> Result<Bytes, CallError> {
        let usual = || self.body_bytes.load(Ordering::Relaxed);
        let expected = body.size_hint().exact().unwrap_or_else(usual);
        // The length is the upstream's claim: it must not decide how much is taken at once.
        let expected = expected.min(BODY_BYTES_EXPECTED_MAX);
        let mut bytes = Vec::with_capacity(expected as usize);
        while let Some(frame) = body.frame().await {
            let limit = self.config.response_bytes_max;
            let frame = frame.map_err(|error| too_long(error.as_ref(), limit))?;
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        self.note_length(bytes.len() as u64);
        // The record keeps it until it is written: what was taken too much goes back at once.
        bytes.shrink_to_fit();
        Ok(Bytes::from(bytes))
    }

    /// Takes the length of a body into the bytes that the next one will likely take.
    fn note_length(&self, len: u64) {
        // Between the mean and the largest of late: what is too short is moved, what is too long
        // is kept with the answer.
        let before = self.body_bytes.load(Ordering::Relaxed);
        let next = if len > before {
            len.min(BODY_BYTES_EXPECTED_MAX)
        } else {
            before - (before - len) / 8
        };
        self.body_bytes.store(next, Ordering::Relaxed);
    }
}

fn request(body: &mut Vec<u8>, id: u64, method: &str, params: &str) {
    let text =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}");
    body.extend_from_slice(text.as_bytes());
}
