//! A cursor over an answer: reads the few kinds of value that blocks and receipts are made of, and
//! remembers where each began.
//!
//! Written by hand because three things are wanted in one pass that no deserialiser gives: the byte
//! range of each field, a refusal of whatever avalanchego would have written differently, and
//! values borrowed from the text. Nothing here recurses, allocates, or looks at a byte more than a
//! fixed number of times.

use std::ops::Range;

use alloy_primitives::U256;
use memchr::memchr;

use super::hex;
use super::hex::Hex;
use super::object::{Form, Keys, Object};
use super::unknown_key::UnknownKey;
use crate::refusal::ProofError;

/// Place in a text, and how closely the text must follow the node's form.
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    /// Invariant: at most `text.len()`.
    pub(crate) at: usize,
    form: Form,
    /// Keys that no known release writes, each once.
    unknown: Vec<UnknownKey<'a>>,
}

/// Kinds of unknown keys in a text; more are refused, so that the list stays short.
const UNKNOWN_MAX: usize = 16;

impl<'a> Cursor<'a> {
    /// Reads a text that is one value and nothing else.
    pub(crate) fn read<T>(
        text: &'a [u8],
        form: Form,
        read: impl FnOnce(&mut Self) -> Result<T, ProofError>,
    ) -> Result<T, ProofError> {
        // Places in the text are kept as u32.
        if u32::try_from(text.len()).is_err() {
            return Err(ProofError::TooLong { bytes: text.len() });
        }
        let mut cursor = Self { text, at: 0, form, unknown: Vec::new() };
        let value = read(&mut cursor)?;
        match cursor.peek()? {
            None => Ok(value),
            Some(_) => Err(cursor.expected("the end of the answer")),
        }
    }

    /// Offset of the next value.
    pub(crate) fn position(&mut self) -> Result<u32, ProofError> {
        self.peek()?;
        Ok(self.offset())
    }

