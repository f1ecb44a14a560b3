//! Binary forms, made again from the stored text: they are asked for too seldom to be stored.

use neve_chain::{Refusal, raw_block, raw_header, raw_receipts, raw_transaction};
use neve_jsonrpc::At;

use super::answer::{DROPPED, Miss, NoAnswer, readable, record, transaction_of};
use super::reply::Builder;
use crate::parts::{FULL, HEADER, RECEIPTS};
use crate::serving::Serving;

/// Appends bytes as the node writes them: a string of hex.
pub(super) fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 * bytes.len() + 4);
    out.extend_from_slice(b"\"0x");
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    out.push(b'"');
}

/// Appends a transaction of a block.
pub(super) fn transaction(
    record: &neve_store::RecordRef,
    index: usize,
    out: &mut Builder,
) -> Result<(), NoAnswer> {
    let text = transaction_of(record.clone(), index)?;
    if !text.look() {
        return Err(DROPPED.into());
    }
    let raw = raw_transaction(text.as_ref()).map_err(|_| Miss::Unreadable(record.height()))?;
    hex(&raw, out.text());
    Ok(())
}

pub(super) fn header(serving: &Serving, at: At, out: &mut Builder) -> Result<(), NoAnswer> {
    encoded(serving, at, HEADER, raw_header, out)
}

pub(super) fn block(serving: &Serving, at: At, out: &mut Builder) -> Result<(), NoAnswer> {
    encoded(serving, at, FULL, raw_block, out)
}

/// Appends what `encode` makes of a part.
fn encoded(
    serving: &Serving,
    at: At,
    which: usize,
    encode: fn(&[u8]) -> Result<Vec<u8>, Refusal>,
    out: &mut Builder,
) -> Result<(), NoAnswer> {
    let record = record(serving, at)?;
    let text = readable(&record, which)?;
    let raw = encode(text.as_ref()).map_err(|_| Miss::Unreadable(record.height()))?;
    hex(&raw, out.text());
    Ok(())
}

pub(super) fn receipts(serving: &Serving, at: At, out: &mut Builder) -> Result<(), NoAnswer> {
    let record = record(serving, at)?;
    let text = readable(&record, RECEIPTS)?;
    let raw = raw_receipts(text.as_ref()).map_err(|_| Miss::Unreadable(record.height()))?;
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
