//! Heights in text form: block and receipts as they came, each in a zstd frame.
//!
//! A packer falls back to this form if the form of fields does not give the same bytes back.

use std::ops::Range;

use alloy_primitives::B256;
use neve_chain::{Block, Receipts};

use crate::container::bytes::{Bytes, put_varint};
use crate::error::{PackError, PackedError};
use crate::frames::compress::{compress_text, count_unpacked, decompress_text};
use crate::frames::frame::TEXT_BYTES_MAX;
use crate::read::log_out::LogOut;

const PLACE: &str = "frame in text form";
/// Text before the value that a read puts in.
const KEY: &[u8] = b"\"totalDifficulty\":";

/// `totalDifficulty`, which depends on the node's release and not on the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TotalDifficulty {
    /// The height: v1.14 and earlier.
    Number,
    /// Zero: v1.15 and later.
    Zero,
}

impl TotalDifficulty {
    /// Appends the value with its quotes.
    pub(crate) fn write(self, height: u64, out: &mut Vec<u8>) {
        let value = if self == Self::Zero { 0 } else { height };
        out.extend_from_slice(format!("\"{value:#x}\"").as_bytes());
    }

    /// Puts the value into a block's text, at the place of the value that was cut out.
    fn put_into(self, block: &mut Vec<u8>, at: usize, height: u64) -> Result<(), PackedError> {
        // A mirror verifies one value and serves the other: put in elsewhere, that one would make a false text.
        if !block.get(..at).is_some_and(|before| before.ends_with(KEY)) {
            let what = "a value that is not that of totalDifficulty";
            return Err(PackedError::malformed(PLACE, what));
        }
        let mut value = Vec::new();
        self.write(height, &mut value);
        block.splice(at..at, value);
        Ok(())
    }

    /// Reads the form that a block's text has; height 0 has both.
    pub(crate) fn of(block: &Block<'_>) -> Option<Self> {
        let total = block.total_difficulty?;
        let number = alloy_primitives::U256::from(block.header.number);
        if total == number {
            return Some(Self::Number);
        }
        total.is_zero().then_some(Self::Zero)
    }
}

/// Writes the text of a block without the value of `totalDifficulty`, and the receipts.
pub(crate) fn write(
    block: &[u8],
    difficulty: Option<Range<usize>>,
    receipts: &[u8],
) -> Result<Vec<u8>, PackError> {
    // 0 stands for a text without it.
    let at = difficulty.clone().map_or(0, |range| range.start as u64 + 1);
    let cut = difficulty.unwrap_or(block.len()..block.len());
    let block = [&block[..cut.start], &block[cut.end..]].concat();
    let mut out = Vec::new();
    put_varint(&mut out, at);
    for text in [&block[..], receipts] {
        let packed = compress_text(text)?;
        put_varint(&mut out, text.len() as u64);
        put_varint(&mut out, packed.len() as u64);
        out.extend_from_slice(&packed);
    }
    Ok(out)
}

/// Block and receipts of a height, read from its frame.
#[derive(Debug)]
pub(crate) struct Texts {
    pub(crate) block: Vec<u8>,
    pub(crate) receipts: Vec<u8>,
}

impl Texts {
    pub(crate) fn read(
        frame: &[u8],
        height: u64,
        total: TotalDifficulty,
    ) -> Result<Self, PackedError> {
        let receipts = Self::read_receipts(frame)?;
        Ok(Self { block: Self::read_block(frame, height, total)?, receipts })
    }

    /// Reads the block alone.
    pub(crate) fn read_block(
        frame: &[u8],
        height: u64,
        total: TotalDifficulty,
    ) -> Result<Vec<u8>, PackedError> {
        let mut bytes = Bytes::new(frame, PLACE);
        let at = bytes.count(TEXT_BYTES_MAX)?;
        let text = PackedText::read(&mut bytes)?;
        // The receipts are passed by and not unpacked.
        PackedText::read(&mut bytes)?;
        bytes.end()?;
        let mut block = unpack(&text)?;
        if let Some(at) = at.checked_sub(1) {
            total.put_into(&mut block, at, height)?;
        } else if Block::parse(&block).is_ok_and(|block| TotalDifficulty::of(&block).is_some()) {
            return Err(bytes.error("totalDifficulty of one release only"));
        }
        Ok(block)
    }

    /// Reads the receipts alone.
    pub(crate) fn read_receipts(frame: &[u8]) -> Result<Vec<u8>, PackedError> {
        let mut bytes = Bytes::new(frame, PLACE);
        bytes.count(TEXT_BYTES_MAX)?;
        PackedText::read(&mut bytes)?;
        let receipts = PackedText::read(&mut bytes)?;
        bytes.end()?;
        unpack(&receipts)
    }

    /// Returns the length of both texts of a frame.
    pub(crate) fn len(frame: &[u8]) -> Result<usize, PackedError> {
        let mut bytes = Bytes::new(frame, PLACE);
        bytes.count(TEXT_BYTES_MAX)?;
        let mut sum = 0;
        for _ in 0..2 {
            sum += PackedText::read(&mut bytes)?.length;
        }
        Ok(sum)
    }

    /// True if transaction `at` is there and has this hash, if one is given.
    pub(crate) fn has(&self, at: usize, hash: Option<&B256>) -> Result<bool, PackedError> {
        let Some(hash) = hash else { return Ok(true) };
        Ok(self.hash(at)?.is_some_and(|found| found == hash.0))
    }

