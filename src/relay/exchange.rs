//! The choice of an upstream for a relayed request, and the request itself.

mod probe;
mod tried;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, VIA};
use hyper::http::uri::PathAndQuery;
use serde::Deserialize;
use tokio::time::timeout;

use self::probe::ask_own;
use self::tried::is_last;
pub(super) use self::tried::{Tried, UpstreamOutcome};
use super::failure::Failure;
use super::gate::UpstreamGate;
use super::hops::{Hops, OwnHop};
use super::lacks::Lack;
use super::state::{Candidate, RelayState};
use super::upstream_response::{BegunBody, Counted, UpstreamBody, UpstreamResponse, Veil};
use crate::client::{StreamClient, Ticker};
use crate::rpc::{CallFacts, Transactions};
use crate::shared::{ClientAddress, Reservation};
use crate::upstream::height;

/// Clock of deadlines: that of the runtime's timers.
pub(super) type TokioInstant = tokio::time::Instant;

/// Attempts of a request that only reads, while they fail.
pub(crate) const ATTEMPTS_MAX: usize = 2;
/// Time for which another upstream is asked for a block or transaction that one does not have. Clients ask for a
/// receipt until it is there: each time they would wait for an upstream that stalls.
pub(super) const AGREE_MAX: Duration = Duration::from_secs(2);
/// Time for the head of an upstream that is not followed. The call waits for it.
const OWN_HEAD_MAX: Duration = Duration::from_secs(1);
/// Time between two such requests, and after one without a response.
const OWN_HEAD_PAUSE: Duration = Duration::from_millis(250);
const OWN_HEAD_SILENT: Duration = Duration::from_secs(10);

/// Place or memory that several requests to upstreams share.
pub(crate) type SharedGuard = Arc<dyn Send + Sync>;

/// Place and memory of a request of which a broadcast makes several.
#[derive(Clone)]
pub(crate) struct Kept {
    /// Held until an upstream has taken all transactions, or the last one has answered.
    pub(crate) place: SharedGuard,
    /// Held until the last upstream has answered.
    pub(crate) memory: SharedGuard,
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
    /// Transactions, if it has nothing else: they may go to all upstreams.
    pub(crate) sends: Option<Transactions>,
    /// Neves that it came through.
    pub(crate) hops: Hops,
    /// Headers of the trace that it belongs to.
    pub(crate) trace: HeaderMap,
    /// True if the response must be one of JSON-RPC: no other path is asked, and not all calls are notifications.
    pub(crate) wants_response: bool,
    /// Facts of its calls; none for another path.
    pub(crate) calls: CallFacts,
    /// Client of the request.
    pub(crate) address: ClientAddress,
    /// Memory of the body.
    pub(crate) memory: Option<Reservation>,
    /// Place and memory of a request whose parts may outlive its client.
    pub(crate) kept: Option<Kept>,
}

impl RelayRequest {
    /// Headers of the way that the request came, at this neve, and of its trace.
    pub(super) fn headers(
        &self,
        own: &OwnHop,
    ) -> impl Iterator<Item = (Option<HeaderName>, HeaderValue)> + use<> {
        let via = self.hops.value(own).map(|via| (Some(VIA), via));
        self.trace.clone().into_iter().chain(via)
    }
}

/// Response of an upstream, of which the begin has been read.
pub(super) struct Reply {
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: BegunBody,
    veil: Option<Box<Veil>>,
    /// True if the upstream lacks the newest height that the client may have seen.
    behind: bool,
}

/// A request to one upstream.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'r> {
    pub(super) request: &'r RelayRequest,
    pub(super) began: TokioInstant,
    /// Time at which the next upstream is asked.
    pub(super) until: TokioInstant,
}

/// A read that may be hedged.
pub(super) struct Hedged<'r> {
    /// Upstream that is asked first.
    pub(super) candidate: Candidate,
    pub(super) first: Attempt<'r>,
    pub(super) deadline: TokioInstant,
    /// Time after which a second one is asked.
    pub(super) after: Duration,
}

/// The relay of one thread.
pub(crate) struct Relay {
    pub(super) state: Arc<RelayState>,
    /// Client of each endpoint.
    pub(super) clients: Vec<StreamClient>,
    pub(super) ticker: Ticker,
}

impl Relay {
    pub(crate) fn new(state: &Arc<RelayState>) -> Self {
        let client =
            |endpoint| StreamClient::new(endpoint, state.tls.clone(), state.connect_timeout);
        let clients = state.endpoints.iter().map(client).collect();
        Self { state: Arc::clone(state), clients, ticker: Ticker::default() }
    }

    /// Ticks of this thread.
    pub(crate) fn ticker(&self) -> &Ticker {
        &self.ticker
    }

