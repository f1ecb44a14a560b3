//! Which block is meant: libevm's `rpc.BlockNumber` and `rpc.BlockNumberOrHash`.

use crate::method::Rules;
use crate::text::{decode, is_key};
use crate::values::{Decoded, Wrong, boolean, fixed_text, hash, inside, kind, quantity};
use crate::walk::members;

/// A named block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// The newest executed block.
    Latest,
    /// The same; some of its fields are null in a block answer since Helicon.
    Pending,
    /// The newest settled block since Helicon, the newest accepted one before.
    Safe,
    /// The same.
    Finalized,
    /// The newest accepted block; since Helicon there is no such tag.
    Accepted,
    /// Block 0.
    Earliest,
}

/// Which block is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// By height.
    Number(u64),
    /// By name.
    Tag(Tag),
    /// By hash.
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
pub(crate) fn block_number(value: &[u8], rules: Rules) -> Decoded<At> {
    let text = inside(value).unwrap_or(value);
    number_or_tag(text, rules, "block number larger than int64")
}

fn number_or_tag(text: &[u8], rules: Rules, too_high: &'static str) -> Decoded<At> {
    if let Some(tag) = tag(text, rules) {
        return Ok(At::Tag(tag));
    }
    if text.is_empty() {
        return Err("empty hex string".into());
    }
    match quantity(text)? {
        number if number > i64::MAX as u64 => Err(too_high.into()),
        number => Ok(At::Number(number)),
    }
}

/// An `rpc.BlockNumberOrHash`; `None` when it says neither. EIP-1898 objects, and
/// `requireCanonical` means nothing because no other blocks are known.
pub(crate) fn block_reference(value: &[u8], rules: Rules) -> Decoded<Option<At>> {
    match value.first() {
        Some(b'n') => Ok(None),
        Some(b'{') => object(value, rules),
        Some(b'"') => {
            let text = decode(value);
            if text.len() == 66 {
                // No "json: cannot unmarshal" here: Go decodes this text itself.
                let hash = fixed_text(text.as_bytes(), "common.Hash")?;
                return Ok(Some(At::Hash(hash)));
            }
            number_or_tag(text.as_bytes(), rules, "blocknumber too high").map(Some)
        }
        _ => Err(Wrong::kind(kind(value), "string")),
    }
}

fn object(value: &[u8], rules: Rules) -> Decoded<Option<At>> {
    let (number, hash) =
        number_and_hash(value, rules).ok_or_else(|| Wrong::kind("object", "string"))?;
    match (number, hash) {
        (Some(_), Some(_)) => {
            Err("cannot specify both BlockHash and BlockNumber, choose one or the other".into())
        }
        (number, hash) => Ok(number.or(hash)),
    }
}

/// Number and hash of a reference object; `None` if any member is wrong.
fn number_and_hash(value: &[u8], rules: Rules) -> Option<(Option<At>, Option<At>)> {
    let (mut number, mut hash) = (None, None);
    for (key, value) in members(value) {
        let is_null = value == b"null";
        if is_key(key, "blocknumber") {
            number = if is_null { None } else { Some(block_number(value, rules).ok()?) };
        } else if is_key(key, "blockhash") {
            hash = if is_null { None } else { Some(At::Hash(self::hash(value).ok()?)) };
        } else if is_key(key, "requirecanonical") {
            boolean(value).ok()?;
        }
    }
    Some((number, hash))
}
