//! The client of a connection: its address, also behind a front, and its share of connections.

mod admission;
mod proxies;
mod proxy_protocol;
mod seats;

pub(crate) use admission::{Admission, refuse};
pub(crate) use proxies::Proxies;
pub(crate) use seats::{Seat, Seats};
