//! Faults of an upstream, on demand.

use std::time::Duration;

/// Something that is wrong with an upstream.
///
/// A fault by itself is a [`Rule`](super::Rule) that always applies. [`at`](Self::at), [`on`](Self::on) and
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
    /// The node does not listen until the fault is cleared: connections are refused, open ones are cut.
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
    /// In a result, the first place that has the one text has the other instead.
    Replaced(&'static str, &'static str),
    /// A result is this text, JSON or not, also where the node has an error.
    Result(String),
    /// The answer is an error with this message.
    Error(String),
    /// The node says that its head is so much higher, by `eth_blockNumber` and to subscribers. It
    /// has no block there.
    FalseHead(u64),
    /// The node has no `eth_getBlockReceipts`, as Avalanche's public API.
    NoBlockReceipts,

    /// There is no WebSocket: 404.
    NoWebSocket,
    /// A WebSocket is silent until the fault is cleared: no frames, no pongs, nothing is read.
    SilentWebSocket,
    /// Subscribers hear of a head so long before anything else knows it.
    HeadsAhead(Duration),
}

/// Form of `Retry-After` beside a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// No such header.
    Absent,
    /// In so many seconds.
    Seconds(u64),
    /// At a date, so far from now.
    Date(Duration),
}
