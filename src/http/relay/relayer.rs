//! The place of a relayed request among those of its address and of all.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::CONTENT_TYPE;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::paths::RelayPaths;
use crate::body::ResponseBody;
use crate::client::STREAM_READ_BYTES;
use crate::config::settings::RelayConfig;
use crate::http::clients::{Seat, Seats};
use crate::http::response::{HttpBody, Streamed};
use crate::relay::{AnswerBody, Failure, Relay, RelayRequest, RelayState};
use crate::rpc::{Mixed, Outbound, Split};
use crate::shared::{Account, ClientAddress, Holder, Reservation};

/// Memory of a relayed request besides its own bytes: what is read from the upstream, and as much on
/// its way to the client.
const BYTES: usize = 2 * STREAM_READ_BYTES;

/// The relay as all listeners share it.
#[derive(Clone)]
pub(crate) struct RelayShared {
    state: Arc<RelayState>,
    permits: Arc<Semaphore>,
    seats: Arc<Seats>,
    paths: RelayPaths,
}

impl RelayShared {
    pub(crate) fn new(state: Arc<RelayState>, config: &RelayConfig) -> Self {
        let permits = Arc::new(Semaphore::new(config.in_flight_total_max));
        let (seats, paths) =
            (Seats::new(config.in_flight_address_max), RelayPaths::new(&config.paths));
        Self { state, permits, seats, paths }
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

/// Response of an upstream that is held whole, and the place of its request.
struct Fetched {
    bytes: Bytes,
    _held: Held,
}

/// Reason why a request was not relayed.
pub(crate) enum NotRelayed {
    /// Clients use too much memory.
    NoRoom,
    Failure(Failure),
}

impl From<Failure> for NotRelayed {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Place of a request among those of its address and of all, and its memory.
struct Held {
    _seat: Seat,
    _permit: OwnedSemaphorePermit,
    memory: Reservation,
}

impl Relayer {
    /// Relays a request; its response is streamed. Dropped, it ends the request.
    pub(crate) async fn stream(
        &self,
        request: RelayRequest,
        address: ClientAddress,
        account: Account<'_>,
    ) -> Result<Response<HttpBody>, NotRelayed> {
        let held = self.enter(address, account)?;
        let answer = self.relay.send(&request).await?;
        let body = RelayedBody { body: answer.body, _held: held };
        let mut response = Response::new(HttpBody::Streamed(Streamed(Box::pin(body))));
        *response.status_mut() = answer.status;
        let content_type = answer.content_type.map(|value| (CONTENT_TYPE, value));
        response.headers_mut().extend(content_type);
        Ok(response)
    }

    /// Relays the rest of a batch, and makes the batch whole. `None` if clients use too much memory.
    pub(crate) async fn fill(
        &self,
        mut split: Box<Split>,
        address: ClientAddress,
        account: Account<'_>,
        head: u64,
    ) -> Option<Mixed> {
        match self.fetch(&mut split.outbound, address, account, head).await {
            Ok(fetched) => split.fill(Ok(&fetched.bytes), account),
            Err(NotRelayed::Failure(failure)) => split.fill(Err(&failure.error()), account),
            Err(NotRelayed::NoRoom) => None,
        }
    }

    /// Relays a request, and returns its response whole, or an error in its place. `None` if clients
    /// use too much memory.
    pub(crate) async fn whole(
        &self,
        mut call: Outbound,
        address: ClientAddress,
        account: Account<'_>,
        head: u64,
    ) -> Option<ResponseBody> {
        let bytes = match self.fetch(&mut call, address, account, head).await {
            Ok(fetched) => fetched.bytes.to_vec(),
            Err(NotRelayed::Failure(failure)) => call.error(&failure.error()),
            Err(NotRelayed::NoRoom) => return None,
        };
        let mut body = ResponseBody::from(bytes);
        let held = body.held();
        body.reserve(account, held).then_some(body)
    }

    /// Relays a request, and holds its response whole.
    async fn fetch(
        &self,
        outbound: &mut Outbound,
        address: ClientAddress,
        account: Account<'_>,
        head: u64,
    ) -> Result<Fetched, NotRelayed> {
        let mut held = self.enter(address, account)?;
        let mut answer = self.relay.send(&rpc_request(outbound, head)).await?;
        let mut bytes = Vec::new();
        while let Some(frame) = answer.body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if bytes.len() + data.len() > bytes.capacity() {
                let capacity = (2 * bytes.len()).max(bytes.len() + data.len());
                if !held.memory.grow_to(BYTES + capacity) {
                    return Err(NotRelayed::NoRoom);
                }
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Fetched { bytes: bytes.into(), _held: held })
    }

    fn enter(&self, address: ClientAddress, account: Account<'_>) -> Result<Held, NotRelayed> {
        let seat = self.shared.seats.take(address).ok_or(Failure::Limited)?;
        let permit = Arc::clone(&self.shared.permits).try_acquire_owned();
        let permit = permit.map_err(|_| Failure::Limited)?;
        let memory = account.reserve(Holder::Relay, BYTES).ok_or(NotRelayed::NoRoom)?;
        Ok(Held { _seat: seat, _permit: permit, memory })
    }
}

/// The request of calls; takes their text.
pub(crate) fn rpc_request(outbound: &mut Outbound, head: u64) -> RelayRequest {
    let body = Some(std::mem::take(&mut outbound.body).into());
    RelayRequest { path: None, body, repeatable: outbound.repeatable, head }
}

/// A response on its way, and the place of its request.
struct RelayedBody {
    body: AnswerBody,
    _held: Held,
}

impl Body for RelayedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
