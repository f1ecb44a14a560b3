//! Symbols of words, numbers and table entries. docs/PACKED.md lists them.

use crate::stream::facts::Word;

/// Symbols of a word.
pub(crate) mod word {
    pub(crate) const ZERO: u8 = 0;
    pub(crate) const SLOT: u8 = 1;
    /// A literal word of this chunk, by its distance.
    pub(crate) const RECENT: u8 = 6;
    pub(crate) const RECENT_COUNT: usize = 32;
    /// n bytes behind zeros.
    pub(crate) const LEFT: u8 = 37; // 38 is n = 1
    /// n bytes before zeros; n is a literal.
    pub(crate) const RIGHT: u8 = 70;
    /// n bytes behind 0xff; n is a literal.
    pub(crate) const NEGATIVE: u8 = 71;
    /// A literal word by its distance less [`RECENT_COUNT`], a literal byte.
    pub(crate) const FAR: u8 = 72;
    pub(crate) const FAR_COUNT: usize = 256;
    pub(crate) const TABLE: u8 = 73;
    /// Literals of fewer bytes are not referred to.
    pub(crate) const RECENT_BYTES_MIN: usize = 3;
}

/// First symbol of a table entry, for numbers, shapes of transactions and shapes of logs.
pub(crate) const NUMBER_TABLE: u8 = 17;
pub(crate) const TX_TABLE: u8 = 1;
pub(crate) const LOG_TABLE: u8 = 3;
/// Symbols before the shapes of transactions.
pub(crate) const TX_PARTS: u8 = 0;
/// Symbols before the shapes of logs.
pub(crate) const LOG_END: u8 = 0;
pub(crate) const LOG_PARTS: u8 = 1;
pub(crate) const LOG_PREDICTED: u8 = 2;

/// First symbol behind which a second one follows.
pub(crate) const WIDE: u8 = 192;

/// Entries that a table whose first symbol is `first` can have.
pub(crate) const fn table_max(first: u8) -> usize {
    (WIDE - first) as usize + 64 * 256
}

/// Writes the symbols of entry `id` of a table.
pub(crate) fn put_entry(symbols: &mut Vec<u8>, first: u8, id: usize) {
    let narrow = usize::from(WIDE - first);
    match id.checked_sub(narrow) {
        None => symbols.push(first + id as u8),
        Some(wide) => symbols.extend([WIDE + (wide >> 8) as u8, wide as u8]),
    }
}

/// Way to write a literal word with the fewest bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Literal {
    Left(usize),
    Right(usize),
    Negative(usize),
}

impl Literal {
    pub(crate) fn of(word: &Word) -> Self {
        let leading = |value: u8| word.iter().take_while(|byte| **byte == value).count();
        let left = 32 - leading(0);
        let right = 32 - word.iter().rev().take_while(|byte| **byte == 0).count();
        let negative = 32 - leading(0xff);
        // The other two forms write their length as a byte more.
        if left <= right + 1 && left <= negative + 1 {
            Self::Left(left)
        } else if right <= negative {
            Self::Right(right)
        } else {
            Self::Negative(negative)
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Left(bytes) | Self::Right(bytes) | Self::Negative(bytes) => bytes,
        }
    }

    /// Returns the bytes of the word that are written.
    pub(crate) fn part(self, word: &Word) -> &[u8] {
        match self {
            Self::Left(bytes) | Self::Negative(bytes) => &word[32 - bytes..],
            Self::Right(bytes) => &word[..bytes],
        }
    }
}
