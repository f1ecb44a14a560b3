//! From a question to its result: an index look-up and slices of what is stored.

use std::borrow::Cow;

use alloy_primitives::keccak256;
use neve_jsonrpc::{At, Query, RpcError, Rules, Tag, Transactions};
use neve_store::{Hash, RecordRef, SegmentSlice, residency};

use super::reply::Builder;
use super::{fees, filters, logs, node, raw};
use crate::config::Limits;
use crate::filters::{Changes, Filters, Topic};
use crate::logs::Wanted;
use crate::parts::{
    self, FLAG_ZERO_DIFFICULTY, FULL, HASH_LEN, HASHES, HEADER, MINER_LEN, NONCE_LEN, RECEIPTS,
    SPANS, SpansRef, TransactionSpan,
};
use crate::serving::Serving;
use crate::status::Status;

/// Why a full node must be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    /// Nothing is stored yet.
    Empty,
    /// A height outside the served range.
    Height(u64),
    /// No block or transaction with this hash is stored.
    Hash([u8; 32]),
    /// The record is there, but this part of it cannot be read.
    Unreadable(u64),
    /// The upstream has not said it, or too long ago.
    NotRelayed(&'static str),
}

/// Why a question has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// A full node must be asked.
    Miss(Miss),
    /// The node would answer with this error.
    Error(RpcError),
}

/// Where answers come from, and what they may cost.
pub(crate) struct Asking<'a> {
    pub(crate) serving: &'a Serving,
    pub(crate) status: &'a Status,
    pub(crate) filters: &'a Filters,
    pub(crate) limits: &'a Limits,
    /// What answering changed.
    pub(crate) changes: Changes,
}

impl From<Miss> for NoAnswer {
    fn from(miss: Miss) -> Self {
        Self::Miss(miss)
    }
}

