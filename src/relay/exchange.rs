//! The choice of an upstream for a relayed request, and the request itself.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use hyper::http::uri::PathAndQuery;
use hyper::{Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

use super::answer::{Answer, AnswerBody, Counted};
use super::failure::Failure;
use super::gate::Gate;
use super::hops::Hops;
use crate::client::{StreamClient, retry_after};
use crate::config::Endpoint;
use crate::config::settings::RelayConfig;
use crate::shared::lock::lock;
use crate::upstream::{PoolSlot, RateLimiter, Upstream};

/// Clock of deadlines.
pub(super) type TokioInstant = tokio::time::Instant;

/// Requests that are made for one that only reads.
const ATTEMPTS_MAX: usize = 2;
/// Pause after a refusal that names none.
const PAUSE: Duration = Duration::from_secs(1);

/// The relay's part that all threads share.
pub(crate) struct RelayState {
    endpoints: Vec<Endpoint>,
    tls: rustls::ClientConfig,
    connect_timeout: Duration,
    pub(super) config: RelayConfig,
    /// Upstreams as following knows them, in the order of `endpoints`.
    pool: PoolSlot,
    /// One for each endpoint.
    gates: Vec<Mutex<Gate>>,
    /// Number of this neve in `Via`.
    pub(super) number: u64,
    /// Requests of broadcasts in flight, which may outlive their clients.
    pub(super) sending: Arc<Semaphore>,
}

/// A limiter whose first request need not wait, however low the rate.
fn full_limiter(rate: f64, now: Instant) -> RateLimiter {
    let earlier = now.checked_sub(Duration::from_secs_f64(1.0 / rate));
    RateLimiter::new(rate, earlier.unwrap_or(now))
}

/// A number that no other neve has. It is no secret: a client that names it is not relayed.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness of the kernel, numbers are still different.
    getrandom::fill(&mut bytes).map_or_else(|_| fastrand::u64(..), |()| u64::from_le_bytes(bytes))
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
            Mutex::new(Gate::new(pace))
        };
        let gates = endpoints.iter().map(gate).collect();
        let number = random();
        let sending = Arc::new(Semaphore::new(config.in_flight_total_max));
        Arc::new(Self { endpoints, tls, connect_timeout, config, pool, gates, number, sending })
    }

    /// Reads the way of a request, unless it may not go on.
    pub(crate) fn hops(&self, headers: &HeaderMap) -> Result<Hops, Failure> {
        Hops::of(headers, self.number)
    }

    pub(super) fn gate(&self, place: usize) -> MutexGuard<'_, Gate> {
        lock(&self.gates[place])
    }

    /// Takes the right to ask an upstream. Following comes first: what it needs is left to it.
    pub(super) fn enter(&self, place: usize, upstream: &Upstream) -> Result<(), Failure> {
        self.gate(place).enter(upstream.state().pace.as_mut(), Instant::now())?;
        upstream.charge(1);
        Ok(())
    }

    /// Upstreams to ask, best first: those that have `head` before others, and of these the one
    /// that answers soonest. One that stands alone is asked again.
    pub(super) fn candidates(&self, head: u64) -> Vec<Candidate> {
        let now = Instant::now();
        let mut all: Vec<_> = self.pool.get().map(|pool| pool.admitted()).unwrap_or_default();
        all.retain(|(place, _)| *place < self.gates.len());
        let mut all: Vec<_> = all
            .into_iter()
            .map(|(place, upstream)| {
                let lacks = upstream.state().head < head;
                Candidate { place, upstream, lacks }
            })
            .collect();
        all.sort_by_cached_key(|one| (one.lacks, self.gate(one.place).rank(now)));
        if let [only] = &all[..] {
            let again = only.clone();
            all.push(again);
        }
        all
    }

    /// Checks the head of a response. A node answers JSON-RPC with 200 and JSON; at another path any
    /// status may be its answer.
    pub(super) fn check(
        &self,
        place: usize,
        response: Response<Incoming>,
        is_rpc: bool,
    ) -> Result<Response<Incoming>, Failure> {
        let (status, headers) = (response.status(), response.headers());
        let mut gate = self.gate(place);
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
        if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
            return Err(Failure::NoLength);
        }
        let max = self.config.response_bytes_max;
        match response.body().size_hint().exact() {
            Some(len) if len > max as u64 => Err(Failure::TooLong(max)),
            _ => Ok(response),
        }
    }
}

