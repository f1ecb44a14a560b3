//! WebSockets: one connection, its messages, and its frames.

mod announcing;
mod close;
mod connection;
mod kept_bytes;
mod message_reader;
mod notification;
mod offloaded;
mod relayed;
mod upgrade;
mod upstream;
mod write_stall;

pub(crate) use connection::run;
pub(crate) use upgrade::{Accepted, Upgrade};
