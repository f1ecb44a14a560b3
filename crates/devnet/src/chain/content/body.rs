//! Body of a block: transactions, receipts, logs.
//!
//! A body depends on the configuration and its height alone. The hash of the block does not: it
//! hangs on the parent's, and is put in when the block is written down.

use std::ops::Range;

use alloy_primitives::{Address, B256, Bloom};
use neve_chain::{LogBody, LogData, ReceiptBody};

use super::transaction::{Span, Transaction};

/// The contents of a block.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) transactions: Vec<Transaction>,
    /// Receipts, one for each transaction.
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) logs: Vec<Log>,
    /// Inputs, and data of logs.
    pub(crate) bytes: Vec<u8>,
    /// The transactions, encoded.
    pub(crate) encodings: Items,
    /// Atomic transactions, and the gas that they cost.
    pub(crate) ext_data: Vec<u8>,
    pub(crate) ext_data_gas: u64,
    /// Sum of the gas limits.
    pub(crate) gas_limits: u64,
    /// The base fee in the header.
    pub(crate) header_fee: u128,
}

/// Result of a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Receipt {
    pub(crate) succeeded: bool,
    pub(crate) gas_used: u64,
    pub(crate) cumulative_gas_used: u64,
    pub(crate) price: u128,
    /// The contract that it created or failed to create.
    pub(crate) contract: Option<Address>,
    /// Place of its logs in [`Body::logs`].
    pub(crate) logs: Range<usize>,
    pub(crate) bloom: Bloom,
}

/// A log of a receipt.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) address: Address,
    topics: [B256; 4],
    topic_count: usize,
    pub(crate) data: Span,
}

impl Log {
    pub(crate) fn new(address: Address, data: Span) -> Self {
        Self { address, topics: [B256::ZERO; 4], topic_count: 0, data }
    }

    /// Appends a topic; a fifth is left out.
    pub(crate) fn push(&mut self, topic: B256) {
        if let Some(slot) = self.topics.get_mut(self.topic_count) {
            *slot = topic;
            self.topic_count += 1;
        }
    }

    pub(crate) fn topics(&self) -> &[B256] {
        self.topics.get(..self.topic_count).unwrap_or_default()
    }
}

impl Body {
    /// The bytes at a place.
    pub(crate) fn at(&self, span: &Span) -> &[u8] {
        self.bytes.get(span.clone()).unwrap_or_default()
    }

    /// The logs of a receipt.
    pub(crate) fn logs_of(&self, receipt: &Receipt) -> &[Log] {
        self.logs.get(receipt.logs.clone()).unwrap_or_default()
    }

    /// Gas that was charged for the transactions.
    pub(crate) fn gas_used(&self) -> u64 {
        self.receipts.last().map_or(0, |receipt| receipt.cumulative_gas_used)
    }

    /// Gas that the header of an asynchronous block says: what may be used, not what is.
    pub(crate) fn gas_with_limits(&self) -> u64 {
        self.gas_limits + self.ext_data_gas
    }

    /// Receipts that a header commits to: this block's own, or a later one's.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        for (receipt, transaction) in self.receipts.iter().zip(&self.transactions) {
            let body = ReceiptBody {
                tx_type: transaction.kind.number(),
                succeeded: receipt.succeeded,
                cumulative_gas_used: receipt.cumulative_gas_used,
                logs_bloom: &receipt.bloom,
            };
            let logs = self.logs_of(receipt).iter().map(|log| LogBody {
                address: log.address,
                topics: log.topics(),
                data: LogData::Bytes(self.at(&log.data)),
            });
            outcome.receipts.push(|out| body.encode(logs, out));
            outcome.bloom |= receipt.bloom;
        }
        outcome
    }
}

/// Roots of a block's receipts that a header commits to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) receipts: Items,
    pub(crate) bloom: Bloom,
}

/// Encodings one behind the other, in one allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    bytes: Vec<u8>,
    /// Offset behind each item.
    ends: Vec<usize>,
}

impl Items {
    /// Appends an item that `write` appends to the bytes.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(*start..*end).unwrap_or_default())
    }
}
