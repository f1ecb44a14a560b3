//! Limits of WebSockets.

use std::time::Duration;

use crate::config::error::ConfigError;
use crate::config::setting::{Group, Setting, bytes, count, duration};
use crate::config::values::Values;

/// Settings of WebSockets.
pub(super) const WEBSOCKET: Group = Group {
    title: "WebSocket",
    settings: &[
        Setting::new(
            "ws-message-bytes-max",
            bytes("1B", "4GiB"),
            "Bytes of a message over WebSocket. Beyond it: neve closes the connection.",
        )
        .or("32MiB")
        .reloads(),
        Setting::new(
            "ws-subscriptions-max",
            count("0", "1000000"),
            "Subscriptions of one WebSocket. Beyond it: an error.",
        )
        .or("1000")
        .reloads(),
        Setting::new(
            "ws-lag-max",
            count("1", "1000000000"),
            "Blocks that a subscriber may fall behind. Beyond it: neve closes the connection.",
        )
        .or("1024")
        .reloads(),
        Setting::new(
            "ws-ping-interval",
            duration("100ms", "1d"),
            "Time without a frame to the client after which neve sends a ping, and time for its \
             pong. Beyond that: neve closes the connection.",
        )
        .or("30s")
        .reloads(),
    ],
};

/// Limits of a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WsLimits {
    /// Bytes of a message from the client (libevm, `rpc/websocket.go`: 32 MiB).
    pub(crate) message_bytes_max: usize,
    /// Subscriptions that a connection may have.
    pub(crate) subscriptions_max: usize,
    /// Heights that a subscriber who was at the head may fall behind.
    pub(crate) lag_max: u64,
    /// Time without a frame to the client after which neve sends a ping, and time for its pong
    /// (libevm, `rpc/websocket.go`: both 30 s).
    pub(crate) ping_interval: Duration,
}

impl WsLimits {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        Ok(Self {
            message_bytes_max: values.bytes("ws-message-bytes-max")?,
            subscriptions_max: values.count("ws-subscriptions-max")?,
            lag_max: values.count("ws-lag-max")?,
            ping_interval: values.duration("ws-ping-interval")?,
        })
    }
}
