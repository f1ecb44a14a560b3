//! Blocks in answers to `eth_getBlockByNumber(.., true)`.

use std::ops::Range;

use alloy_primitives::{B256, U256};

use super::transaction::Transaction;
use super::transaction_json;
use crate::header::{HEADER, Header, HeaderReader};
use crate::json::{Cursor, Form, Hex, UnknownKey};
use crate::refusal::ProofError;

/// A block as an answer has it, unchecked: see [`Block::check`].
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// Header of the block.
    pub header: Header,
    /// The hash that the answer claims for it.
    pub hash: B256,
    /// `size`. Only other tools leave it out.
    pub size: Option<u64>,
    /// `totalDifficulty`. Only other tools leave it out.
    pub total_difficulty: Option<U256>,
    /// Atomic transactions, see [`crate::block::atomic`]. Only other chains have none.
    pub ext_data: Option<Hex<'a>>,
    /// Transactions in the order of the answer.
    pub transactions: Vec<Transaction<'a>>,
    /// Number of uncles in the response.
    pub uncles: usize,
    /// Place where the fields are.
    pub layout: BlockLayout,
    /// Keys, of it or its transactions, that no known release writes.
    pub(crate) unknown: Vec<UnknownKey<'a>>,
}

/// Place where the fields of a block are that other answers about it lack or show otherwise.
///
/// Byte ranges in the answer's text. Values are with their quotes; members are from the quote of
/// the key to the end of the value, without a comma. Each transaction's place is in
/// [`Transaction::span`]. A field that is missing, which [`Form::Node`] allows for none, is `0..0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockLayout {
    /// The value of `hash`.
    pub hash: Range<u32>,
    /// The value of `miner`.
    pub miner: Range<u32>,
    /// The value of `nonce`.
    pub nonce: Range<u32>,
    /// The value of `totalDifficulty`.
    pub total_difficulty: Range<u32>,
    /// The member `blockExtraData`.
    pub block_extra_data: Range<u32>,
    /// The member `size`.
    pub size: Range<u32>,
    /// The member `transactions`.
    pub transactions: Range<u32>,
    /// Bytes between the brackets of `transactions`.
    pub transactions_inside: Range<u32>,
    /// The member `uncles`.
    pub uncles: Range<u32>,
}

impl<'a> Block<'a> {
    /// Reads an upstream's answer: the value of `result`, not the whole response.
    pub fn parse(json: &'a [u8]) -> Result<Self, ProofError> {
        Self::parse_as(json, Form::Node)
    }

    /// Reads an answer of the given form.
    pub fn parse_as(json: &'a [u8], form: Form) -> Result<Self, ProofError> {
        let mut reader = BlockReader::default();
        let unknown = Cursor::read(json, form, |cursor| {
            cursor.object(&HEADER, |cursor, key, start| reader.member(cursor, key, start))?;
            Ok(cursor.take_unknown())
        })?;
        reader.require(form)?;
        Ok(reader.finish(unknown))
    }
}

/// A block that is being read.
#[derive(Default)]
struct BlockReader<'a> {
    header: HeaderReader,
    size: Option<u64>,
    ext_data: Option<Hex<'a>>,
    transactions: Vec<Transaction<'a>>,
    uncles: usize,
    layout: BlockLayout,
}

impl<'a> BlockReader<'a> {
    fn member(&mut self, c: &mut Cursor<'a>, key: &str, start: u32) -> Result<(), ProofError> {
        match key {
            "blockExtraData" => {
                self.ext_data = Some(c.bytes()?);
                self.layout.block_extra_data = start..c.offset();
            }
            "size" => {
                self.size = Some(c.quantity()?);
                self.layout.size = start..c.offset();
            }
            "transactions" => {
                let ((), list) = c.spanned(|c| self.read_transactions(c))?;
                self.layout.transactions = start..list.end;
                self.layout.transactions_inside = list.start + 1..list.end - 1;
            }
            "uncles" => {
                self.count_uncles(c)?;
                self.layout.uncles = start..c.offset();
            }
            _ => self.header.member(c, key)?,
        }
        Ok(())
    }

    fn count_uncles(&mut self, c: &mut Cursor<'a>) -> Result<(), ProofError> {
        c.list(|c| {
            self.uncles += 1;
            c.skip()
        })
    }

    fn read_transactions(&mut self, c: &mut Cursor<'a>) -> Result<(), ProofError> {
        c.list(|c| {
            let transaction = transaction_json::read(c, self.transactions.len())?;
            self.transactions.push(transaction);
            Ok(())
        })
    }

    /// Requires the members that the table of members leaves out, since a header answer lacks it.
    fn require(&self, form: Form) -> Result<(), ProofError> {
        let members = [
            ("transactions", &self.layout.transactions),
            ("blockExtraData", &self.layout.block_extra_data),
            ("size", &self.layout.size),
            ("uncles", &self.layout.uncles),
        ];
        // Other tools leave the members of Avalanche out of their answers; transactions they all
        // have.
        let wanted = if form == Form::Node { 4 } else { 1 };
        match members.iter().take(wanted).find(|(_, span)| span.is_empty()) {
            Some((key, _)) => Err(ProofError::MissingKey { object: "block", key }),
            None => Ok(()),
        }
    }

    fn finish(self, unknown: Vec<UnknownKey<'a>>) -> Block<'a> {
        let HeaderReader { header, hash, total_difficulty, spans } = self.header;
        Block {
            header,
            hash,
            size: self.size,
            total_difficulty,
            ext_data: self.ext_data,
            transactions: self.transactions,
            uncles: self.uncles,
            unknown,
            layout: BlockLayout {
                hash: spans.hash,
                miner: spans.miner,
                nonce: spans.nonce,
                total_difficulty: spans.total_difficulty,
                ..self.layout
            },
        }
    }
}
