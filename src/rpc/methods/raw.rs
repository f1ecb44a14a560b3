//! Binary forms, made from the stored text: requests for them are too rare to store them.

use neve_chain::{ProofError, raw_block, raw_header, raw_receipts, raw_transaction};
use neve_jsonrpc::BlockId;
use neve_record::parts::{FULL, HEADER, RECEIPTS};
use neve_store::{RecordRef, SegmentSlice, residency};

use super::miss::{Miss, QueryError};
use super::query_context::QueryContext;
use super::stored::{readable, record, transaction_of};
use crate::body::BodyBuilder;

/// Bytes of the longest text that a serving thread encodes. A longer one takes over about 100 µs.
const SHORT_TEXT: usize = 16 << 10;

/// Appends bytes as the node writes them: a string of hex.
pub(crate) fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 * bytes.len() + 4);
    out.extend_from_slice(b"\"0x");
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    out.push(b'"');
}

/// Appends a transaction of a block.
pub(crate) fn transaction(
    context: &QueryContext<'_>,
    record: &RecordRef,
    index: usize,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let text = transaction_of(record.clone(), index)?;
    // It is parsed here, so its pages must be in memory first.
    text.probe()?;
    count(context, text.as_ref())?;
    let raw = raw_transaction(text.as_ref()).map_err(|_| Miss::Unreadable(record.height()))?;
    hex(&raw, out.text());
    Ok(())
}

pub(crate) fn header(
    context: &QueryContext<'_>,
    at: BlockId,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    encoded(context, at, HEADER, raw_header, out)
}

pub(crate) fn block(
    context: &QueryContext<'_>,
    at: BlockId,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    encoded(context, at, FULL, raw_block, out)
}

/// Appends the encoding of a part.
fn encoded(
    context: &QueryContext<'_>,
    at: BlockId,
    which: usize,
    encode: fn(&[u8]) -> Result<Vec<u8>, ProofError>,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let (height, text) = read_counted(context, at, which)?;
    let raw = encode(text.as_ref()).map_err(|_| Miss::Unreadable(height))?;
    hex(&raw, out.text());
    Ok(())
}

pub(crate) fn receipts(
    context: &QueryContext<'_>,
    at: BlockId,
    out: &mut BodyBuilder,
) -> Result<(), QueryError> {
    let (height, text) = read_counted(context, at, RECEIPTS)?;
    let raw = raw_receipts(text.as_ref()).map_err(|_| Miss::Unreadable(height))?;
    let out = out.text();
    out.push(b'[');
    for (at, receipt) in raw.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        hex(receipt, out);
    }
    out.push(b']');
    Ok(())
}

/// Reads a part of a height to encode it. Returns the height, too.
fn read_counted(
    context: &QueryContext<'_>,
    at: BlockId,
    part: usize,
) -> Result<(u64, SegmentSlice), QueryError> {
    let record = record(context.serving, at)?;
    let text = readable(&record, part)?;
    count(context, text.as_ref())?;
    Ok((record.height(), text))
}

/// Counts a text as examined. Sends the encoding of a long one to a thread that holds up no other connection.
fn count(context: &QueryContext<'_>, text: &[u8]) -> Result<(), QueryError> {
    if text.len() > SHORT_TEXT {
        residency::not_here()?;
    }
    if context.work.examine(text.len() as u64) { Ok(()) } else { Err(context.work.error().into()) }
}
