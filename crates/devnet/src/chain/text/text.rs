//! JSON as a node writes it: compact, values in lower-case hexadecimal.

use std::ops::Range;

use alloy_primitives::hex;

/// A text that grows.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Fixed text: keys, brackets, constants.
    pub(crate) fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Bytes, with both digits of each.
    pub(crate) fn bytes(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = bytes.as_ref();
        self.raw("\"0x");
        let start = self.0.len();
        self.0.resize(start + 2 * bytes.len(), 0);
        let digits = self.0.get_mut(start..).unwrap_or_default();
        hex::encode_to_slice(bytes, digits).expect("there is room for two digits a byte");
        self.raw("\"")
    }

    /// A number without leading zeros.
    pub(crate) fn quantity(&mut self, number: impl Into<u128>) -> &mut Self {
        let number = number.into();
        let digits = (128 - number.leading_zeros()).div_ceil(4).max(1);
        self.raw("\"0x");
        let digit = |place: u32| b"0123456789abcdef"[(number >> (4 * place) & 0xf) as usize];
        self.0.extend((0..digits).rev().map(digit));
        self.raw("\"")
    }

    /// A number of 32 bytes without leading zeros.
    pub(crate) fn word_quantity(&mut self, word: &[u8; 32]) -> &mut Self {
        let start = self.0.len();
        self.bytes(word);
        let digits = self.0.get(start + 3..start + 66).unwrap_or_default();
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        self.0.drain(start + 3..start + 3 + zeros);
        self
    }

    /// Items with commas between them.
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> &mut Self,
    ) -> &mut Self {
        self.raw("[");
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.raw(",");
            }
            write(self, item);
        }
        self.raw("]")
    }

    /// Place of the bytes that `write` writes.
    pub(crate) fn span(&mut self, write: impl FnOnce(&mut Self) -> &mut Self) -> Range<usize> {
        let start = self.0.len();
        write(self);
        start..self.0.len()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Text) -> &mut Text) -> String {
        let mut text = Text::default();
        write(&mut text);
        String::from_utf8(text.into_bytes()).unwrap()
    }

    #[test]
    fn quantities_have_no_leading_zeros() {
        for (number, expected) in [(0_u64, "0x0"), (1, "0x1"), (16, "0x10"), (0xabc, "0xabc")] {
            assert_eq!(text(|t| t.quantity(number)), format!("\"{expected}\""));
        }
        assert_eq!(text(|t| t.quantity(u128::MAX)), format!("\"0x{}\"", "f".repeat(32)));
    }

    #[test]
    fn words_as_quantities() {
        let word = |last: u8| std::array::from_fn(|at| if at == 31 { last } else { 0 });
        assert_eq!(text(|t| t.word_quantity(&word(0))), "\"0x0\"");
        assert_eq!(text(|t| t.word_quantity(&word(7))), "\"0x7\"");
        assert_eq!(text(|t| t.word_quantity(&[0x10; 32])), format!("\"0x{}\"", "10".repeat(32)));
        assert_eq!(text(|t| t.word_quantity(&[1; 32])), format!("\"0x1{}\"", "01".repeat(31)));
    }

    #[test]
    fn bytes_and_lists() {
        assert_eq!(text(|t| t.bytes([0, 0xff])), "\"0x00ff\"");
        assert_eq!(text(|t| t.bytes([])), "\"0x\"");
        assert_eq!(text(|t| t.list([1_u64, 2], Text::quantity)), r#"["0x1","0x2"]"#);
        assert_eq!(text(|t| t.list([0_u64; 0], Text::quantity)), "[]");
    }
}
