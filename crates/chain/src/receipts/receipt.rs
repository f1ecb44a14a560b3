//! Receipts and logs, and the encoding that the receipts root is taken of.

use std::ops::{Deref, Range};

use alloy_primitives::{Address, B256, Bloom, U256};
use alloy_rlp::Encodable;

use crate::json::{Form, Hex, UnknownKey};
use crate::refusal::ProofError;
use crate::rlp;

/// An answer to `eth_getBlockReceipts`, unchecked: see [`Receipts::check`].
#[derive(Clone, Debug)]
pub struct Receipts<'a> {
    /// Receipts in the order of the answer.
    pub receipts: Vec<Receipt>,
    /// The logs of all of them; [`Receipt::logs`] says which are whose.
    pub logs: Vec<Log<'a>>,
    /// Keys, of receipts or logs, that no known release writes.
    pub(crate) unknown: Vec<UnknownKey<'a>>,
}

/// A receipt. Its spans are in the text of the whole answer.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    /// Byte range of the object.
    pub span: Range<u32>,
    /// Range of its logs in [`Receipts::logs`].
    pub logs: Range<usize>,
    /// 1 for success, 0 for failure (EIP-658, in force from the C-chain's first block).
    pub status: u64,
    /// Type of the transaction.
    pub tx_type: u64,
    /// Sender of the transaction.
    pub from: Address,
    /// Receiver, unless it created a contract.
    pub to: Option<Address>,
    /// The contract that it created or failed to create.
    pub contract_address: Option<Address>,
    /// Gas that the transaction used.
    pub gas_used: u64,
    /// Gas charged in the block up to and with this one.
    pub cumulative_gas_used: u64,
    /// Price paid for a unit of gas.
    pub effective_gas_price: U256,
    /// Bloom of the logs.
    pub logs_bloom: Bloom,
    pub(crate) links: ReceiptLinks,
}

/// Place that a response claims for a receipt or log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiptLinks {
    pub(crate) block_hash: B256,
    pub(crate) block_number: u64,
    pub(crate) transaction_hash: B256,
    pub(crate) transaction_index: u64,
}

/// A log of a receipt.
#[derive(Clone, Debug, Default)]
pub struct Log<'a> {
    /// The object, in the text of the whole answer.
    pub span: Range<u32>,
    /// Contract that emitted the log.
    pub address: Address,
    /// Topics, the event's signature first.
    pub topics: Topics,
    /// Data of the log.
    pub data: Hex<'a>,
    pub(crate) links: ReceiptLinks,
    pub(crate) index: u64,
    pub(crate) removed: bool,
}

/// Up to four topics, in place: a list would be an allocation a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    words: [B256; Self::MAX],
    /// Invariant: at most `MAX`.
    count: u8,
}

impl Topics {
    /// LOG4 is the greatest of its opcodes.
    pub const MAX: usize = 4;

    /// Appends a topic, or says that there are too many.
    pub(crate) fn push(&mut self, topic: B256) -> Option<()> {
        *self.words.get_mut(usize::from(self.count))? = topic;
        self.count += 1;
        Some(())
    }
}

impl Deref for Topics {
    type Target = [B256];

    fn deref(&self) -> &[B256] {
        self.words.get(..usize::from(self.count)).unwrap_or_default()
    }
}

impl<'a> Receipts<'a> {
    /// Reads an upstream's answer.
    pub fn parse(json: &'a [u8]) -> Result<Self, ProofError> {
        Self::parse_as(json, Form::Node)
    }

    /// The logs of a receipt of this answer.
    pub fn logs_of(&self, receipt: &Receipt) -> &[Log<'a>] {
        self.logs.get(receipt.logs.clone()).unwrap_or_default()
    }
}

/// Bytes that a log contributes to roots and blooms.
#[derive(Clone, Copy, Debug)]
pub struct LogBody<'l> {
    /// Contract that emitted the log.
    pub address: Address,
    /// Topics of the log.
    pub topics: &'l [B256],
    /// Data of the log.
    pub data: LogData<'l>,
}

/// Data of a log, from an answer or from a program.
#[derive(Clone, Copy, Debug)]
pub enum LogData<'l> {
    /// Digits in an answer.
    Hex(Hex<'l>),
    /// Decoded bytes of the data.
    Bytes(&'l [u8]),
}

impl Log<'_> {
    /// Returns the bytes that it contributes to roots and blooms.
    pub fn body(&self) -> LogBody<'_> {
        LogBody { address: self.address, topics: &self.topics, data: LogData::Hex(self.data) }
    }

    /// Bodies of several logs.
    pub(crate) fn bodies(logs: &[Self]) -> impl ExactSizeIterator<Item = LogBody<'_>> {
        logs.iter().map(Self::body)
    }
}

impl LogBody<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        rlp::list(out, |out| {
            self.address.encode(out);
            rlp::list(out, |out| self.topics.iter().for_each(|topic| topic.encode(out)));
            match self.data {
                LogData::Hex(data) => data.append_rlp(out),
                LogData::Bytes(data) => rlp::string(data, out),
            }
        });
    }
}

/// Fields that a receipt contributes to the receipts root, besides its logs.
#[derive(Clone, Copy, Debug)]
pub struct ReceiptBody<'r> {
    /// Type of the transaction.
    pub tx_type: u8,
    /// True if it succeeded.
    pub succeeded: bool,
    /// Gas charged in the block up to and with this one.
    pub cumulative_gas_used: u64,
    /// Bloom of the logs.
    pub logs_bloom: &'r Bloom,
}

impl ReceiptBody<'_> {
    /// Appends the EIP-2718 encoding that roots are taken of (EIP-658, EIP-2718).
    pub fn encode<'l>(&self, logs: impl Iterator<Item = LogBody<'l>>, out: &mut Vec<u8>) {
        // Legacy receipts have no byte of a type before them (EIP-2718).
        if self.tx_type != 0 {
            out.push(self.tx_type);
        }
        rlp::list(out, |out| {
            u64::from(self.succeeded).encode(out);
            self.cumulative_gas_used.encode(out);
            self.logs_bloom.encode(out);
            rlp::list(out, |out| logs.for_each(|log| log.encode(out)));
        });
    }
}
