//! The place of a relayed request among those of its address and of all.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::Response;
use hyper::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use tokio::sync::Semaphore;

use super::paths::RelayPaths;
use super::relayed_body::{Held, RelayedBody, RequestPlace};
use super::socket_places::{ClientSocket, Places};
use crate::body::ResponseBody;
use crate::client::{STREAM_READ_BYTES, Ticker};
use crate::config::settings::RelayConfig;
use crate::http::clients::Seats;
use crate::http::response::{HttpBody, Streamed};
use crate::http::socket::IdleState;
use crate::http::{Offload, Undone};
use crate::relay::sockets::Opening;
use crate::relay::{Failure, Hops, Kept, Relay, RelayRequest, RelayState, SharedGuard};
use crate::rpc::{LONG_BODY, Outbound, say_behind};
use crate::shared::{Account, ClientAddress, Holder, Reservation};

/// Memory of a relayed request besides its own bytes: one read from the upstream, and as much in flight to
/// the client.
const BYTES: usize = 2 * STREAM_READ_BYTES;

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");

/// The relay as all listeners share it.
#[derive(Clone)]
pub(crate) struct RelayShared {
    state: Arc<RelayState>,
    permits: Arc<Semaphore>,
    seats: Arc<Seats>,
    /// Places of WebSockets to upstreams.
    sockets: Places,
    paths: RelayPaths,
}

impl RelayShared {
    pub(crate) fn new(state: Arc<RelayState>, config: &RelayConfig) -> Self {
        let permits = Arc::new(Semaphore::new(config.in_flight_total_max));
        let (seats, paths) =
            (Seats::new(config.in_flight_address_max), RelayPaths::new(&config.paths));
        let sockets = Places::new(&config.sockets);
        Self { state, permits, seats, sockets, paths }
    }

    /// Takes over what an earlier relay knows of filters.
    pub(crate) fn take_filters(&self, earlier: &Self) {
        self.state.take_filters(&earlier.state);
    }

    /// Other paths of the node that are relayed.
    pub(crate) fn paths(&self) -> RelayPaths {
        self.paths.clone()
    }

    /// The relay of one thread.
    pub(crate) fn for_thread(&self) -> Relayer {
        Relayer { relay: Relay::new(&self.state), shared: self.clone() }
    }
}

/// The relay of one thread, for its clients.
pub(crate) struct Relayer {
    relay: Relay,
    shared: RelayShared,
}

/// Response of an upstream that is held whole.
pub(super) struct WholeResponse {
    pub(super) bytes: Vec<u8>,
    /// True if the upstream lacks the newest height that the client may have seen.
    pub(super) behind: bool,
    pub(super) memory: Reservation,
}

/// Reason why one request was not relayed. A [`Failure`] alone has no request of a client, and so no memory.
pub(crate) enum NotRelayed {
    /// Clients use too much memory.
    NoMemory,
    Failure(Failure),
}

impl From<Failure> for NotRelayed {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Reason why a batch was not made whole. A call of it that was not relayed is none: its place gets an error.
pub(crate) enum NotFilled {
    /// Clients use too much memory.
    NoMemory,
    /// The work to put it together failed.
    NotDone,
}

/// Client of a relayed request, and the way that the request came.
pub(crate) struct CallOrigin<'m> {
    pub(crate) address: ClientAddress,
    pub(crate) account: Account<'m>,
    /// Newest height that the client may have seen.
    pub(crate) head: u64,
    /// Neves that the request came through.
    pub(crate) hops: Hops,
    /// Headers of the trace that the request belongs to.
    pub(crate) trace: HeaderMap,
}

impl<'m> CallOrigin<'m> {
    pub(crate) fn new(address: ClientAddress, account: Account<'m>, head: u64) -> Self {
        let (hops, trace) = (Hops::default(), HeaderMap::new());
        Self { address, account, head, hops, trace }
    }

    /// Relays a request that came through other neves.
    pub(crate) fn through(mut self, hops: Hops) -> Self {
        self.hops = hops;
        self
    }

    /// Relays a request with these headers of its trace.
    pub(crate) fn in_trace(mut self, trace: HeaderMap) -> Self {
        self.trace = trace;
        self
    }
}

