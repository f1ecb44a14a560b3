//! Reasons for which a response is rejected.

use std::fmt;

use alloy_primitives::{Address, B256, Bloom, U256};

/// Extra data that is not made of atomic transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: expected {expected}")]
pub struct Malformed {
    /// Offset in the data.
    pub at: usize,
    /// Value that was expected.
    pub expected: &'static str,
}

/// An answer that neve will not store, with both values that disagree.
///
/// Every variant has a stable label, see [`ProofError::reason`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// The text is not JSON of the expected structure.
    #[error("at byte {at}: expected {expected}")]
    Json {
        /// Offset in the answer.
        at: usize,
        /// Value that was expected.
        expected: &'static str,
    },
    /// The text is JSON, but not written as avalanchego writes it: the store would hand out bytes
    /// that no node sends.
    #[error("at byte {at}: {what}")]
    Shape {
        /// Offset in the answer.
        at: usize,
        /// Difference from a node's response.
        what: &'static str,
    },
    /// A value is not the hex that its member has.
    #[error("at byte {at}: expected {expected}")]
    Hex {
        /// Offset in the answer.
        at: usize,
        /// Value that was expected.
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
    /// A key that no known release writes, and that is not admitted or not at the end.
    #[error(
        "{object} with the key \"{key}\", which no known release writes there; --admit-keys \
         {object}.{key} admits it at the end of its object"
    )]
    UnknownKey {
        /// The kind of object.
        object: &'static str,
        /// Beginning of the key, graphic ASCII.
        key: String,
    },
    /// A key that is a known one but for case: clients that ignore case take it for that one.
    #[error("{object} with the key \"{key}\", which is \"{like}\" but for case")]
    KeyCase {
        /// The kind of object.
        object: &'static str,
        /// Key as it was received.
        key: String,
        /// The known key.
        like: &'static str,
    },
    /// Longer than the 4 GiB that the spans can address.
    #[error("answer of {bytes} bytes")]
    TooLong {
        /// Length of the value in bytes.
        bytes: usize,
    },
    /// A type of transaction that the C-chain does not accept.
    #[error("transaction {index} is of type {found}")]
    TransactionType {
        /// Index of the transaction.
        index: usize,
        /// Type of the transaction.
        found: u64,
    },
    /// A transaction whose members do not fit its type.
    #[error("transaction {index}: {what}")]
    TransactionForm {
        /// Index of the transaction.
        index: usize,
        /// Field that does not fit.
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
        /// Number of them.
        found: usize,
    },
    /// The header commits to uncles.
    #[error("sha3Uncles is {found}, that of no uncles is {expected}")]
    UnclesHash {
        /// Value in the header.
        found: B256,
        /// Hash of an empty list.
        expected: B256,
    },
    /// The transactions are not those of the header.
    #[error("transactions root {computed}, header has {header}")]
    TransactionsRoot {
        /// Value in the header.
        header: B256,
        /// Root of the transactions.
        computed: B256,
    },
    /// A transaction does not hash to its claimed hash.
    #[error("transaction {index} hashes to {computed}, not to {claimed}")]
    TransactionHash {
        /// Index of the transaction.
        index: usize,
        /// Value in the answer.
        claimed: B256,
        /// Hash of its encoding.
        computed: B256,
    },
    /// A transaction, receipt or log names another place than the one where it is.
    #[error("{place}: {field} is {found}, expected {expected}")]
    Link {
        /// Transaction, receipt or log.
        place: Place,
        /// The member that is wrong.
        field: &'static str,
        /// Value in the answer.
        found: String,
        /// Value that follows from the block.
        expected: String,
    },
    /// A transaction for another chain.
    #[error("transaction {index} is for chain {found}, not {expected}")]
    ChainId {
        /// Index of the transaction.
        index: usize,
        /// Value in the transaction.
        found: u64,
        /// The chain followed.
        expected: u64,
    },
    /// `gasPrice` is not what the node derives from the transaction and the header's base fee.
    #[error("transaction {index}: gasPrice is {found}, expected {expected}")]
    GasPrice {
        /// Index of the transaction.
        index: usize,
        /// Value in the answer.
        found: U256,
        /// Value that was computed.
        expected: U256,
    },
    /// The signature recovers to another sender, or to none.
    #[error("transaction {index} {}", signer(*recovered, *claimed))]
    Sender {
        /// Index of the transaction.
        index: usize,
        /// `from` in the answer.
        claimed: Address,
        /// Sender by the signature; `None` when it is no valid signature.
        recovered: Option<Address>,
    },
    /// The block's extra data is not that of the header.
    #[error("blockExtraData hashes to {computed}, header has {header}")]
    ExtDataHash {
        /// Value in the header.
        header: B256,
        /// Hash of the data.
        computed: B256,
    },
    /// Extra data that no hash binds (before Apricot Phase 1) is not an atomic transaction either.
    #[error("blockExtraData: {0}")]
    ExtData(#[from] Malformed),
    /// `size` is not the length of the block.
    #[error("size is {claimed}, the block has {computed} bytes")]
    Size {
        /// Value in the answer.
        claimed: u64,
        /// Length of the encoding.
        computed: u64,
    },
    /// `totalDifficulty` is neither of the two values that nodes show.
    #[error("totalDifficulty is {found}, expected {number} or 0")]
    TotalDifficulty {
        /// Value in the answer.
        found: U256,
        /// The block's number.
        number: u64,
    },
    /// The two timestamps of a header disagree.
    #[error("timestamp {seconds} s does not hold {milliseconds} ms")]
    Timestamp {
        /// Seconds in `timestamp`.
        seconds: u64,
        /// Milliseconds in `timestampMilliseconds`.
        milliseconds: u64,
    },
    /// A header that settles its own height or a higher one.
    #[error("block {number} settles height {settled}")]
    Settled {
        /// Height that it settles.
        settled: u64,
        /// The block's number.
        number: u64,
    },
    /// The header's `gasUsed` is not the sum that its fork defines.
    #[error("gasUsed is {header}, computed {computed}")]
    GasUsed {
        /// Value in the header.
        header: u64,
        /// Sum that was computed.
        computed: u64,
    },
    /// The gas limit is zero: what share of it was used is no number.
    #[error("block {number} has no gas limit")]
    GasLimit {
        /// Height of the block.
        number: u64,
    },
    /// The answer has not one receipt for each transaction.
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
        /// Index of the receipt.
        index: usize,
        /// Value in the answer.
        found: Option<Address>,
        /// Value that was computed.
        expected: Option<Address>,
    },
    /// `status` is neither 0 nor 1.
    #[error("receipt {index}: status is {found}")]
    Status {
        /// Index of the receipt.
        index: usize,
        /// Value in the answer.
        found: u64,
    },
    /// `cumulativeGasUsed` is not the running sum.
    #[error("receipt {index}: cumulativeGasUsed is {found}, expected {expected}")]
    CumulativeGas {
        /// Index of the receipt.
        index: usize,
        /// Value in the answer.
        found: u64,
        /// Running sum of the gas.
        expected: u64,
    },
    /// `gasUsed` is outside what an asynchronous block can charge (ACP-194).
    #[error("receipt {index}: gasUsed is {found}, expected {lowest}..={highest}")]
    ReceiptGas {
        /// Index of the receipt.
        index: usize,
        /// Value in the answer.
        found: u64,
        /// Half of the limit.
        lowest: u64,
        /// Gas limit of the transaction.
        highest: u64,
    },
    /// The logs of an asynchronous block's receipt cost more gas than its transaction may use.
    #[error("receipt {index}: its logs cost {found} gas, the limit is {highest}")]
    LogGas {
        /// Index of the receipt.
        index: usize,
        /// Gas that the logs cost at least.
        found: u64,
        /// Gas limit of the transaction.
        highest: u64,
    },
    /// `effectiveGasPrice` is not possible for this transaction in this block.
    #[error("receipt {index}: effectiveGasPrice is {found}, expected {lowest}..={highest}")]
    EffectiveGasPrice {
        /// Index of the receipt.
        index: usize,
        /// Value in the answer.
        found: U256,
        /// Lowest possible price.
        lowest: U256,
        /// Highest possible price.
        highest: U256,
    },
    /// A receipt's bloom is not that of its logs.
    #[error("receipt {index}: logsBloom is not that of its logs")]
    ReceiptBloom {
        /// Index of the receipt.
        index: usize,
        /// That in the answer, then the computed one.
        blooms: Box<(Bloom, Bloom)>,
    },
    /// A log with more topics than the EVM can give it.
    #[error("log {index} has more than {max} topics")]
    TopicCount {
        /// Index of the log in the block.
        index: usize,
        /// The greatest possible number.
        max: usize,
    },
    /// The header's bloom is not that of the receipts.
    #[error("logsBloom of the header is not that of the receipts")]
    LogsBloom {
        /// That in the header, then the computed one.
        blooms: Box<(Bloom, Bloom)>,
    },
    /// The receipts are not those of the header.
    #[error("receipts root {computed}, header has {header}")]
    ReceiptsRoot {
        /// Value in the header.
        header: B256,
        /// Root of the receipts.
        computed: B256,
    },
}

