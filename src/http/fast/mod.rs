//! The fast path: an event loop for the common POST, without tasks.

mod connection;
mod event_loop;
mod request;
mod service;

pub(crate) use event_loop::EventLoop;
pub(crate) use service::FastService;
