//! Arguments as typed. What they mean, and every default with its reason, is in `config.rs`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::units::{BackfillTo, ByteCount, Rate, Span, StartAt};

/// A read-only cache for avalanchego's C-chain JSON-RPC.
#[derive(Debug, Parser)]
#[command(name = "neve", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Follow a node, keep a bounded tail of its blocks, and answer reads from it.
    Serve(Box<ServeArgs>),
    /// Read a whole store and check everything in it. Exit code 0: clean, 1: findings, 2: could
    /// not look, 64: wrong usage.
    Verify(VerifyArgs),
}

/// A public network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Avalanche mainnet, chain id 43114.
    Mainnet,
    /// The Fuji testnet, chain id 43113.
    Fuji,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A group of methods that a node has behind a switch of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// `debug_getRawHeader`, `debug_getRawBlock`, `debug_getRawReceipts`, `debug_getRawTransaction`
    /// (a node's `internal-debug`).
    DebugRaw,
}

/// When senders are recovered from signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Senders {
    /// While following the head; not while catching up, where it would take four fifths of the time.
    #[default]
    Live,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `neve serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Where the store is; made if it is not there.
    #[arg(long, env = "NEVE_DATA_DIR", value_name = "DIR", required_unless_present = "dev")]
    pub data_dir: Option<PathBuf>,

    /// Where blocks come from.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Serving.
    #[command(flatten)]
    pub http: HttpArgs,

    /// Keeping.
    #[command(flatten)]
    pub store: StoreArgs,

    /// Following.
    #[command(flatten)]
    pub fetch: FetchArgs,

    /// How logs are written. `RUST_LOG` says how much (default: info).
    #[arg(long, env = "NEVE_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// Where blocks come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where blocks come from")]
pub struct SourceArgs {
    /// A node: its base address (`http://host:9650`) or the full address of its C-chain RPC. May be
    /// given several times: work goes to whichever answers soonest.
    #[arg(long, env = "NEVE_UPSTREAM", value_name = "URL", value_delimiter = ',',
          required_unless_present_any = ["network", "dev", "mirror_from"], conflicts_with = "dev")]
    pub upstream: Vec<String>,

    /// The node's WebSocket address, if it is not the one that belongs to the upstream's; `none`
    /// to poll instead. The n-th is the n-th upstream's.
    #[arg(
        long,
        env = "NEVE_UPSTREAM_WS",
        value_name = "URL",
        value_delimiter = ',',
        conflicts_with = "dev"
    )]
    pub upstream_ws: Vec<String>,

    /// Another neve that runs with --serve-segments, to be a copy of: its segments are taken as
    /// files, its records as a stream, and the rest over JSON-RPC. Nothing of it is believed unproven.
    #[arg(long, env = "NEVE_MIRROR_FROM", value_name = "URL", conflicts_with = "dev")]
    pub mirror_from: Option<String>,

    /// A certificate authority of your own (PEM) for an https upstream.
    #[arg(long, env = "NEVE_UPSTREAM_CA", value_name = "FILE", conflicts_with = "dev")]
    pub upstream_ca: Option<PathBuf>,

    /// A public network: its public API as upstream, unless one is named, and its chain expected.
    #[arg(long, env = "NEVE_NETWORK", value_enum, conflicts_with = "dev")]
    pub network: Option<Network>,

    /// Run on an embedded development chain, a new one at each start; without --data-dir in a
    /// temporary directory.
    #[arg(long)]
    pub dev: bool,

    /// Blocks a second of the development chain [default: 1].
    #[arg(long, value_name = "RATE")]
    pub dev_rate: Option<f64>,

    /// Where an empty store begins: a height, `latest`, or -N for N blocks before the latest
    /// [default: latest, or 0 with --dev, or above the newest sealed segment with --mirror-from].
    #[arg(long, env = "NEVE_START", value_name = "HEIGHT|latest|-N", allow_hyphen_values = true)]
    pub start: Option<StartAt>,

    /// How far below its first block the store is filled, while it follows: down to a height, to N
    /// blocks before the latest (-N), as far as what is kept allows (`retained`), or not (`none`)
    /// [default: none, or retained with --mirror-from].
    #[arg(
        long,
        env = "NEVE_BACKFILL_TO",
        value_name = "HEIGHT|-N|retained|none",
        allow_hyphen_values = true
    )]
    pub backfill_to: Option<BackfillTo>,

    /// Upstreams that must have the same block at a height before it is served.
    #[arg(long, env = "NEVE_AGREE", value_name = "N", default_value_t = 1)]
    pub agree: usize,

    /// Requests a second to each upstream, or `none` for no limit [default: 20 to Avalanche's public
    /// API, else none].
    #[arg(long, env = "NEVE_REQUESTS_PER_SECOND", value_name = "RATE|none")]
    pub requests_per_second: Option<Rate>,
}

