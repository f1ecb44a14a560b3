//! Reference to a block: libevm's `rpc.BlockNumber` and `rpc.BlockNumberOrHash`.

use super::values::{DecodeError, Decoded, boolean, fixed_text, hash, kind, quantity};
use crate::json::{decode, inside, is_key, members};
use crate::method::Rules;

/// A named block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// The newest executed block.
    Latest,
    /// Head. Some of its fields are null in a block since Helicon.
    Pending,
    /// The newest settled block since Helicon, the newest accepted one before.
    Safe,
    /// Newest settled block.
    Finalized,
    /// The newest accepted block; since Helicon there is no such tag.
    Accepted,
    /// The genesis block, at height 0.
    Earliest,
}

/// Reference to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockId {
    /// Block by its height.
    Number(u64),
    /// Block by its tag.
    Tag(Tag),
    /// Block by its hash.
    Hash([u8; 32]),
}

fn tag(text: &[u8], rules: Rules) -> Option<Tag> {
    match text {
        b"latest" => Some(Tag::Latest),
        b"pending" => Some(Tag::Pending),
        b"safe" => Some(Tag::Safe),
        b"finalized" => Some(Tag::Finalized),
        b"earliest" => Some(Tag::Earliest),
        b"accepted" if rules == Rules::BeforeHelicon => Some(Tag::Accepted),
        _ => None,
    }
}

/// An `rpc.BlockNumber`: takes any JSON, with or without quotes, and escapes are not decoded.
pub(crate) fn block_number(value: &[u8], rules: Rules) -> Decoded<BlockId> {
    let text = inside(value).unwrap_or(value);
    number_or_tag(text, rules, "block number larger than int64")
}

fn number_or_tag(text: &[u8], rules: Rules, too_high: &'static str) -> Decoded<BlockId> {
    if let Some(tag) = tag(text, rules) {
        return Ok(BlockId::Tag(tag));
    }
    if text.is_empty() {
        return Err("empty hex string".into());
    }
    match quantity(text)? {
        // `rpc.BlockNumber` is an int64, whose negative values are tags.
        number if number > i64::MAX as u64 => Err(too_high.into()),
        number => Ok(BlockId::Number(number)),
    }
}

/// An `rpc.BlockNumberOrHash`; `None` when it says neither. EIP-1898 objects, and
/// `requireCanonical` means nothing because no other blocks are known.
pub(crate) fn block_reference(value: &[u8], rules: Rules) -> Decoded<Option<BlockId>> {
    match value.first() {
        Some(b'n') => Ok(None),
        Some(b'{') => object(value, rules),
        Some(b'"') => {
            let text = decode(value);
            if text.len() == 66 {
                // No "json: cannot unmarshal" here: Go decodes this text itself.
                let hash = fixed_text(text.as_bytes(), "common.Hash")?;
                return Ok(Some(BlockId::Hash(hash)));
            }
            number_or_tag(text.as_bytes(), rules, "blocknumber too high").map(Some)
        }
        _ => Err(DecodeError::kind(kind(value), "string")),
    }
}

fn object(value: &[u8], rules: Rules) -> Decoded<Option<BlockId>> {
    // If any member is wrong, Go tries the object as a string, and reports that.
    let (number, hash) =
        number_and_hash(value, rules).ok_or_else(|| DecodeError::kind("object", "string"))?;
    match (number, hash) {
        (Some(_), Some(_)) => {
            Err("cannot specify both BlockHash and BlockNumber, choose one or the other".into())
        }
        (number, hash) => Ok(number.or(hash)),
    }
}

/// Number and hash of a reference object; `None` if any member is wrong.
fn number_and_hash(value: &[u8], rules: Rules) -> Option<(Option<BlockId>, Option<BlockId>)> {
    let (mut number, mut hash) = (None, None);
    for (key, value) in members(value) {
        let is_null = value == b"null";
        if is_key(key, "blocknumber") {
            number = if is_null { None } else { Some(block_number(value, rules).ok()?) };
        } else if is_key(key, "blockhash") {
            hash = if is_null { None } else { Some(BlockId::Hash(self::hash(value).ok()?)) };
        } else if is_key(key, "requirecanonical") {
            boolean(value).ok()?;
        }
    }
    Some((number, hash))
}
