//! Arguments as meant. Checking them here never does anything: no file is opened, nothing is
//! connected.

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use neve_store::{Newest, Options, Retention};

use crate::cli::{Api, HttpArgs, LogFormat, Network, Senders, ServeArgs, SourceArgs, StoreArgs};
use crate::endpoint::Endpoint;
use crate::http::{Hosts, Patience};
use crate::packed::Coding;
use crate::units::{BackfillTo, ByteCount, StartAt};
use crate::ws;

/// Everything that `neve serve` needs to know.
#[derive(Debug)]
pub struct Config {
    /// Where the store is; `None` for a temporary directory.
    pub data_dir: Option<PathBuf>,
    /// Where blocks come from.
    pub source: Source,
    /// Where an empty store begins.
    pub start: StartAt,
    /// How far it is filled below its first height.
    pub backfill: BackfillConfig,
    /// Serving.
    pub http: HttpConfig,
    /// What a client may ask for at most.
    pub limits: Limits,
    /// Segments.
    pub store: Options,
    /// How much is kept.
    pub retention: Retention,
    /// Newest bytes of the store that stay in memory.
    pub lock_newest_bytes: u64,
    /// How often the store is synced.
    pub sync_interval: Duration,
    /// Following.
    pub fetch: FetchConfig,
    /// When /ready says no.
    pub ready: ReadyConfig,
    /// How logs are written.
    pub log_format: LogFormat,
}

/// Where blocks come from.
#[derive(Debug)]
pub enum Source {
    /// Nodes, or what answers like them.
    Upstream {
        /// Where.
        endpoints: Vec<Endpoint>,
        /// Whether the last of them is a neve to be a copy of.
        mirror: bool,
        /// The network that they must be on.
        network: Option<Network>,
        /// A certificate authority to trust.
        ca: Option<PathBuf>,
    },
    /// The embedded development chain.
    Dev {
        /// Blocks a second.
        rate: f64,
    },
}

/// Serving.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Downloads and streams of mirrors that may be open; none where mirrors are given nothing. Not
    /// given unless asked for: a mirror takes all there is, as quickly as it can.
    pub mirrors_max: usize,
    /// Where JSON-RPC is served.
    pub listen: SocketAddr,
    /// Where the administrator's paths are, if apart.
    pub admin_listen: Option<SocketAddr>,
    /// Serving threads, each with another beside it for what is no plain request.
    pub threads: usize,
    /// The status of a miss.
    pub miss_status: StatusCode,
    /// What a request's `Host` may be. A node serves localhost only by default; a cache stands
    /// behind whatever names its operator gives it, and has nothing that is secret.
    pub(crate) hosts: Hosts,
    /// Paths of JSON-RPC besides the node's.
    pub rpc_paths: Arc<[String]>,
    /// Bytes of a request's line and headers. A node allows 1 MiB; no client needs that.
    pub head_bytes_max: usize,
    /// What a WebSocket may cost.
    pub(crate) ws: ws::Limits,
    /// When connections are given up.
    pub(crate) patience: Patience,
    /// How long answers under way may take when all ends.
    pub drain_timeout: Duration,
}

/// What a client may ask for at most. The defaults are the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request body (coreth, http-body-limit: 5 MiB).
    pub body_bytes_max: usize,
    /// Bytes of request bodies that are on their way, of all connections. A node has no such limit.
    pub bodies_bytes_max: usize,
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
    /// Bytes that filters and subscriptions may take. A node has no such limit.
    pub filters_bytes_max: usize,
    /// Whether `debug_getRaw`… are served (eth-apis: internal-debug).
    pub debug_raw: bool,
    /// How old a price may be.
    pub price_age_max: Duration,
    /// Open connections. A node has no such limit; descriptors end at some point.
    pub connections_max: usize,
}

/// Following.
#[derive(Debug, Clone, Copy)]
pub struct FetchConfig {
    /// Heights asked for at a time, of each upstream, at most. At 100 ms a round trip 64 are 640 a
    /// second; next door the window stays smaller by itself.
    pub concurrency: usize,
    /// Bytes of blocks on their way. 32 MiB are some hundred blocks of mainnet, which
    /// are counted three times while they are made.
    pub queue_bytes_max: usize,
    /// Threads that prove while catching up.
    pub verify_threads: usize,
    /// Upstreams that must agree on a hash.
    pub agree: usize,
    /// Requests a second to each upstream; `None` for what suits it.
    pub requests_per_second: Option<Option<f64>>,
    /// Bytes of one answer. The largest block of mainnet with receipts is below 2 MiB.
    pub body_bytes_max: usize,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Time for an answer: a node gives up after 30 s.
    pub request_timeout: Duration,
    /// Time without a frame after which a WebSocket is dead.
    pub ws_idle_timeout: Duration,
    /// Time between questions for the head.
    pub poll_interval: Duration,
    /// When senders are recovered.
    pub senders: Senders,
    /// In which codings large parts are kept besides. None unless asked for: a node sends plain
    /// bytes to whoever accepts what, and a front often compresses already.
    pub compress: &'static [Coding],
}

