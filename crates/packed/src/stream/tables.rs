//! The tables of a file: words, numbers and shapes that repeat, the most frequent first.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::container::bytes::{Bytes, put_varint};
use crate::container::layout::Section;
use crate::error::PackedError;
use crate::stream::facts::Word;
use crate::stream::fold_map::FoldMap;
use crate::stream::walk::{LogShape, TxShape};
use crate::stream::words::{LOG_TABLE, Literal, NUMBER_TABLE, TX_TABLE, table_max, word};

/// Likeliest log behind a shape: 0 is the end, else 1 + the log's shape.
#[derive(Debug, Default, Clone)]
pub(crate) struct Predictions {
    pub(crate) after_tx: Vec<u32>,
    pub(crate) after_log: Vec<u32>,
}

/// Tables of a file, in memory.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) words: Vec<Word>,
    pub(crate) numbers: Vec<u128>,
    pub(crate) tx_shapes: Vec<TxShape>,
    pub(crate) log_shapes: Vec<LogShape>,
    pub(crate) predictions: Predictions,
}

impl Tables {
    /// Returns the section's content, before zstd.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for count in
            [self.words.len(), self.numbers.len(), self.tx_shapes.len(), self.log_shapes.len()]
        {
            put_varint(&mut out, count as u64);
        }
        let literals = self.words.iter().map(|word| (Literal::of(word), word));
        out.extend(literals.clone().map(|(literal, _)| code(literal)));
        literals.for_each(|(literal, word)| out.extend_from_slice(literal.part(word)));
        for number in &self.numbers {
            let mut bytes = Vec::with_capacity(16);
            out.push(put_number(&mut bytes, *number));
            out.extend(bytes);
        }
        let ids: FoldMap<Word, u64> = self.words.iter().copied().zip(1..).collect();
        self.tx_shapes.iter().for_each(|shape| put_tx_shape(&mut out, shape, &ids));
        self.log_shapes.iter().for_each(|shape| put_log_shape(&mut out, shape, &ids));
        let Predictions { after_tx, after_log } = &self.predictions;
        after_tx.iter().chain(after_log).for_each(|next| put_varint(&mut out, u64::from(*next)));
        out
    }

    /// Reads the section's content.
    pub(crate) fn read(content: &[u8]) -> Result<Self, PackedError> {
        let mut bytes = Bytes::new(content, Section::Tables.name());
        let words = bytes.count(table_max(word::TABLE))?;
        let numbers = bytes.count(table_max(NUMBER_TABLE))?;
        let tx_shapes = bytes.count(table_max(TX_TABLE))?;
        let log_shapes = bytes.count(table_max(LOG_TABLE))?;
        let words = read_words(&mut bytes, words)?;
        let numbers = (0..numbers).map(|_| read_number(&mut bytes)).collect::<Result<_, _>>()?;
        let tx_shapes: Vec<TxShape> =
            (0..tx_shapes).map(|_| read_tx_shape(&mut bytes, &words)).collect::<Result<_, _>>()?;
        let log_shapes: Vec<LogShape> = (0..log_shapes)
            .map(|_| read_log_shape(&mut bytes, &words))
            .collect::<Result<_, _>>()?;
        let mut next = |count: usize| -> Result<Vec<u32>, PackedError> {
            (0..count).map(|_| Ok(bytes.count(log_shapes.len())? as u32)).collect()
        };
        let predictions =
            Predictions { after_tx: next(tx_shapes.len())?, after_log: next(log_shapes.len())? };
        bytes.end()?;
        Ok(Self { words, numbers, tx_shapes, log_shapes, predictions })
    }

    /// Returns the bytes that they take in memory.
    pub(crate) fn bytes(&self) -> usize {
        let Self { words, numbers, tx_shapes, log_shapes, predictions } = self;
        let Predictions { after_tx, after_log } = predictions;
        size_of_val(&words[..])
            + size_of_val(&numbers[..])
            + size_of_val(&tx_shapes[..])
            + size_of_val(&log_shapes[..])
            + size_of_val(&after_tx[..])
            + size_of_val(&after_log[..])
    }
}

/// Code of a word in the table: n for n bytes on the right, 64 + n on the left, 128 + n behind 0xff.
fn code(literal: Literal) -> u8 {
    match literal {
        Literal::Left(bytes) => bytes as u8,
        Literal::Right(bytes) => 64 + bytes as u8,
        Literal::Negative(bytes) => 128 + bytes as u8,
    }
}

fn read_words(bytes: &mut Bytes<'_>, count: usize) -> Result<Vec<Word>, PackedError> {
    let codes = bytes.take(count)?;
    let mut words = Vec::with_capacity(count);
    for code in codes {
        let length = usize::from(code & 63);
        if length > 32 {
            return Err(bytes.error("a word of more than 32 bytes"));
        }
        let part = bytes.take(length)?;
        words.push(match code >> 6 {
            0 => left(part, 0),
            1 => right(part),
            2 => left(part, 0xff),
            _ => return Err(bytes.error("an unknown code of a word")),
        });
    }
    Ok(words)
}

