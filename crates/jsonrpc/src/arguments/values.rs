//! Single values, decoded with the checks and the words of Go's types (`encoding/json`, libevm's
//! `common/hexutil`, `common/math`).

use std::borrow::Cow;
use std::fmt;

use crate::error::MESSAGE_BYTES_MAX;
use crate::json::{decode, elements, inside, quote};

/// Fault of a value, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// An `UnmarshalTypeError`: `what` does not fit the type `into`.
    Kind { what: Cow<'static, str>, into: &'static str },
    /// Anything else, whole.
    Other(Cow<'static, str>),
}

pub(crate) type Decoded<T> = Result<T, DecodeError>;

impl DecodeError {
    pub(crate) fn kind(what: impl Into<Cow<'static, str>>, into: &'static str) -> Self {
        Self::Kind { what: what.into(), into }
    }

    /// Inside a struct Go names the field, in errors of kind alone.
    pub(crate) fn in_field(self, owner: &str, field: &str) -> Self {
        let Self::Kind { what, into } = self else { return self };
        let field = format!("{owner}.{field}");
        let whole =
            format!("json: cannot unmarshal {what} into Go struct field {field} of type {into}");
        Self::Other(whole.into())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { what, into } => {
                write!(out, "json: cannot unmarshal {what} into Go value of type {into}")
            }
            Self::Other(whole) => out.write_str(whole),
        }
    }
}

impl From<&'static str> for DecodeError {
    fn from(whole: &'static str) -> Self {
        Self::Other(whole.into())
    }
}

impl From<String> for DecodeError {
    fn from(whole: String) -> Self {
        Self::Other(whole.into())
    }
}

/// Go's word for a value that is of the wrong kind.
pub(crate) fn kind(value: &[u8]) -> &'static str {
    match value.first() {
        Some(b'"') => "string",
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b't' | b'f') => "bool",
        _ => "number",
    }
}

/// A `bool`. Null is false.
pub(crate) fn boolean(value: &[u8]) -> Decoded<bool> {
    match value {
        b"true" => Ok(true),
        b"false" | b"null" => Ok(false),
        other => Err(DecodeError::kind(kind(other), "bool")),
    }
}

/// A string of the Go type `into`. Null is empty.
pub(crate) fn string(value: &[u8], into: &'static str) -> Decoded<String> {
    check_string(value, into)?;
    Ok(if value.starts_with(b"\"") { decode(value).into_owned() } else { String::new() })
}

/// Checks only whether it is such a string.
pub(crate) fn check_string(value: &[u8], into: &'static str) -> Decoded<()> {
    match value.first() {
        Some(b'"' | b'n') => Ok(()),
        _ => Err(DecodeError::kind(kind(value), into)),
    }
}

/// Checks a list up to its first wrong element. Go reads on, but reports the same one at the end.
/// Null is empty. Nothing is collected: elements take many times their text.
fn list(
    value: &[u8],
    into: &'static str,
    element: impl FnMut(&[u8]) -> Decoded<()>,
) -> Decoded<()> {
    match value.first() {
        Some(b'[') => elements(value).try_for_each(element),
        Some(b'n') => Ok(()),
        _ => Err(DecodeError::kind(kind(value), into)),
    }
}

/// Checks only whether it is a Go `[]string`.
pub(crate) fn check_strings(value: &[u8]) -> Decoded<()> {
    list(value, "[]string", |element| check_string(element, "string"))
}

/// Numbers of a list: the first ones, and how many there are.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Floats {
    pub(crate) first: Vec<f64>,
    pub(crate) len: usize,
}

/// A `[]float64`, of which the first `kept` are kept. Null elements are 0.
pub(crate) fn floats(value: &[u8], kept: usize) -> Decoded<Floats> {
    let mut floats = Floats::default();
    list(value, "[]float64", |element| {
        let number = float(element)?;
        floats.len += 1;
        if floats.len <= kept {
            floats.first.push(number);
        }
        Ok(())
    })?;
    Ok(floats)
}

