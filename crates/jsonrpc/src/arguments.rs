//! Positional arguments, decoded with the checks and the words of Go's types.

use std::borrow::Cow;

use crate::error::{NoQuery, RpcError};
use crate::method::Rules;
use crate::scan::Scanner;
use crate::text::{decode, is_key};

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

/// The arguments of one call, taken from left to right: the first that is wrong is reported.
pub(crate) struct Arguments<'a> {
    scanner: Option<Scanner<'a>>,
    taken: usize,
    wanted: usize,
}

impl<'a> Arguments<'a> {
    /// Of a method that takes `wanted`. Absent, null and empty parameters are the same.
    pub(crate) fn new(params: Option<&'a [u8]>, wanted: usize) -> Result<Self, RpcError> {
        let mut scanner = Scanner::new(params.unwrap_or(b"null"));
        let scanner = match scanner.peek() {
            Some(b'[') => {
                scanner.take(b'[');
                Some(scanner)
            }
            Some(b'n') => None,
            _ => return Err(RpcError::params("non-array args")),
        };
        Ok(Self { scanner, taken: 0, wanted })
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let scanner = self.scanner.as_mut()?;
        if self.taken > 0 && !scanner.take(b',') || scanner.peek() == Some(b']') {
            return None;
        }
        self.taken += 1;
        scanner.value(0).ok() // it was taken once before, so it is JSON
    }

    /// The next argument, decoded.
    pub(crate) fn take<T>(
        &mut self,
        decode: impl FnOnce(&'a [u8]) -> Result<T, Cow<'static, str>>,
    ) -> Result<T, RpcError> {
        let at = self.taken;
        let missing = || RpcError::params(format!("missing value for required argument {at}"));
        let value = self.next().ok_or_else(missing)?;
        decode(value).map_err(|why| RpcError::params(format!("invalid argument {at}: {why}")))
    }

    /// After the last argument: there must be no more.
    pub(crate) fn end(&mut self) -> Result<(), RpcError> {
        if self.next().is_none() {
            return Ok(());
        }
        Err(RpcError::params(format!("too many arguments, want at most {}", self.wanted)))
    }
}

type Decoded<T> = Result<T, Cow<'static, str>>;

const NO_PREFIX: &str = "hex string without 0x prefix";
const SYNTAX: &str = "invalid hex string";
const TOO_WIDE: &str = "hex number > 64 bits";

fn unmarshal(what: &str, into: &str) -> Cow<'static, str> {
    format!("json: cannot unmarshal {what} into Go value of type {into}").into()
}

/// What lies between the quotes of a string literal, not decoded: Go's hex types do not either.
fn inside(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// A `bool`. Null is false.
pub(crate) fn boolean(value: &[u8]) -> Decoded<bool> {
    match value {
        b"true" => Ok(true),
        b"false" | b"null" => Ok(false),
        other => Err(unmarshal(kind(other), "bool")),
    }
}

/// Go's word for a value that is of the wrong kind.
fn kind(value: &[u8]) -> &'static str {
    match value.first() {
        Some(b'"') => "string",
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b't' | b'f') => "bool",
        _ => "number",
    }
}

/// A `common.Hash`.
pub(crate) fn hash(value: &[u8]) -> Decoded<[u8; 32]> {
    const TYPE: &str = "common.Hash";
    let Some(text) = inside(value) else { return Err(unmarshal("non-string", TYPE)) };
    hash_text(text).map_err(|why| match why {
        Cow::Borrowed(what) => unmarshal(what, TYPE),
        Cow::Owned(whole) => Cow::Owned(whole),
    })
}

fn hash_text(text: &[u8]) -> Decoded<[u8; 32]> {
    let digits = match without_prefix(text) {
        Some(digits) => digits,
        None if text.is_empty() => text,
        None => return Err(NO_PREFIX.into()),
    };
    if digits.len() % 2 == 1 {
        return Err("hex string of odd length".into());
    }
    if digits.len() != 64 {
        let len = digits.len();
        return Err(format!("hex string has length {len}, want 64 for common.Hash").into());
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (nibble(pair[0])?, nibble(pair[1])?);
        *byte = high << 4 | low;
    }
    Ok(hash)
}

fn without_prefix(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))
}

fn nibble(digit: u8) -> Decoded<u8> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(SYNTAX.into()),
    }
}

/// A `hexutil.Uint`: an index. The empty string is 0.
pub(crate) fn index(value: &[u8]) -> Decoded<u64> {
    const TYPE: &str = "hexutil.Uint";
    let Some(text) = inside(value) else { return Err(unmarshal("non-string", TYPE)) };
    if text.is_empty() {
        return Ok(0);
    }
    let wide = without_prefix(text).is_some_and(|digits| digits.len() > 16 && digits[0] != b'0');
    let number = if wide { Err(TOO_WIDE.into()) } else { quantity(text) };
    number.map_err(|why| unmarshal(&why, TYPE))
}

/// `hexutil.DecodeUint64`, for text that is not empty.
fn quantity(text: &[u8]) -> Decoded<u64> {
    let digits = match without_prefix(text).ok_or(NO_PREFIX)? {
        [] => return Err("hex string \"0x\"".into()),
        [b'0', _, ..] => return Err("hex number with leading zero digits".into()),
        digits => digits,
    };
    let add =
        |number: u64, digit: &u8| -> Decoded<u64> { Ok(number << 4 | u64::from(nibble(*digit)?)) };
    // Go goes digit by digit and stops at the 17th, be it bad or one too many.
    let number = digits.iter().take(17).try_fold(0, add)?;
    if digits.len() > 16 { Err(TOO_WIDE.into()) } else { Ok(number) }
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
                return hash_text(text.as_bytes()).map(|hash| Some(At::Hash(hash)));
            }
            number_or_tag(text.as_bytes(), rules, "blocknumber too high").map(Some)
        }
        _ => Err(unmarshal(kind(value), "string")),
    }
}

fn object(value: &[u8], rules: Rules) -> Decoded<Option<At>> {
    let (number, hash) = members(value, rules).ok_or_else(|| unmarshal("object", "string"))?;
    match (number, hash) {
        (Some(_), Some(_)) => {
            Err("cannot specify both BlockHash and BlockNumber, choose one or the other".into())
        }
        (number, hash) => Ok(number.or(hash)),
    }
}

/// Number and hash of a reference object; `None` if any member is wrong.
fn members(value: &[u8], rules: Rules) -> Option<(Option<At>, Option<At>)> {
    let (mut number, mut hash) = (None, None);
    let mut scanner = Scanner::new(value);
    scanner.take(b'{');
    while let Ok(key) = scanner.string() {
        scanner.take(b':');
        let value = scanner.value(0).ok()?;
        let is_null = value == b"null";
        if is_key(key, "blocknumber") {
            number = if is_null { None } else { Some(block_number(value, rules).ok()?) };
        } else if is_key(key, "blockhash") {
            hash = if is_null { None } else { Some(At::Hash(self::hash(value).ok()?)) };
        } else if is_key(key, "requirecanonical") {
            boolean(value).ok()?;
        }
        scanner.take(b',');
    }
    Some((number, hash))
}

/// For a method that swallows what is wrong with the block that a reference names.
pub(crate) fn or_null(at: Option<At>) -> Result<At, NoQuery> {
    at.ok_or(NoQuery::Null)
}