/// Serving.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub struct HttpArgs {
    /// Where to listen.
    #[arg(long, env = "NEVE_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8545")]
    pub listen: SocketAddr,

    /// Where to answer /health, /ready and /metrics instead of on the main address.
    #[arg(long, env = "NEVE_ADMIN_LISTEN", value_name = "ADDR")]
    pub admin_listen: Option<SocketAddr>,

    /// Give segments and records to mirrors, under /mirror/v1/ of the main address.
    #[arg(long, env = "NEVE_SERVE_SEGMENTS")]
    pub serve_segments: bool,

    /// Downloads and streams of mirrors that may be open.
    #[arg(long, env = "NEVE_MIRRORS_MAX", value_name = "N", default_value_t = 16)]
    pub mirrors_max: usize,

    /// Names that a request's `Host` may have; `*` for any. Addresses are always allowed.
    #[arg(
        long,
        env = "NEVE_ALLOWED_HOSTS",
        value_name = "HOST,..",
        value_delimiter = ',',
        default_value = "*"
    )]
    pub allowed_hosts: Vec<String>,

    /// Further paths of JSON-RPC, besides `/` and the node's.
    #[arg(long, env = "NEVE_RPC_PATHS", value_name = "PATH,..", value_delimiter = ',')]
    pub rpc_paths: Vec<String>,

    /// Serving threads, each with another one beside it for what is no plain request [default: as
    /// many as there are processors].
    #[arg(long, env = "NEVE_THREADS", value_name = "N")]
    pub threads: Option<usize>,

    /// The HTTP status of a miss; some routers want another than 421.
    #[arg(long, env = "NEVE_MISS_STATUS", value_name = "STATUS", default_value_t = 421)]
    pub miss_status: u16,

    /// Blocks behind the upstream at which /ready says no.
    #[arg(long, env = "NEVE_READY_LAG_MAX", value_name = "N", default_value_t = 10)]
    pub ready_lag_max: u64,

    /// How long the upstream may be silent before /ready says no.
    #[arg(long, env = "NEVE_READY_SILENCE_MAX", value_name = "TIME", default_value = "60s")]
    pub ready_silence_max: Span,

    /// Bytes of a request's line and headers.
    #[arg(long, env = "NEVE_HEAD_BYTES_MAX", value_name = "BYTES", default_value = "64KiB")]
    pub head_bytes_max: ByteCount,

    /// Bytes of a request body.
    #[arg(long, env = "NEVE_BODY_BYTES_MAX", value_name = "BYTES", default_value = "5MiB")]
    pub body_bytes_max: ByteCount,

    /// Bytes of a message over WebSocket.
    #[arg(long, env = "NEVE_WS_MESSAGE_BYTES_MAX", value_name = "BYTES", default_value = "32MiB")]
    pub ws_message_bytes_max: ByteCount,

    /// Bytes of messages over WebSocket, of all connections together, at least --ws-message-bytes-max; a
    /// connection keeps what its longest took. Those of up to some 3 KiB do not count.
    #[arg(
        long,
        env = "NEVE_WS_MESSAGES_BYTES_MAX",
        value_name = "BYTES",
        default_value = "256MiB"
    )]
    pub ws_messages_bytes_max: ByteCount,

    /// Subscriptions of one WebSocket.
    #[arg(long, env = "NEVE_WS_SUBSCRIPTIONS_MAX", value_name = "N", default_value_t = 1000)]
    pub ws_subscriptions_max: usize,

    /// Blocks that a subscriber may fall behind before it is cut off.
    #[arg(long, env = "NEVE_WS_LAG_MAX", value_name = "N", default_value_t = 1024)]
    pub ws_lag_max: u64,

    /// How long nothing may be sent over a WebSocket before its client is asked whether it is
    /// there, and how long the answer may take.
    #[arg(long, env = "NEVE_WS_PING_INTERVAL", value_name = "TIME", default_value = "30s")]
    pub ws_ping_interval: Span,

    /// Blocks that `eth_getLogs` may look at, if it is not for one block by its hash.
    #[arg(long, env = "NEVE_LOGS_BLOCKS_MAX", value_name = "N", default_value_t = 100_000)]
    pub logs_blocks_max: u64,

    /// Bytes of an answer to `eth_getLogs`.
    #[arg(long, env = "NEVE_LOGS_BYTES_MAX", value_name = "BYTES", default_value = "100MB")]
    pub logs_bytes_max: ByteCount,

    /// Filters (`eth_newFilter` and its kind) that may be open.
    #[arg(long, env = "NEVE_FILTERS_MAX", value_name = "N", default_value_t = 10_000)]
    pub filters_max: usize,

    /// Bytes that filters and subscriptions may take in memory.
    #[arg(long, env = "NEVE_FILTERS_BYTES_MAX", value_name = "BYTES", default_value = "64MiB")]
    pub filters_bytes_max: ByteCount,

    /// Groups of methods besides the usual ones.
    #[arg(long, env = "NEVE_API", value_name = "NAME,..", value_enum, value_delimiter = ',')]
    pub api: Vec<Api>,

    /// How old a price may be: gas price and its kind, which the upstream computes.
    #[arg(long, env = "NEVE_PRICE_AGE_MAX", value_name = "TIME", default_value = "2s")]
    pub price_age_max: Span,

    /// Bytes of request bodies that have come in part, of all connections together; the buffers for
    /// them may be twice as long.
    #[arg(long, env = "NEVE_BODIES_BYTES_MAX", value_name = "BYTES", default_value = "256MiB")]
    pub bodies_bytes_max: ByteCount,

    /// Messages in a batch.
    #[arg(long, env = "NEVE_BATCH_ITEMS_MAX", value_name = "N", default_value_t = 1000)]
    pub batch_items_max: usize,

    /// Bytes of results after which the rest of a batch is refused.
    #[arg(
        long,
        env = "NEVE_BATCH_RESPONSE_BYTES_MAX",
        value_name = "BYTES",
        default_value = "25MB"
    )]
    pub batch_response_bytes_max: ByteCount,

    /// Open connections of each address.
    #[arg(long, env = "NEVE_CONNECTIONS_MAX", value_name = "N", default_value_t = 10_000)]
    pub connections_max: usize,

    /// A connection on which nothing was answered for so long is closed.
    #[arg(long, env = "NEVE_IDLE_TIMEOUT", value_name = "TIME", default_value = "120s")]
    pub idle_timeout: Span,

    /// A client that does not read its answer for so long is cut off.
    #[arg(long, env = "NEVE_WRITE_TIMEOUT", value_name = "TIME", default_value = "30s")]
    pub write_timeout: Span,

    /// How long answers under way may take after SIGTERM.
    #[arg(long, env = "NEVE_DRAIN_TIMEOUT", value_name = "TIME", default_value = "10s")]
    pub drain_timeout: Span,
}