/// A `float64`. Null is 0.
pub(crate) fn float(value: &[u8]) -> Decoded<f64> {
    match value.first() {
        Some(b'n') => return Ok(0.0),
        Some(b'-' | b'0'..=b'9') => {}
        _ => return Err(DecodeError::kind(kind(value), "float64")),
    }
    let text = String::from_utf8_lossy(value);
    match text.parse::<f64>() {
        // Rust reads 1e999 as infinity, Go refuses it.
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(not_finite(value)),
    }
}

/// Error about a number that is too large for a `float64`.
pub(crate) fn not_finite(number: &[u8]) -> DecodeError {
    let number = String::from_utf8_lossy(repeated(number));
    DecodeError::kind(format!("number {number}"), "float64")
}

/// Begin of a value that a message repeats: the rest would be copied for nothing.
fn repeated(value: &[u8]) -> &[u8] {
    &value[..value.len().min(MESSAGE_BYTES_MAX)]
}

/// A `math.HexOrDecimal64`: hex or decimal, with or without quotes; nothing is 0.
pub(crate) fn hex_or_decimal(value: &[u8]) -> Decoded<u64> {
    let text = inside(value).unwrap_or(value);
    let (digits, radix) = match without_prefix(text) {
        Some(digits) => (digits, 16),
        None if text.is_empty() => return Ok(0),
        None => (text, 10),
    };
    // Rust would take a sign, Go does not.
    let unsigned = digits.first().is_some_and(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| unsigned);
    digits
        .and_then(|digits| u64::from_str_radix(digits, radix).ok())
        .ok_or_else(|| format!("invalid hex or decimal integer {}", quote(repeated(text))).into())
}

const NO_PREFIX: &str = "hex string without 0x prefix";
const SYNTAX: &str = "invalid hex string";
const ODD: &str = "hex string of odd length";
const TOO_WIDE: &str = "hex number > 64 bits";

fn without_prefix(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|nibble| nibble as u8)
}

fn byte(pair: &[u8]) -> Option<u8> {
    Some(nibble(pair[0])? << 4 | nibble(pair[1])?)
}

/// Digits of a byte string; the empty text needs no prefix.
fn byte_digits(text: &[u8]) -> Result<&[u8], &'static str> {
    match without_prefix(text) {
        Some(digits) if digits.len() % 2 == 1 => Err(ODD),
        Some(digits) => Ok(digits),
        // hexutil takes an empty string for no bytes.
        None if text.is_empty() => Ok(text),
        None => Err(NO_PREFIX),
    }
}

/// Decodes a Go `common.Hash`.
pub(crate) fn hash(value: &[u8]) -> Decoded<[u8; 32]> {
    fixed(value, "common.Hash")
}

/// Decodes a Go `common.Address`.
pub(crate) fn address(value: &[u8]) -> Decoded<[u8; 20]> {
    fixed(value, "common.Address")
}

fn fixed<const N: usize>(value: &[u8], into: &'static str) -> Decoded<[u8; N]> {
    let Some(text) = inside(value) else { return Err(DecodeError::kind("non-string", into)) };
    fixed_text(text, into).map_err(|why| match why {
        DecodeError::Other(Cow::Borrowed(what)) => DecodeError::kind(what, into),
        whole => whole,
    })
}

/// Exactly `N` bytes in hex, behind a prefix. That is what nearly everybody sends; what is wrong
/// with anything else is found out elsewhere.
fn exact<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digits = without_prefix(text).filter(|digits| digits.len() == 2 * N)?;
    let mut bytes = [0; N];
    const_hex::decode_to_slice(digits, &mut bytes).ok()?; // takes a second prefix, but wants 2 N digits
    Some(bytes)
}

