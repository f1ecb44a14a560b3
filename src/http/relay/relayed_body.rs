//! A response on its way to a client. It ends when the client has gone, and not only with its time:
//! an upstream may send the rest late or never.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::client::Tick;
use crate::http::clients::Seat;
use crate::http::socket::IdleState;
use crate::relay::{SharedGuard, UpstreamBody};
use crate::shared::Reservation;

/// Place of a request among those of its address and of all, and its memory.
pub(crate) struct Held {
    pub(super) _place: RequestPlace,
    pub(super) memory: Reservation,
}

/// Place of a request, until dropped.
#[expect(dead_code, reason = "they are held and not used")]
pub(super) enum RequestPlace {
    Own(Seat, OwnedSemaphorePermit),
    /// Place of a request whose parts may outlive its client, and keep it, too.
    Shared(SharedGuard),
}

/// A response on its way, and the place of its request.
pub(super) struct RelayedBody {
    body: UpstreamBody,
    client: Arc<IdleState>,
    /// Time of the next look for the client, while an upstream is waited for.
    look: Tick,
    _held: Held,
}

impl RelayedBody {
    pub(super) fn new(body: UpstreamBody, client: Arc<IdleState>, look: Tick, held: Held) -> Self {
        Self { body, client, look, _held: held }
    }

    /// Looks now and then for the client; true if it has gone.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> bool {
        self.look.poll_until(context, || self.client.look_for_client()).is_ready()
    }
}

impl Body for RelayedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            // Only while nothing comes: a write to a closed socket fails by itself.
            Poll::Pending if self.poll_gone(context) => {
                Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
            }
            polled => polled.map(|frame| frame.map(|frame| frame.map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