/// Keeping.
#[derive(Debug, Args)]
#[command(next_help_heading = "Keeping")]
pub struct StoreArgs {
    /// Newest blocks to keep at least; whole segments beyond them go.
    #[arg(long, env = "NEVE_RETAIN_BLOCKS", value_name = "N")]
    pub retain_blocks: Option<u64>,

    /// Bytes of disk to use, and at most a segment more; `none` for no bound [default: 20GiB if
    /// no other bound is given].
    #[arg(long, env = "NEVE_RETAIN_BYTES", value_name = "BYTES|none")]
    pub retain_bytes: Option<ByteCount>,

    /// Blocks older than this may go.
    #[arg(long, env = "NEVE_RETAIN_AGE", value_name = "TIME")]
    pub retain_age: Option<Span>,

    /// Bytes of records in a segment file; its index takes 64 bytes a block more [default: 128MiB,
    /// less with a small --retain-bytes].
    #[arg(long, env = "NEVE_SEGMENT_BYTES", value_name = "BYTES")]
    pub segment_bytes: Option<ByteCount>,

    /// Blocks of a segment file.
    #[arg(long, env = "NEVE_SEGMENT_BLOCKS", value_name = "N", default_value_t = 4096)]
    pub segment_blocks: u32,

    /// Bytes that stay free on the disk: below it nothing more is stored.
    #[arg(long, env = "NEVE_DISK_RESERVE_BYTES", value_name = "BYTES", default_value = "1GiB")]
    pub disk_reserve_bytes: ByteCount,

