//! From a question to its result: an index look-up and slices of what is stored.

use neve_jsonrpc::{At, Query, Rules, Tag, Transactions};
use neve_store::{Hash, RecordRef, SegmentSlice};

use super::reply::Builder;
use crate::parts::{
    self, FLAG_ZERO_DIFFICULTY, FULL, HASH_LEN, HASHES, HEADER, MINER_LEN, NONCE_LEN, RECEIPTS,
    SPANS, SpansRef, TransactionSpan,
};
use crate::serving::Serving;

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
}

/// Appends the result of `query`, or says why it cannot be given here.
pub(crate) fn result(serving: &Serving, query: Query, out: &mut Builder) -> Result<(), Miss> {
    match query {
        Query::BlockNumber => quantity(head(serving)?, out),
        Query::ChainId => text(&serving.chain().ok_or(Miss::Empty)?.hex, out),
        Query::NetVersion => text(&serving.chain().ok_or(Miss::Empty)?.decimal, out),
        Query::Block(at, Transactions::Hashes) => return block(serving, at, HASHES, out),
        Query::Block(at, Transactions::Full) => return block(serving, at, FULL, out),
        Query::Header(at) => return block(serving, at, HEADER, out),
        Query::TransactionCount(at) => {
            let record = record(serving, at)?;
            quantity(record.transaction_count().into(), out);
        }
        Query::TransactionAt(at, index) => {
            let record = record(serving, at)?;
            if index >= record.transaction_count().into() {
                text("null", out); // held, and there is no such transaction
                return Ok(());
            }
            return transaction(&record, index as usize, out);
        }
        Query::Transaction(hash) => {
            let (record, index) = by_transaction(serving, hash)?;
            return transaction(&record, index, out);
        }
        Query::Receipt(hash) => {
            let (record, index) = by_transaction(serving, hash)?;
            return receipt(&record, index, out);
        }
        Query::Receipts(at) => {
            let record = record(serving, at)?;
            out.stored(part(&record, RECEIPTS)?);
        }
    }
    Ok(())
}

fn text(text: &str, out: &mut Builder) {
    out.text().extend_from_slice(text.as_bytes());
}

fn quantity(number: u64, out: &mut Builder) {
    out.text().extend_from_slice(format!("\"{number:#x}\"").as_bytes());
}

fn head(serving: &Serving) -> Result<u64, Miss> {
    serving.reader.range().map(|range| *range.end()).ok_or(Miss::Empty)
}

fn record(serving: &Serving, at: At) -> Result<RecordRef, Miss> {
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
fn settled(serving: &Serving) -> Result<u64, Miss> {
    let head = serving.reader.head().ok_or(Miss::Empty)?;
    let spans = part(&head, SPANS)?;
    Ok(SpansRef(spans.as_ref()).settled().unwrap_or(head.height()))
}

fn part(record: &RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    parts::plain(record, part).ok_or(Miss::Unreadable(record.height()))
}

fn by_transaction(serving: &Serving, hash: [u8; 32]) -> Result<(RecordRef, usize), Miss> {
    serving.reader.transaction(&Hash(hash)).ok_or(Miss::Hash(hash))
}

fn span(record: &RecordRef, index: usize) -> Result<TransactionSpan, Miss> {
    let spans = part(record, SPANS)?;
    SpansRef(spans.as_ref()).transaction(index).ok_or(Miss::Unreadable(record.height()))
}

fn transaction(record: &RecordRef, index: usize, out: &mut Builder) -> Result<(), Miss> {
    let span = span(record, index)?;
    out.stored(part(record, FULL)?.slice(span.at, span.at + span.len));
    Ok(())
}

fn receipt(record: &RecordRef, index: usize, out: &mut Builder) -> Result<(), Miss> {
    let span = span(record, index)?;
    out.stored(part(record, RECEIPTS)?.slice(span.receipt_at, span.receipt_at + span.receipt_len));
    Ok(())
}

/// A block or header, with what the upstream's rules show differently than when it was stored.
fn block(serving: &Serving, at: At, which: usize, out: &mut Builder) -> Result<(), Miss> {
    let record = record(serving, at)?;
    let whole = part(&record, which)?;
    let rules = serving.rules();
    let zero = record.flags() & FLAG_ZERO_DIFFICULTY != 0;
    let pending = at == At::Tag(Tag::Pending) && rules == Rules::Helicon;
    if zero == (rules == Rules::Helicon) && !pending {
        out.stored(whole); // nearly always
        return Ok(());
    }
    let spans = part(&record, SPANS)?;
    let unreadable = Miss::Unreadable(record.height());
    let pieces = SpansRef(spans.as_ref()).pieces(which).ok_or(unreadable)?;
    let mut cut = Cut { whole, at: 0, out };
    if pending {
        // Not decided yet, says v1.15 of the block that it names.
        cut.replace(pieces.hash, HASH_LEN, "null");
        cut.replace(pieces.miner, MINER_LEN, "null");
        cut.replace(pieces.nonce, NONCE_LEN, "null");
    }
    let difficulty = match rules {
        Rules::Helicon => 0,
        Rules::BeforeHelicon => record.height(),
    };
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
