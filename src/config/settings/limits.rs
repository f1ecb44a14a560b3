//! Limits of clients. The defaults are the node's where it has one.

use std::time::Duration;

use clap::ValueEnum;

use crate::config::error::ConfigError;
use crate::config::setting::{Group, Setting, bytes, count, duration, one_of};
use crate::config::units::ByteCount;
use crate::config::values::Values;

/// Limits of requests.
pub(super) const REQUESTS: Group = Group {
    title: "Requests",
    settings: &[
        Setting::new(
            "connection-streams-max",
            count("1", "1000"),
            "Requests in flight of a connection of HTTP/2. Beyond it: the client waits, or the \
             request is refused.",
        )
        .or("100")
        .reloads(),
        Setting::new(
            "header-bytes-max",
            bytes("8KiB", "1MiB"),
            "Bytes of a request's line and headers, up to the end of the empty line; over HTTP/2 at \
             most 16 KiB. Beyond it: HTTP 431.",
        )
        .or("64KiB")
        .reloads(),
        Setting::new(
            "body-bytes-max",
            bytes("1B", "4GiB"),
            "Bytes of a request body. Beyond it: HTTP 413.",
        )
        .or("5MiB")
        .reloads(),
        Setting::new(
            "batch-items-max",
            count("1", "1000000"),
            "Requests in a batch. Beyond it: the node's error for the whole batch.",
        )
        .or("1000")
        .reloads(),
        Setting::new(
            "batch-response-bytes-max",
            bytes("1B", "4GiB"),
            "Bytes of results of a batch. Beyond it: errors for the rest of the batch.",
        )
        .or("25MB")
        .reloads(),
        Setting::new(
            "request-duration-max",
            duration("1ms", "1h"),
            "Time that a search, a batch or another long request may take, waiting for a thread \
             included. Beyond it: the node's error -32002, `request timed out`.",
        )
        .or("10s")
        .reloads(),
        Setting::new(
            "request-examined-bytes-max",
            bytes("1B", "1024TiB").or_none("BYTES|none"),
            "Bytes of records and postings that one request may examine, searches and fee \
             histories of a batch together. Beyond it: the error -32005.",
        )
        .or("1GiB")
        .reloads(),
        Setting::new(
            "logs-blocks-max",
            count("1", "1000000000000000"),
            "Blocks that eth_getLogs may examine, unless it names one block by its hash. Beyond \
             it: an error.",
        )
        .or("100000")
        .reloads(),
        Setting::new(
            "logs-bytes-max",
            bytes("1B", "4GiB"),
            "Bytes of a response to eth_getLogs. Beyond it: an error.",
        )
        .or("100MB")
        .reloads(),
        Setting::new(
            "price-age-max",
            duration("0s", "1h"),
            "Age of a price, which the upstream computes: gas price and the like. Beyond it: neve \
             requests it for the call; with 0s a miss.",
        )
        .or("2s")
        .reloads(),
        Setting::new(
            "api",
            one_of::<Api>("NAME").many(),
            "Groups of methods besides the usual ones.",
        )
        .reloads(),
    ],
};

/// Limits of all clients, and of those of one address.
pub(super) const CLIENTS: Group = Group {
    title: "Clients",
    settings: &[
        Setting::new(
            "client-bytes-total-max",
            bytes("1B", "4GiB"),
            "Memory that all clients together can make neve hold: requests, messages, filters, \
             and responses that are made or not read. Beyond it: HTTP 503, or the end of a \
             WebSocket with code 1013.",
        )
        .or("256MiB")
        .reloads(),
        Setting::new(
            "client-bytes-address-max",
            bytes("1B", "4GiB"),
            "Memory that the clients of one address can make neve hold. Beyond it: as for all \
             clients.",
        )
        .otherwise("a quarter of --client-bytes-total-max, rounded up")
        .reloads(),
        Setting::new(
            "connections-max",
            count("1", "10000000"),
            "Open connections of each listener. Beyond it: HTTP 503.",
        )
        .or("10000")
        .reloads(),
        Setting::new(
            "connections-address-max",
            count("1", "10000000"),
            "Open connections of one client address, of each listener, except of trusted proxies that \
             name clients in a header. Beyond it: HTTP 503.",
        )
        .otherwise("a quarter of --connections-max, rounded up")
        .reloads(),
        Setting::new(
            "queued-requests-address-max",
            count("1", "1048576"),
            "Requests of one address that may wait for a thread, cold reads and searches each. \
             Beyond it: HTTP 503, and a WebSocket is closed with 1013.",
        )
        .or("1024")
        .reloads(),
        Setting::new(
            "queued-requests-total-max",
            count("1", "1048576"),
            "Requests of all addresses that may wait for a thread. Beyond it: HTTP 503, and a \
             WebSocket is closed with 1013.",
        )
        .or("4096")
        .reloads(),
        Setting::new(
            "filters-max",
            count("0", "10000000"),
            "Filters (eth_newFilter and the like) that may be open. Beyond it: an error.",
        )
        .or("10000")
        .reloads(),
        Setting::new(
            "filters-address-max",
            count("0", "10000000"),
            "Filters that the clients of one address may have open. Beyond it: an error.",
        )
        .otherwise("a quarter of --filters-max, rounded up")
        .reloads(),
        Setting::new(
            "idle-timeout",
            duration("100ms", "1d"),
            "Time that a connection may be without a response. Beyond it: neve closes the \
             connection.",
        )
        .or("120s")
        .reloads(),
        Setting::new(
            "write-timeout",
            duration("100ms", "1h"),
            "Time that a client may leave its response unread; the last slices of a response over \
             HTTP/2 have four times as long. Beyond it: neve closes the connection, or resets the \
             stream of HTTP/2.",
        )
        .or("30s")
        .reloads(),
    ],
};

