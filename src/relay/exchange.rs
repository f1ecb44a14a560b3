//! The choice of an upstream for a relayed request, and the request itself.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::http::uri::PathAndQuery;
use hyper::{Response, StatusCode};
use tokio::time::timeout_at;

use super::answer::{Answer, AnswerBody, Counted};
use super::breaker::Breaker;
use super::failure::Failure;
use crate::client::{StreamClient, retry_after};
use crate::config::Endpoint;
use crate::config::settings::RelayConfig;
use crate::shared::lock::lock;
use crate::upstream::{PoolSlot, RateLimiter, Upstream};

/// Upstreams that are asked for one request that only reads.
const ATTEMPTS_MAX: usize = 2;
/// Pause after a refusal that names none.
const PAUSE: Duration = Duration::from_secs(1);

/// The relay's part that all threads share.
pub(crate) struct RelayState {
    endpoints: Vec<Endpoint>,
    tls: rustls::ClientConfig,
    connect_timeout: Duration,
    config: RelayConfig,
    /// Upstreams as following knows them, in the order of `endpoints`.
    pool: PoolSlot,
    /// One for each endpoint.
    gates: Vec<Mutex<Gate>>,
}

/// Limits of one upstream.
struct Gate {
    breaker: Breaker,
    pace: Option<RateLimiter>,
}

/// A limiter whose first request need not wait, however low the rate.
fn full_limiter(rate: f64, now: Instant) -> RateLimiter {
    let earlier = now.checked_sub(Duration::from_secs_f64(1.0 / rate));
    RateLimiter::new(rate, earlier.unwrap_or(now))
}

/// Rate of requests that Avalanche's public API bears, besides those of following.
const PUBLIC_REQUESTS_PER_SECOND: f64 = 10.0;

impl RelayState {
    pub(crate) fn new(
        endpoints: Vec<Endpoint>,
        tls: rustls::ClientConfig,
        connect_timeout: Duration,
        config: RelayConfig,
        pool: PoolSlot,
    ) -> Arc<Self> {
        let now = Instant::now();
        let gate = |endpoint: &Endpoint| {
            let public = endpoint.is_public().then_some(PUBLIC_REQUESTS_PER_SECOND);
            let rate = config.requests_per_second.unwrap_or(public);
            let pace = rate.map(|rate| full_limiter(rate, now));
            Mutex::new(Gate { breaker: Breaker::default(), pace })
        };
        let gates = endpoints.iter().map(gate).collect();
        Arc::new(Self { endpoints, tls, connect_timeout, config, pool, gates })
    }

    fn gate(&self, place: usize) -> MutexGuard<'_, Gate> {
        lock(&self.gates[place])
    }

    /// Takes the right to ask an upstream. Following comes first: what it needs is left to it.
    fn enter(&self, place: usize, upstream: &Upstream) -> Result<(), Failure> {
        let now = Instant::now();
        let mut gate = self.gate(place);
        let busy = |pace: &mut RateLimiter| !pace.wait(now).is_zero();
        if gate.pace.as_mut().is_some_and(busy) || upstream.state().pace.as_mut().is_some_and(busy)
        {
            return Err(Failure::Limited);
        }
        if !gate.breaker.enter(now) {
            return Err(Failure::NoUpstream);
        }
        if let Some(pace) = &mut gate.pace {
            pace.made(1);
        }
        drop(gate);
        upstream.charge(1);
        Ok(())
    }

    /// Upstreams to ask, best first: those that have `head` before others. One that stands alone
    /// is asked again.
    fn candidates(&self, head: u64) -> Vec<(usize, Arc<Upstream>)> {
        let mut all = self.pool.get().map(|pool| pool.admitted()).unwrap_or_default();
        all.retain(|(place, _)| *place < self.gates.len());
        all.sort_by_key(|(_, upstream)| upstream.state().head < head);
        if let [(place, only)] = &all[..] {
            let again = (*place, Arc::clone(only));
            all.push(again);
        }
        all.truncate(ATTEMPTS_MAX);
        all
    }
}

/// A request to relay.
pub(crate) struct RelayRequest {
    /// Path at the node; `None` for that of JSON-RPC.
    pub(crate) path: Option<PathAndQuery>,
    /// Body of a `POST`; `None` for a `GET`.
    pub(crate) body: Option<Bytes>,
    /// True if it only reads: it may be sent twice.
    pub(crate) repeatable: bool,
    /// Height that the upstream should have.
    pub(crate) head: u64,
}