/// `hexutil.UnmarshalFixedText`: says what is wrong with the text alone.
pub(crate) fn fixed_text<const N: usize>(text: &[u8], into: &str) -> Decoded<[u8; N]> {
    // Nearly all texts are right: the checks below only choose the words of an error.
    if let Some(bytes) = exact(text) {
        return Ok(bytes);
    }
    let digits = byte_digits(text)?;
    if digits.len() != 2 * N {
        let (len, want) = (digits.len(), 2 * N);
        return Err(format!("hex string has length {len}, want {want} for {into}").into());
    }
    Err(SYNTAX.into())
}

/// Decodes a Go `hexutil.Bytes`.
pub(crate) fn bytes(value: &[u8]) -> Decoded<Vec<u8>> {
    const TYPE: &str = "hexutil.Bytes";
    let Some(text) = inside(value) else { return Err(DecodeError::kind("non-string", TYPE)) };
    let digits = byte_digits(text).map_err(|what| DecodeError::kind(what, TYPE))?;
    let bytes: Option<_> = digits.chunks_exact(2).map(byte).collect();
    bytes.ok_or_else(|| DecodeError::kind(SYNTAX, TYPE))
}

/// `hexutil.Decode` of a string literal, which must come to `N` bytes.
pub(crate) fn decoded_hex<const N: usize>(literal: &[u8], what: &str) -> Decoded<[u8; N]> {
    if let Some(bytes) = inside(literal).and_then(exact) {
        return Ok(bytes);
    }
    let text = decode(literal);
    if text.is_empty() {
        return Err("empty hex string".into());
    }
    let digits = without_prefix(text.as_bytes()).ok_or(NO_PREFIX)?;
    // Go's decoder finds a bad digit before an odd length.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(SYNTAX.into());
    }
    if digits.len() % 2 == 1 {
        return Err(ODD.into());
    }
    let bytes: Vec<u8> = digits.chunks_exact(2).filter_map(byte).collect();
    <[u8; N]>::try_from(bytes.as_slice()).map_err(|_| {
        let len = bytes.len();
        format!("hex has invalid length {len} after decoding; expected {N} for {what}").into()
    })
}

/// A `hexutil.Uint`: an index. The empty string is 0.
pub(crate) fn index(value: &[u8]) -> Decoded<u64> {
    uint(value, "hexutil.Uint")
}

/// A `hexutil.Uint64`, or another type of its rules.
pub(crate) fn uint(value: &[u8], into: &'static str) -> Decoded<u64> {
    let Some(text) = inside(value) else { return Err(DecodeError::kind("non-string", into)) };
    if text.is_empty() {
        return Ok(0);
    }
    // hexutil names a leading zero first: only then is a number too wide.
    let wide = without_prefix(text).is_some_and(|digits| digits.len() > 16 && digits[0] != b'0');
    let number = if wide { Err(TOO_WIDE) } else { quantity(text) };
    number.map_err(|what| DecodeError::kind(what, into))
}

/// A `hexutil.Big`: only whether it is one.
pub(crate) fn big(value: &[u8]) -> Decoded<()> {
    const TYPE: &str = "*hexutil.Big";
    let Some(text) = inside(value) else { return Err(DecodeError::kind("non-string", TYPE)) };
    if text.is_empty() {
        return Ok(());
    }
    let digits = number_digits(text).map_err(|what| DecodeError::kind(what, TYPE))?;
    if digits.len() > 64 {
        return Err(DecodeError::kind("hex number > 256 bits", TYPE));
    }
    let good = digits.iter().all(u8::is_ascii_hexdigit);
    if good { Ok(()) } else { Err(DecodeError::kind(SYNTAX, TYPE)) }
}

fn number_digits(text: &[u8]) -> Result<&[u8], &'static str> {
    match without_prefix(text).ok_or(NO_PREFIX)? {
        [] => Err("hex string \"0x\""),
        [b'0', _, ..] => Err("hex number with leading zero digits"),
        digits => Ok(digits),
    }
}

