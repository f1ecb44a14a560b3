//! Why an answer was not accepted.

use std::fmt;

use alloy_primitives::{Address, B256, Bloom, U256};

use crate::atomic::Malformed;

/// An answer that neve will not store, with both values that disagree.
///
/// Every variant has a stable label, see [`Refusal::reason`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The text is not JSON of the expected structure.
    #[error("at byte {at}: expected {expected}")]
    Json {
        /// Offset in the answer.
        at: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// The text is JSON, but not written as avalanchego writes it: the store would hand out bytes
    /// that no node sends.
    #[error("at byte {at}: {what}")]
    Shape {
        /// Offset in the answer.
        at: usize,
        /// How it differs from a node's answer.
        what: &'static str,
    },
    /// A value is not the hex that its member has.
    #[error("at byte {at}: expected {expected}")]
    Hex {
        /// Offset in the answer.
        at: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// A member that every such object has is missing.
    #[error("{object} without \"{key}\"")]
    MissingKey {
        /// The kind of object.
        object: &'static str,
        /// The key that it lacks.
        key: &'static str,
    },
    /// Longer than the 4 GiB that the spans can address.
    #[error("answer of {bytes} bytes")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A type of transaction that the C-chain does not accept.
    #[error("transaction {index} is of type {found}")]
    TransactionType {
        /// Which transaction.
        index: usize,
        /// Its type.
        found: u64,
    },
    /// A transaction whose members do not fit its type.
    #[error("transaction {index}: {what}")]
    TransactionForm {
        /// Which transaction.
        index: usize,
        /// What does not fit.
        what: &'static str,
    },
    /// The header does not hash to the hash that the answer claims.
    #[error("header hashes to {computed}, not to {claimed}")]
    HeaderHash {
        /// Hash in the answer.
        claimed: B256,
        /// Hash of the header.
        computed: B256,
    },
    /// The C-chain has no uncles.
    #[error("{found} uncles")]
    Uncles {
        /// How many there are.
        found: usize,
    },
    /// The header commits to uncles.
    #[error("sha3Uncles is {found}, that of no uncles is {expected}")]
    UnclesHash {
        /// In the header.
        found: B256,
        /// Of an empty list.
        expected: B256,
    },
    /// The transactions are not those of the header.
    #[error("transactions root {computed}, header has {header}")]
    TransactionsRoot {
        /// In the header.
        header: B256,
        /// Of the transactions.
        computed: B256,
    },
    /// A transaction does not hash to its claimed hash.
    #[error("transaction {index} hashes to {computed}, not to {claimed}")]
    TransactionHash {
        /// Which transaction.
        index: usize,
        /// In the answer.
        claimed: B256,
        /// Of its encoding.
        computed: B256,
    },
    /// A transaction, receipt or log names another place than the one where it is.
    #[error("{place}: {field} is {found}, expected {expected}")]
    Link {
        /// Which one.
        place: Place,
        /// The member that is wrong.
        field: &'static str,
        /// In the answer.
        found: String,
        /// What follows from the block.
        expected: String,
    },
    /// A transaction for another chain.
    #[error("transaction {index} is for chain {found}, not {expected}")]
    ChainId {
        /// Which transaction.
        index: usize,
        /// In the transaction.
        found: u64,
        /// The chain followed.
        expected: u64,
    },
    /// `gasPrice` is not what the node derives from the transaction and the header's base fee.
    #[error("transaction {index}: gasPrice is {found}, expected {expected}")]
    GasPrice {
        /// Which transaction.
        index: usize,
        /// In the answer.
        found: U256,
        /// Computed.
        expected: U256,
    },
    /// The signature recovers to another sender, or to none.
    #[error("transaction {index} is signed by {recovered:?}, not by {claimed}")]
    Sender {
        /// Which transaction.
        index: usize,
        /// `from` in the answer.
        claimed: Address,
        /// From the signature; `None` when it is no valid signature.
        recovered: Option<Address>,
    },
    /// The block's extra data is not that of the header.
    #[error("blockExtraData hashes to {computed}, header has {header}")]
    ExtDataHash {
        /// In the header.
        header: B256,
        /// Of the data.
        computed: B256,
    },
    /// Extra data that no hash binds (before Apricot Phase 1) is not an atomic transaction either.
    #[error("blockExtraData: {0}")]
    ExtData(#[from] Malformed),
    /// `size` is not the length of the block.
    #[error("size is {claimed}, the block has {computed} bytes")]
    Size {
        /// In the answer.
        claimed: u64,
        /// Of the encoding.
        computed: u64,
    },
    /// `totalDifficulty` is neither of the two values that nodes show.
    #[error("totalDifficulty is {found}, expected {number} or 0")]
    TotalDifficulty {
        /// In the answer.
        found: U256,
        /// The block's number.
        number: u64,
    },
    /// The two timestamps of a header disagree.
    #[error("timestamp {seconds} s does not hold {milliseconds} ms")]
    Timestamp {
        /// `timestamp`.
        seconds: u64,
        /// `timestampMilliseconds`.
        milliseconds: u64,
    },
    /// The header's `gasUsed` is not the sum that its fork defines.
    #[error("gasUsed is {header}, computed {computed}")]
    GasUsed {
        /// In the header.
        header: u64,
        /// Sum.
        computed: u64,
    },
    /// The gas limit is zero: what share of it was used is no number.
    #[error("block {number} has no gas limit")]
    GasLimit {
        /// Its height.
        number: u64,
    },
    /// Not one receipt for each transaction.
    #[error("{receipts} receipts for {transactions} transactions")]
    ReceiptCount {
        /// Transactions in the block.
        transactions: usize,
        /// Receipts in the answer.
        receipts: usize,
    },
    /// `contractAddress` does not follow from sender and nonce.
    #[error("receipt {index}: contractAddress is {found:?}, expected {expected:?}")]
    ContractAddress {
        /// Which receipt.
        index: usize,
        /// In the answer.
        found: Option<Address>,
        /// Computed.
        expected: Option<Address>,
    },
    /// `status` is neither 0 nor 1.
    #[error("receipt {index}: status is {found}")]
    Status {
        /// Which receipt.
        index: usize,
        /// In the answer.
        found: u64,
    },
    /// `cumulativeGasUsed` is not the running sum.
    #[error("receipt {index}: cumulativeGasUsed is {found}, expected {expected}")]
    CumulativeGas {
        /// Which receipt.
        index: usize,
        /// In the answer.
        found: u64,
        /// Running sum.
        expected: u64,
    },
    /// `gasUsed` is outside what an asynchronous block can charge (ACP-194).
    #[error("receipt {index}: gasUsed is {found}, expected {lowest}..={highest}")]
    ReceiptGas {
        /// Which receipt.
        index: usize,
        /// In the answer.
        found: u64,
        /// Half of the limit.
        lowest: u64,
        /// The limit.
        highest: u64,
    },
    /// `effectiveGasPrice` is not possible for this transaction in this block.
    #[error("receipt {index}: effectiveGasPrice is {found}, expected {lowest}..={highest}")]
    EffectiveGasPrice {
        /// Which receipt.
        index: usize,
        /// In the answer.
        found: U256,
        /// Least possible.
        lowest: U256,
        /// Greatest possible.
        highest: U256,
    },
    /// A receipt's bloom is not that of its logs.
    #[error("receipt {index}: logsBloom is not that of its logs")]
    ReceiptBloom {
        /// Which receipt.
        index: usize,
        /// In the answer, then computed.
        blooms: Box<(Bloom, Bloom)>,
    },
    /// A log with more topics than the EVM can give it.
    #[error("log {index} has more than {max} topics")]
    TopicCount {
        /// Which log of the block.
        index: usize,
        /// The greatest possible number.
        max: usize,
    },
    /// The header's bloom is not that of the receipts.
    #[error("logsBloom of the header is not that of the receipts")]
    LogsBloom {
        /// In the header, then computed.
        blooms: Box<(Bloom, Bloom)>,
    },
    /// The receipts are not those of the header.
    #[error("receipts root {computed}, header has {header}")]
    ReceiptsRoot {
        /// In the header.
        header: B256,
        /// Of the receipts.
        computed: B256,
    },
}

/// What a [`Refusal::Link`] is about. Indexes count from 0 over the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A transaction of the block.
    Transaction(usize),
    /// A receipt of the block.
    Receipt(usize),
    /// A log of the block.
    Log(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transaction(index) => write!(f, "transaction {index}"),
            Self::Receipt(index) => write!(f, "receipt {index}"),
            Self::Log(index) => write!(f, "log {index}"),
        }
    }
}

