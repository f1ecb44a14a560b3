//! Words between the task of a socket and its client's connection.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::relay::{Failure, Hops};
use crate::rpc::CallFacts;
use crate::shared::{ClientAddress, MemoryBudget, Reservation};

/// Client of a socket, and facts that decide which upstream gets it.
pub(crate) struct Opening {
    pub(crate) address: ClientAddress,
    /// Budget in which the address has its part.
    pub(crate) memory: Arc<MemoryBudget>,
    /// Height that the upstream should have.
    pub(crate) head: u64,
    /// Neves that the client's connection came through.
    pub(crate) hops: Hops,
    /// Facts of the first call.
    pub(crate) facts: CallFacts,
}

/// Call for the upstream.
pub(super) enum Command {
    Subscribe(Bytes),
    Unsubscribe(Box<str>),
}

/// Message of an upstream that waits for the client.
pub(crate) struct Unsent {
    pub(crate) text: Bytes,
    pub(crate) reservation: Reservation,
    /// Part of `--relayed-unsent-bytes-max`.
    pub(crate) waiting: OwnedSemaphorePermit,
}

/// Event of a socket.
pub(crate) enum SocketEvent {
    /// Response to the oldest call, and the id if it opened a subscription.
    Response(Unsent, Option<Box<str>>),
    /// The oldest call has no response.
    Refused(Failure),
    /// Notification of the subscription of this id.
    Notification(Unsent, Box<str>),
    /// No more events come.
    Ended(SocketEnd),
}

/// Reason why a socket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// The upstream failed or left.
    Failed(Failure),
    /// More than these bytes would wait for the client.
    TooSlow(usize),
    /// The client makes neve hold too much memory.
    NoMemory,
}
