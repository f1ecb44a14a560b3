//! Search for the bytes of a string that end it or begin an escape.
//!
//! Names, hashes and quantities are most of a request, so eight bytes are looked at together.

const WORD: usize = size_of::<u64>();
/// The lowest bit of each byte, and the highest.
const LOW: u64 = u64::MAX / 0xff;
const HIGH: u64 = LOW << 7;

/// Number of bytes before the first that ends a string, begins an escape, or may not be there.
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<WORD>();
    for (at, word) in words.iter().enumerate() {
        let found = meaning(u64::from_le_bytes(*word));
        // Little-endian: the lowest byte that is marked comes first in the text.
        if found != 0 {
            return at * WORD + found.trailing_zeros() as usize / 8;
        }
    }
    let means = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    bytes.len() - rest.len() + rest.iter().position(means).unwrap_or(rest.len())
}

/// The highest bit of the first byte that means something, and of nothing before it. What is set
/// behind it says nothing: a borrow may have set it.
fn meaning(word: u64) -> u64 {
    let is = |byte: u8| below(word ^ (LOW * u64::from(byte)), 1);
    below(word, 0x20) | is(b'"') | is(b'\\')
}

/// Marks the first byte that is less than `limit`, which is at most 128.
fn below(word: u64, limit: u64) -> u64 {
    word.wrapping_sub(LOW * limit) & !word & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place, before and behind every other.
    #[test]
    fn first_byte_that_needs_care_is_found() {
        let means = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                for at in 0..2 * WORD {
                    let mut text = [b'a'; 2 * WORD + 3];
                    (text[at], text[at + 1]) = (first, second);
                    let expected = text.iter().position(|byte| means(*byte));
                    assert_eq!(plain_len(&text), expected.unwrap_or(text.len()), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn shorter_texts_are_looked_through_too() {
        for len in 0..3 * WORD {
            let mut text = vec![0xff; len];
            assert_eq!(plain_len(&text), len);
            for at in 0..len {
                text[at] = b'"';
                assert_eq!(plain_len(&text), at);
                text[at] = 0x7f;
            }
        }
    }
}
