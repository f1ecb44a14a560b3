//! Blocks that are not those of the chain.

use alloy_primitives::B256;
use bytes::Bytes;
use neve_jsonrpc::{Query, Transactions};

use super::fault::Fault;
use crate::chain::{Block, Generator, Window};

/// The block that a fault shows instead of a true one, unless it leaves what is asked as it is.
pub(crate) fn false_block(
    fault: &Fault,
    query: &Query,
    block: &Block,
    generator: &Generator,
) -> Option<Block> {
    let asks_receipts = matches!(query, Query::Receipts(_) | Query::Receipt(_));
    let asks_block = matches!(query, Query::Block(..) | Query::Header(_));
    match fault {
        Fault::LyingReceipts if asks_receipts => {
            block.with_receipts(other_outcome(block.receipts())?)
        }
        Fault::WrongTransaction if asks_transaction(query) => {
            block.with_text(other_digit(block.text(), b"\"value\":\"0x")?)
        }
        Fault::WrongHash if asks_block => block.with_text(other_hash(block.text(), block.hash())?),
        Fault::WrongParent if block.number() > 0 => Some(with_other_parent(block, generator)),
        Fault::WrongGenesis if block.number() == 0 => Some(other_genesis(generator)),
        _ => None,
    }
}

/// True if the answer has whole transactions.
fn asks_transaction(query: &Query) -> bool {
    matches!(
        query,
        Query::Block(_, Transactions::Full) | Query::Transaction(_) | Query::TransactionAt(..)
    )
}

/// The block of the same height behind a parent that is not there.
fn with_other_parent(block: &Block, generator: &Generator) -> Block {
    let parent = flipped(block.header().parent_hash);
    generator.block(block.number(), parent, &mut Window::default())
}

/// The genesis of another chain.
fn other_genesis(generator: &Generator) -> Block {
    let other = generator.changed(|config| config.seed = !config.seed);
    other.block(0, B256::ZERO, &mut Window::default())
}

/// Receipts with other data in a log, or with another outcome. No length changes.
fn other_outcome(receipts: &Bytes) -> Option<Vec<u8>> {
    let data = other_digit(receipts, b"\"data\":\"0x");
    data.or_else(|| other_digit(receipts, b"\"status\":\"0x"))
}

/// The text with another last digit in the first value behind `key` that has digits.
fn other_digit(text: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let starts = (0..text.len()).filter(|at| text[*at..].starts_with(key)).map(|at| at + key.len());
    let mut digits = starts.filter_map(|start| {
        let length = text[start..].iter().position(|byte| *byte == b'"')?;
        (length > 0).then(|| start + length - 1)
    });
    let last = digits.next()?;
    let mut text = text.to_vec();
    // Between 0 and 1, and never a leading zero.
    text[last] = if text[last] == b'1' { b'0' } else { b'1' };
    Some(text)
}

/// The text with another hash wherever this one stands.
fn other_hash(text: &[u8], hash: B256) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    Some(text.replace(&hash.to_string(), &flipped(hash).to_string()).into_bytes())
}

fn flipped(mut hash: B256) -> B256 {
    hash[31] ^= 1;
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digit_is_changed_and_no_length() {
        let other = |text: &str| {
            let other = other_digit(text.as_bytes(), b"\"data\":\"0x")?;
            Some(String::from_utf8(other).unwrap())
        };
        assert_eq!(other(r#""data":"0x","data":"0x12""#).unwrap(), r#""data":"0x","data":"0x11""#);
        assert_eq!(other(r#""data":"0x01""#).unwrap(), r#""data":"0x00""#);
        assert_eq!(other(r#""data":"0x""#), None);
        assert_eq!(other(r#""data":"0x1"#), None);
    }
}
