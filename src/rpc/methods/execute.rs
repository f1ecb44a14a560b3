//! From a question to its result: an index look-up and slices of what is stored.

use std::borrow::Cow;

use alloy_primitives::keccak256;
use neve_jsonrpc::{BlockId, Query, RpcError, Rules, Tag, Transactions};
use neve_record::parts;
use neve_record::parts::{FLAG_ZERO_DIFFICULTY, FULL, HASHES, HEADER, RECEIPTS, SPANS};
use neve_record::spans::{HASH_LEN, MINER_LEN, NONCE_LEN, SpansRef, TransactionSpan};
use neve_store::{Found, Hash, RecordRef, SegmentSlice, Wanted, residency};

use super::{fees, filters, logs, node, raw};
use crate::body::BodyBuilder;
use crate::config::settings::Limits;
use crate::rpc::cursors::{FilterKind, Filters, UndoLog};
use crate::shared::{Meter, Serving, Status, Work};

/// Reason why a full node must be asked.
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
    /// The disk does not deliver what the answer is made of, or an index for it.
    Disk,
    /// The upstream has not said it, or too long ago.
    NotRelayed(&'static str),
    /// Another call of the batch is a miss.
    InBatch,
    /// No neve of this chain made a filter of this id.
    Filter,
    /// The head is older than `--ready-age-max`, and the answer depends on it (`--stale-heads
    /// miss`).
    StaleHead,
}

/// Reason why a question has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QueryError {
    /// A full node must be asked.
    Miss(Miss),
    /// The node would answer with this error.
    Error(RpcError),
    /// Clients use too much memory.
    NoRoom,
}

/// Where answers come from, and what they may cost.
pub(crate) struct QueryContext<'a> {
    pub(crate) serving: &'a Serving,
    pub(crate) status: &'a Status,
    pub(crate) filters: &'a Filters,
    pub(crate) limits: &'a Limits,
    pub(crate) work: &'a Work<'a>,
    /// Of the response.
    pub(crate) memory: &'a Meter<'a>,
    /// What answering changed.
    pub(crate) changes: UndoLog,
}

impl From<Miss> for QueryError {
    fn from(miss: Miss) -> Self {
        Self::Miss(miss)
    }
}

impl From<RpcError> for QueryError {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// Appends the result of `query`, or says why it cannot be given. If it cannot, nothing was
/// appended.
pub(crate) fn result(
    asking: &QueryContext<'_>,
    query: Query,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let serving = asking.serving;
    match query {
        Query::BlockNumber => quantity(head(serving)?, out),
        Query::ChainId => text(&serving.chain().ok_or(Miss::Empty)?.hex, out),
        Query::NetVersion => text(&serving.chain().ok_or(Miss::Empty)?.decimal, out),
        Query::Block(at, Transactions::Hashes) => block(serving, at, HASHES, out)?,
        Query::Block(at, Transactions::Full) => block(serving, at, FULL, out)?,
        Query::Header(at) => block(serving, at, HEADER, out)?,
        Query::TransactionCount(at) => {
            let count = transaction_count(serving, at)?;
            quantity(count, out);
        }
        Query::TransactionAt(at, index) => transaction_at_index(serving, at, index, out)?,
        Query::Transaction(hash) => {
            if let (Found::Stored(record), index) = read_transaction(serving, hash, FULL, out)? {
                out.stored(transaction_of(record, index)?);
            }
        }
        Query::Receipt(hash) => {
            if let (Found::Stored(record), index) = read_transaction(serving, hash, RECEIPTS, out)?
            {
                out.stored(receipt_of(record, index)?);
            }
        }
        Query::Receipts(at) => {
            let wanted = Wanted::Part { part: RECEIPTS, flags: 0 };
            if let Found::Stored(record) = read(serving, at, wanted, out.text())? {
                out.part(&record, RECEIPTS, part(&record, RECEIPTS)?);
            }
        }
        Query::UncleCount(at) => {
            read(serving, at, Wanted::Count, out.text())?;
            text("\"0x0\"", out); // Avalanche's consensus has none
        }
        Query::Uncle(at, _) => {
            read(serving, at, Wanted::Count, out.text())?;
            text("null", out);
        }
        Query::Logs(query) => {
            let wanted = logs::wanted(asking, &query.filter, out)?;
            return logs::logs(asking, query.range, wanted, out);
        }
        Query::FeeHistory { count, newest, percentiles } => {
            return fees::history(asking, count, newest, &percentiles, out);
        }
        query => return rare(asking, query, out),
    }
    Ok(())
}

/// Questions that few ask.
fn rare(asking: &QueryContext<'_>, query: Query, out: &mut BodyBuilder) -> Result<(), QueryError> {
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
        Query::RawHeader(at) => raw::header(asking, at, out),
        Query::RawBlock(at) => raw::block(asking, at, out),
        Query::RawReceipts(at) => raw::receipts(asking, at, out),
        Query::Sha3(bytes) => {
            raw::hex(keccak256(bytes).as_slice(), out.text());
            Ok(())
        }
        Query::Listening => {
            text("true", out);
            Ok(())
        }
        Query::Syncing => {
            fresh(serving)?; // a node that lags may be syncing
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
            let wanted = logs::wanted(asking, &query.filter, out)?;
            filters::open(asking, FilterKind::Logs(query.range, wanted), out)
        }
        Query::NewBlockFilter => filters::open(asking, FilterKind::Blocks, out),
        Query::FilterChanges(id) => filters::changes(asking, &id, out),
        Query::FilterLogs(id) => filters::all_logs(asking, &id, out),
        Query::UninstallFilter(id) => filters::close(asking, &id, out),
        _ => Err(Miss::NotRelayed("eth_newPendingTransactionFilter").into()),
    }
}

