//! Results that many calls need, made once for all threads.

use crate::rpc::cursors::HeadCache;
use crate::rpc::methods::FeeCache;

/// Caches that all threads share.
#[derive(Default)]
pub(crate) struct Caches {
    /// New heads, as subscribers see them.
    pub(crate) heads: HeadCache,
    /// Fees that blocks paid.
    pub(crate) fees: FeeCache,
}