    /// Reads a value and says where it was.
    pub(crate) fn spanned<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ProofError>,
    ) -> Result<(T, Range<u32>), ProofError> {
        let start = self.position()?;
        let value = read(self)?;
        Ok((value, start..self.offset()))
    }

    /// Offset just behind what was read last.
    pub(crate) fn offset(&self) -> u32 {
        u32::try_from(self.at).expect("read() refuses longer texts")
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next byte that is not white space, which a node never writes.
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, ProofError> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\t' | b'\r' | b'\n') if self.form == Form::Any => self.at += 1,
                Some(b' ' | b'\t' | b'\r' | b'\n') => return Err(self.shape("white space")),
                other => return Ok(other.copied()),
            }
        }
    }

    pub(crate) fn expect(&mut self, byte: u8, name: &'static str) -> Result<(), ProofError> {
        if self.peek()? != Some(byte) {
            return Err(self.expected(name));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes what follows an item: true for a comma, false for the closing byte.
    pub(crate) fn another(&mut self, close: u8, name: &'static str) -> Result<bool, ProofError> {
        let next = self.peek()?;
        if next != Some(b',') && next != Some(close) {
            return Err(self.expected(name));
        }
        self.at += 1;
        Ok(next == Some(b','))
    }

    /// Tells whether the list or object that was just opened ends at once; consumes the closing
    /// byte.
    pub(crate) fn closes(&mut self, close: u8) -> Result<bool, ProofError> {
        let empty = self.peek()? == Some(close);
        self.at += usize::from(empty);
        Ok(empty)
    }

    /// Reads an object. `member` is called for each known key, with it and the offset of its
    /// opening quote, and reads the value. Unknown members are checked to be JSON, skipped and
    /// noted. The proof of the text rejects them, see [`crate::AdmittedKeys`].
    pub(crate) fn object(
        &mut self,
        object: &'static Object,
        mut member: impl FnMut(&mut Self, &'static str, u32) -> Result<(), ProofError>,
    ) -> Result<(), ProofError> {
        self.expect(b'{', "an object")?;
        let mut keys = Keys::new(object);
        let mut more = !self.closes(b'}')?;
        while more {
            let start = self.position()?;
            let known = self.key(&mut keys)?;
            self.expect(b':', "a colon")?;
            match known {
                Some(name) => member(self, name, start)?,
                None => self.skip()?,
            }
            more = self.another(b'}', "a comma or the end of an object")?;
        }
        keys.finish(self.form)
    }

    /// Reads a key, and refuses one that is out of order or given before.
    fn key(&mut self, keys: &mut Keys<'a>) -> Result<Option<&'static str>, ProofError> {
        let start = self.at;
        let key = self.string()?;
        // Escapes could spell a known key another way.
        if !key.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'\\') {
            return Err(ProofError::Json { at: start, expected: "a plain key" });
        }
        let known = keys.take(key, self.form).map_err(|what| match keys.misplaced() {
            Some(key) => UnknownKey::new(keys.object(), key).refusal(),
            None => ProofError::Shape { at: start, what },
        })?;
        if known.is_none() && self.form == Form::Node {
            self.note_unknown(UnknownKey::new(keys.object(), key), start)?;
        }
        Ok(known)
    }

    #[cold]
    fn note_unknown(&mut self, key: UnknownKey<'a>, at: usize) -> Result<(), ProofError> {
        if self.unknown.contains(&key) {
            return Ok(());
        }
        // The sender decides how many there are: a list without bound would grow with the text.
        if self.unknown.len() == UNKNOWN_MAX {
            return Err(ProofError::Shape { at, what: "many unknown keys" });
        }
        self.unknown.push(key);
        Ok(())
    }

    /// The unknown keys so far, which are forgotten here.
    pub(crate) fn take_unknown(&mut self) -> Vec<UnknownKey<'a>> {
        std::mem::take(&mut self.unknown)
    }

    /// Reads a list; `item` reads each value.
    pub(crate) fn list(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), ProofError>,
    ) -> Result<(), ProofError> {
        self.expect(b'[', "a list")?;
        let mut more = !self.closes(b']')?;
        while more {
            item(self)?;
            more = self.another(b']', "a comma or the end of a list")?;
        }
        Ok(())
    }

    /// Consumes `null` if it is next.
    pub(crate) fn null(&mut self) -> Result<bool, ProofError> {
        self.peek()?;
        Ok(self.literal(b"null"))
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, ProofError> {
        self.peek()?;
        let value = self.literal(b"true");
        if value || self.literal(b"false") { Ok(value) } else { Err(self.expected("a boolean")) }
    }

    pub(crate) fn literal(&mut self, literal: &[u8]) -> bool {
        let found = self.rest().starts_with(literal);
        self.at += if found { literal.len() } else { 0 };
        found
    }

    /// Reads a string up to the next quote. The caller refuses escapes by its own rule.
    fn string(&mut self) -> Result<&'a [u8], ProofError> {
        self.expect(b'"', "a string")?;
        let text = self.rest();
        let end = memchr(b'"', text).ok_or_else(|| self.expected("the end of a string"))?;
        self.at += end + 1;
        Ok(text.get(..end).unwrap_or_default())
    }

    /// Reads `"0x.."` and interprets its digits.
    fn digits<T>(
        &mut self,
        expected: &'static str,
        value: impl FnOnce(&'a [u8]) -> Option<T>,
    ) -> Result<T, ProofError> {
        let at = self.at;
        let digits = self.string()?.strip_prefix(b"0x");
        digits.and_then(value).ok_or(ProofError::Hex { at, expected })
    }

    pub(crate) fn quantity(&mut self) -> Result<u64, ProofError> {
        self.digits("a minimal lower-case quantity of 64 bits", hex::quantity)
    }

    pub(crate) fn quantity_256(&mut self) -> Result<U256, ProofError> {
        self.digits("a minimal lower-case quantity of 256 bits", hex::quantity_256)
    }

    pub(crate) fn bytes(&mut self) -> Result<Hex<'a>, ProofError> {
        self.digits("whole bytes in lower case", Hex::new)
    }

    /// Exactly `N` bytes, as whatever type wraps them.
    pub(crate) fn fixed<T: From<[u8; N]>, const N: usize>(&mut self) -> Result<T, ProofError> {
        let expected = match N {
            8 => "8 bytes in lower case",
            20 => "20 bytes in lower case",
            32 => "32 bytes in lower case",
            _ => "256 bytes in lower case",
        };
        self.digits(expected, |digits| hex::fixed::<N>(digits).map(T::from))
    }

    pub(crate) fn expected(&self, expected: &'static str) -> ProofError {
        ProofError::Json { at: self.at, expected }
    }

    fn shape(&self, what: &'static str) -> ProofError {
        ProofError::Shape { at: self.at, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str, form: Form) -> Result<Vec<(u64, Range<u32>)>, ProofError> {
        let mut found = Vec::new();
        Cursor::read(text.as_bytes(), form, |cursor| {
            cursor.list(|cursor| {
                found.push(cursor.spanned(Cursor::quantity)?);
                Ok(())
            })
        })?;
        Ok(found)
    }

    #[test]
    fn spans_are_of_the_value_alone() {
        let expected = [(1, 1..6), (0xff, 7..13)];
        assert_eq!(numbers(r#"["0x1","0xff"]"#, Form::Node).unwrap(), expected);
        let spaced = numbers(" [ \"0x1\" ,\n\"0xff\" ] ", Form::Any).unwrap();
        assert_eq!(spaced, [(1, 3..8), (0xff, 11..17)]);
        assert_eq!(numbers("[]", Form::Node).unwrap(), []);
    }

    #[test]
    fn a_node_writes_no_white_space() {
        let good = r#"["0x1","0xff"]"#;
        for at in [0, 1, 6, 7, 13, 14] {
            let mut text = good.to_owned();
            text.insert(at, ' ');
            assert_eq!(numbers(&text, Form::Node).unwrap_err().reason(), "shape", "{text}");
            assert!(numbers(&text, Form::Any).is_ok(), "{text}");
        }
    }

    #[test]
    fn lists_must_be_closed() {
        for wrong in ["", "[", "]", r#"["0x1""#, r#"["0x1",]"#, r#"["0x1"}"#, "[]]", "[][]"] {
            assert_eq!(numbers(wrong, Form::Any).unwrap_err().reason(), "json", "{wrong}");
        }
        for wrong in [r#"["1"]"#, r#"["0x01"]"#, r#"["0xF"]"#, r#"["0x"]"#, r#"["0x1\""]"#] {
            assert_eq!(numbers(wrong, Form::Any).unwrap_err().reason(), "hex", "{wrong}");
        }
    }

    #[test]
    fn literals() {
        let read = |text: &'static str| {
            Cursor::read(text.as_bytes(), Form::Node, |cursor| {
                Ok((cursor.null()?, cursor.boolean()?))
            })
        };
        assert_eq!(read("nulltrue").unwrap(), (true, true));
        assert_eq!(read("false").unwrap(), (false, false));
        assert!(read("True").is_err());
    }
}
