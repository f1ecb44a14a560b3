//! A development node by itself: an upstream for benchmarks and for other caches than this one.
//!
//! `cargo run --release --example devnet -- [BLOCKS [BLOCKS_A_SECOND]]` prints the address where it
//! answers as a node would (`/ext/bc/C/rpc`, `/ext/bc/C/ws`) and runs until it is ended. `--help`
//! has what else it can be: larger blocks, slow, unreliable, false.
//!
//! Blocks follow from their height: those that do not fit into `--keep-bytes` are made again when
//! they are asked for, so that a million of them take 70 MB. All are made once before it listens,
//! because each needs the hash of the one before.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};
use neve_devnet::{
    ChainConfig, Config, Counted, Devnet, Fault, Faults, Profile, RateLimit, RetryAfter,
    Signatures, Version,
};

/// Method that brings heights: questions about the chain stay without faults.
const HEIGHTS: &str = "eth_getBlockReceipts";

/// A development node: deterministic blocks, and faults on demand.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Blocks behind the genesis.
    #[arg(default_value_t = 2_000)]
    blocks: u64,
    /// Blocks a second that it makes from then on.
    #[arg(default_value_t = 0.0)]
    rate: f64,
    /// Size of blocks.
    #[arg(long, value_enum, default_value_t = Size::CChain)]
    profile: Size,
    /// Bytes of blocks that stay in memory, at most 1 GiB.
    #[arg(long, default_value_t = Config::BYTES_MAX)]
    keep_bytes: usize,
    /// Signatures are random numbers of the right form: a third of the time to make a block, and
    /// senders cannot be recovered.
    #[arg(long)]
    filler: bool,
    /// Blocks are stamped from the beginning of 2026 on, and not so that the last one is of now: the
    /// same blocks in every run.
    #[arg(long)]
    repeatable: bool,
    /// Every answer comes so many milliseconds later.
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// Delay of the answers of --slow-share.
    #[arg(long, default_value_t = 0)]
    slow_ms: u64,
    /// Answers of a thousand about heights that are slow.
    #[arg(long, default_value_t = 0, value_parser = share)]
    slow_share: u16,
    /// Bytes a second that a connection brings; 0 for what it can.
    #[arg(long, default_value_t = 0)]
    bandwidth: u64,
    /// Requests of a thousand about heights that get status 500.
    #[arg(long, default_value_t = 0, value_parser = share)]
    fail_share: u16,
    /// Requests of a thousand about heights that get status 429, to be repeated in a second.
    #[arg(long, default_value_t = 0, value_parser = share)]
    throttle_share: u16,
    /// Requests of a thousand about heights that get no answer.
    #[arg(long, default_value_t = 0, value_parser = share)]
    stall_share: u16,
    /// Answers of a thousand about heights with receipts that are not those of the chain.
    #[arg(long, default_value_t = 0, value_parser = share)]
    lie_share: u16,
    /// Requests a second beyond which it answers with status 429, as a public endpoint does.
    #[arg(long)]
    requests_per_second: Option<u32>,
    /// Calls a second beyond which it does so: each call of a batch counts.
    #[arg(long, conflicts_with = "requests_per_second")]
    calls_per_second: Option<u32>,
    /// Has no `eth_getBlockReceipts`, so that receipts are asked for one by one.
    #[arg(long)]
    no_block_receipts: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Size {
    /// Blocks as of mainnet's C-chain in January 2026: 57 logs, 100 KB of JSON.
    CChain,
    /// 600 logs in the median and 24,167 at most: 270 KB as the chain encodes it, 800 KB as JSON.
    ManyLogs,
}

/// Thousandths, as clap reads them.
fn share(text: &str) -> Result<u16, String> {
    let share = text.parse::<u16>().ok().filter(|share| *share <= 1_000);
    share.ok_or_else(|| format!("{text}: thousandths are 0 to 1000"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&args))
}

/// Synchronous blocks, as avalanchego v1.14 has them: a cache of any age can follow it.
fn config(args: &Args) -> Result<Config, Box<dyn Error>> {
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let profile = match args.profile {
        Size::CChain => Profile::c_chain(),
        Size::ManyLogs => Profile::many_logs(),
    };
    let signatures = if args.filler { Signatures::Filler } else { Signatures::Real };
    let chain = ChainConfig { profile, signatures, ..ChainConfig::c_chain(1) };
    let (head, rate) = (args.blocks, args.rate);
    let chain = if args.repeatable { chain } else { chain.ending_at(unix_ms, args.blocks) };
    let version = Version::V1_14;
    let (keep_heights, keep_bytes) = (usize::try_from(head)? + 1, args.keep_bytes);
    let config = Config { chain, head, keep_heights, keep_bytes, rate, version, ..Config::test() };
    Ok(Config { rate_limit: rate_limit(args), ..config })
}

fn rate_limit(args: &Args) -> Option<RateLimit> {
    let limit = |per_second: Option<u32>, counts| {
        per_second.map(|per_second| RateLimit { per_second: per_second.into(), counts })
    };
    limit(args.requests_per_second, Counted::Requests)
        .or_else(|| limit(args.calls_per_second, Counted::Calls))
}

fn inject(faults: &Faults, args: &Args) {
    let (latency, slow) =
        (Duration::from_millis(args.latency_ms), Duration::from_millis(args.slow_ms));
    // Of several that apply at the same place the first one does.
    let rules = [
        Fault::Latency(slow).on(HEIGHTS).share(args.slow_share),
        Fault::Latency(latency).share(if args.latency_ms > 0 { 1_000 } else { 0 }),
        Fault::Bandwidth(args.bandwidth).share(if args.bandwidth > 0 { 1_000 } else { 0 }),
        Fault::Status(500, RetryAfter::Absent).on(HEIGHTS).share(args.fail_share),
        Fault::Status(429, RetryAfter::Seconds(1)).on(HEIGHTS).share(args.throttle_share),
        Fault::Stall.on(HEIGHTS).share(args.stall_share),
        Fault::LyingReceipts.on(HEIGHTS).share(args.lie_share),
        Fault::NoBlockReceipts.share(if args.no_block_receipts { 1_000 } else { 0 }),
    ];
    for rule in rules.into_iter().filter(|rule| !rule.is_idle()) {
        faults.inject(rule);
    }
}

async fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let devnet = Devnet::start(config(args)?).await?;
    inject(devnet.faults(), args);
    println!("{}/", devnet.base_url());
    std::future::pending().await
}
