//! Receipts and logs in an answer to `eth_getBlockReceipts`.

use alloy_primitives::B256;

use crate::{
    cursor::Cursor,
    json::{Form, Key, Need, Object},
    receipt::{Log, Receipt, ReceiptLinks, Receipts, Topics},
    refusal::Refusal,
    transaction_json::optional_address,
};

/// A map: sorted (coreth, `internal/ethapi/api.go`, `marshalReceipt`). `root` is not listed: it was
/// in receipts before Byzantium, which the C-chain had from its first block.
static RECEIPT: Object = Object { name: "receipt", sorted: true, keys: &RECEIPT_KEYS };

static RECEIPT_KEYS: [Key; 14] = [
    ("blockHash", Need::Always),
    ("blockNumber", Need::Always),
    ("contractAddress", Need::Always),
    ("cumulativeGasUsed", Need::Always),
    ("effectiveGasPrice", Need::Always),
    ("from", Need::Always),
    ("gasUsed", Need::Always),
    ("logs", Need::Always),
    ("logsBloom", Need::Always),
    ("status", Need::Always),
    ("to", Need::Always),
    ("transactionHash", Need::Always),
    ("transactionIndex", Need::Always),
    ("type", Need::Always),
];

/// A struct: in the order of its fields (libevm, `core/types/log.go`).
static LOG: Object = Object { name: "log", sorted: false, keys: &LOG_KEYS };

static LOG_KEYS: [Key; 9] = [
    ("address", Need::Always),
    ("topics", Need::Always),
    ("data", Need::Always),
    ("blockNumber", Need::Always),
    ("transactionHash", Need::Always),
    ("transactionIndex", Need::Always),
    ("blockHash", Need::Always),
    ("logIndex", Need::Always),
    ("removed", Need::Always),
];

/// Of an answer for each log of it, receipts included: a little more than there are, so that the
/// list grows once at most.
const BYTES_A_LOG: usize = 1_024;

impl<'a> Receipts<'a> {
    /// Reads an answer of the given form.
    pub fn parse_as(json: &'a [u8], form: Form) -> Result<Self, Refusal> {
        let room = json.len() / BYTES_A_LOG;
        let mut answer = Receipts { receipts: Vec::new(), logs: Vec::with_capacity(room) };
        Cursor::read(json, form, |cursor| cursor.list(|cursor| answer.read(cursor)))?;
        Ok(answer)
    }

    fn read(&mut self, c: &mut Cursor<'a>) -> Result<(), Refusal> {
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
) -> Result<(), Refusal> {
    match key {
        "contractAddress" => receipt.contract_address = optional_address(c)?,
        "cumulativeGasUsed" => receipt.cumulative_gas_used = c.quantity()?,
        "effectiveGasPrice" => receipt.effective_gas_price = c.quantity_256()?,
        "from" => receipt.from = c.fixed()?,
        "gasUsed" => receipt.gas_used = c.quantity()?,
        "logs" => {
            let start = logs.len();
            c.list(|c| read_log(c, logs))?;
            receipt.logs = start..logs.len();
        }
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
    fn member(&mut self, c: &mut Cursor<'_>, key: &str) -> Result<(), Refusal> {
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

fn read_log<'a>(c: &mut Cursor<'a>, logs: &mut Vec<Log<'a>>) -> Result<(), Refusal> {
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

fn read_topic(c: &mut Cursor<'_>, topics: &mut Topics, index: usize) -> Result<(), Refusal> {
    let topic: B256 = c.fixed()?;
    topics.push(topic).ok_or(Refusal::TopicCount { index, max: Topics::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_receipts_are_sorted() {
        assert!(RECEIPT_KEYS.is_sorted_by(|(a, _), (b, _)| a < b));
    }
}