/// Puts at most 32 bytes at the end of a word.
pub(crate) fn left(part: &[u8], fill: u8) -> Word {
    let mut word = [fill; 32];
    if let Some(place) = word.get_mut(32 - part.len().min(32)..) {
        place.copy_from_slice(&part[..place.len()]);
    }
    word
}

/// Puts at most 32 bytes at the beginning of a word.
pub(crate) fn right(part: &[u8]) -> Word {
    let mut word = [0; 32];
    let length = part.len().min(32);
    word[..length].copy_from_slice(&part[..length]);
    word
}

fn read_number(bytes: &mut Bytes<'_>) -> Result<u128, PackedError> {
    let length = bytes.byte()?;
    if length > 16 {
        return Err(bytes.error("a number of more than 16 bytes"));
    }
    Ok(number(bytes.take(usize::from(length))?))
}

/// Appends the bytes of a number, the highest first and none for zero; returns their count.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u128) -> u8 {
    let bytes = (u128::BITS - number.leading_zeros()).div_ceil(8);
    out.extend((0..bytes).rev().map(|at| (number >> (8 * at)) as u8));
    bytes as u8
}

/// Returns a big-endian number of at most 16 bytes.
pub(crate) fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// A word as 1 + its place in the table, or 0 and its last `length` bytes.
fn put_word(out: &mut Vec<u8>, word: &Word, length: usize, ids: &FoldMap<Word, u64>) {
    if let Some(id) = ids.get(word) {
        return put_varint(out, *id);
    }
    out.push(0);
    out.extend_from_slice(&word[32 - length..]);
}

fn read_word(bytes: &mut Bytes<'_>, length: usize, words: &[Word]) -> Result<Word, PackedError> {
    match bytes.count(words.len())?.checked_sub(1) {
        Some(id) => words.get(id).copied().ok_or_else(|| bytes.error("no such word")),
        None => Ok(left(bytes.take(length)?, 0)),
    }
}

fn put_tx_shape(out: &mut Vec<u8>, shape: &TxShape, ids: &FoldMap<Word, u64>) {
    out.push(shape.flags);
    if shape.flags & TxShape::HAS_TO != 0 {
        put_word(out, &shape.to, 20, ids);
    }
    put_varint(out, shape.input_bytes);
    if shape.input_bytes >= 4 {
        out.extend_from_slice(&shape.selector);
    }
}

fn read_tx_shape(bytes: &mut Bytes<'_>, words: &[Word]) -> Result<TxShape, PackedError> {
    let flags = bytes.byte()?;
    // A later form could give other bits a meaning: they must not be passed over.
    if flags > 15 {
        return Err(bytes.error("unknown flags of a shape"));
    }
    let has_to = flags & TxShape::HAS_TO != 0;
    // The file chooses the word: it may be no address.
    let to = if has_to { as_address(read_word(bytes, 20, words)?) } else { [0; 32] };
    let input_bytes = bytes.varint()?;
    let selector = if input_bytes >= 4 { bytes.array()? } else { [0; 4] };
    Ok(TxShape { flags, to, selector, input_bytes })
}

fn put_log_shape(out: &mut Vec<u8>, shape: &LogShape, ids: &FoldMap<Word, u64>) {
    out.push(shape.topic_count);
    put_word(out, &shape.address, 20, ids);
    if shape.topic_count > 0 {
        put_word(out, &shape.topic, 32, ids);
    }
    put_varint(out, shape.data_bytes);
}

fn read_log_shape(bytes: &mut Bytes<'_>, words: &[Word]) -> Result<LogShape, PackedError> {
    let topic_count = bytes.byte()?;
    if topic_count > 4 {
        return Err(bytes.error("a log with more than four topics"));
    }
    let address = as_address(read_word(bytes, 20, words)?);
    let topic = if topic_count > 0 { read_word(bytes, 32, words)? } else { [0; 32] };
    Ok(LogShape { address, topic_count, topic, data_bytes: bytes.varint()? })
}

/// Clears the bytes of a word that no address has.
pub(crate) fn as_address(mut word: Word) -> Word {
    word[..12].fill(0);
    word
}

/// Bits in blooms of the words of a table, as they are met. Any thread may fill one in.
#[derive(Debug)]
pub(crate) struct BloomBits([Box<[AtomicU64]>; 2]);

impl BloomBits {
    pub(crate) fn new(words: usize) -> Self {
        Self([0, 1].map(|_| (0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|bits| size_of_val(&bits[..])).sum()
    }

    /// Returns the bits of word `id` as an address or as a topic, if they are known.
    pub(crate) fn get(&self, id: usize, topic: bool) -> Option<[u16; 3]> {
        let bits = self.0[usize::from(topic)].get(id)?.load(Ordering::Relaxed);
        // Bit 48 marks known bits: three zeros are bits, too.
        (bits >> 48 == 1).then_some([bits as u16, (bits >> 16) as u16, (bits >> 32) as u16])
    }

    pub(crate) fn set(&self, id: usize, topic: bool, bits: [u16; 3]) {
        if let Some(place) = self.0[usize::from(topic)].get(id) {
            let [a, b, c] = bits.map(u64::from);
            // All three in one store: a reader has the whole entry or none, so no order is needed.
            place.store(1 << 48 | c << 32 | b << 16 | a, Ordering::Relaxed);
        }
    }
}
