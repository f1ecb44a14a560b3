//! The fast path: an event loop for the common POST, without tasks.

mod connection;
mod event_loop;
mod request;
pub(crate) mod response_writer;

pub(crate) use event_loop::EventLoop;
pub(crate) use request::Persistence;
pub(crate) use response_writer::{ResponseWriter, Sent};