/// An upstream that may be asked.
#[derive(Clone)]
pub(super) struct Candidate {
    pub(super) place: usize,
    pub(super) upstream: Arc<Upstream>,
    /// True if it lacks the newest height that the client may have seen.
    lacks: bool,
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
    /// True if it is one transaction: it may go to all upstreams.
    pub(crate) sends: bool,
    /// Neves that it came through.
    pub(crate) hops: Hops,
}

/// Time at which the next upstream is asked, if there is one and `request` may be repeated.
fn until(request: &RelayRequest, next: bool, deadline: TokioInstant) -> TokioInstant {
    if !(next && request.repeatable) {
        return deadline;
    }
    let now = TokioInstant::now();
    now + deadline.saturating_duration_since(now) / 2
}

/// Head of a response.
struct Asked {
    response: Response<Incoming>,
    /// Time at which the response must have ended.
    deadline: TokioInstant,
    /// True if the upstream lacks the newest height that the client may have seen.
    lacks: bool,
}

/// The relay of one thread.
pub(crate) struct Relay {
    pub(super) state: Arc<RelayState>,
    /// One for each endpoint.
    pub(super) clients: Vec<StreamClient>,
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
        if request.sends && self.state.config.broadcast {
            return self.broadcast(request, counted).await;
        }
        match self.ask(request).await {
            Ok(Asked { response, deadline, lacks }) => {
                let (head, body) = response.into_parts();
                let content_type = head.headers.get(CONTENT_TYPE).cloned();
                let max = self.state.config.response_bytes_max;
                let body = AnswerBody::new(body, max, deadline, counted);
                Ok(Answer { status: head.status, content_type, lacks, body })
            }
            Err(failure) => {
                counted.outcome = failure.label();
                Err(failure)
            }
        }
    }

    async fn ask(&self, request: &RelayRequest) -> Result<Asked, Failure> {
        let deadline = TokioInstant::now() + self.state.config.timeout;
        let (mut failure, mut attempts) = (Failure::NoUpstream, 0);
        let mut candidates = self.state.candidates(request.head).into_iter().peekable();
        while let Some(candidate) = candidates.next() {
            if let Err(refused) = self.state.enter(candidate.place, &candidate.upstream) {
                failure = if attempts == 0 { refused } else { failure };
                continue;
            }
            attempts += 1;
            let others = candidates.peek().is_some_and(|next| next.place != candidate.place);
            let until = until(request, others && attempts < ATTEMPTS_MAX, deadline);
            let unsent;
            (failure, unsent) = match self.attempt(&candidate, request, until).await {
                Ok(response) => return Ok(Asked { response, deadline, lacks: candidate.lacks }),
                Err(failed) => failed,
            };
            let again = request.repeatable || unsent;
            if !again || attempts == ATTEMPTS_MAX || TokioInstant::now() >= deadline {
                break;
            }
        }
        Err(failure)
    }

    /// Asks one upstream. A failure comes with whether nothing was sent.
    async fn attempt(
        &self,
        Candidate { place, .. }: &Candidate,
        request: &RelayRequest,
        until: TokioInstant,
    ) -> Result<Response<Incoming>, (Failure, bool)> {
        let (place, began) = (*place, Instant::now());
        let (path, body) = (request.path.as_ref(), request.body.clone());
        let via = request.hops.value(self.state.number);
        let sending = self.clients[place].send(path, body, via);
        let sent = timeout_at(until, sending).await;
        let now = Instant::now();
        match sent {
            Err(_) => {
                self.state.gate(place).timed_out(now);
                Err((Failure::TimedOut, false))
            }
            Ok(Err(error)) => {
                self.state.gate(place).failed(now);
                Err((Failure::Unreachable, error.is_connect()))
            }
            Ok(Ok(response)) => {
                self.state.gate(place).answered(now - began, now);
                self.state
                    .check(place, response, request.path.is_none())
                    .map_err(|why| (why, false))
            }
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
