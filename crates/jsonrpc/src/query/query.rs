//! Decoded calls that stored blocks can answer.

use super::logs::LogQuery;
use crate::arguments::BlockId;

/// A call that stored blocks can answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Query {
    /// The head's number.
    BlockNumber,
    /// The chain id, in hex.
    ChainId,
    /// The chain id, in decimal.
    NetVersion,
    /// A block, with transactions or with their hashes.
    Block(BlockId, Transactions),
    /// Header of a block.
    Header(BlockId),
    /// Number of transactions of a block.
    TransactionCount(BlockId),
    /// A transaction by block and position.
    TransactionAt(BlockId, u64),
    /// A transaction by hash.
    Transaction([u8; 32]),
    /// A receipt by transaction hash.
    Receipt([u8; 32]),
    /// All receipts of a block.
    Receipts(BlockId),

    /// A transaction by hash, in its binary form.
    RawTransaction([u8; 32]),
    /// A transaction by block and position, in its binary form.
    RawTransactionAt(BlockId, u64),
    /// Number of uncles of a block: none.
    UncleCount(BlockId),
    /// An uncle by block and position: there is none.
    Uncle(BlockId, u64),
    /// A header's RLP.
    RawHeader(BlockId),
    /// A block's RLP.
    RawBlock(BlockId),
    /// The binary forms of a block's receipts.
    RawReceipts(BlockId),

    /// The Keccak-256 hash of these bytes.
    Sha3(Vec<u8>),
    /// Version of the node.
    ClientVersion,
    /// `net_listening`: always true.
    Listening,
    /// Number of the node's peers; 0 before Helicon.
    PeerCount,
    /// `eth_syncing`: always `false`.
    Syncing,
    /// Times of the chain's upgrades.
    ChainConfig,
    /// Namespaces of the node.
    Modules,

    /// A price per gas for now.
    GasPrice,
    /// An estimate of the next base fee.
    BaseFee,
    /// A tip for now.
    MaxPriorityFeePerGas,
    /// Slow, normal and fast prices.
    SuggestPriceOptions,
    /// Fees of the blocks up to one.
    FeeHistory {
        /// Number of blocks; 0 is possible, more than 2048 are cut to that.
        count: u64,
        /// The newest of them; never by hash. `pending` before Helicon is `latest` with one block
        /// less.
        newest: BlockId,
        /// Percentiles of the priority fees, rising, within 0 and 100, at most 100 - except that
        /// before Helicon nothing of that is known when `count` is 0.
        percentiles: Vec<f64>,
    },

    /// Logs of a block or of a range.
    Logs(LogQuery),
    /// A filter of logs.
    NewFilter(LogQuery),
    /// A filter of blocks.
    NewBlockFilter,
    /// A filter of transactions in the pool, which only a full node has.
    NewPendingTransactionFilter,
    /// Changes since the last call about the filter of this id.
    FilterChanges(String),
    /// All logs that a filter, of this id, asks for.
    FilterLogs(String),
    /// Removes the filter of this id.
    UninstallFilter(String),
}

/// Form in which a block shows its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// Hashes of the transactions.
    Hashes,
    /// Transactions with all fields.
    Full,
}