impl From<RpcError> for NoAnswer {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// Appends the result of `query`, or says why it cannot be given. If it cannot, nothing was
/// appended.
pub(crate) fn result(asking: &Asking<'_>, query: Query, out: &mut Builder) -> Result<(), NoAnswer> {
    let serving = asking.serving;
    match query {
        Query::BlockNumber => quantity(head(serving)?, out),
        Query::ChainId => text(&serving.chain().ok_or(Miss::Empty)?.hex, out),
        Query::NetVersion => text(&serving.chain().ok_or(Miss::Empty)?.decimal, out),
        Query::Block(at, Transactions::Hashes) => block(serving, at, HASHES, out)?,
        Query::Block(at, Transactions::Full) => block(serving, at, FULL, out)?,
        Query::Header(at) => block(serving, at, HEADER, out)?,
        Query::TransactionCount(at) => {
            quantity(record(serving, at)?.transaction_count().into(), out);
        }
        Query::TransactionAt(at, index) => match transaction_at(serving, at, index)? {
            Some(record) => out.stored(transaction_of(record, index as usize)?),
            None => text("null", out), // held, and there is no such transaction
        },
        Query::Transaction(hash) => {
            let (record, index) = by_transaction(serving, hash)?;
            out.stored(transaction_of(record, index)?);
        }
        Query::Receipt(hash) => {
            let (record, index) = by_transaction(serving, hash)?;
            out.stored(receipt_of(record, index)?);
        }
        Query::Receipts(at) => {
            let record = record(serving, at)?;
            out.part(&record, RECEIPTS, part(&record, RECEIPTS)?);
        }
        Query::UncleCount(at) => {
            record(serving, at)?;
            text("\"0x0\"", out); // Avalanche's consensus has none
        }
        Query::Uncle(at, _) => {
            record(serving, at)?;
            text("null", out);
        }
        Query::Logs(query) => {
            return logs::logs(asking, query.range, Wanted::new(&query.filter), out);
        }
        Query::FeeHistory { count, newest, percentiles } => {
            return fees::history(asking, count, newest, &percentiles, out);
        }
        query => return rare(asking, query, out),
    }
    Ok(())
}

/// Questions that few ask.
fn rare(asking: &Asking<'_>, query: Query, out: &mut Builder) -> Result<(), NoAnswer> {
    let serving = asking.serving;
    if changes_something(&query) && residency::give_up() {
        return Err(DROPPED.into());
    }
    match query {
        Query::RawTransaction(hash) => {
            let (record, index) = by_transaction(serving, hash)?;
            raw::transaction(&record, index, out)
        }
        Query::RawTransactionAt(at, index) => {
            if let Some(record) = transaction_at(serving, at, index)? {
                raw::transaction(&record, index as usize, out)
            } else {
                text("\"0x\"", out);
                Ok(())
            }
        }
        Query::RawHeader(at) => raw::header(serving, at, out),
        Query::RawBlock(at) => raw::block(serving, at, out),
        Query::RawReceipts(at) => raw::receipts(serving, at, out),
        Query::Sha3(bytes) => {
            raw::hex(keccak256(bytes).as_slice(), out.text());
            Ok(())
        }
        Query::Listening => {
            text("true", out);
            Ok(())
        }
        Query::Syncing => {
            text("false", out);
            Ok(())
        }
        Query::PeerCount => node::peers(asking, out),
        Query::ClientVersion => node::constant(asking, "web3_clientVersion", out),
        Query::ChainConfig => node::constant(asking, "eth_getChainConfig", out),
        Query::Modules => node::constant(asking, "rpc_modules", out),
        Query::GasPrice => node::price(asking, "eth_gasPrice", out),
        Query::BaseFee => node::price(asking, "eth_baseFee", out),
        Query::MaxPriorityFeePerGas => node::price(asking, "eth_maxPriorityFeePerGas", out),
        Query::SuggestPriceOptions => node::price(asking, "eth_suggestPriceOptions", out),
        Query::NewFilter(query) => {
            filters::open(asking, Topic::Logs(query.range, Wanted::new(&query.filter)), out)
        }
        Query::NewBlockFilter => filters::open(asking, Topic::Blocks, out),
        Query::FilterChanges(id) => filters::changes(asking, &id, out),
        Query::FilterLogs(id) => filters::all_logs(asking, &id, out),
        Query::UninstallFilter(id) => {
            filters::close(asking, &id, out);
            Ok(())
        }
        _ => Err(Miss::NotRelayed("eth_newPendingTransactionFilter").into()),
    }
}

/// Whether an answer that is given twice is not the same.
fn changes_something(query: &Query) -> bool {
    matches!(
        query,
        Query::NewFilter(_)
            | Query::NewBlockFilter
            | Query::FilterChanges(_)
            | Query::FilterLogs(_)
            | Query::UninstallFilter(_)
    )
}

/// What work that is given up ends with (`neve_store::residency`): nobody sees it.
pub(super) const DROPPED: Miss = Miss::Empty;

fn text(text: &str, out: &mut Builder) {
    out.text().extend_from_slice(text.as_bytes());
}

fn quantity(number: u64, out: &mut Builder) {
    out.text().extend_from_slice(format!("\"{number:#x}\"").as_bytes());
}

fn head(serving: &Serving) -> Result<u64, Miss> {
    serving.reader.range().map(|range| *range.end()).ok_or(Miss::Empty)
}

pub(super) fn record(serving: &Serving, at: At) -> Result<RecordRef, Miss> {
    let height = match at {
        At::Hash(hash) => return serving.reader.block(&Hash(hash)).ok_or(Miss::Hash(hash)),
        At::Number(height) => height,
        At::Tag(Tag::Earliest) => 0,
        At::Tag(Tag::Safe | Tag::Finalized) if serving.rules() == Rules::Helicon => {
            settled(serving)?
        }
        At::Tag(_) => return serving.reader.head().ok_or(Miss::Empty),
    };
    serving.reader.record(height).ok_or(Miss::Height(height))
}

/// The newest settled height: the one that the newest header settles. A synchronous block settles
/// itself (ACP-194).
pub(super) fn settled(serving: &Serving) -> Result<u64, Miss> {
    let head = serving.reader.head().ok_or(Miss::Empty)?;
    Ok(SpansRef(&spans(&head)?).settled().unwrap_or(head.height()))
}

/// A part to be sent.
pub(super) fn part(record: &RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    parts::plain(record, part).ok_or(Miss::Unreadable(record.height()))
}

/// A part to be read.
pub(super) fn readable(record: &RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    parts::readable(record, part).ok_or(Miss::Unreadable(record.height()))
}

pub(super) fn by_transaction(
    serving: &Serving,
    hash: [u8; 32],
) -> Result<(RecordRef, usize), Miss> {
    serving.reader.transaction(&Hash(hash)).ok_or(Miss::Hash(hash))
}

/// Where things are in a record's parts.
pub(super) fn spans(record: &RecordRef) -> Result<Cow<'_, [u8]>, Miss> {
    parts::read(record, SPANS).ok_or(Miss::Unreadable(record.height()))
}

