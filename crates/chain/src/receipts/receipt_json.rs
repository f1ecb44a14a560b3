//! Receipts and logs in an answer to `eth_getBlockReceipts`.

use std::ops::Range;

use alloy_primitives::B256;

use super::receipt::{Log, Receipt, ReceiptLinks, Receipts, Topics};
use crate::block::optional_address;
use crate::json::{Cursor, Form, Key, Object, Presence};
use crate::refusal::ProofError;

/// A map: sorted (coreth, `internal/ethapi/api.go`, `marshalReceipt`). `root` is not listed: it was
/// in receipts before Byzantium, which the C-chain had from its first block.
pub(crate) static RECEIPT: Object = Object { name: "receipt", sorted: true, keys: &RECEIPT_KEYS };

static RECEIPT_KEYS: [Key; 14] = [
    ("blockHash", Presence::Always),
    ("blockNumber", Presence::Always),
    ("contractAddress", Presence::Always),
    ("cumulativeGasUsed", Presence::Always),
    ("effectiveGasPrice", Presence::Always),
    ("from", Presence::Always),
    ("gasUsed", Presence::Always),
    ("logs", Presence::Always),
    ("logsBloom", Presence::Always),
    ("status", Presence::Always),
    ("to", Presence::Always),
    ("transactionHash", Presence::Always),
    ("transactionIndex", Presence::Always),
    ("type", Presence::Always),
];

/// A struct: in the order of its fields (libevm, `core/types/log.go`).
pub(crate) static LOG: Object = Object { name: "log", sorted: false, keys: &LOG_KEYS };

static LOG_KEYS: [Key; 9] = [
    ("address", Presence::Always),
    ("topics", Presence::Always),
    ("data", Presence::Always),
    ("blockNumber", Presence::Always),
    ("transactionHash", Presence::Always),
    ("transactionIndex", Presence::Always),
    ("blockHash", Presence::Always),
    ("logIndex", Presence::Always),
    ("removed", Presence::Always),
];

/// Bytes of a response for each of its logs, receipts included: a little more than there are, so
/// that the list grows once at most.
const BYTES_A_LOG: usize = 1_024;

impl<'a> Receipts<'a> {
    /// Reads an answer of the given form.
    pub fn parse_as(json: &'a [u8], form: Form) -> Result<Self, ProofError> {
        let room = json.len() / BYTES_A_LOG;
        let (receipts, logs) = (Vec::new(), Vec::with_capacity(room));
        let mut answer = Receipts { receipts, logs, unknown: Vec::new() };
        answer.unknown = Cursor::read(json, form, |cursor| {
            cursor.list(|cursor| answer.read(cursor))?;
            Ok(cursor.take_unknown())
        })?;
        Ok(answer)
    }

    fn read(&mut self, c: &mut Cursor<'a>) -> Result<(), ProofError> {
        let mut receipt = Receipt::default();
        let logs = &mut self.logs;
        let ((), span) = c.spanned(|c| {
            c.object(&RECEIPT, |cursor, key, _| member(cursor, key, &mut receipt, logs))
        })?;
        receipt.span = span;
        self.receipts.push(receipt);
        Ok(())
    }
}

fn member<'a>(
    c: &mut Cursor<'a>,
    key: &str,
    receipt: &mut Receipt,
    logs: &mut Vec<Log<'a>>,
) -> Result<(), ProofError> {
    match key {
        "contractAddress" => receipt.contract_address = optional_address(c)?,
        "cumulativeGasUsed" => receipt.cumulative_gas_used = c.quantity()?,
        "effectiveGasPrice" => receipt.effective_gas_price = c.quantity_256()?,
        "from" => receipt.from = c.fixed()?,
        "gasUsed" => receipt.gas_used = c.quantity()?,
        "logs" => receipt.logs = read_logs(c, logs)?,
        "logsBloom" => receipt.logs_bloom = c.fixed()?,
        "status" => receipt.status = c.quantity()?,
        "to" => receipt.to = optional_address(c)?,
        "type" => receipt.tx_type = c.quantity()?,
        _ => receipt.links.member(c, key)?,
    }
    Ok(())
}

impl ReceiptLinks {
    /// The four members that receipts and logs share.
    fn member(&mut self, c: &mut Cursor<'_>, key: &str) -> Result<(), ProofError> {
        match key {
            "blockHash" => self.block_hash = c.fixed()?,
            "blockNumber" => self.block_number = c.quantity()?,
            "transactionHash" => self.transaction_hash = c.fixed()?,
            "transactionIndex" => self.transaction_index = c.quantity()?,
            _ => c.skip()?,
        }
        Ok(())
    }
}

/// Appends the logs of a receipt, and returns their range.
fn read_logs<'a>(c: &mut Cursor<'a>, logs: &mut Vec<Log<'a>>) -> Result<Range<usize>, ProofError> {
    let start = logs.len();
    c.list(|c| read_log(c, logs))?;
    Ok(start..logs.len())
}

fn read_log<'a>(c: &mut Cursor<'a>, logs: &mut Vec<Log<'a>>) -> Result<(), ProofError> {
    let index = logs.len();
    let mut log = Log::default();
    let ((), span) = c.spanned(|c| {
        c.object(&LOG, |c, key, _| {
            match key {
                "address" => log.address = c.fixed()?,
                "topics" => c.list(|c| read_topic(c, &mut log.topics, index))?,
                "data" => log.data = c.bytes()?,
                "logIndex" => log.index = c.quantity()?,
                "removed" => log.removed = c.boolean()?,
                _ => log.links.member(c, key)?,
            }
            Ok(())
        })
    })?;
    log.span = span;
    logs.push(log);
    Ok(())
}

fn read_topic(c: &mut Cursor<'_>, topics: &mut Topics, index: usize) -> Result<(), ProofError> {
    let topic: B256 = c.fixed()?;
    topics.push(topic).ok_or(ProofError::TopicCount { index, max: Topics::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_receipts_are_sorted() {
        assert!(RECEIPT_KEYS.is_sorted_by(|(a, _), (b, _)| a < b));
    }
}