impl Refusal {
    /// A short label that stays the same between releases, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Json { .. } => "json",
            Self::Shape { .. } => "shape",
            Self::Hex { .. } => "hex",
            Self::MissingKey { .. } => "missing_key",
            Self::TooLong { .. } => "too_long",
            Self::TransactionType { .. } => "transaction_type",
            Self::TransactionForm { .. } => "transaction_form",
            Self::HeaderHash { .. } => "header_hash",
            Self::Uncles { .. } | Self::UnclesHash { .. } => "uncles",
            Self::TransactionsRoot { .. } => "transactions_root",
            Self::TransactionHash { .. } => "transaction_hash",
            Self::Link { place: Place::Transaction(_), .. } => "transaction_link",
            Self::Link { place: Place::Receipt(_), .. } => "receipt_link",
            Self::Link { place: Place::Log(_), .. } => "log_link",
            Self::ChainId { .. } => "chain_id",
            Self::GasPrice { .. } => "gas_price",
            Self::Sender { .. } => "sender",
            Self::ExtDataHash { .. } => "ext_data_hash",
            Self::ExtData(_) => "ext_data",
            Self::Size { .. } => "size",
            Self::TotalDifficulty { .. } => "total_difficulty",
            Self::Timestamp { .. } => "timestamp",
            Self::GasUsed { .. } => "gas_used",
            Self::GasLimit { .. } => "gas_limit",
            Self::ReceiptCount { .. } => "receipt_count",
            Self::ContractAddress { .. } => "contract_address",
            Self::Status { .. } => "status",
            Self::CumulativeGas { .. } => "cumulative_gas",
            Self::ReceiptGas { .. } => "receipt_gas",
            Self::EffectiveGasPrice { .. } => "effective_gas_price",
            Self::ReceiptBloom { .. } => "receipt_bloom",
            Self::TopicCount { .. } => "topic_count",
            Self::LogsBloom { .. } => "logs_bloom",
            Self::ReceiptsRoot { .. } => "receipts_root",
        }
    }
}
