//! WebSockets.

mod gone;
mod limits;
mod metrics;
mod order;
mod recorded;
