//! Configuration of a development node: its chain, how much of it there is, and how it grows.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::chain::rules::{ChainConfig, Helicon, Signatures};
use crate::chain::text::Version;

/// A development node.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The chain that it has.
    pub chain: ChainConfig,
    /// Place where it listens. Port 0 is a free one.
    pub listen: SocketAddr,
    /// The newest height at the start. All from the first one are made before it listens, which
    /// takes a tenth of a millisecond each with blocks of mainnet's size.
    pub head: u64,
    /// Blocks that stay in memory, at least one: mean size times this, which is 10 MB for 100 of
    /// mainnet's size. Besides, a height takes some 70 bytes, a transaction of a block in memory
    /// some 80.
    pub keep_heights: usize,
    /// Bytes of blocks that stay in memory, whatever their number: at most [`Self::BYTES_MAX`].
    pub keep_bytes: usize,
    /// Fate of the blocks before them.
    pub older: Older,
    /// Blocks a second that it accepts by itself, at most [`Self::RATE_MAX`]; zero for none.
    pub rate: f64,
    /// Time from acceptance of an asynchronous block to the end of its execution.
    pub execution: Duration,
    /// The release that it is of until its chain has gone over to Helicon; then it is v1.15.
    pub version: Version,
    /// Time for which it answers nothing when its chain goes over to Helicon. A node with open
    /// WebSockets takes 15 seconds.
    pub switch_hold: Duration,
    /// Requests beyond it get status 429.
    pub rate_limit: Option<RateLimit>,
}

/// A rate limit, as public endpoints have one. All clients share it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Requests or calls that a second brings, and that are allowed at once.
    pub per_second: f64,
    /// Kind of what it limits.
    pub counts: Counted,
}

/// Unit of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// HTTP requests: a batch is one.
    Requests,
    /// Each call of a batch.
    Calls,
}

/// Fate of blocks that are no longer in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// They are made again when asked for. Their transactions are not found by hash.
    MadeAgain,
    /// The node answers as one that never had them.
    Absent,
}

impl Config {
    /// Bytes of blocks in memory, beyond which the oldest leave whatever is configured.
    pub const BYTES_MAX: usize = 1 << 30;
    /// Blocks a second at most; what is faster is better done by `advance`.
    pub const RATE_MAX: f64 = 10_000.0;

    /// Small synchronous blocks with real signatures, ten of them besides the genesis; it grows by
    /// hand only.
    pub fn test() -> Self {
        Self {
            chain: ChainConfig::small(1),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            head: 10,
            keep_heights: 1_000,
            keep_bytes: Self::BYTES_MAX,
            older: Older::MadeAgain,
            rate: 0.0,
            execution: Duration::ZERO,
            version: Version::V1_14,
            switch_hold: Duration::ZERO,
            rate_limit: None,
        }
    }

    /// A chain as mainnet is today, asynchronous, with blocks of its size, that makes `rate` blocks
    /// a second and whose newest block is from `unix_ms`.
    pub fn dev(rate: f64, unix_ms: u64) -> Self {
        let head = 100;
        // `from_secs_f64` panics for infinite times.
        let rate = if rate.is_finite() { rate.clamp(0.001, Self::RATE_MAX) } else { 1.0 };
        let chain = ChainConfig {
            helicon: Helicon::FromGenesis,
            signatures: Signatures::Real,
            interval_ms: Duration::from_secs_f64(1.0 / rate).as_millis() as u64,
            ..ChainConfig::c_chain(1)
        };
        Self {
            chain: chain.ending_at(unix_ms, head),
            head,
            rate,
            execution: Duration::from_millis(5),
            version: Version::V1_15,
            ..Self::test()
        }
    }

    /// Returns a node whose chain goes over to Helicon at this height.
    #[must_use]
    pub fn with_helicon(mut self, helicon: Helicon) -> Self {
        self.chain.helicon = helicon;
        self
    }

    /// Returns a node with `head` blocks after the genesis.
    #[must_use]
    pub fn with_head(mut self, head: u64) -> Self {
        self.head = head;
        self
    }
}