    fn parse_block(&self) -> Result<Block<'_>, PackedError> {
        Block::parse(&self.block).map_err(|_| PackedError::malformed(PLACE, "no block"))
    }

    fn parse_receipts(&self) -> Result<Receipts<'_>, PackedError> {
        Receipts::parse(&self.receipts).map_err(|_| PackedError::malformed(PLACE, "no receipts"))
    }

    pub(crate) fn counts(&self) -> Result<(usize, usize), PackedError> {
        // Receipts that cannot be read do not keep transactions from being counted.
        let logs = self.parse_receipts().map_or(0, |receipts| receipts.logs.len());
        Ok((self.parse_block()?.transactions.len(), logs))
    }

    pub(crate) fn hashes(&self) -> Result<Vec<B256>, PackedError> {
        Ok(self.parse_block()?.transactions.iter().map(|transaction| transaction.hash).collect())
    }

    pub(crate) fn hash(&self, at: usize) -> Result<Option<[u8; 32]>, PackedError> {
        Ok(self.parse_block()?.transactions.get(at).map(|transaction| transaction.hash.0))
    }

    pub(crate) fn transaction(&self, at: usize, out: &mut Vec<u8>) -> Result<bool, PackedError> {
        let block = self.parse_block()?;
        let found = block.transactions.get(at).map(|transaction| &transaction.span);
        Ok(found.is_some_and(|span| append(&self.block, span, out)))
    }

    pub(crate) fn receipt(&self, at: usize, out: &mut Vec<u8>) -> Result<bool, PackedError> {
        let receipts = self.parse_receipts()?;
        let found = receipts.receipts.get(at).map(|receipt| &receipt.span);
        Ok(found.is_some_and(|span| append(&self.receipts, span, out)))
    }

    pub(crate) fn logs(
        &self,
        mut matches: impl FnMut(&[u8; 20], &[[u8; 32]]) -> bool,
        out: &mut LogOut,
    ) -> Result<(), PackedError> {
        let receipts = self.parse_receipts()?;
        for (index, log) in receipts.logs.iter().enumerate() {
            let topics: Vec<[u8; 32]> = log.topics.iter().map(|topic| topic.0).collect();
            if matches(&log.address.0.0, &topics) {
                out.begin();
                append(&self.receipts, &log.span, &mut out.text);
                out.end(index as u32);
            }
        }
        Ok(())
    }

    pub(crate) fn with_hashes(&self, out: &mut Vec<u8>) -> Result<(), PackedError> {
        with_hashes(&self.block, &self.parse_block()?, out);
        Ok(())
    }

    pub(crate) fn header(&self, out: &mut Vec<u8>) -> Result<(), PackedError> {
        header(&self.block, &self.parse_block()?, out);
        Ok(())
    }
}

/// Appends a block as `eth_getBlockByNumber(n, false)` has it.
pub(crate) fn with_hashes(text: &[u8], block: &Block<'_>, out: &mut Vec<u8>) {
    let inside = &block.layout.transactions_inside;
    out.extend_from_slice(&text[..inside.start as usize]);
    for (at, transaction) in block.transactions.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        out.extend_from_slice(format!("{comma}\"{:#x}\"", transaction.hash).as_bytes());
    }
    out.extend_from_slice(&text[inside.end as usize..]);
}

/// Appends a header as `eth_getHeaderByNumber(n)` has it: four members fewer.
pub(crate) fn header(text: &[u8], block: &Block<'_>, out: &mut Vec<u8>) {
    let layout = &block.layout;
    let members = [&layout.block_extra_data, &layout.size, &layout.transactions, &layout.uncles];
    let mut at = 0;
    for member in members {
        let (mut start, mut end) = (member.start as usize, member.end as usize);
        match text.get(end) {
            // A comma goes with its member: behind it, or before it for the last one.
            Some(b',') => end += 1,
            _ => start = start.saturating_sub(1),
        }
        out.extend_from_slice(text.get(at..start).unwrap_or_default());
        at = end;
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
}

fn append(text: &[u8], span: &Range<u32>, out: &mut Vec<u8>) -> bool {
    let found = text.get(span.start as usize..span.end as usize);
    out.extend_from_slice(found.unwrap_or_default());
    found.is_some()
}

/// A text in its zstd frame.
struct PackedText<'f> {
    length: usize,
    frame: &'f [u8],
}

impl<'f> PackedText<'f> {
    fn read(bytes: &mut Bytes<'f>) -> Result<Self, PackedError> {
        let length = bytes.count(TEXT_BYTES_MAX)?;
        let packed = bytes.count(TEXT_BYTES_MAX)?;
        Ok(Self { length, frame: bytes.take(packed)? })
    }
}

fn unpack(text: &PackedText<'_>) -> Result<Vec<u8>, PackedError> {
    let unpacked = decompress_text(text.frame, text.length)?;
    count_unpacked(text.length);
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame whose texts say to be so long, behind zstd frames of no bytes.
    fn frame(lengths: [usize; 2]) -> Vec<u8> {
        let mut out = vec![0];
        for length in lengths {
            put_varint(&mut out, length as u64);
            out.push(0);
        }
        out
    }

    #[test]
    fn text_that_says_to_be_too_long_is_not_unpacked() {
        let most = [TEXT_BYTES_MAX, TEXT_BYTES_MAX];
        assert_eq!(Texts::len(&frame(most)).unwrap(), 2 * TEXT_BYTES_MAX);
        for lengths in [[TEXT_BYTES_MAX + 1, 0], [0, TEXT_BYTES_MAX + 1]] {
            assert!(Texts::len(&frame(lengths)).is_err(), "{lengths:?}");
            assert!(Texts::read(&frame(lengths), 7, TotalDifficulty::Number).is_err());
        }
    }
}
