//! The relay's part that all threads share: what is known of the upstreams, and their order.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use hyper::Response;
use hyper::body::{Body, Incoming};
use hyper::header::HeaderMap;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tracing::warn;

use super::failure::Failure;
use super::gate::{UpstreamGate, UpstreamRank};
use super::hedge::HedgeBudget;
use super::hops::{Hops, OwnHop};
use super::issued::Issued;
use super::lacks::Lack;
use super::upstream_response::transactions_bytes_held;
use crate::client::{KeySearch, retry_after};
use crate::config::settings::{LiveRate, LiveRates, RelayConfig};
use crate::config::{Endpoint, RelayRule};
use crate::rpc::{CallFacts, Transactions};
use crate::shared::ClientAddress;
use crate::shared::lock::lock;
use crate::upstream::{PoolSlot, RateLimiter, Upstream};

/// Pause after a refusal that names none.
const PAUSE: Duration = Duration::from_secs(1);

/// The relay's part that all threads share.
pub(crate) struct RelayState {
    pub(super) endpoints: Vec<Endpoint>,
    /// Search for the keys of each endpoint.
    keys: Vec<Arc<KeySearch>>,
    pub(super) tls: rustls::ClientConfig,
    pub(super) connect_timeout: Duration,
    pub(super) config: RelayConfig,
    /// Upstreams as following knows them: the first of `endpoints`, in their order. The others get
    /// relayed calls only.
    pool: PoolSlot,
    /// Rules, and the place of the upstream of each.
    rules: Vec<(RelayRule, usize)>,
    /// Gate of each endpoint.
    gates: Vec<Mutex<UpstreamGate>>,
    /// Filters that upstreams opened.
    issued: Mutex<Issued>,
    pub(super) hedges: HedgeBudget,
    /// The hop that this neve adds to `Via`.
    pub(super) hop: OwnHop,
    /// Requests of broadcasts in flight at each endpoint, which may outlive their clients.
    pub(super) sending: Vec<Arc<Semaphore>>,
    /// Head of each endpoint that is not followed.
    pub(super) own_heads: Vec<AsyncMutex<OwnHead>>,
}