/// The relay of one thread.
pub(crate) struct Relay {
    state: Arc<RelayState>,
    /// One for each endpoint.
    clients: Vec<StreamClient>,
}

impl Relay {
    pub(crate) fn new(state: &Arc<RelayState>) -> Self {
        let client =
            |endpoint| StreamClient::new(endpoint, state.tls.clone(), state.connect_timeout);
        let clients = state.endpoints.iter().map(client).collect();
        Self { state: Arc::clone(state), clients }
    }

    /// Sends a request to an upstream, and returns its response once its head is there. If it only
    /// reads, another upstream is asked after a failure; otherwise only if nothing of it was sent.
    /// Dropped, it ends the request.
    pub(crate) async fn send(&self, request: &RelayRequest) -> Result<Answer, Failure> {
        let mut counted = Counted::new();
        match self.ask(request).await {
            Ok((response, deadline)) => {
                let (head, body) = response.into_parts();
                let content_type = head.headers.get(CONTENT_TYPE).cloned();
                let max = self.state.config.response_bytes_max;
                let body = AnswerBody::new(body, max, deadline, counted);
                Ok(Answer { status: head.status, content_type, body })
            }
            Err(failure) => {
                counted.outcome = failure.label();
                Err(failure)
            }
        }
    }

    async fn ask(
        &self,
        request: &RelayRequest,
    ) -> Result<(Response<Incoming>, tokio::time::Instant), Failure> {
        let deadline = tokio::time::Instant::now() + self.state.config.timeout;
        let (mut failure, mut asked_any) = (Failure::NoUpstream, false);
        for (place, upstream) in self.state.candidates(request.head) {
            if let Err(refused) = self.state.enter(place, &upstream) {
                failure = if asked_any { failure } else { refused };
                continue;
            }
            asked_any = true;
            let sending = self.clients[place].send(request.path.as_ref(), request.body.clone());
            let asked = match timeout_at(deadline, sending).await {
                Err(_) => return Err(Failure::TimedOut),
                Ok(Err(error)) => Err((Failure::Unreachable, error.is_connect())),
                Ok(Ok(response)) => {
                    let is_rpc = request.path.is_none();
                    self.check(place, response, is_rpc).map_err(|why| (why, false))
                }
            };
            let unsent;
            (failure, unsent) = match asked {
                Ok(response) => return Ok((response, deadline)),
                Err(failed) => failed,
            };
            if failure == Failure::Unreachable {
                self.state.gate(place).breaker.failed(Instant::now());
            }
            if !request.repeatable && !unsent {
                break;
            }
        }
        Err(failure)
    }

    /// Checks the head of a response. A node answers JSON-RPC with 200 and JSON; at another path any
    /// status may be its answer.
    fn check(
        &self,
        place: usize,
        response: Response<Incoming>,
        is_rpc: bool,
    ) -> Result<Response<Incoming>, Failure> {
        let (status, headers) = (response.status(), response.headers());
        let mut gate = self.state.gate(place);
        match status {
            StatusCode::OK => {}
            status if !is_rpc && is_answer(status) => {}
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let pause = retry_after(headers, SystemTime::now()).unwrap_or(PAUSE);
                gate.breaker.pause(pause, Instant::now());
                return Err(Failure::Limited);
            }
            StatusCode::MISDIRECTED_REQUEST => return Err(Failure::NotHeld),
            status => return Err(Failure::Status(status.as_u16())),
        }
        gate.breaker.succeeded();
        drop(gate);
        let json = headers.get(CONTENT_TYPE).is_some_and(|value| is_json(value.as_bytes()));
        if is_rpc && !json || headers.contains_key(CONTENT_ENCODING) {
            return Err(Failure::NotJson);
        }
        let max = self.state.config.response_bytes_max;
        match response.body().size_hint().exact() {
            Some(len) if len > max as u64 => Err(Failure::TooLong(max)),
            _ => Ok(response),
        }
    }
}

/// True if a node may mean this status for its client.
fn is_answer(status: StatusCode) -> bool {
    let error = status.is_client_error() || status.is_server_error();
    error && status != StatusCode::TOO_MANY_REQUESTS
}

fn is_json(value: &[u8]) -> bool {
    let media = value.split(|byte| *byte == b';').next().unwrap_or_default();
    media.trim_ascii().eq_ignore_ascii_case(b"application/json")
}