/// How far a store is filled below its first height. Not at all unless asked for: a cache of the
/// newest blocks is full soon enough by itself.
pub type BackfillConfig = BackfillTo;

/// When /ready says no.
#[derive(Debug, Clone, Copy)]
pub struct ReadyConfig {
    /// Blocks behind the upstream.
    pub lag_max: u64,
    /// Silence of the upstream.
    pub silence_max: Duration,
}

/// A wrong argument: what it is, what is wrong, what would be right.
#[derive(Debug, thiserror::Error)]
#[error("--{flag} {value}: {why}")]
pub struct Wrong {
    flag: &'static str,
    value: String,
    why: String,
}

fn wrong<T>(flag: &'static str, value: impl Display, why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { flag, value: value.to_string(), why: why.into() })
}

/// With no bound given, a bounded store all the same: two and a half days of mainnet in 2026.
const RETAIN_BYTES_DEFAULT: u64 = 20 << 30;
/// Mainnet fills one in about half an hour.
const SEGMENT_BYTES_DEFAULT: u64 = 128 << 20;
/// A bounded store has at least so many segments, so that evicting one is a small step.
const SEGMENTS_MIN: u64 = 16;

impl Config {
    /// Checks the arguments of `neve serve`.
    pub fn from_args(args: ServeArgs) -> Result<Self, Wrong> {
        let retention = retention(&args.store);
        Ok(Self {
            source: source(&args)?,
            http: http(&args.http)?,
            limits: limits(&args.http)?,
            store: store(&args.store, retention)?,
            fetch: fetch(&args, codings(&args.store.compress)?)?,
            backfill: args.source.backfill_to.unwrap_or(backfill_default(&args.source)),
            ready: ReadyConfig {
                lag_max: args.http.ready_lag_max,
                silence_max: args.http.ready_silence_max.0,
            },
            retention,
            lock_newest_bytes: lock_newest_bytes(&args.store)?,
            sync_interval: args.store.sync_interval.0,
            data_dir: args.data_dir,
            start: args.source.start.unwrap_or(start_default(&args.source)),
            log_format: args.log_format,
        })
    }
}

/// A mirror has what its source has.
fn backfill_default(source: &SourceArgs) -> BackfillConfig {
    if source.mirror_from.is_some() { BackfillTo::Retained } else { BackfillTo::None }
}

/// A development chain is short: all of it is kept.
fn start_default(source: &SourceArgs) -> StartAt {
    if source.dev { StartAt::Height(0) } else { StartAt::BeforeHead(0) }
}

fn source(args: &ServeArgs) -> Result<Source, Wrong> {
    let source = &args.source;
    if source.dev {
        let rate = source.dev_rate.unwrap_or(1.0);
        let allowed = 0.0..=1000.0;
        return if allowed.contains(&rate) {
            Ok(Source::Dev { rate })
        } else {
            wrong("dev-rate", rate, "allowed is 0 (no new blocks) to 1000")
        };
    }
    if let Some(rate) = source.dev_rate {
        return wrong("dev-rate", rate, "goes with --dev");
    }
    let public = match source.network {
        Some(Network::Fuji) => "https://api.avax-test.network",
        _ => "https://api.avax.network",
    };
    let given = source.upstream.iter().map(String::as_str);
    let mirror = source.mirror_from.as_deref();
    let urls: Vec<&str> = match (source.upstream.is_empty(), mirror) {
        (true, Some(_)) => Vec::new(),
        (true, None) => vec![public],
        _ => given.collect(),
    };
    if let Some(ws) = source.upstream_ws.get(urls.len()) {
        return wrong("upstream-ws", ws, format!("there are {} upstreams", urls.len()));
    }
    let endpoints = urls
        .iter()
        .enumerate()
        .map(|(at, url)| endpoint(url, source.upstream_ws.get(at).map(String::as_str)));
    let mut endpoints: Vec<Endpoint> = endpoints.collect::<Result<_, _>>()?;
    if let Some(url) = mirror {
        let parsed = Endpoint::parse(url).or_else(|why| wrong("mirror-from", url, why));
        endpoints.push(parsed?);
    }
    if !(1..=endpoints.len()).contains(&source.agree) {
        let why = format!("allowed is 1 to {}, the number of upstreams", endpoints.len());
        return wrong("agree", source.agree, why);
    }
    Ok(Source::Upstream {
        endpoints,
        mirror: mirror.is_some(),
        network: source.network,
        ca: source.upstream_ca.clone(),
    })
}

