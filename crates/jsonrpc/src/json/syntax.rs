//! Go's errors about text that is not JSON: over WebSocket the node passes it on.
//!
//! The words are those of `encoding/json`, `scanner.go`: a scanner that goes byte by byte and
//! says what it did not expect, and where. Of text that just ends it says nothing here, because
//! the node, which reads from a stream, says nothing either.

use super::nesting::DEPTH_MAX;

/// Returns the error of Go's scanner about the first value in `text`; `None` if the value only
/// lacks its end.
pub fn syntax_error(text: &[u8]) -> Option<String> {
    let mut scanner = GoScanner { text, at: 0, open: Vec::new() };
    scanner.value().err().flatten()
}

/// Reason why scanning stopped: `None` at the end of the text.
type Stopped = Option<String>;

struct GoScanner<'t> {
    text: &'t [u8],
    at: usize,
    /// The brackets that are open.
    open: Vec<u8>,
}

impl GoScanner<'_> {
    fn next(&mut self) -> Result<u8, Stopped> {
        let byte = *self.text.get(self.at).ok_or(None)?;
        self.at += 1;
        Ok(byte)
    }

    fn next_inside(&mut self) -> Result<u8, Stopped> {
        loop {
            match self.next()? {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                byte => return Ok(byte),
            }
        }
    }

    /// A value with all that is inside it, without recursion: depth is the sender's choice.
    fn value(&mut self) -> Result<(), Stopped> {
        let mut first = Some(self.next_inside()?);
        loop {
            first = match (first, self.open.last()) {
                (Some(first), _) => self.begin(first)?,
                (None, Some(bracket)) => self.inside(*bracket)?,
                (None, None) => return Ok(()),
            };
        }
    }

    /// Begins the value of this byte; if it opens a bracket, gives the byte that the first value in
    /// it begins with.
    fn begin(&mut self, byte: u8) -> Result<Option<u8>, Stopped> {
        match byte {
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number(byte)?,
            b't' => self.word("rue", "true")?,
            b'f' => self.word("alse", "false")?,
            b'n' => self.word("ull", "null")?,
            b'[' | b'{' => return self.opened(byte),
            _ => return Err(Some(invalid(byte, "looking for beginning of value"))),
        }
        Ok(None)
    }

    fn opened(&mut self, bracket: u8) -> Result<Option<u8>, Stopped> {
        // Before the next byte is read: Go's scanner counts a bracket as it comes.
        if self.open.len() >= DEPTH_MAX {
            return Err(Some(invalid(bracket, "exceeded max depth")));
        }
        match (bracket, self.next_inside()?) {
            (b'[', b']') | (b'{', b'}') => Ok(None),
            (_, first) => {
                self.open.push(bracket);
                if bracket == b'[' { Ok(Some(first)) } else { self.member(first).map(Some) }
            }
        }
    }

    /// A key; gives the byte that its value begins with.
    fn member(&mut self, first: u8) -> Result<u8, Stopped> {
        if first != b'"' {
            return Err(Some(invalid(first, "looking for beginning of object key string")));
        }
        self.string()?;
        match self.next_inside()? {
            b':' => self.next_inside(),
            byte => Err(Some(invalid(byte, "after object key"))),
        }
    }

    /// Reads on after a value; gives the byte that the next value begins with.
    fn inside(&mut self, bracket: u8) -> Result<Option<u8>, Stopped> {
        match (bracket, self.next_inside()?) {
            (b'[', b']') | (b'{', b'}') => {
                self.open.pop();
                Ok(None)
            }
            (b'[', b',') => self.next_inside().map(Some),
            (b'{', b',') => {
                let first = self.next_inside()?;
                self.member(first).map(Some)
            }
            (b'[', byte) => Err(Some(invalid(byte, "after array element"))),
            (_, byte) => Err(Some(invalid(byte, "after object key:value pair"))),
        }
    }

    fn string(&mut self) -> Result<(), Stopped> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                byte if byte < 0x20 => return Err(Some(invalid(byte, "in string literal"))),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), Stopped> {
        match self.next()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => (0..4).try_for_each(|_| match self.next()? {
                byte if byte.is_ascii_hexdigit() => Ok(()),
                byte => Err(Some(invalid(byte, "in \\u hexadecimal character escape"))),
            }),
            byte => Err(Some(invalid(byte, "in string escape code"))),
        }
    }

    fn word(&mut self, rest: &str, word: &str) -> Result<(), Stopped> {
        for expected in rest.bytes() {
            let byte = self.next()?;
            if byte != expected {
                let context = format!("in literal {word} (expecting {})", quoted(expected));
                return Err(Some(invalid(byte, &context)));
            }
        }
        Ok(())
    }

    /// A number ends where something else begins, which is looked at again.
    fn number(&mut self, first: u8) -> Result<(), Stopped> {
        let mut digit = first;
        if first == b'-' {
            digit = self.next()?;
            if !digit.is_ascii_digit() {
                return Err(Some(invalid(digit, "in numeric literal")));
            }
        }
        // Nothing follows a leading zero: Go ends the number there, and finds the next digit out of
        // place.
        if digit != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.exponent()?;
        }
        Ok(())
    }

    fn exponent(&mut self) -> Result<(), Stopped> {
        if matches!(self.peek(), Some(b'+' | b'-')) {
            self.at += 1;
        }
        self.digit("in exponent of numeric literal")
    }

    fn digit(&mut self, context: &str) -> Result<(), Stopped> {
        let byte = self.next()?;
        if !byte.is_ascii_digit() {
            return Err(Some(invalid(byte, context)));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

fn invalid(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", quoted(byte))
}

/// A byte as Go's `quoteChar` writes it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        0x00..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        // Go takes the byte for a code point: of Latin-1, these cannot be printed.
        0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_gos() {
        for (text, words) in [
            ("{bad", "invalid character 'b' looking for beginning of object key string"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("[[[x]]]", "invalid character 'x' looking for beginning of value"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("\"\n\"", r"invalid character '\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (r#""\u00g0""#, r"invalid character 'g' in \u hexadecimal character escape"),
            ("tru3", "invalid character '3' in literal true (expecting 'e')"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("[1.x]", "invalid character 'x' after decimal point in numeric literal"),
            ("[1e+]", "invalid character ']' in exponent of numeric literal"),
            ("[01]", "invalid character '1' after array element"),
            ("\u{feff}{}", "invalid character 'ï' looking for beginning of value"),
        ] {
            assert_eq!(syntax_error(text.as_bytes()).as_deref(), Some(words), "{text}");
        }
    }

    #[test]
    fn text_that_only_ends_is_not_spoken_of() {
        for text in ["", "  ", "{", "[1", "{\"jsonrpc\":\"2.0\"", "\"x", "tr", "-", "{}", "{}x"] {
            assert_eq!(syntax_error(text.as_bytes()), None, "{text}");
        }
    }

    /// The node was asked (avalanchego v1.14.2).
    #[test]
    fn bracket_beyond_the_depth_is_named_whatever_follows() {
        for (open, words) in [
            ("[", "invalid character '[' exceeded max depth"),
            ("{\"a\":", "invalid character '{' exceeded max depth"),
        ] {
            assert_eq!(syntax_error(open.repeat(DEPTH_MAX).as_bytes()), None);
            for end in ["", "]", "}", "x"] {
                let deep = open.repeat(DEPTH_MAX + 1) + end;
                assert_eq!(syntax_error(deep.as_bytes()).as_deref(), Some(words));
            }
        }
        let closed = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
        assert_eq!(syntax_error(closed.as_bytes()), None);
    }
}