/// True if an answer that is given twice is not the same.
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
pub(crate) const DROPPED: Miss = Miss::Empty;

fn text(text: &str, out: &mut BodyBuilder) {
    out.text().extend_from_slice(text.as_bytes());
}

fn quantity(number: u64, out: &mut BodyBuilder) {
    out.text().extend_from_slice(format!("\"{number:#x}\"").as_bytes());
}

/// Fails while calls that depend on the head are misses.
pub(crate) fn fresh(serving: &Serving) -> Result<(), Miss> {
    if serving.freshness.head_is_missed() { Err(Miss::StaleHead) } else { Ok(()) }
}

fn head(serving: &Serving) -> Result<u64, Miss> {
    fresh(serving)?;
    serving.reader.range().map(|range| *range.end()).ok_or(Miss::Empty)
}

/// Reads a height: its record, or what is wanted of a packed one, which is appended to `out`.
fn read(
    serving: &Serving,
    at: BlockId,
    wanted: Wanted<'_>,
    out: &mut Vec<u8>,
) -> Result<Found, Miss> {
    let reader = &serving.reader;
    let height = match at {
        BlockId::Hash(hash) => {
            return reader.read_block(&Hash(hash), wanted, out).ok_or(Miss::Hash(hash));
        }
        BlockId::Number(height) => height,
        BlockId::Tag(Tag::Earliest) => 0,
        BlockId::Tag(tag) => {
            fresh(serving)?;
            match tag {
                Tag::Safe | Tag::Finalized if serving.rules() == Rules::Helicon => {
                    settled(serving)?
                }
                _ => return reader.read_head(wanted, out).ok_or(Miss::Empty),
            }
        }
    };
    reader.read(height, wanted, out).ok_or(Miss::Height(height))
}

/// Reads the height of a transaction; what `part` has of one in a packed height is appended.
fn read_transaction(
    serving: &Serving,
    hash: [u8; 32],
    part: usize,
    out: &mut BodyBuilder,
) -> Result<(Found, usize), Miss> {
    let found = serving.reader.read_transaction(&Hash(hash), part, out.text());
    found.ok_or(Miss::Hash(hash))
}

fn transaction_count(serving: &Serving, at: BlockId) -> Result<u64, Miss> {
    let found = read(serving, at, Wanted::Count, &mut Vec::new())?;
    Ok(match found {
        Found::Stored(record) => record.transaction_count().into(),
        Found::Unpacked { transactions, .. } => transactions as u64,
    })
}

/// A transaction by its position; `null` if the height has fewer.
fn transaction_at_index(
    serving: &Serving,
    at: BlockId,
    index: u64,
    out: &mut BodyBuilder,
) -> Result<(), Miss> {
    let record = match read(serving, at, Wanted::Count, out.text())? {
        Found::Stored(record) if index < record.transaction_count().into() => record,
        Found::Unpacked { height, transactions } if index < transactions as u64 => {
            let at = index as usize;
            let wanted = Wanted::Transaction { part: FULL, at, hash: None };
            read(serving, BlockId::Number(height), wanted, out.text())?;
            return Ok(());
        }
        _ => {
            text("null", out);
            return Ok(());
        }
    };
    out.stored(transaction_of(record, index as usize)?);
    Ok(())
}

pub(crate) fn record(serving: &Serving, at: BlockId) -> Result<RecordRef, Miss> {
    let height = match at {
        BlockId::Hash(hash) => return serving.reader.block(&Hash(hash)).ok_or(Miss::Hash(hash)),
        BlockId::Number(height) => height,
        BlockId::Tag(Tag::Earliest) => 0,
        BlockId::Tag(tag) => {
            fresh(serving)?;
            match tag {
                Tag::Safe | Tag::Finalized if serving.rules() == Rules::Helicon => {
                    settled(serving)?
                }
                _ => return serving.reader.head().ok_or(Miss::Empty),
            }
        }
    };
    serving.reader.record(height).ok_or(Miss::Height(height))
}