/// A group of methods that a node has behind a switch of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Api {
    /// `debug_getRawHeader`, `debug_getRawBlock`, `debug_getRawReceipts`, `debug_getRawTransaction`
    /// (a node's `internal-debug`).
    DebugRaw,
}

/// Limits of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request body (coreth, http-body-limit: 5 MiB).
    pub body_bytes_max: usize,
    /// Bytes that all clients together can make neve hold. A node has no such limit.
    pub client_bytes_total_max: usize,
    /// Bytes that the clients of one address can.
    pub client_bytes_address_max: usize,
    /// Messages in a batch (batch-request-limit: 1,000).
    pub batch_items_max: usize,
    /// Bytes of results in a batch (batch-response-max-size: 25,000,000).
    pub batch_response_bytes_max: usize,
    /// Blocks that one `eth_getLogs` looks at. A node has no such limit by default.
    pub logs_blocks_max: u64,
    /// Bytes of one answer to `eth_getLogs`. A node has no such limit and builds it in memory.
    pub logs_bytes_max: usize,
    /// Filters that may be open. A node has no such limit.
    pub filters_max: usize,
    /// Filters that one address may have open.
    pub filters_address_max: usize,
    /// True if `debug_getRaw`… are served (eth-apis: internal-debug).
    pub debug_raw: bool,
    /// Age that a price may have.
    pub price_age_max: Duration,
    /// Time and bytes that a request may take on the threads for long ones.
    pub(crate) work: WorkLimits,
    /// Requests that may wait for one of those.
    pub(crate) queue: QueueLimits,
    /// Open connections. A node has no such limit; descriptors end at some point.
    pub connections_max: usize,
    /// Those of one address. With a quarter for each, three addresses leave a quarter for others.
    pub connections_address_max: usize,
}

/// Time that a connection may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// While the server waits for a request.
    pub(crate) idle: Duration,
    /// While a response waits for the client to read.
    pub(crate) write: Duration,
}

/// Limits of the work for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkLimits {
    /// Time from being handed over to the end (libevm: 29.9 s from the beginning).
    pub(crate) duration_max: Duration,
    /// Bytes of records and postings that may be examined. A node has no such limit.
    pub(crate) examined_bytes_max: u64,
}

/// Requests that may wait for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Requests of one address in one pool.
    pub(crate) address_max: usize,
    /// Requests of all addresses in one pool.
    pub(crate) total_max: usize,
}

impl Deadlines {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        Ok(Self {
            idle: values.duration("idle-timeout")?,
            write: values.duration("write-timeout")?,
        })
    }
}

impl Limits {
    pub(super) fn of(values: &Values) -> Result<Self, ConfigError> {
        let (client_bytes_total_max, client_bytes_address_max) = client_bytes(values)?;
        Ok(Self {
            body_bytes_max: values.bytes("body-bytes-max")?,
            client_bytes_total_max,
            client_bytes_address_max,
            batch_items_max: values.count("batch-items-max")?,
            batch_response_bytes_max: values.bytes("batch-response-bytes-max")?,
            logs_blocks_max: values.count("logs-blocks-max")?,
            logs_bytes_max: values.bytes("logs-bytes-max")?,
            filters_max: values.count("filters-max")?,
            filters_address_max: values.share("filters-address-max", "filters-max", 0)?,
            debug_raw: values.words("api")?.contains(&Api::DebugRaw),
            price_age_max: values.duration("price-age-max")?,
            work: work(values)?,
            queue: queue(values)?,
            connections_max: values.count("connections-max")?,
            connections_address_max: connections_share(values)?,
        })
    }
}

fn connections_share(values: &Values) -> Result<usize, ConfigError> {
    values.share("connections-address-max", "connections-max", 1)
}

fn work(values: &Values) -> Result<WorkLimits, ConfigError> {
    let ByteCount(examined) = values.of("request-examined-bytes-max")?;
    Ok(WorkLimits {
        duration_max: values.duration("request-duration-max")?,
        examined_bytes_max: examined.unwrap_or(u64::MAX),
    })
}

fn queue(values: &Values) -> Result<QueueLimits, ConfigError> {
    let address_max = values.count("queued-requests-address-max")?;
    let total_max = values.count("queued-requests-total-max")?;
    // A share above the whole would never bound anything.
    if address_max > total_max {
        let why = format!("allowed: 1 to {total_max}, which is --queued-requests-total-max");
        return values.refuse("queued-requests-address-max", why);
    }
    Ok(QueueLimits { address_max, total_max })
}

/// Bytes of all clients, and of one address.
fn client_bytes(values: &Values) -> Result<(usize, usize), ConfigError> {
    let total = values.bytes("client-bytes-total-max")?;
    if values.texts("client-bytes-address-max").is_empty() {
        return Ok((total, total.div_ceil(4)));
    }
    let address = values.bytes("client-bytes-address-max")?;
    if address > total {
        let why = format!("allowed: 1 to {total}, which is --client-bytes-total-max");
        return values.refuse("client-bytes-address-max", why);
    }
    Ok((total, address))
}
