//! Members that are not known: checked to be JSON, and skipped.
//!
//! A later release of avalanchego may add members, which an operator may admit. So an unknown value
//! may be anything, but it must be well-formed: a text that is not JSON must not reach a client.

use memchr::memchr2;

use super::cursor::Cursor;
use crate::refusal::ProofError;

/// Depth of an unknown value. Arbitrary: known values nest four deep.
const DEPTH_MAX: u32 = 64;

/// Objects and lists that are open.
#[derive(Default)]
struct OpenValues {
    depth: u32,
    /// Bit of each level, which says what to close: 1 for an object. The innermost level is the lowest bit.
    objects: u64,
}

impl OpenValues {
    /// Opens an object or a list, or says that it is too deep.
    fn push(&mut self, object: bool) -> Option<()> {
        // `objects` has 64 bits: one level more would push the outermost out.
        if self.depth == DEPTH_MAX {
            return None;
        }
        (self.depth, self.objects) = (self.depth + 1, self.objects << 1 | u64::from(object));
        Some(())
    }

    fn pop(&mut self) {
        (self.depth, self.objects) = (self.depth - 1, self.objects >> 1);
    }

    /// Tells whether the innermost open value is an object; `None` if none is open.
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.objects & 1 == 1)
    }
}

/// The byte that closes an object or a list.
fn end(object: bool) -> u8 {
    if object { b'}' } else { b']' }
}

impl Cursor<'_> {
    /// Skips a value of any kind, without recursion.
    pub(crate) fn skip(&mut self) -> Result<(), ProofError> {
        let mut open = OpenValues::default();
        loop {
            if let Some(object) = self.opens()? {
                self.at += 1;
                open.push(object).ok_or_else(|| self.expected("a value that is not so deep"))?;
                if !self.closes(end(object))? {
                    self.skip_key(object)?;
                    continue;
                }
                open.pop();
            } else {
                self.skip_scalar()?;
            }
            if !self.goes_on(&mut open)? {
                return Ok(());
            }
        }
    }

    /// Tells whether the next value is an object (true), a list (false) or neither.
    fn opens(&mut self) -> Result<Option<bool>, ProofError> {
        Ok(match self.peek()? {
            Some(b'{') => Some(true),
            Some(b'[') => Some(false),
            _ => None,
        })
    }

    /// Closes all that ends with a value; true in front of another value, false if none is open.
    fn goes_on(&mut self, open: &mut OpenValues) -> Result<bool, ProofError> {
        while let Some(object) = open.innermost() {
            if self.another(end(object), "a comma or the end")? {
                self.skip_key(object)?;
                return Ok(true);
            }
            open.pop();
        }
        Ok(false)
    }

    fn skip_key(&mut self, object: bool) -> Result<(), ProofError> {
        if object {
            self.skip_string()?;
            self.expect(b':', "a colon")?;
        }
        Ok(())
    }

    fn skip_scalar(&mut self) -> Result<(), ProofError> {
        match self.peek()? {
            Some(b'"') => self.skip_string(),
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            _ if self.literal(b"null") || self.literal(b"true") || self.literal(b"false") => Ok(()),
            _ => Err(self.expected("a value")),
        }
    }

    fn skip_string(&mut self) -> Result<(), ProofError> {
        self.expect(b'"', "a string")?;
        loop {
            let text = self.rest();
            let stop = memchr2(b'"', b'\\', text);
            let stop = stop.ok_or_else(|| self.expected("the end of a string"))?;
            let (plain, tail) = text.split_at(stop);
            // Neither control characters nor anything but UTF-8 (RFC 8259 sections 7 and 8.1).
            if plain.iter().any(|byte| *byte < b' ') || str::from_utf8(plain).is_err() {
                return Err(self.expected("text"));
            }
            self.at += stop;
            if tail.first() == Some(&b'"') {
                self.at += 1;
                return Ok(());
            }
            self.skip_escape(tail)?;
        }
    }

    fn skip_escape(&mut self, tail: &[u8]) -> Result<(), ProofError> {
        let length = match tail {
            [_, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [_, b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_hexdigit()) => 6,
            _ => return Err(self.expected("an escape")),
        };
        self.at += length;
        Ok(())
    }

    /// `-`, digits without leading zeros, fraction, exponent (RFC 8259 section 6).
    fn skip_number(&mut self) -> Result<(), ProofError> {
        self.literal(b"-");
        if !self.literal(b"0") {
            self.skip_digits()?;
        }
        if self.literal(b".") {
            self.skip_digits()?;
        }
        if self.literal(b"e") || self.literal(b"E") {
            let _sign = self.literal(b"+") || self.literal(b"-");
            self.skip_digits()?;
        }
        Ok(())
    }

    fn skip_digits(&mut self) -> Result<(), ProofError> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        if digits == 0 { Err(self.expected("a digit")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::Form;
    use super::*;

    fn skip(text: &str) -> Result<(), ProofError> {
        Cursor::read(text.as_bytes(), Form::Node, Cursor::skip)
    }

    #[test]
    fn values_may_be_anything() {
        for good in [
            "null",
            "true",
            "false",
            "0",
            "-0",
            "-1.5e+10",
            "1E9",
            r#""""#,
            r#""a\"\\\u00ff b""#,
            "\"\u{e9}\u{1f512}\"",
            "[]",
            "{}",
            "[[],{}]",
            r#"[1,[2,{"a":[{}]}],"x"]"#,
            r#"{"":{"a":[]},"b":0}"#,
        ] {
            assert_eq!(skip(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn but_they_must_be_json() {
        for wrong in [
            "",
            "nul",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "\"",
            r#""\x""#,
            r#""\u12g4""#,
            "\"\n\"",
            "[",
            "]",
            "[1",
            "[1,]",
            "[,1]",
            "[1}",
            "{1}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1]"#,
            "[]]",
            "1 2",
            "'a'",
            "[1 ,2]",
            r#"{"a": 1}"#,
        ] {
            assert!(skip(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn strings_are_utf8() {
        let skip = |text| Cursor::read(text, Form::Node, Cursor::skip);
        for wrong in [&b"\"\xff\""[..], b"\"\xc3\"", b"\"\xc3\\n\"", b"\"\xed\xa0\x80\""] {
            assert!(skip(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(skip(&nested(64)), Ok(()));
        assert!(skip(&nested(65)).is_err());
        assert!(skip(&nested(1 << 20)).is_err());
    }
}
