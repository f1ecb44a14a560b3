//! The upstream of a connection that has relayed subscriptions or calls.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;

use super::close::CloseReason;
use crate::body::ResponseBody;
use crate::http::access::AccessEntry;
use crate::http::relay::{CallOrigin, ClientSocket, Held, Relayer};
use crate::relay::sockets::{Opening, SocketEvent};
use crate::relay::{Failure, Hops};
use crate::rpc::{Outbound, RelayedCalls, Rpc};
use crate::shared::{Began, ClientAddress};

/// A call whose response the upstream owes.
pub(super) struct Pending {
    pub(super) call: Outbound,
    pub(super) calls: RelayedCalls,
    pub(super) began: Began,
    /// Entry of its message in the access log, if it has one.
    pub(super) entry: Option<AccessEntry>,
    /// Place among relayed requests.
    pub(super) _held: Held,
}

/// The socket to an upstream, calls that wait for it, and subscriptions over it.
pub(super) struct UpstreamSocket {
    pub(super) socket: ClientSocket,
    pub(super) pending: VecDeque<Pending>,
    pub(super) ids: Vec<Box<str>>,
}

/// A response of an upstream, and the entry of its message.
pub(super) struct RelayedMessage {
    pub(super) body: Result<ResponseBody, CloseReason>,
    pub(super) entry: Option<AccessEntry>,
    /// Frame whose subscriptions wait for the response.
    pub(super) frame: Option<u64>,
}

pub(super) type Relaying<'r> = Pin<Box<dyn Future<Output = RelayedMessage> + Send + 'r>>;

/// The next event of the socket, if there is one.
pub(super) async fn next(upstream: &mut Option<UpstreamSocket>) -> SocketEvent {
    match upstream {
        Some(upstream) => upstream.socket.next().await,
        None => pending().await,
    }
}

/// A client's part of a call.
pub(super) fn origin(rpc: &Arc<Rpc>, address: ClientAddress, hops: Hops) -> CallOrigin<'_> {
    let head = rpc.serving.newest_seen();
    CallOrigin::new(address, rpc.memory.account(address), head).through(hops)
}

/// Opens a socket for the subscription of a call.
pub(super) fn open(
    relay: &Relayer,
    rpc: &Rpc,
    origin: CallOrigin<'_>,
    call: &Outbound,
) -> Result<UpstreamSocket, Failure> {
    let CallOrigin { address, head, hops, .. } = origin;
    let (memory, facts) = (Arc::clone(&rpc.memory), (*call.facts).clone());
    let socket = relay.socket(Opening { address, memory, head, hops, facts })?;
    Ok(UpstreamSocket { socket, pending: VecDeque::new(), ids: Vec::new() })
}
