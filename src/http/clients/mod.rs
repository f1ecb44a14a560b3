//! The client of a connection: its address, also behind a front, and its share of connections.

mod proxies;
pub(crate) mod proxy_protocol;
mod seats;

pub(crate) use proxies::Proxies;
pub(crate) use seats::{Seat, Seats};