    /// Sends a request to an upstream, and returns its response once its head is there. If it only
    /// reads, another upstream is asked after a failure; otherwise only if nothing of it was sent.
    /// Dropped, it ends the request.
    pub(crate) async fn send(&self, request: &RelayRequest) -> Result<UpstreamResponse, Failure> {
        let now = TokioInstant::now();
        let mut counted = Counted::new(now);
        if let Some(sent) = request.sends.filter(|_| self.state.config.broadcast) {
            // Boxed, as rare ways below: each call would have space for them, and move it.
            return Box::pin(self.broadcast(request, sent, counted)).await;
        }
        match self.ask(request, now, now + self.state.config.timeout).await {
            Ok(Reply { status, content_type, body, veil, behind }) => {
                let max = self.state.config.response_bytes_max;
                let deadline = now + self.state.config.timeout;
                let tick = self.ticker.tick();
                let body = UpstreamBody::new((body, veil), max, deadline, tick, counted);
                Ok(UpstreamResponse { status, content_type, behind, body })
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
        began: TokioInstant,
        deadline: TokioInstant,
    ) -> Result<Reply, Failure> {
        self.note_read(request);
        let mut tried = Tried::new();
        let mut now = began;
        // A call with an effect ends with the first upstream that gets it: it tries none.
        let tries = request.repeatable;
        let (calls, at) = (&request.calls, now.into_std());
        let rank = |gate: &UpstreamGate| gate.rank(tries, at);
        let candidates = self.state.candidates(request.head, calls, rank, at);
        let mut candidates = candidates.into_iter().peekable();
        let mut is_for_ruled = false;
        while let Some(candidate) = candidates.next().filter(|one| one.ruled || !is_for_ruled) {
            // The response that is there waits for no upstream that was late a moment ago.
            if tried.may_end() && self.state.is_doubted(candidate.place, now.into_std()) {
                continue;
            }
            // Any client can use up a limit, or make calls that fail. The transactions of others must not go
            // elsewhere then.
            let is_own = request.calls.sends() && candidate.ruled;
            if let Err(refused) = self.enter(&candidate, request, is_own, now.into_std()) {
                tried.refused(refused);
                is_for_ruled |= is_own;
                continue;
            }
            let others = candidates.peek().is_some_and(|next| next.place != candidate.place);
            let deadline = if tried.may_end() { deadline.min(now + AGREE_MAX) } else { deadline };
            let until = tried.until(now, deadline, others && request.repeatable);
            let first = Attempt { request, began: now, until };
            let outcome = match self.hedge_after(&candidate, candidates.peek(), request) {
                None => self.attempt(&candidate, first).await,
                Some(after) => {
                    let hedged = Hedged { candidate, first, deadline, after };
                    Box::pin(self.hedge(hedged, &mut candidates, &mut tried)).await
                }
            };
            if let UpstreamOutcome::Good(reply) = outcome {
                return Ok(reply);
            }
            let is_last = is_last(&outcome, request, others);
            tried.note(outcome);
            now = TokioInstant::now();
            if is_last || tried.is_over() || now >= deadline {
                break;
            }
        }
        tried.end()
    }

    /// Takes the right to make a request. `is_own` says that a rule has it for this upstream alone.
    fn enter(
        &self,
        candidate: &Candidate,
        request: &RelayRequest,
        is_own: bool,
        now: Instant,
    ) -> Result<(), Failure> {
        if is_own {
            return self.state.enter_despite_failures(candidate, request.address, now);
        }
        self.state.enter(candidate, request.address, now)
    }

    /// Thing that the upstream lacks for a call, so that another one may have it. It has done nothing
    /// then.
    fn lack(&self, candidate: &Candidate, request: &RelayRequest, reply: &Reply) -> Option<Lack> {
        // Errors are short: of a long response nothing need be parsed.
        let short = reply.body.short().filter(|_| request.path.is_none())?;
        let calls = (&request.calls, request.head);
        let lack = self.state.learn(candidate, calls, short, request.address)?;
        // It may use the words of a lack for what it did: only a method that is not there did nothing.
        (request.repeatable || lack == Lack::Method).then_some(lack)
    }

    /// Asks one upstream, up to the end of the attempt, and notes the outcome at its gate.
    pub(super) async fn attempt(
        &self,
        candidate: &Candidate,
        attempt: Attempt<'_>,
    ) -> UpstreamOutcome {
        let (place, Attempt { request, began, until }) = (candidate.place, attempt);
        // Behind an opening: the first call goes with a probe of its own, and waits for nothing.
        self.probe_if_due(place);
        let exchange = pin!(self.exchange(candidate, request, began.into_std()));
        match self.ticker.until(until, exchange).await {
            None => {
                self.note_late(place, request);
                UpstreamOutcome::Failed(Failure::TimedOut, false)
            }
            Some(Err((failure, unsent))) => {
                self.note_failure(place, request, failure);
                UpstreamOutcome::Failed(failure, unsent)
            }
            Some(Ok(reply)) => self.outcome_of(candidate, request, reply),
        }
    }

    fn note_late(&self, place: usize, request: &RelayRequest) {
        // A late response opens no breaker: the call may just take long.
        if request.path.is_none() {
            self.state.gate(place).timed_out(Instant::now());
        }
    }

    fn note_failure(&self, place: usize, request: &RelayRequest, failure: Failure) {
        // At another path only an end of the connection says something of JSON-RPC.
        if request.path.is_none() || failure == Failure::Unreachable {
            self.state.gate(place).misanswered(failure, Instant::now());
            self.probe_if_due(place);
        }
    }

    fn outcome_of(
        &self,
        candidate: &Candidate,
        request: &RelayRequest,
        reply: Reply,
    ) -> UpstreamOutcome {
        match self.lack(candidate, request, &reply) {
            Some(lack) => UpstreamOutcome::Lacking(lack, reply),
            None => UpstreamOutcome::Good(reply),
        }
    }

    async fn exchange(
        &self,
        candidate: &Candidate,
        request: &RelayRequest,
        mut began: Instant,
    ) -> Result<Reply, (Failure, bool)> {
        let (place, mut behind) = (candidate.place, candidate.behind);
        if request.calls.at_head && !candidate.is_followed() {
            // Before the call: its response may be of an older head than one that is told later.
            behind = Box::pin(self.lacks_head(candidate, request)).await;
            began = Instant::now();
        }
        let (reply, now) = self.begun(place, request).await?;
        // A response at another path says nothing of JSON-RPC.
        if request.path.is_none() && !reply.status.is_server_error() {
            self.state.gate(place).answered(now - began, now);
        }
        Ok(Reply { behind, ..reply })
    }

    /// Sends a request, and reads the begin of its response. Returns also the time at which the head came; with a
    /// failure, true if nothing of the request was sent.
    async fn begun(
        &self,
        place: usize,
        request: &RelayRequest,
    ) -> Result<(Reply, Instant), (Failure, bool)> {
        let (path, body) = (request.path.as_ref(), request.body.clone());
        let more = request.headers(&self.state.hop);
        let sent = self.clients[place].send(path, body, more).await;
        // Only a connection that never came about proves that the upstream has nothing of the
        // request.
        let response = sent.map_err(|error| (Failure::Unreachable, error.is_connect()))?;
        let (sent, now) = (|failure| (failure, false), Instant::now());
        let response = self.state.check(place, response, request.path.is_none()).map_err(sent)?;
        let (head, body) = response.into_parts();
        let body = BegunBody::read(body).await.map_err(sent)?;
        let content_type = head.headers.get(CONTENT_TYPE).cloned();
        self.check_begin(place, request, content_type.as_ref(), &body).map_err(sent)?;
        let veil = Veil::of(self.state.keys(place), &body);
        Ok((Reply { status: head.status, content_type, body, veil, behind: false }, now))
    }

    /// Checks the begin of a body, before any of it reaches the client.
    fn check_begin(
        &self,
        place: usize,
        request: &RelayRequest,
        content_type: Option<&HeaderValue>,
        body: &BegunBody,
    ) -> Result<(), Failure> {
        // The media type goes on to the client, and a server may repeat a key there, too.
        let texts = [content_type.map(HeaderValue::as_bytes), body.short().map(|all| &**all)];
        texts.into_iter().flatten().try_for_each(|text| self.state.check_text(place, text))?;
        if request.wants_response && !body.may_be_response() {
            return Err(Failure::NotJson);
        }
        let max = self.state.config.response_bytes_max;
        // Chunks have no length ahead; of those only the bytes that came can tell.
        if body.size_hint(0).lower() > max as u64 {
            return Err(Failure::TooLong(max));
        }
        Ok(())
    }

    /// True if an upstream that is not followed does not say that it has the newest height that the client may
    /// have seen. It is asked when that is above the last head that it said.
    async fn lacks_head(&self, candidate: &Candidate, request: &RelayRequest) -> bool {
        // One call asks for all that wait.
        let mut known = self.state.own_heads[candidate.place].lock().await;
        let is_due = known.due.is_none_or(|due| due <= Instant::now());
        if known.height < request.head && is_due {
            self.state.charge(candidate, request.address);
            let asking = self.own_head(candidate.place, request);
            let told = timeout(OWN_HEAD_MAX, asking).await.ok().flatten();
            // Only now: a client that leaves meanwhile must not have others wait for the next time.
            known.height = told.unwrap_or(0);
            known.due = Some(Instant::now() + told.map_or(OWN_HEAD_SILENT, |_| OWN_HEAD_PAUSE));
        }
        known.height < request.head
    }

    async fn own_head(&self, place: usize, request: &RelayRequest) -> Option<u64> {
        #[derive(Deserialize)]
        struct Number<'a> {
            result: &'a str,
        }
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;
        let more = request.headers(&self.state.hop);
        let body = ask_own(&self.state, &self.clients[place], place, call, more).await.ok()?;
        let Number { result } = serde_json::from_slice(body.short()?).ok()?;
        height(result)
    }
}