/// `hexutil.DecodeUint64`, for text that is not empty.
pub(crate) fn quantity(text: &[u8]) -> Result<u64, &'static str> {
    let digits = number_digits(text)?;
    let add = |number: u64, digit: &u8| Ok(number << 4 | u64::from(nibble(*digit).ok_or(SYNTAX)?));
    // Go goes digit by digit and stops at the 17th, be it bad or one too many.
    let number = digits.iter().take(17).try_fold(0, add)?;
    if digits.len() > 16 { Err(TOO_WIDE) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says<T: fmt::Debug>(decoded: Decoded<T>) -> String {
        decoded.unwrap_err().to_string()
    }

    #[test]
    fn numbers_in_lists_are_gos() {
        assert_eq!(floats(b"[1e-999,null,-0,50]", 4).unwrap().first, [0.0, 0.0, -0.0, 50.0]);
        let expected = "json: cannot unmarshal number 1e999 into Go value of type float64";
        assert_eq!(says(floats(b"[1e999,{}]", 4)), expected);
        let expected = "json: cannot unmarshal array into Go value of type float64";
        assert_eq!(says(floats(b"[[]]", 4)), expected);
    }

    #[test]
    fn long_list_of_numbers_is_checked_whole_and_kept_in_part() {
        let long = format!("[{}0]", "0,".repeat(1_000_000));
        let floats_of = floats(long.as_bytes(), 100).unwrap();
        assert_eq!((floats_of.first.len(), floats_of.len), (100, 1_000_001));
        assert!(floats_of.first.capacity() <= 128, "{}", floats_of.first.capacity());
        let expected = "json: cannot unmarshal string into Go value of type float64";
        assert_eq!(says(floats(long.replace("0]", "\"\"]").as_bytes(), 100)), expected);
    }

    /// Quoted, a byte takes four, and three copies of the message are made.
    #[test]
    fn error_about_a_long_value_repeats_its_begin() {
        let digits = "9".repeat(1 << 20);
        let bytes = [b"\"", &vec![0xff; 1 << 20][..], b"\""].concat();
        for said in [says(float(digits.as_bytes())), says(hex_or_decimal(&bytes))] {
            assert!(
                (MESSAGE_BYTES_MAX..8 * MESSAGE_BYTES_MAX).contains(&said.len()),
                "{}",
                said.len()
            );
        }
    }

    #[test]
    fn counts_are_hex_or_decimal() {
        for (text, count) in [("\"\"", 0), ("\"0x00ff\"", 255), ("\"007\"", 7), ("10", 10)] {
            assert_eq!(hex_or_decimal(text.as_bytes()), Ok(count), "{text}");
        }
        for text in ["+1", "0x", "0x+1", "1_0", "-1", "18446744073709551616", "ff"] {
            let expected = format!("invalid hex or decimal integer \"{text}\"");
            assert_eq!(says(hex_or_decimal(text.as_bytes())), expected);
        }
    }

    /// Compares with the results of the node's own types for these texts (Go 1.26, libevm
    /// v1.13.14-0.4.0.rc.2).
    #[test]
    fn hex_is_gos() {
        let big_words = [
            (&b"\"0x01\""[..], "hex number with leading zero digits"),
            (b"\"0xg\"", "invalid hex string"),
            (b"5", "non-string"),
        ];
        for (text, what) in big_words {
            let expected =
                format!("json: cannot unmarshal {what} into Go value of type *hexutil.Big");
            assert_eq!(says(big(text)), expected);
        }
        let twice = format!("\"0x0x{}\"", "1".repeat(38));
        assert_eq!(says(decoded_hex::<20>(twice.as_bytes(), "address")), SYNTAX);
        let expected =
            "json: cannot unmarshal invalid hex string into Go value of type common.Address";
        assert_eq!(says(address(twice.as_bytes())), expected);
        let escaped = format!("\"\\u0030X{}\"", "aB".repeat(20));
        assert_eq!(decoded_hex(escaped.as_bytes(), "address"), Ok([0xab; 20]));
        assert_eq!(says(decoded_hex::<20>(b"\"0x1g1\"", "address")), SYNTAX);
        assert_eq!(says(decoded_hex::<20>(b"\"0x111\"", "address")), ODD);
    }
}
