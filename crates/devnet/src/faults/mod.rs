//! What can be wrong with an upstream, on demand.

mod edit;
mod lie;
mod registry;
mod rule;

use std::time::Duration;

pub(crate) use edit::edit;
pub(crate) use lie::false_block;
pub use registry::{Faults, Injected};
pub(crate) use rule::Subject;
pub use rule::{Heights, Rule};

/// Something that is wrong with an upstream.
///
/// A fault by itself is a [`Rule`] that always applies. [`at`](Self::at), [`on`](Self::on) and
/// [`times`](Self::times) narrow it:
///
/// ```
/// use neve_devnet::Fault;
///
/// let once = Fault::NullBlock.at(7).times(1);
/// let always = Fault::Garbage.on("eth_getBlockReceipts").at(5..=9);
/// # let _ = (once, always);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Nobody listens until the fault is cleared: connections are refused, open ones are cut.
    Refuse,
    /// A connection is reset: a new one at once, an open one when a request comes.
    Reset,

    /// An answer comes so much later.
    Latency(Duration),
    /// The body of an answer comes with so many bytes a second, at least 50.
    Bandwidth(u64),
    /// The answer is this HTTP status.
    Status(u16, RetryAfter),
    /// No answer comes until the fault is cleared.
    Stall,
    /// Half of the body comes, then the connection ends.
    Truncate,
    /// The body is no JSON, under status 200.
    Garbage,

    /// A result has white space in it.
    Whitespace,
    /// The first two members of a result have changed places.
    KeyOrder,
    /// A block is `null`.
    NullBlock,
    /// The receipts of a block are `null`.
    NullReceipts,
    /// The last receipt of a block is missing.
    MissingReceipt,
    /// The receipts of a block are not those of the chain, but all that can be compared without the
    /// root fits: data of a log is another, or if there is none, the outcome of a transaction. The
    /// header tells; of an asynchronous block only the one that settles it.
    LyingReceipts,
    /// A transaction has another value than the one that was signed.
    WrongTransaction,
    /// A block and all in it names another hash than that of its header.
    WrongHash,
    /// A block whose hashes are all right stands behind another parent.
    WrongParent,
    /// The chain's id is another.
    WrongChainId,
    /// The genesis is that of another chain.
    WrongGenesis,
    /// The node has no `eth_getBlockReceipts`, as Avalanche's public API.
    NoBlockReceipts,

    /// There is no WebSocket: 404.
    NoWebSocket,
    /// A WebSocket is silent until the fault is cleared: no frames, no pongs, nothing is read.
    SilentWebSocket,
    /// Subscribers hear of a head so long before anything else knows it.
    HeadsAhead(Duration),
}

/// What a status says of when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// Nothing.
    Absent,
    /// In so many seconds.
    Seconds(u64),
    /// At a date, so far from now.
    Date(Duration),
}