/// Response that is streamed.
pub(crate) struct Relayed {
    pub(crate) response: Response<HttpBody>,
    /// True if the upstream lacks the newest height that the client may have seen.
    pub(crate) behind: bool,
}

impl Relayer {
    /// Reads the way of a request, unless it may not go on.
    pub(crate) fn hops(&self, headers: &HeaderMap) -> Result<Hops, Failure> {
        self.state().hops(headers)
    }

    /// Relays a request; its response is streamed. Dropped, it ends the request, and so does the
    /// response when its client has gone.
    pub(crate) async fn stream(
        &self,
        mut request: RelayRequest,
        origin: &CallOrigin<'_>,
        client: &Arc<IdleState>,
    ) -> Result<Relayed, NotRelayed> {
        let held = self.enter_with(&mut request, origin)?;
        let answer = self.relay.send(&request).await?;
        let look = self.ticker().tick();
        let body = RelayedBody::new(answer.body, Arc::clone(client), look, held);
        let mut response = Response::new(HttpBody::Streamed(Streamed(Box::pin(body))));
        *response.status_mut() = answer.status;
        if let Some(content_type) = answer.content_type {
            // Not by `extend`: it makes space for one header alone, and the map grows three times.
            response.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        if request.path.is_some() {
            // Such a response may be a page, and must not act as one of neve's.
            response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
            response.headers_mut().insert(CONTENT_SECURITY_POLICY, SANDBOX);
        }
        Ok(Relayed { response, behind: answer.behind })
    }

    /// State of the upstreams.
    pub(super) fn state(&self) -> &RelayState {
        &self.shared.state
    }

    /// Ticks of this thread.
    pub(crate) fn ticker(&self) -> &Ticker {
        self.relay.ticker()
    }

    /// Opens a WebSocket to an upstream for the subscriptions of a client.
    pub(crate) fn socket(&self, opening: Opening) -> Result<ClientSocket, Failure> {
        self.shared.sockets.open(&self.shared.state, opening)
    }

    /// Takes the place of a call that goes over such a socket.
    pub(crate) fn admit(&self, origin: &CallOrigin<'_>) -> Result<Held, NotRelayed> {
        self.enter(origin)
    }

    /// Relays a message of a WebSocket, and returns its whole response, or an error in its place. A notification
    /// that fails has no response, as at the node.
    pub(crate) async fn whole(
        &self,
        mut call: Outbound,
        origin: CallOrigin<'_>,
        offload: &Offload,
    ) -> Result<ResponseBody, NotFilled> {
        let bytes = match self.fetch(&mut call, &origin).await {
            Ok(fetched) => message(call, fetched, origin.address, offload).await?,
            Err(NotRelayed::Failure(failure)) => error_of(&call, failure),
            Err(NotRelayed::NoMemory) => return Err(NotFilled::NoMemory),
        };
        let mut body = ResponseBody::from(bytes);
        let held = body.held();
        body.reserve(origin.account, held).then_some(body).ok_or(NotFilled::NoMemory)
    }

    /// Relays a request, and holds its response whole.
    async fn fetch(
        &self,
        outbound: &mut Outbound,
        origin: &CallOrigin<'_>,
    ) -> Result<WholeResponse, NotRelayed> {
        let mut request = rpc_request(outbound, origin);
        // By a name: the place is held until the response is whole.
        let Held { _place, memory } = self.enter_with(&mut request, origin)?;
        self.read(&request, memory).await
    }

    /// Relays a request that has its place, and holds its response whole.
    pub(super) async fn read(
        &self,
        request: &RelayRequest,
        mut memory: Reservation,
    ) -> Result<WholeResponse, NotRelayed> {
        let mut answer = self.relay.send(request).await?;
        let mut bytes = Vec::new();
        while let Some(frame) = answer.body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            // Left to itself, `Vec` would grow beyond what is reserved.
            if bytes.len() + data.len() > bytes.capacity() {
                let capacity = (2 * bytes.len()).max(bytes.len() + data.len());
                if !memory.grow_to(self.bytes() + capacity) {
                    return Err(NotRelayed::NoMemory);
                }
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(WholeResponse { bytes, behind: answer.behind, memory })
    }

    /// Memory of a request besides its own bytes. A hedge reads from a second upstream.
    fn bytes(&self) -> usize {
        BYTES + if self.shared.state.may_hedge() { STREAM_READ_BYTES } else { 0 }
    }

    fn enter(&self, origin: &CallOrigin<'_>) -> Result<Held, NotRelayed> {
        let place = self.place(origin)?;
        let memory = self.memory(origin).ok_or(NotRelayed::NoMemory)?;
        Ok(Held { _place: place, memory })
    }

    pub(super) fn place(&self, origin: &CallOrigin<'_>) -> Result<RequestPlace, Failure> {
        let seat = self.shared.seats.take(origin.address).ok_or(Failure::Limited)?;
        let permit = Arc::clone(&self.shared.permits).try_acquire_owned();
        Ok(RequestPlace::Own(seat, permit.map_err(|_| Failure::Limited)?))
    }

    pub(super) fn memory(&self, origin: &CallOrigin<'_>) -> Option<Reservation> {
        origin.account.reserve(Holder::Relay, self.bytes())
    }

    /// Takes the place of a request. A broadcast keeps it until an upstream has taken the transaction, and the memory
    /// of the body and of the reads until the last one has answered, because its client may leave before.
    fn enter_with(
        &self,
        request: &mut RelayRequest,
        origin: &CallOrigin<'_>,
    ) -> Result<Held, NotRelayed> {
        let held = self.enter(origin)?;
        let Some(read) = self.shared.state.broadcast_bytes(request.sends) else { return Ok(held) };
        let Held { _place: place, memory: mut reads } = held;
        let memory = origin.account.reserve(Holder::Relay, BYTES);
        let memory = memory.filter(|_| reads.grow_to(read));
        let memory = memory.ok_or(NotRelayed::NoMemory)?;
        let (place, kept): (SharedGuard, SharedGuard) =
            (Arc::new(place), Arc::new((reads, request.memory.take())));
        request.kept = Some(Kept { place: Arc::clone(&place), memory: kept });
        Ok(Held { _place: RequestPlace::Shared(place), memory })
    }
}

/// Error of calls. A notification gets no response, not even an error (JSON-RPC 2.0, 4.1).
fn error_of(call: &Outbound, failure: Failure) -> Vec<u8> {
    if call.is_silent() { Vec::new() } else { call.error(&failure.error()) }
}

/// Makes the message with the response to calls: here if it is short, else on a thread that searches.
async fn message(
    call: Outbound,
    fetched: WholeResponse,
    address: ClientAddress,
    offload: &Offload,
) -> Result<Vec<u8>, NotFilled> {
    let is_short = fetched.bytes.len() <= LONG_BODY;
    // The work has the memory as well: without a client it is done all the same.
    let work = (call, fetched);
    match offload.search_unless(is_short, address, work, message_of).await {
        Ok((bytes, _memory)) => Ok(bytes),
        // A closed WebSocket would lose its subscriptions, and its other calls.
        Err(Undone::Full((call, _))) => Ok(error_of(&call, Failure::Limited)),
        Err(Undone::Failed) => Err(NotFilled::NotDone),
    }
}

/// Message with the response to calls, or with an error if the response answers others, and its memory. That takes
/// long for a long response.
fn message_of((call, fetched): (Outbound, WholeResponse)) -> (Vec<u8>, Reservation) {
    let WholeResponse { mut bytes, behind, memory } = fetched;
    let message = match (call.is_silent(), call.is_answered_by(&bytes)) {
        (true, _) => Vec::new(),
        (false, false) => call.error(&Failure::NotJson.error()),
        (false, true) => {
            // A message has no headers.
            if behind {
                say_behind(&mut bytes);
            }
            bytes
        }
    };
    (message, memory)
}

/// The request of calls; takes their text.
pub(crate) fn rpc_request(outbound: &mut Outbound, origin: &CallOrigin<'_>) -> RelayRequest {
    RelayRequest {
        path: None,
        body: Some(std::mem::take(&mut outbound.body).into()),
        repeatable: outbound.repeatable,
        head: origin.head,
        sends: outbound.sent(),
        hops: origin.hops.clone(),
        trace: origin.trace.clone(),
        wants_response: outbound.wanted > 0,
        calls: *std::mem::take(&mut outbound.facts),
        address: origin.address,
        memory: outbound.take_reservation(),
        kept: None,
    }
}
