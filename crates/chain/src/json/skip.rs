//! Members that are not known: checked to be JSON, and skipped.
//!
//! A later release of avalanchego may add members, which an operator may admit. So an unknown value
//! may be anything, but it must be well-formed: a text that is not JSON must not reach a client.

use memchr::memchr2;

use super::cursor::Cursor;
use crate::refusal::ProofError;

/// Depth of an unknown value. Arbitrary: known values nest four deep.
const DEPTH_MAX: u32 = 64;

impl Cursor<'_> {
    /// Skips a value of any kind, without recursion: one bit a level says what to close.
    pub(crate) fn skip(&mut self) -> Result<(), ProofError> {
        let (mut depth, mut objects) = (0_u32, 0_u64);
        loop {
            let opened = match self.peek()? {
                Some(b'{') => Some(true),
                Some(b'[') => Some(false),
                _ => None,
            };
            if let Some(object) = opened {
                self.at += 1;
                // `objects` has 64 bits: one level more would push the outermost out.
                if depth == DEPTH_MAX {
                    return Err(self.expected("a value that is not so deep"));
                }
                (depth, objects) = (depth + 1, objects << 1 | u64::from(object));
                if !self.closes(if object { b'}' } else { b']' })? {
                    self.skip_key(object)?;
                    continue;
                }
                (depth, objects) = (depth - 1, objects >> 1);
            } else {
                self.skip_scalar()?;
            }
            // A value has ended; close whatever ends with it.
            loop {
                let object = objects & 1 == 1;
                if depth == 0 {
                    return Ok(());
                }
                if self.another(if object { b'}' } else { b']' }, "a comma or the end")? {
                    self.skip_key(object)?;
                    break;
                }
                (depth, objects) = (depth - 1, objects >> 1);
            }
        }
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
