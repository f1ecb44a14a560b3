//! Heights that all upstreams together have.

use neve_jsonrpc::Rules;

/// Heights that all upstreams together have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PoolState {
    /// Upstreams that are asked.
    pub(crate) admitted: usize,
    /// Upstreams of these that name no head without a header that proves it.
    pub(crate) in_use: usize,
    /// The highest head that is asked for.
    pub(crate) head: u64,
    /// The highest head with a proven header that as many upstreams have reached as must agree on a block.
    pub(crate) proven: u64,
    /// The highest head that more than half of the upstreams have reached: no single one can move it far up or down.
    pub(crate) common: u64,
    /// True if answers are by the rules of v1.15: the chain is, or enough upstreams agreed on them.
    pub(crate) helicon: bool,
    /// The rules that enough upstreams agreed on, or those of the store: true for v1.15. They stay
    /// while fewer upstreams are asked.
    pub(crate) agreed: Option<bool>,
    /// True if enough upstreams agreed to announce heads with the keys of v1.15. It stays until enough
    /// agree on the other form.
    pub(crate) helicon_keys: bool,
    /// Changes with each connection to an upstream.
    pub(crate) connections: u64,
    /// Number of withdrawals by the mirror source.
    pub(crate) withdrawals: u64,
}

impl PoolState {
    pub(crate) fn rules(&self) -> Rules {
        if self.helicon { Rules::Helicon } else { Rules::BeforeHelicon }
    }
}
