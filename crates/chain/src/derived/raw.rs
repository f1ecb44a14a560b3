//! Blocks, headers, transactions and receipts as bytes, made from a node's JSON answers: what the
//! `debug_getRaw…` and `eth_getRawTransaction…` methods answer.
//!
//! Input is what is stored and was proven, so nothing is checked here but that it can be read: the
//! bytes of an unproven answer are only as true as the answer.

use crate::block::{Block, Transaction, transaction_json};
use crate::header::ClaimedHeader;
use crate::json::{Cursor, Form};
use crate::receipts::{Log, Receipt, ReceiptBody, Receipts};
use crate::refusal::ProofError;
use crate::rlp::{self, Encodings};

impl<'a> Transaction<'a> {
    /// Reads one transaction alone: the `result` of `eth_getTransactionByHash`, which is also what
    /// [`Transaction::span`] cuts from a block.
    pub fn parse(json: &'a [u8]) -> Result<Self, ProofError> {
        Cursor::read(json, Form::Node, |cursor| transaction_json::read(cursor, 0))
    }
}

/// The EIP-2718 bytes of a transaction, from its object. Those of a legacy transaction are its list
/// alone. Refusals count it as transaction 0.
pub fn raw_transaction(json: &[u8]) -> Result<Vec<u8>, ProofError> {
    let transaction = Transaction::parse(json)?;
    let mut out = Vec::with_capacity(json.len() / 2);
    transaction.encode(&mut out);
    Ok(out)
}

/// The RLP of a header, from an answer about the header or about its block: what
/// `debug_getRawHeader` gives, and what the block's hash is taken of.
pub fn raw_header(json: &[u8]) -> Result<Vec<u8>, ProofError> {
    ClaimedHeader::parse(json).map(|answer| answer.header.encode())
}

/// The RLP of a block, from an answer with whole transactions: header, transactions, uncles,
/// version, extra data, as `debug_getRawBlock` gives it. Its length is the block's `size`.
///
/// Version and uncles are in no answer: the one is zero in every block (coreth,
/// `plugin/evm/customtypes/block_ext.go`, `BlockVersion`), of the others there are none.
pub fn raw_block(json: &[u8]) -> Result<Vec<u8>, ProofError> {
    let block = Block::parse(json)?;
    if block.uncles > 0 {
        return Err(ProofError::Uncles { found: block.uncles });
    }
    // Whatever is hex in the answer takes half of it; headers are mostly names.
    let mut transactions = Encodings::with_capacity(block.transactions.len(), json.len() / 2);
    for transaction in &block.transactions {
        transactions.push(|out| transaction.encode(out));
    }
    let transactions: Vec<&[u8]> = transactions.iter().collect();
    let ext_data = block.ext_data.unwrap_or_default().to_vec();
    Ok(rlp::encode_block(&block.header.encode(), &transactions, &ext_data))
}

/// The bytes of each receipt that the receipts root is taken of, from an answer to
/// `eth_getBlockReceipts`: what `debug_getRawReceipts` gives.
///
/// The block is not needed: a receipt names the type of its transaction. Nodes of both sides of
/// Helicon give the same form.
pub fn raw_receipts(json: &[u8]) -> Result<Encodings, ProofError> {
    let answer = Receipts::parse(json)?;
    let mut out = Encodings::with_capacity(answer.receipts.len(), json.len() / 3);
    for (index, receipt) in answer.receipts.iter().enumerate() {
        let body = body(index, receipt)?;
        out.push(|out| body.encode(Log::bodies(answer.logs_of(receipt)), out));
    }
    Ok(out)
}

/// The part of a receipt that roots are taken of; an unknown type or status has no encoding.
fn body(index: usize, receipt: &Receipt) -> Result<ReceiptBody<'_>, ProofError> {
    let found = receipt.tx_type;
    let tx_type = u8::try_from(found).ok().filter(|tx_type| *tx_type <= 2);
    if receipt.status > 1 {
        return Err(ProofError::Status { index, found: receipt.status });
    }
    Ok(ReceiptBody {
        tx_type: tx_type.ok_or(ProofError::TransactionType { index, found })?,
        succeeded: receipt.status == 1,
        cumulative_gas_used: receipt.cumulative_gas_used,
        logs_bloom: &receipt.logs_bloom,
    })
}