fn span(record: &RecordRef, index: usize) -> Result<TransactionSpan, Miss> {
    let span = SpansRef(&spans(record)?).transaction(index);
    span.ok_or(Miss::Unreadable(record.height()))
}

pub(super) fn transaction_of(record: RecordRef, index: usize) -> Result<SegmentSlice, Miss> {
    let span = span(&record, index)?;
    Ok(into_part(record, FULL)?.into_slice(span.at, span.at + span.len))
}

pub(super) fn receipt_of(record: RecordRef, index: usize) -> Result<SegmentSlice, Miss> {
    let span = span(&record, index)?;
    let receipts = into_part(record, RECEIPTS)?;
    Ok(receipts.into_slice(span.receipt_at, span.receipt_at + span.receipt_len))
}

/// A part to be sent, with the record's hold on its segment.
fn into_part(record: RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    let height = record.height();
    parts::into_plain(record, part).ok_or(Miss::Unreadable(height))
}

/// The record with that many transactions; `None` if it has fewer.
fn transaction_at(serving: &Serving, at: At, index: u64) -> Result<Option<RecordRef>, Miss> {
    let record = record(serving, at)?;
    Ok((index < record.transaction_count().into()).then_some(record))
}

/// A block or header, with what the upstream's rules show differently than when it was stored.
fn block(serving: &Serving, at: At, which: usize, out: &mut Builder) -> Result<(), Miss> {
    block_of(&record(serving, at)?, which, Form::of(serving, at), out)
}

/// How a block or header is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With its height as total difficulty.
    BeforeHelicon,
    /// With a total difficulty of zero.
    Helicon,
    /// The same, without what is not decided yet, says v1.15 of the block that it names.
    Pending,
}

impl Form {
    pub(super) fn of(serving: &Serving, at: At) -> Self {
        match serving.rules() {
            Rules::BeforeHelicon => Self::BeforeHelicon,
            Rules::Helicon if at == At::Tag(Tag::Pending) => Self::Pending,
            Rules::Helicon => Self::Helicon,
        }
    }
}

/// A block or header in this form.
pub(super) fn block_of(
    record: &RecordRef,
    which: usize,
    form: Form,
    out: &mut Builder,
) -> Result<(), Miss> {
    let whole = part(record, which)?;
    let zero = record.flags() & FLAG_ZERO_DIFFICULTY != 0;
    if zero == (form != Form::BeforeHelicon) && form != Form::Pending {
        out.part(record, which, whole); // nearly always
        return Ok(());
    }
    let unreadable = Miss::Unreadable(record.height());
    let pieces = SpansRef(&spans(record)?).pieces(which).ok_or(unreadable)?;
    let mut cut = Cut { whole, at: 0, out };
    if form == Form::Pending {
        cut.replace(pieces.hash, HASH_LEN, "null");
        cut.replace(pieces.miner, MINER_LEN, "null");
        cut.replace(pieces.nonce, NONCE_LEN, "null");
    }
    let difficulty = if form == Form::BeforeHelicon { record.height() } else { 0 };
    let difficulty = format!("\"{difficulty:#x}\"");
    cut.replace(pieces.total_difficulty, pieces.total_difficulty_len, &difficulty);
    cut.rest();
    Ok(())
}

/// A stored part with some values replaced, from front to back. The keys of a block answer are
/// sorted, so the values come in this order too: hash, miner, nonce, totalDifficulty.
struct Cut<'o> {
    whole: SegmentSlice,
    at: u32,
    out: &'o mut Builder,
}

impl Cut<'_> {
    fn replace(&mut self, at: u32, len: u32, by: &str) {
        self.out.stored(self.whole.slice(self.at, at));
        text(by, self.out);
        self.at = at + len;
    }

    fn rest(self) {
        self.out.stored(self.whole.slice(self.at, u32::MAX));
    }
}
