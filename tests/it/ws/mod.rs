//! WebSockets.

mod limits;
mod metrics;
mod order;
mod recorded;