/// The newest settled height: the one that the newest header settles. A synchronous block settles
/// itself (ACP-194).
pub(crate) fn settled(serving: &Serving) -> Result<u64, Miss> {
    let head = serving.reader.head().ok_or(Miss::Empty)?;
    Ok(SpansRef(&spans(&head)?).settled().unwrap_or(head.height()))
}

/// A part to be sent.
pub(crate) fn part(record: &RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    parts::uncompressed_part(record, part).ok_or(Miss::Unreadable(record.height()))
}

/// A part to be read.
pub(crate) fn readable(record: &RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    parts::readable_part(record, part).ok_or(Miss::Unreadable(record.height()))
}

pub(crate) fn by_transaction(
    serving: &Serving,
    hash: [u8; 32],
) -> Result<(RecordRef, usize), Miss> {
    serving.reader.transaction(&Hash(hash)).ok_or(Miss::Hash(hash))
}

/// Where things are in a record's parts.
pub(crate) fn spans(record: &RecordRef) -> Result<Cow<'_, [u8]>, Miss> {
    parts::read_part(record, SPANS).ok_or(Miss::Unreadable(record.height()))
}

fn span(record: &RecordRef, index: usize) -> Result<TransactionSpan, Miss> {
    let span = SpansRef(&spans(record)?).transaction(index);
    span.ok_or(Miss::Unreadable(record.height()))
}

pub(crate) fn transaction_of(record: RecordRef, index: usize) -> Result<SegmentSlice, Miss> {
    let span = span(&record, index)?;
    Ok(into_part(record, FULL)?.into_slice(span.at, span.at + span.len))
}

pub(crate) fn receipt_of(record: RecordRef, index: usize) -> Result<SegmentSlice, Miss> {
    let span = span(&record, index)?;
    let receipts = into_part(record, RECEIPTS)?;
    Ok(receipts.into_slice(span.receipt_at, span.receipt_at + span.receipt_len))
}

/// A part to be sent, with the record's hold on its segment.
fn into_part(record: RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    let height = record.height();
    parts::into_uncompressed_part(record, part).ok_or(Miss::Unreadable(height))
}

/// The record with that many transactions; `None` if it has fewer.
fn transaction_at(serving: &Serving, at: BlockId, index: u64) -> Result<Option<RecordRef>, Miss> {
    let record = record(serving, at)?;
    Ok((index < record.transaction_count().into()).then_some(record))
}

/// A block or header, with what the upstream's rules show differently than when it was stored.
fn block(serving: &Serving, at: BlockId, which: usize, out: &mut BodyBuilder) -> Result<(), Miss> {
    let form = BlockForm::of(serving, at);
    if form == BlockForm::Pending {
        return block_of(&record(serving, at)?, which, form, out);
    }
    let flags = if form == BlockForm::Helicon { FLAG_ZERO_DIFFICULTY } else { 0 };
    match read(serving, at, Wanted::Part { part: which, flags }, out.text())? {
        Found::Stored(record) => block_of(&record, which, form, out),
        Found::Unpacked { .. } => Ok(()),
    }
}

/// How a block or header is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockForm {
    /// With its height as total difficulty.
    BeforeHelicon,
    /// With a total difficulty of zero.
    Helicon,
    /// The same, without what is not decided yet, says v1.15 of the block that it names.
    Pending,
}

impl BlockForm {
    pub(crate) fn of(serving: &Serving, at: BlockId) -> Self {
        match serving.rules() {
            Rules::BeforeHelicon => Self::BeforeHelicon,
            Rules::Helicon if at == BlockId::Tag(Tag::Pending) => Self::Pending,
            Rules::Helicon => Self::Helicon,
        }
    }
}

/// A block or header in this form.
pub(crate) fn block_of(
    record: &RecordRef,
    which: usize,
    form: BlockForm,
    out: &mut BodyBuilder,
) -> Result<(), Miss> {
    let whole = part(record, which)?;
    let zero = record.flags() & FLAG_ZERO_DIFFICULTY != 0;
    if zero == (form != BlockForm::BeforeHelicon) && form != BlockForm::Pending {
        out.part(record, which, whole); // nearly always
        return Ok(());
    }
    let unreadable = Miss::Unreadable(record.height());
    let pieces = SpansRef(&spans(record)?).pieces(which).ok_or(unreadable)?;
    let mut cut = Cut { whole, at: 0, out };
    if form == BlockForm::Pending {
        cut.replace(pieces.hash, HASH_LEN, "null");
        cut.replace(pieces.miner, MINER_LEN, "null");
        cut.replace(pieces.nonce, NONCE_LEN, "null");
    }
    let difficulty = if form == BlockForm::BeforeHelicon { record.height() } else { 0 };
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
    out: &'o mut BodyBuilder,
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