/// Subject of a [`ProofError::Link`]. Indexes count from 0 over the block.
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

impl ProofError {
    /// A short label that stays the same between releases, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Json { .. } => "json",
            Self::Shape { .. } => "shape",
            Self::Hex { .. } => "hex",
            Self::MissingKey { .. } => "missing_key",
            Self::UnknownKey { .. } | Self::KeyCase { .. } => "unknown_key",
            Self::TooLong { .. } => "too_large",
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
            Self::Settled { .. } => "settled",
            Self::GasUsed { .. } => "gas_used",
            Self::GasLimit { .. } => "gas_limit",
            Self::ReceiptCount { .. } => "receipt_count",
            Self::ContractAddress { .. } => "contract_address",
            Self::Status { .. } => "status",
            Self::CumulativeGas { .. } => "cumulative_gas",
            Self::ReceiptGas { .. } => "receipt_gas",
            Self::LogGas { .. } => "log_gas",
            Self::EffectiveGasPrice { .. } => "effective_gas_price",
            Self::ReceiptBloom { .. } => "receipt_bloom",
            Self::TopicCount { .. } => "topic_count",
            Self::LogsBloom { .. } => "logs_bloom",
            Self::ReceiptsRoot { .. } => "receipts_root",
        }
    }
}

/// Says who signed a transaction that claims a sender.
fn signer(recovered: Option<Address>, claimed: Address) -> String {
    match recovered {
        Some(sender) => format!("is signed by {sender}, not by {claimed}"),
        None => format!("has no valid signature of its sender {claimed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_sender_is_told_as_an_address_or_as_no_signature() {
        let of = |recovered| {
            ProofError::Sender { index: 3, claimed: Address::ZERO, recovered }.to_string()
        };
        let [zero, one] = [0, 1].map(Address::repeat_byte);
        assert_eq!(of(Some(one)), format!("transaction 3 is signed by {one}, not by {zero}"));
        assert_eq!(of(None), format!("transaction 3 has no valid signature of its sender {zero}"));
    }
}