fn endpoint(url: &str, ws: Option<&str>) -> Result<Endpoint, Wrong> {
    let mut endpoint = match Endpoint::parse(url) {
        Ok(endpoint) => endpoint,
        Err(why) => return wrong("upstream", url, why),
    };
    if let Some(ws) = ws {
        endpoint.ws = match Endpoint::parse_ws(ws) {
            Ok(uri) => uri,
            Err(why) => return wrong("upstream-ws", ws, why),
        };
    }
    Ok(endpoint)
}

fn http(args: &HttpArgs) -> Result<HttpConfig, Wrong> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = args.threads.unwrap_or(cores);
    if !(1..=1024).contains(&threads) {
        return wrong("threads", threads, "allowed is 1 to 1024");
    }
    if args.admin_listen == Some(args.listen) && args.listen.port() != 0 {
        return wrong("admin-listen", args.listen, "must be another address than --listen");
    }
    if args.serve_segments && !(1..=10_000).contains(&args.mirrors_max) {
        return wrong("mirrors-max", args.mirrors_max, "allowed is 1 to 10000");
    }
    Ok(HttpConfig {
        mirrors_max: if args.serve_segments { args.mirrors_max } else { 0 },
        listen: args.listen,
        admin_listen: args.admin_listen,
        threads,
        miss_status: miss_status(args.miss_status)?,
        hosts: Hosts::new(&args.allowed_hosts),
        rpc_paths: rpc_paths(&args.rpc_paths)?,
        head_bytes_max: head_bytes(args.head_bytes_max)?,
        ws: ws_limits(args)?,
        patience: Patience { idle: args.idle_timeout.0, write: args.write_timeout.0 },
        drain_timeout: args.drain_timeout.0,
    })
}

fn ws_limits(args: &HttpArgs) -> Result<ws::Limits, Wrong> {
    let message_bytes_max = bytes("ws-message-bytes-max", args.ws_message_bytes_max)?;
    let messages_bytes_max = bytes("ws-messages-bytes-max", args.ws_messages_bytes_max)?;
    if messages_bytes_max < message_bytes_max {
        let why = "must be at least --ws-message-bytes-max";
        return wrong("ws-messages-bytes-max", messages_bytes_max, why);
    }
    if args.ws_ping_interval.0.is_zero() {
        return wrong("ws-ping-interval", "0", "must be longer than nothing");
    }
    Ok(ws::Limits {
        message_bytes_max,
        messages_bytes_max,
        subscriptions_max: args.ws_subscriptions_max,
        lag_max: args.ws_lag_max,
        ping_interval: args.ws_ping_interval.0,
    })
}

fn rpc_paths(paths: &[String]) -> Result<Arc<[String]>, Wrong> {
    match paths.iter().find(|path| !path.starts_with('/')) {
        Some(path) => wrong("rpc-paths", path, "a path begins with /"),
        None => Ok(paths.into()),
    }
}

/// It is also the size of a connection's buffer, for which hyper has a minimum.
fn head_bytes(count: ByteCount) -> Result<usize, Wrong> {
    match bytes("head-bytes-max", count)? {
        bytes if (8 << 10..=1 << 20).contains(&bytes) => Ok(bytes),
        bytes => wrong("head-bytes-max", bytes, "allowed is 8KiB to 1MiB"),
    }
}

/// A router must be able to tell a miss, so no success but 200 itself, for routers that look into
/// the body only.
fn miss_status(status: u16) -> Result<StatusCode, Wrong> {
    match StatusCode::from_u16(status) {
        Ok(code) if status == 200 || code.is_client_error() || code.is_server_error() => Ok(code),
        _ => wrong("miss-status", status, "allowed is 200, or 400 to 599"),
    }
}

fn limits(args: &HttpArgs) -> Result<Limits, Wrong> {
    let positive = |flag, value: usize| {
        if value > 0 { Ok(value) } else { wrong(flag, value, "must be at least 1") }
    };
    let body_bytes_max = bytes("body-bytes-max", args.body_bytes_max)?;
    let bodies_bytes_max = bytes("bodies-bytes-max", args.bodies_bytes_max)?;
    if bodies_bytes_max < body_bytes_max {
        return wrong("bodies-bytes-max", bodies_bytes_max, "must be at least --body-bytes-max");
    }
    Ok(Limits {
        body_bytes_max,
        bodies_bytes_max,
        batch_items_max: positive("batch-items-max", args.batch_items_max)?,
        batch_response_bytes_max: bytes("batch-response-bytes-max", args.batch_response_bytes_max)?,
        logs_blocks_max: args.logs_blocks_max,
        logs_bytes_max: bytes("logs-bytes-max", args.logs_bytes_max)?,
        filters_max: args.filters_max,
        filters_bytes_max: bytes("filters-bytes-max", args.filters_bytes_max)?,
        debug_raw: args.api.contains(&Api::DebugRaw),
        price_age_max: args.price_age_max.0,
        connections_max: positive("connections-max", args.connections_max)?,
    })
}

