//! Blooms of logs.

use std::ops::Range;

use alloy_primitives::{B256, Bloom};
use neve_keccak::keccak256_all;

use super::receipt::LogBody;

/// Slots of the table of words, by how many logs there are: powers of two. More take longer to
/// clear than they save.
const SLOTS_LEAST: usize = 256;
const SLOTS_MOST: usize = 16_384;
/// Slots in which a word is searched. Words made to want one slot are hashed each time that they
/// occur, and looking for them takes no longer than this.
const PROBES: usize = 8;
/// Words that are hashed together: enough to fill all lanes, and few enough to be a small part of
/// what an answer takes.
const TOGETHER: usize = 1024;

/// The blooms of an answer's logs: three bits for each address and topic.
///
/// Two thirds of the addresses and topics of a block are repetitions: the same tokens, the same
/// events (of 213 in an average Granite block, 74 differ). Each is hashed once, and all together.
pub(crate) struct Blooms {
    /// Index into `bits` of each address and topic, in the order of the logs, which of `bits` are
    /// its own.
    words: Vec<u32>,
    /// Place in `words` behind those of each log.
    ends: Vec<usize>,
    bits: Vec<[u16; 3]>,
}

impl Blooms {
    /// Makes the blooms of a response's logs.
    pub(crate) fn of<'l>(logs: impl ExactSizeIterator<Item = LogBody<'l>>) -> Self {
        let (mut known, mut words) = (Words::new(logs.len()), Vec::with_capacity(4 * logs.len()));
        let mut ends = Vec::with_capacity(logs.len());
        for log in logs {
            words.push(known.index(Word { word: log.address.into_word(), address: true }));
            words.extend(log.topics.iter().map(|topic| known.index(Word::topic(*topic))));
            ends.push(words.len());
        }
        Self { words, ends, bits: known.bits() }
    }

    /// Bloom of some of the logs, as of one receipt's (Yellow Paper, section 4.3.1).
    pub(crate) fn bloom(&self, logs: Range<usize>) -> Bloom {
        let behind = |log: usize| log.checked_sub(1).map_or(Some(&0), |last| self.ends.get(last));
        let words = behind(logs.start).zip(behind(logs.end));
        let words = words.and_then(|(start, end)| self.words.get(*start..*end)).unwrap_or_default();
        let mut bloom = Bloom::ZERO;
        for bits in words.iter().filter_map(|word| self.bits.get(*word as usize)) {
            set(&mut bloom, *bits);
        }
        bloom
    }
}

/// An address (padded to a word, to have one kind) or a topic.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    word: B256,
    address: bool,
}

impl Word {
    fn topic(word: B256) -> Self {
        Self { word, address: false }
    }

    fn bytes(&self) -> &[u8] {
        if self.address { &self.word[12..] } else { &self.word[..] }
    }
}

/// Words, most of them once.
struct Words {
    words: Vec<Word>,
    /// Index into `words` plus 1, or 0 for none.
    slots: Vec<u32>,
}

impl Words {
    fn new(logs: usize) -> Self {
        let slots = (4 * logs).next_power_of_two().clamp(SLOTS_LEAST, SLOTS_MOST);
        Self { words: Vec::with_capacity(2 * logs), slots: vec![0; slots] }
    }

    /// Index of a word.
    fn index(&mut self, word: Word) -> u32 {
        // Addresses and account topics end in random bytes, event topics are hashes.
        let first = usize::from(u16::from_le_bytes([word.word[31], word.word[30]]));
        for probe in first..first + PROBES {
            let at = probe % self.slots.len();
            match self.slots[at].checked_sub(1) {
                Some(index) if self.words[index as usize] == word => return index,
                Some(_) => {}
                None => {
                    self.slots[at] = self.words.len() as u32 + 1;
                    break;
                }
            }
        }
        self.words.push(word);
        self.words.len() as u32 - 1
    }

    /// The low eleven bits of each of the first three pairs of bytes of each hash.
    fn bits(&self) -> Vec<[u16; 3]> {
        let pair =
            |hash: &B256, at: usize| (u16::from(hash[at]) << 8 | u16::from(hash[at + 1])) & 0x7ff;
        let bits = |hash: &B256| [pair(hash, 0), pair(hash, 2), pair(hash, 4)];
        let mut all = Vec::with_capacity(self.words.len());
        for words in self.words.chunks(TOGETHER) {
            let words = words.iter().map(Word::bytes).collect::<Vec<_>>();
            all.extend(keccak256_all(&words).iter().map(bits));
        }
        all
    }
}

/// Bit 0 is the lowest of the last byte.
fn set(bloom: &mut Bloom, bits: [u16; 3]) {
    for bit in bits {
        bloom.0[255 - usize::from(bit >> 3)] |= 1 << (bit & 7);
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, BloomInput, keccak256};

    use super::super::receipt::LogData;
    use super::*;

    /// The library's own bloom, word by word.
    fn expected(logs: &[LogBody<'_>]) -> Bloom {
        let mut bloom = Bloom::ZERO;
        for log in logs {
            bloom.accrue(BloomInput::Raw(log.address.as_slice()));
            log.topics.iter().for_each(|topic| bloom.accrue(BloomInput::Raw(topic.as_slice())));
        }
        bloom
    }

    fn log(address: Address, topics: &[B256]) -> LogBody<'_> {
        LogBody { address, topics, data: LogData::Bytes(&[]) }
    }

    fn check(topics: &[B256]) {
        let logs: Vec<_> = topics
            .chunks(3)
            .map(|topics| log(Address::from_word(topics[0]), topics))
            .chain([log(Address::ZERO, &[])])
            .collect();
        let blooms = Blooms::of(logs.iter().copied());
        for start in 0..=logs.len() {
            for end in start..=logs.len().min(start + 3) {
                assert_eq!(blooms.bloom(start..end), expected(&logs[start..end]), "{start}..{end}");
            }
        }
    }

    #[test]
    fn words_that_differ_and_words_that_repeat() {
        check(&[]);
        check(&(0..100_u32).map(|at| keccak256((at % 7).to_le_bytes())).collect::<Vec<_>>());
        check(&(0..1000_u32).map(|at| keccak256(at.to_le_bytes())).collect::<Vec<_>>());
    }

    /// All want the same slot, and an address is not the topic that it looks like.
    #[test]
    fn words_of_one_slot() {
        let words = (0..64).map(|at| B256::right_padding_from(&[at])).collect::<Vec<_>>();
        check(&words);
        check(&[words.clone(), words].concat());
        check(&[Address::repeat_byte(1).into_word(); 6]);
    }

    #[test]
    fn logs_that_are_not_there_have_no_bits() {
        assert_eq!(Blooms::of([].into_iter()).bloom(0..1), Bloom::ZERO);
    }
}