/// Head that an upstream told when it was asked last, and the time from which it may be asked again.
#[derive(Default)]
pub(super) struct OwnHead {
    pub(super) height: u64,
    pub(super) due: Option<Instant>,
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
        rates: &LiveRates,
    ) -> Arc<Self> {
        let now = Instant::now();
        let gate = |endpoint: &Endpoint| {
            let public = endpoint.is_public().then_some(PUBLIC_REQUESTS_PER_SECOND);
            let rate = LiveRate::new(rates, |rates| rates.relay, public);
            Mutex::new(UpstreamGate::new(RateLimiter::full(rate, now), now))
        };
        let gates = endpoints.iter().map(gate).collect();
        let rules = config.rules.iter().filter_map(|rule| {
            let place = endpoints.iter().position(|one| one.is_same(&rule.endpoint))?;
            Some((rule.clone(), place))
        });
        let rules = rules.collect();
        let hop = OwnHop::new(random());
        // Apart for each: one that stalls takes no place at another.
        let sending = |_: &Endpoint| Arc::new(Semaphore::new(config.in_flight_total_max));
        let sending = endpoints.iter().map(sending).collect();
        let issued = Mutex::new(Issued::new(now));
        let own_heads = endpoints.iter().map(|_| AsyncMutex::default()).collect();
        let hedges = HedgeBudget::new(config.hedge_percent);
        Arc::new(Self {
            keys: endpoints.iter().map(|endpoint| Arc::new(KeySearch::new(endpoint))).collect(),
            endpoints,
            tls,
            connect_timeout,
            config,
            pool,
            rules,
            gates,
            issued,
            hedges,
            hop,
            sending,
            own_heads,
        })
    }

    /// True if a read may go to two upstreams at once.
    pub(crate) fn may_hedge(&self) -> bool {
        self.hedges.is_on() && self.gates.len() > 1
    }

    /// Bytes that are read from all upstreams at once, if `sends` says that a request has transactions
    /// and these go to all.
    pub(crate) fn broadcast_bytes(&self, sends: Option<Transactions>) -> Option<usize> {
        let sent = sends.filter(|_| self.config.broadcast)?;
        Some(self.gates.len().saturating_mul(transactions_bytes_held(sent)))
    }

    /// Reads the way of a request, unless it may not go on.
    pub(crate) fn hops(&self, headers: &HeaderMap) -> Result<Hops, Failure> {
        Hops::of(headers, self.hop.number)
    }

    pub(super) fn gate(&self, place: usize) -> MutexGuard<'_, UpstreamGate> {
        lock(&self.gates[place])
    }

    /// Takes a place and the rate for one request of a client to an upstream. The share of following is left to it.
    pub(super) fn enter(
        &self,
        candidate: &Candidate,
        address: ClientAddress,
        now: Instant,
    ) -> Result<(), Failure> {
        self.enter_by(candidate, |gate, following| gate.enter(address, following, now))
    }

    /// Takes this right for a transaction that a rule has for this upstream.
    pub(super) fn enter_despite_failures(
        &self,
        candidate: &Candidate,
        address: ClientAddress,
        now: Instant,
    ) -> Result<(), Failure> {
        let enter = |gate: &mut UpstreamGate, following: Option<&mut RateLimiter>| {
            gate.enter_despite_failures(address, following, now)
        };
        self.enter_by(candidate, enter)
    }

    /// Takes this right for the handshake of a WebSocket.
    pub(super) fn enter_handshake(
        &self,
        candidate: &Candidate,
        address: ClientAddress,
        now: Instant,
    ) -> Result<(), Failure> {
        self.enter_by(candidate, |gate, following| gate.enter_handshake(address, following, now))
    }

    /// Takes this right for a request over an open WebSocket.
    pub(super) fn enter_socket(
        &self,
        candidate: &Candidate,
        address: ClientAddress,
        now: Instant,
    ) -> Result<(), Failure> {
        self.enter_by(candidate, |gate, following| gate.enter_socket(address, following, now))
    }

    fn enter_by(
        &self,
        candidate: &Candidate,
        enter: impl FnOnce(&mut UpstreamGate, Option<&mut RateLimiter>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut gate = self.gate(candidate.place);
        // An upstream that is only relayed to has no following that would need a share.
        let Some(upstream) = &candidate.upstream else { return enter(&mut gate, None) };
        // Following counts by the same pace, so both together keep within the rate of the upstream.
        enter(&mut gate, Some(&mut upstream.state().pace))?;
        upstream.charge(1);
        Ok(())
    }

    /// Counts a request of a client that no limit may hold up.
    pub(super) fn charge(&self, candidate: &Candidate, address: ClientAddress) {
        self.gate(candidate.place).pace.made(address, Instant::now());
        candidate.upstream.iter().for_each(|upstream| upstream.charge(1));
    }

    /// Leaves an upstream alone for a while, as its response wants.
    fn pause(&self, place: usize, headers: &HeaderMap) {
        self.gate(place).breaker.pause(pause_of(headers), Instant::now());
    }

    /// Opens no WebSocket to an upstream for a while, as its response to a handshake wants. It may have a server of
    /// its own for these, so HTTP calls go on.
    pub(super) fn pause_handshakes(&self, place: usize, headers: &HeaderMap) {
        self.gate(place).handshakes.pause(pause_of(headers), Instant::now());
    }

    /// Places of the upstreams whose rules have these calls.
    fn ruled(&self, head: u64, calls: &CallFacts) -> Vec<usize> {
        // A tag means the head that the client may have seen.
        let height = calls.height.or(calls.at_head.then_some(head));
        let ruled = self.rules.iter().filter(|(rule, _)| rule.matches(&calls.methods, height));
        ruled.map(|(_, place)| *place).collect()
    }

    /// Upstreams that are followed and work, and those of `more` places. None before following begins.
    fn known(&self, head: u64, more: &[usize]) -> Vec<Candidate> {
        let Some(pool) = self.pool.get() else { return Vec::new() };
        let mut all: Vec<_> = pool
            .admitted()
            .into_iter()
            .filter(|(place, _)| *place < self.gates.len())
            .map(|(place, upstream)| Candidate::followed(place, upstream, head))
            .collect();
        // Lower places are followed upstreams: one of these that is not admitted must not come in
        // by a rule.
        for place in more.iter().copied().filter(|place| *place >= pool.upstreams.len()) {
            if !all.iter().any(|one| one.place == place) {
                all.push(Candidate::relayed_to(place));
            }
        }
        all
    }

    /// Upstreams that may be asked, in no order. A filter is for its issuer alone.
    fn possible(&self, head: u64, calls: &CallFacts, now: Instant) -> Vec<Candidate> {
        let ruled = self.ruled(head, calls);
        let issuer = calls.filter.as_ref().and_then(|id| lock(&self.issued).place(id, now));
        let more: Vec<_> = ruled.iter().copied().chain(issuer).collect();
        let mut all = self.known(head, &more);
        if let Some(issuer) = issuer {
            // Any other says that there is no such filter, and the client would give it up. If the issuer
            // does not work at this moment, the client comes again.
            all.retain(|one| one.place == issuer);
        }
        for one in &mut all {
            one.ruled = ruled.contains(&one.place);
            one.unlikely |= self.gate(one.place).lacks.has(calls, now);
        }
        all
    }

    /// Upstreams to ask, best first: those that most likely have what `calls` need before others, of
    /// these the ones whose rules have the calls and that answered lately, then the ones that have
    /// `head`, and then the one that answers soonest. One that stands alone is asked again. A filter is for
    /// its issuer alone. `rank` is the order of each by its answers. For a transaction the ones whose rules have it
    /// come first however they answered lately.
    pub(super) fn candidates(
        &self,
        head: u64,
        calls: &CallFacts,
        rank: impl Fn(&UpstreamGate) -> UpstreamRank,
        now: Instant,
    ) -> Vec<Candidate> {
        let (mut all, sends) = (self.possible(head, calls, now), calls.sends());
        // Each key is made once: gates may change meanwhile, and the order must not.
        all.sort_by_cached_key(|one| {
            let gate = self.gate(one.place);
            let rank = rank(&gate);
            // Doubt may come of another client's call, which must not send a transaction elsewhere.
            let is_first = one.ruled && (sends || !rank.doubted);
            let lacks = gate.lacks.has(calls, now) && !(one.ruled && sends);
            (lacks, !is_first, one.behind, rank)
        });
        // The second attempt finds a connection that the first one found broken.
        if all.len() == 1 {
            all.extend_from_within(..);
        }
        all
    }

    /// True if an upstream did not answer a moment ago.
    pub(super) fn is_doubted(&self, place: usize, now: Instant) -> bool {
        self.gate(place).rank(false, now).doubted
    }

    /// Place of the upstream that issued a filter, if it is known.
    pub(crate) fn issuer(&self, filter: &str) -> Option<usize> {
        lock(&self.issued).place(filter, Instant::now())
    }

    /// Takes over which upstreams opened filters, of those that an earlier relay had, too.
    pub(crate) fn take_filters(&self, earlier: &Self) {
        let place = |place: usize| {
            let issuer = &earlier.endpoints[place];
            self.endpoints.iter().position(|one| one.is_same(issuer))
        };
        let moved = lock(&earlier.issued).moved(place);
        *lock(&self.issued) = moved;
    }

    /// Learns from a short response: the ids of filters, or what the upstream lacks for a call of a client that
    /// may have seen `head`. Returns what it lacks.
    pub(super) fn learn(
        &self,
        candidate: &Candidate,
        (calls, head): (&CallFacts, u64),
        response: &[u8],
        address: ClientAddress,
    ) -> Option<Lack> {
        let place = candidate.place;
        if !calls.opening.is_empty() {
            let now = Instant::now();
            lock(&self.issued).note(response, &calls.opening, (place, address), now);
        }
        // There is no other, or an error alone would speak for all calls of a batch.
        if self.gates.len() == 1 || calls.in_batch {
            return None;
        }
        let lack = Lack::of(response, calls, head)?;
        // An upstream that is behind may have the block soon.
        if !lack.is_of_block() || !candidate.behind && self.reaches(candidate, calls.height) {
            self.gate(place).lacks.learn(lack, calls, Instant::now());
        }
        Some(lack)
    }

    /// True if an upstream has reached a height, as far as is known.
    fn reaches(&self, candidate: &Candidate, height: Option<u64>) -> bool {
        // The head of one that is not followed is known only if a call has asked for it.
        let own = || self.own_heads[candidate.place].try_lock().map_or(0, |known| known.height);
        candidate.is_followed() || height.is_none_or(|height| height <= own())
    }

    /// Search for the keys of an upstream.
    pub(super) fn keys(&self, place: usize) -> &Arc<KeySearch> {
        &self.keys[place]
    }

    /// Checks that a text of an upstream repeats none of its keys: a server may name the path that it was
    /// sent, or the key that it refuses.
    pub(super) fn check_text(&self, place: usize, text: &[u8]) -> Result<(), Failure> {
        if !self.keys[place].finds_any(text) {
            return Ok(());
        }
        let upstream = &*self.endpoints[place].name;
        let reason = "it repeats a key of the upstream; check the key";
        warn!(upstream, reason, "response withheld");
        Err(Failure::Secret)
    }

    /// Checks the head of a response, and leaves an upstream alone that wants it.
    pub(super) fn check(
        &self,
        place: usize,
        response: Response<Incoming>,
        is_rpc: bool,
    ) -> Result<Response<Incoming>, Failure> {
        let checked = Failure::check_head(response.status(), response.headers(), is_rpc);
        // Another API has limits of its own.
        if is_rpc && checked == Err(Failure::Limited) {
            self.pause(place, response.headers());
        }
        checked?;
        let max = self.config.response_bytes_max;
        match response.body().size_hint().exact() {
            Some(len) if len > max as u64 => Err(Failure::TooLong(max)),
            _ => Ok(response),
        }
    }
}

/// An upstream that may be asked.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(super) place: usize,
    /// Upstream as following knows it, if it is followed.
    upstream: Option<Arc<Upstream>>,
    /// True if a rule has the call.
    pub(super) ruled: bool,
    /// True if it is known to lack the newest height that the client may have seen.
    pub(super) behind: bool,
    /// True if it most likely lacks something that the call needs.
    pub(super) unlikely: bool,
}

impl Candidate {
    fn followed(place: usize, upstream: Arc<Upstream>, head: u64) -> Self {
        // The client may have seen `head`: from an upstream behind it, a block would seem
        // to vanish.
        let behind = upstream.state().head < head;
        Self { place, upstream: Some(upstream), ruled: false, behind, unlikely: behind }
    }

    /// An upstream that is not followed.
    fn relayed_to(place: usize) -> Self {
        Self { place, upstream: None, ruled: false, behind: false, unlikely: false }
    }

    /// True if following knows it, and its head.
    pub(super) fn is_followed(&self) -> bool {
        self.upstream.is_some()
    }
}

/// Time for which an upstream wants to be left alone.
fn pause_of(headers: &HeaderMap) -> Duration {
    retry_after(headers, SystemTime::now()).unwrap_or(PAUSE)
}
