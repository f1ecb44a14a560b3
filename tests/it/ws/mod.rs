//! Subscriptions and limits of the WebSocket.

mod gone;
mod limits;
mod metrics;
mod order;
mod recorded;