/// A limit on something that is held in memory.
fn bytes(flag: &'static str, count: ByteCount) -> Result<usize, Wrong> {
    match count.0.and_then(|bytes| usize::try_from(bytes).ok()) {
        Some(bytes) if (1..=1 << 32).contains(&bytes) => Ok(bytes),
        Some(bytes) => wrong(flag, bytes, "allowed is 1 to 4GiB"),
        None => wrong(flag, "none", "this needs a bound: it is held in memory"),
    }
}

fn codings(names: &[String]) -> Result<&'static [Coding], Wrong> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(match names[..] {
        ["none"] => &[],
        ["gzip"] => &[Coding::Gzip],
        ["zstd"] => &[Coding::Zstd],
        ["gzip", "zstd"] | ["zstd", "gzip"] => &Coding::ALL,
        _ => return wrong("compress", names.join(","), "allowed is gzip, zstd, gzip,zstd or none"),
    })
}

fn retention(args: &StoreArgs) -> Retention {
    let bounded = args.retain_blocks.is_some() || args.retain_age.is_some();
    let default = if bounded { None } else { Some(RETAIN_BYTES_DEFAULT) };
    Retention {
        blocks: args.retain_blocks,
        bytes: args.retain_bytes.map_or(default, |bytes| bytes.0),
        age: args.retain_age.map(|age| age.0),
    }
}

fn store(args: &StoreArgs, retention: Retention) -> Result<Options, Wrong> {
    let (min, max) = (Options::SEGMENT_BYTES_MIN, Options::SEGMENT_BYTES_MAX);
    let share = retention.bytes.map_or(u64::MAX, |bytes| bytes / SEGMENTS_MIN);
    let default = SEGMENT_BYTES_DEFAULT.min(share).max(min);
    let segment_bytes = match args.segment_bytes {
        None => default,
        Some(ByteCount(Some(bytes))) if (min..=max).contains(&bytes) => bytes,
        Some(ByteCount(Some(bytes))) => {
            return wrong("segment-bytes", bytes, format!("allowed is {min} to {max}"));
        }
        Some(ByteCount(None)) => return wrong("segment-bytes", "none", "a segment has a size"),
    };
    let span = args.segment_blocks;
    if !(1..=neve_store::SPAN_MAX).contains(&span) {
        let why = format!("allowed is 1 to {}", neve_store::SPAN_MAX);
        return wrong("segment-blocks", span, why);
    }
    if let Some(bytes) = retention.bytes.filter(|bytes| *bytes < 2 * segment_bytes) {
        let why = format!("must hold at least two segments of {segment_bytes} bytes");
        return wrong("retain-bytes", bytes, why);
    }
    let disk_reserve_bytes = args.disk_reserve_bytes.0.unwrap_or(0);
    Ok(Options { span, segment_bytes, disk_reserve_bytes, expected: None })
}

fn lock_newest_bytes(args: &StoreArgs) -> Result<u64, Wrong> {
    match args.lock_newest_bytes.0 {
        None => Ok(0),
        Some(bytes) if bytes >= Newest::BYTES_MIN => Ok(bytes),
        Some(bytes) => {
            let why = format!("allowed is none, or {} and more", Newest::BYTES_MIN);
            wrong("lock-newest-bytes", bytes, why)
        }
    }
}

fn fetch(args: &ServeArgs, compress: &'static [Coding]) -> Result<FetchConfig, Wrong> {
    let (source, args) = (&args.source, &args.fetch);
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let verify_threads = args.verify_threads.unwrap_or(cores);
    if !(1..=1024).contains(&verify_threads) {
        return wrong("verify-threads", verify_threads, "allowed is 1 to 1024");
    }
    if !(1..=1024).contains(&args.fetch_concurrency) {
        return wrong("fetch-concurrency", args.fetch_concurrency, "allowed is 1 to 1024");
    }
    if args.poll_interval.0.is_zero() {
        return wrong("poll-interval", "0", "must be longer than nothing");
    }
    Ok(FetchConfig {
        concurrency: args.fetch_concurrency,
        verify_threads,
        agree: source.agree,
        requests_per_second: source.requests_per_second.map(|rate| rate.0),
        queue_bytes_max: bytes("queue-bytes-max", args.queue_bytes_max)?,
        body_bytes_max: bytes("upstream-body-bytes-max", args.upstream_body_bytes_max)?,
        connect_timeout: args.connect_timeout.0,
        request_timeout: args.request_timeout.0,
        ws_idle_timeout: args.ws_idle_timeout.0,
        poll_interval: args.poll_interval.0,
        senders: args.verify_senders,
        compress,
    })
}
