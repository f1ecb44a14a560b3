//! Strings between JSON and Go: decoded as `encoding/json` decodes them, encoded as it does.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::{iter, str};

/// The text of a JSON string literal that the scanner took, quotes included. Bad UTF-8 and
/// unpaired surrogates become U+FFFD, as in Go.
pub(crate) fn decode(literal: &[u8]) -> Cow<'_, str> {
    let inside = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
    // Names and hashes have no escapes: they are borrowed, and only others are copied.
    if inside.contains(&b'\\') {
        return Cow::Owned(unescape(inside));
    }
    match str::from_utf8(inside) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(each_bad_byte_replaced(inside)),
    }
}

/// Bad bytes that are replaced in a text: many more than an error repeats, or a name has that is known.
const REPLACED_MAX: usize = 2 << 10;

/// Go replaces each bad byte by one U+FFFD, where Rust's lossy conversion replaces sequences. Beyond
/// [`REPLACED_MAX`] bad bytes are left out: the text would have three times the memory of the client's.
fn each_bad_byte_replaced(bytes: &[u8]) -> String {
    let bad: usize = bytes.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    let mut left = bad.min(REPLACED_MAX);
    let mut text = String::with_capacity(bytes.len() + 2 * left);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let replaced = chunk.invalid().len().min(left);
        left -= replaced;
        text.extend(iter::repeat_n(char::REPLACEMENT_CHARACTER, replaced));
    }
    text
}

fn unescape(inside: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        bytes.extend_from_slice(&rest[..at]);
        let (decoded, after) = escape(&rest[at + 1..]);
        bytes.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes());
        rest = after;
    }
    bytes.extend_from_slice(rest);
    String::from_utf8(bytes).unwrap_or_else(|bad| each_bad_byte_replaced(bad.as_bytes()))
}

/// The character of an escape, whose backslash is gone, and what follows it.
fn escape(text: &[u8]) -> (char, &[u8]) {
    let Some((kind, after)) = text.split_first() else {
        return (char::REPLACEMENT_CHARACTER, text);
    };
    match kind {
        b'b' => ('\u{8}', after),
        b'f' => ('\u{c}', after),
        b'n' => ('\n', after),
        b'r' => ('\r', after),
        b't' => ('\t', after),
        b'u' => unicode_escape(after),
        // The scanner lets only a quote, a backslash and a slash come here.
        other => (char::from(*other), after),
    }
}

fn unicode_escape(text: &[u8]) -> (char, &[u8]) {
    let Some((first, after)) = hex4(text) else { return (char::REPLACEMENT_CHARACTER, text) };
    let low = after.strip_prefix(b"\\u").and_then(hex4);
    match (first, low) {
        // Two escapes of one character beyond the first plane (RFC 8259, 7).
        (0xd800..0xdc00, Some((low @ 0xdc00..0xe000, after))) => {
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
            (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), after)
        }
        // After a lone surrogate the next escape stands for itself, as in Go.
        _ => (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), after),
    }
}

fn hex4(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, after) = text.split_at_checked(4)?;
    let digits = str::from_utf8(digits).ok()?;
    Some((u32::from_str_radix(digits, 16).ok()?, after))
}

/// Appends `text` as a JSON string, with the escapes of Go's encoder for HTML.
pub(crate) fn encode(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend([b'\\', character as u8]),
            // Go has short forms of these two since 1.22.
            '\u{8}' => out.extend(b"\\b"),
            '\u{c}' => out.extend(b"\\f"),
            '\n' => out.extend(b"\\n"),
            '\r' => out.extend(b"\\r"),
            '\t' => out.extend(b"\\t"),
            '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.extend(format!("\\u{:04x}", character as u32).bytes());
            }
            _ => out.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    out.push(b'"');
}

/// `%q` of Go's `fmt`: in quotes, with everything escaped that does not print.
pub(crate) fn quote(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|character| quote_one(&mut out, character));
        for byte in chunk.invalid() {
            write(&mut out, format_args!("\\x{byte:02x}"));
        }
    }
    out.push('"');
    out
}

fn quote_one(out: &mut String, character: char) {
    match character {
        '"' | '\\' => out.extend(['\\', character]),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\u{b}' => out.push_str("\\v"),
        '\u{c}' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        ' '..='~' => out.push(character),
        '\0'..='\u{7f}' => write(out, format_args!("\\x{:02x}", character as u32)),
        _ if prints(character) => out.push(character),
        '\u{80}'..='\u{ffff}' => write(out, format_args!("\\u{:04x}", character as u32)),
        _ => write(out, format_args!("\\U{:08x}", character as u32)),
    }
}

fn write(out: &mut String, escape: fmt::Arguments<'_>) {
    out.write_fmt(escape).expect("a String takes everything");
}

/// True if a character beyond ASCII prints. Rust's tables, which follow Unicode as Go's do; after
/// a letter, because Rust escapes a combining mark that stands first.
fn prints(character: char) -> bool {
    let text: String = ['a', character].into_iter().collect();
    text.escape_debug().eq(text.chars())
}

