//! A JSON scanner with the grammar of Go's `encoding/json`: it finds where values end and refuses
//! what that refuses. Bytes inside strings are not decoded, and need not be UTF-8.

use super::nesting::{Malformed, Nesting};
use super::swar::plain_len;

/// Returns the text behind an escape whose backslash is consumed.
fn behind(escape: &[u8]) -> Option<&[u8]> {
    match escape {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => Some(rest),
        [b'u', digits @ ..] => {
            let (digits, rest) = digits.split_at_checked(4)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(rest)
        }
        _ => None,
    }
}

/// A place in a text.
#[derive(Clone, Copy)]
pub(crate) struct SyntaxScanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> SyntaxScanner<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next byte that is not white space, without taking it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Offset of the next one.
    fn next_at(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// Takes `byte` if it is next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.take(byte) { Ok(()) } else { Err(Malformed) }
    }

    /// Takes one value and returns its bytes. `depth` containers are open around it.
    pub(crate) fn value(&mut self, depth: usize) -> Result<&'a [u8], Malformed> {
        let first = self.peek().ok_or(Malformed)?;
        let from = self.at;
        match first {
            b'"' => return self.string(),
            b'{' | b'[' => self.container(depth)?,
            _ => self.scalar(first)?,
        }
        Ok(&self.bytes[from..self.at])
    }

    /// Takes a string, quotes included.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let from = self.next_at();
        let mut rest = self.bytes.get(from..).and_then(|rest| rest.strip_prefix(b"\""));
        while let Some(text) = rest {
            match text.split_at(plain_len(text)).1 {
                [b'"', after @ ..] => {
                    self.at = self.bytes.len() - after.len();
                    return Ok(&self.bytes[from..self.at]);
                }
                [b'\\', escape @ ..] => rest = behind(escape),
                _ => break, // a control character, or the end
            }
        }
        Err(Malformed)
    }

    /// Takes `text` if it is next.
    pub(crate) fn take_text<const N: usize>(&mut self, text: &[u8; N]) -> bool {
        let found = self.bytes[self.at..].first_chunk() == Some(text);
        self.at += if found { N } else { 0 };
        found
    }

    /// The next number in JSON that was taken before, however deep it lies.
    pub(crate) fn next_number(&mut self) -> Option<&'a [u8]> {
        loop {
            match *self.bytes.get(self.at)? {
                // Digits in a string are no number.
                b'"' => drop(self.string().ok()?),
                b'-' | b'0'..=b'9' => return self.value(0).ok(),
                _ => self.at += 1,
            }
        }
    }

    fn next(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    fn scalar(&mut self, first: u8) -> Result<(), Malformed> {
        match first {
            b'"' => self.string().map(|_| ()),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => Err(Malformed),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Malformed> {
        let found = self.bytes[self.at..].starts_with(word);
        // May be past the end: after an error no caller reads on.
        self.at += word.len();
        if found { Ok(()) } else { Err(Malformed) }
    }

    fn number(&mut self) -> Result<(), Malformed> {
        self.at += usize::from(self.bytes[self.at] == b'-');
        match self.next()? {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return Err(Malformed),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            self.at += usize::from(matches!(self.bytes.get(self.at), Some(b'+' | b'-')));
            self.some_digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), Malformed> {
        let from = self.at;
        self.digits();
        if self.at > from { Ok(()) } else { Err(Malformed) }
    }

    /// Takes a container with everything in it. Not by recursion: the depth is the sender's.
    fn container(&mut self, outside: usize) -> Result<(), Malformed> {
        let mut open = Nesting::default();
        loop {
            let first = self.peek().ok_or(Malformed)?;
            if let b'{' | b'[' = first {
                self.at += 1;
                open.push(first == b'{', outside)?;
                // A key first: its value is the next round's.
                if open.is_object() && self.peek() == Some(b'"') {
                    self.key()?;
                    continue;
                }
                // `close` refuses the bracket of the other kind.
                if !matches!(self.peek(), Some(b'}' | b']')) {
                    if open.is_object() {
                        return Err(Malformed);
                    }
                    continue;
                }
            } else {
                self.scalar(first)?;
            }
            if self.close(&mut open)? {
                return Ok(());
            }
        }
    }

    /// Closes what ends behind a value. True when the outermost container did.
    fn close(&mut self, open: &mut Nesting) -> Result<bool, Malformed> {
        while !open.is_empty() {
            match (self.peek(), open.is_object()) {
                (Some(b','), is_object) => {
                    self.at += 1;
                    if is_object {
                        self.key()?;
                    }
                    return Ok(false);
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    self.at += 1;
                    open.pop();
                }
                _ => return Err(Malformed),
            }
        }
        Ok(true)
    }

    fn key(&mut self) -> Result<(), Malformed> {
        self.string()?;
        self.expect(b':')
    }
}

#[cfg(test)]
mod tests {
    use super::super::nesting::DEPTH_MAX;
    use super::*;

    fn whole(text: &str) -> bool {
        let mut scanner = SyntaxScanner::new(text.as_bytes());
        scanner.value(0).is_ok() && scanner.peek().is_none()
    }

    #[test]
    fn takes_what_json_is() {
        for good in [
            "{}",
            "[]",
            " [ ] ",
            r#"{"a":[{},[1,"x"],null]}"#,
            "-0",
            "1.5e+7",
            "0E-1",
            "true",
            r#""\u12aF\n\/""#,
            "[[[[]]],{}]",
            r#"{"":{"":{}}}"#,
            "\"\u{7f}é\"",
        ] {
            assert!(whole(good), "{good}");
        }
        for bad in [
            "",
            "{",
            "[",
            "[,]",
            "[1,]",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "{1:2}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "tru",
            "nul",
            "True",
            "NaN",
            "\"",
            r#""\x""#,
            r#""\u12g4""#,
            "\"\n\"",
            "[1 2]",
            "[}",
            "{]",
            "[[]",
            "'a'",
            "[1]]",
            r#"{"a":1]"#,
        ] {
            assert!(!whole(bad), "{bad}");
        }
    }

    #[test]
    fn depth_is_bounded_where_go_bounds_it() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(whole(&nested(DEPTH_MAX)));
        assert!(!whole(&nested(DEPTH_MAX + 1)));
        let objects = |depth| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        assert!(whole(&objects(DEPTH_MAX)));
        assert!(!whole(&objects(DEPTH_MAX + 1)));
        assert!(SyntaxScanner::new(nested(DEPTH_MAX).as_bytes()).value(1).is_err());
    }
}
