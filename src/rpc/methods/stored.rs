//! Records of the store, and their parts, for methods.

use std::borrow::Cow;

use neve_jsonrpc::{BlockId, Rules, Tag};
use neve_record::parts;
use neve_record::parts::{FULL, RECEIPTS, SPANS};
use neve_record::spans::{SpansRef, TransactionSpan};
use neve_store::{Hash, RecordRef, SegmentSlice};

use super::miss::{Miss, NotRead};
use crate::shared::{HeadMiss, Serving};

/// Fails while calls that depend on the head are misses.
pub(crate) fn fresh(serving: &Serving) -> Result<(), Miss> {
    match serving.freshness.head_miss() {
        None => Ok(()),
        Some(HeadMiss::NoUpstream) => Err(Miss::NoUpstream),
        Some(HeadMiss::CatchingUp) => Err(Miss::CatchingUp),
        Some(HeadMiss::Stale) => Err(Miss::StaleHead),
    }
}

/// Block that an id names.
pub(crate) enum Named {
    Hash([u8; 32]),
    Height(u64),
    Head,
}

/// Finds what an id names, by the tags' rules of now.
pub(crate) fn named(serving: &Serving, at: BlockId) -> Result<Named, NotRead> {
    Ok(match at {
        BlockId::Hash(hash) => Named::Hash(hash),
        BlockId::Number(height) => Named::Height(height),
        // Block 0 does not age: it may be read however old the head is.
        BlockId::Tag(Tag::Earliest) => Named::Height(0),
        BlockId::Tag(tag) => {
            fresh(serving)?;
            if names_settled(serving, tag) { Named::Height(settled(serving)?) } else { Named::Head }
        }
    })
}

/// True for tags of the newest settled block. Before Helicon each accepted block is final, so these tags are the head.
pub(crate) fn names_settled(serving: &Serving, tag: Tag) -> bool {
    matches!(tag, Tag::Safe | Tag::Finalized) && serving.rules() == Rules::Helicon
}

pub(crate) fn record(serving: &Serving, at: BlockId) -> Result<RecordRef, NotRead> {
    let reader = serving.reader.resident();
    match named(serving, at)? {
        Named::Hash(hash) => Ok(reader.block(&Hash(hash))?.ok_or(Miss::Hash(hash))?),
        Named::Head => Ok(reader.head()?.ok_or(Miss::Empty)?),
        Named::Height(height) => at_height(serving, height),
    }
}

/// Returns the record at a height.
pub(crate) fn at_height(serving: &Serving, height: u64) -> Result<RecordRef, NotRead> {
    Ok(serving.reader.resident().record(height)?.ok_or(Miss::Height(height))?)
}

/// Returns the newest settled height, which the newest header names. A synchronous block settles itself
/// (ACP-194).
pub(crate) fn settled(serving: &Serving) -> Result<u64, NotRead> {
    let head = serving.reader.resident().head()?.ok_or(Miss::Empty)?;
    Ok(SpansRef(&spans(&head)?).settled().unwrap_or(head.height()))
}

/// Returns a part for sending.
pub(crate) fn part(record: &RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    parts::uncompressed_part(record, part).ok_or(Miss::Unreadable(record.height()))
}

/// Returns a part for parsing, and loads it where the thread may wait.
pub(crate) fn readable(record: &RecordRef, part: usize) -> Result<SegmentSlice, NotRead> {
    Ok(parts::readable_part(record, part)?.ok_or(Miss::Unreadable(record.height()))?)
}

pub(crate) fn by_transaction(
    serving: &Serving,
    hash: [u8; 32],
) -> Result<(RecordRef, usize), NotRead> {
    Ok(serving.reader.resident().transaction(&Hash(hash))?.ok_or(Miss::Hash(hash))?)
}

/// Spans in a record's parts.
pub(crate) fn spans(record: &RecordRef) -> Result<Cow<'_, [u8]>, NotRead> {
    Ok(parts::read_part(record, SPANS)?.ok_or(Miss::Unreadable(record.height()))?)
}

fn span(record: &RecordRef, index: usize) -> Result<TransactionSpan, NotRead> {
    let span = SpansRef(&spans(record)?).transaction(index);
    Ok(span.ok_or(Miss::Unreadable(record.height()))?)
}

pub(crate) fn transaction_of(record: RecordRef, index: usize) -> Result<SegmentSlice, NotRead> {
    let span = span(&record, index)?;
    Ok(into_part(record, FULL)?.into_slice(span.at, span.at + span.len))
}

pub(crate) fn receipt_of(record: RecordRef, index: usize) -> Result<SegmentSlice, NotRead> {
    let span = span(&record, index)?;
    let receipts = into_part(record, RECEIPTS)?;
    Ok(receipts.into_slice(span.receipt_at, span.receipt_at + span.receipt_len))
}

/// Returns a part for sending, which takes over the record's hold on its segment.
fn into_part(record: RecordRef, part: usize) -> Result<SegmentSlice, Miss> {
    let height = record.height();
    parts::into_uncompressed_part(record, part).ok_or(Miss::Unreadable(height))
}