/// Appends an id as it came, with what Go escapes in raw JSON that it passes on.
pub(crate) fn echo(out: &mut Vec<u8>, id: &[u8]) {
    let mut rest = id;
    // U+2028 and U+2029 begin with 0xe2; in JavaScript they end a line, so Go escapes them.
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xe2)) {
        out.extend_from_slice(&rest[..at]);
        let (escaped, len): (&[u8], usize) = match &rest[at..] {
            [b'<', ..] => (b"\\u003c", 1),
            [b'>', ..] => (b"\\u003e", 1),
            [b'&', ..] => (b"\\u0026", 1),
            [0xe2, 0x80, 0xa8, ..] => (b"\\u2028", 3),
            [0xe2, 0x80, 0xa9, ..] => (b"\\u2029", 3),
            other => (&other[..1], 1),
        };
        out.extend_from_slice(escaped);
        rest = &rest[at + len..];
    }
    out.extend_from_slice(rest);
}

/// JSON without the white space between its tokens.
pub(crate) fn compact(json: &[u8]) -> Vec<u8> {
    let (mut in_string, mut is_escaped) = (false, false);
    let keeps = |byte: &u8| {
        let keep = in_string || !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        in_string ^= *byte == b'"' && !is_escaped;
        is_escaped = in_string && *byte == b'\\' && !is_escaped;
        keep
    };
    json.iter().copied().filter(keeps).collect()
}

/// True if a key's literal is `name` to Go: whatever the case, escapes decoded. `name` is lower
/// case ASCII.
pub fn is_key(literal: &[u8], name: &str) -> bool {
    let inside = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
    if inside.eq_ignore_ascii_case(name.as_bytes()) {
        return true;
    }
    // An escape is longer than what it stands for, and so are the characters that fold into ASCII.
    let may_be = inside.len() > name.len() && (!inside.is_ascii() || inside.contains(&b'\\'));
    may_be && decode(literal).chars().map(fold).eq(name.chars())
}

/// Case folding as far as ASCII names are concerned: two characters beyond ASCII fold into it.
fn fold(character: char) -> char {
    match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    }
}

/// Returns the text between the quotes of a string literal, not decoded: Go's hex types do not
/// either.
pub(crate) fn inside(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_gos() {
        assert_eq!(decode(br#""eth_chainId""#), "eth_chainId");
        assert_eq!(decode(br#""\u0065th\n\/\"""#), "eth\n/\"");
        assert_eq!(decode(br#""\ud83d\ude00""#), "\u{1f600}");
        assert_eq!(decode(br#""\ud83dx\ude00""#), "\u{fffd}x\u{fffd}");
        assert_eq!(decode(b"\"a\xff\xfe\xe2\x82z\""), "a\u{fffd}\u{fffd}\u{fffd}\u{fffd}z");
        assert_eq!(decode(b"\"\\n\xff\""), "\n\u{fffd}");
    }

    /// A body of a client is counted as long as it is, and one of 5 MiB may be one name.
    #[test]
    fn text_of_bad_bytes_takes_little_more_memory_than_they_do() {
        for (start, end) in [("", ""), ("\\n", "_subscribe")] {
            let inside = [start.as_bytes(), &vec![0xff; 1 << 20][..], end.as_bytes()].concat();
            let literal = [&b"\""[..], &inside, b"\""].concat();
            let Cow::Owned(text) = decode(&literal) else { panic!("it is no UTF-8") };
            assert!(text.capacity() <= inside.len() + 3 * REPLACED_MAX, "{}", text.capacity());
            assert!(text.ends_with(end) && text.matches('\u{fffd}').count() == REPLACED_MAX);
        }
    }

    #[test]
    fn encoding_is_gos() {
        let mut out = Vec::new();
        encode(&mut out, "a\"\\<&>\n\u{1}\u{2028}é\u{7f}\u{fffd}");
        let expected = "\"a\\\"\\\\\\u003c\\u0026\\u003e\\n\\u0001\\u2028é\u{7f}\u{fffd}\"";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// Compares with the output of Go 1.26.
    #[test]
    fn quoting_is_gos() {
        let pairs = [
            (&b"0xg"[..], r#""0xg""#),
            (b"a\"\\b", r#""a\"\\b""#),
            (b"\x7f\0\x07\x0b\n", r#""\x7f\x00\a\v\n""#),
            (b"\xff", r#""\xff""#),
            ("a\u{301}\u{ad}\u{200b}é\u{2028}".as_bytes(), "\"a\u{301}\\u00ad\\u200bé\\u2028\""),
            ("\u{1f600}\u{fffd}".as_bytes(), "\"\u{1f600}\u{fffd}\""),
        ];
        for (bytes, quoted) in pairs {
            assert_eq!(quote(bytes), quoted);
        }
    }

    #[test]
    fn an_id_comes_back_with_html_escaped() {
        let mut out = Vec::new();
        echo(&mut out, b"\"<&>\xe2\x80\xa8\xe2\x80\xa9\xe2\x82\xac\xff\xe2\"");
        assert_eq!(out, b"\"\\u003c\\u0026\\u003e\\u2028\\u2029\xe2\x82\xac\xff\xe2\"");
    }

    #[test]
    fn keys_match_whatever_their_case() {
        for key in [r#""params""#, r#""PARAMS""#, r#""\u0070arams""#, "\"param\u{17f}\""] {
            assert!(is_key(key.as_bytes(), "params"), "{key}");
        }
        assert!(!is_key(br#""param""#, "params"));
        assert!(!is_key("\"pérams\"".as_bytes(), "params"));
    }
}