    /// Newest bytes of the store that stay in memory once they were asked for, whatever else is
    /// read; fewer if the limit on locked memory does not allow as many.
    #[arg(
        long,
        env = "NEVE_LOCK_NEWEST_BYTES",
        value_name = "BYTES|none",
        default_value = "16MiB"
    )]
    pub lock_newest_bytes: ByteCount,

    /// Content codings in which large answers are kept besides, for clients that accept them: each
    /// takes about a fifth more disk.
    #[arg(
        long,
        env = "NEVE_COMPRESS",
        value_name = "gzip,zstd|none",
        value_delimiter = ',',
        default_value = "none"
    )]
    pub compress: Vec<String>,

    /// How much may be lost with the power: blocks are synced this often.
    #[arg(long, env = "NEVE_SYNC_INTERVAL", value_name = "TIME", default_value = "1s")]
    pub sync_interval: Span,
}

/// Following.
#[derive(Debug, Args)]
#[command(next_help_heading = "Following")]
pub struct FetchArgs {
    /// Heights asked for at a time, of each upstream; fewer while more would not be quicker.
    #[arg(long, env = "NEVE_FETCH_CONCURRENCY", value_name = "N", default_value_t = 64)]
    pub fetch_concurrency: usize,

    /// Bytes of blocks on their way from the upstream to the disk.
    #[arg(long, env = "NEVE_QUEUE_BYTES_MAX", value_name = "BYTES", default_value = "32MiB")]
    pub queue_bytes_max: ByteCount,

    /// Threads that prove blocks while catching up, and the senders of a large one at the head
    /// [default: as many as there are processors].
    #[arg(long, env = "NEVE_VERIFY_THREADS", value_name = "N")]
    pub verify_threads: Option<usize>,

    /// Bytes of an upstream's answer.
    #[arg(
        long,
        env = "NEVE_UPSTREAM_BODY_BYTES_MAX",
        value_name = "BYTES",
        default_value = "64MiB"
    )]
    pub upstream_body_bytes_max: ByteCount,

    /// How long connecting to the upstream may take.
    #[arg(long, env = "NEVE_CONNECT_TIMEOUT", value_name = "TIME", default_value = "5s")]
    pub connect_timeout: Span,

    /// How long an upstream's answer may take.
    #[arg(long, env = "NEVE_REQUEST_TIMEOUT", value_name = "TIME", default_value = "35s")]
    pub request_timeout: Span,

    /// How long the WebSocket may be silent, pings included, before it counts as dead.
    #[arg(long, env = "NEVE_WS_IDLE_TIMEOUT", value_name = "TIME", default_value = "30s")]
    pub ws_idle_timeout: Span,

    /// How often the head is asked for without a WebSocket; with one, ten times as seldom.
    #[arg(long, env = "NEVE_POLL_INTERVAL", value_name = "TIME", default_value = "500ms")]
    pub poll_interval: Span,

    /// When senders are recovered from signatures and compared.
    #[arg(long, env = "NEVE_VERIFY_SENDERS", value_enum, default_value_t)]
    pub verify_senders: Senders,
}

/// `neve verify`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct VerifyArgs {
    /// The store. A server may be running on it.
    #[arg(long, env = "NEVE_DATA_DIR", value_name = "DIR", group = "what")]
    pub data_dir: Option<PathBuf>,

    /// One segment file, wherever it is.
    #[arg(long, value_name = "FILE", group = "what")]
    pub segment: Option<PathBuf>,

    /// Print JSON lines.
    #[arg(long)]
    pub json: bool,

    /// Print a digest of all that is served: stores with the same heights have the same, however
    /// they got them.
    #[arg(long)]
    pub digest: bool,

    /// Also recover each sender from its signature, which takes four fifths of the time.
    #[arg(long)]
    pub senders: bool,
}
