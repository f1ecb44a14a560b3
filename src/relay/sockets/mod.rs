//! WebSockets to upstreams for the subscriptions that neve relays, one for each client that has any.

mod connecting;
mod event;
mod message;
mod metered;
mod session;
mod socket;

pub(crate) use event::{Opening, SocketEnd, SocketEvent, Unsent};
pub(crate) use socket::RelaySocket;
