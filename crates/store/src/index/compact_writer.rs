//! Writing of compact tables, in one pass over their entries.
//!
//! A list has its numbers one after the other, the first in the lowest bits of the first word of 8 bytes
//! (little-endian). A number may begin in a word and end in the next. The last word ends with bits of zero.

use super::active_table::Entry;
use super::compact_table::TableShape;

/// Writes a list in pieces of about this many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// A stretch of the table that is being written.
struct ListWriter {
    /// Offset in the table of the bytes in `piece`.
    offset: u64,
    piece: Vec<u8>,
    word: u64,
    /// Bits of `word` in use.
    used: u32,
    crc: crc32fast::Hasher,
}

impl ListWriter {
    fn new(offset: u64) -> Self {
        Self { offset, piece: Vec::new(), word: 0, used: 0, crc: crc32fast::Hasher::new() }
    }

    fn push<E>(
        &mut self,
        number: u64,
        width: u32,
        sink: &mut impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.word |= number << self.used;
        self.used += width;
        if self.used < u64::BITS {
            return Ok(());
        }
        self.piece.extend_from_slice(&self.word.to_le_bytes());
        self.used -= u64::BITS;
        // The shift is less than all bits: a number has fewer, and `used` of them are left.
        self.word = if self.used == 0 { 0 } else { number >> (width - self.used) };
        if self.piece.len() < PIECE_BYTES { Ok(()) } else { self.flush(sink) }
    }

    fn flush<E>(&mut self, sink: &mut impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.crc.update(&self.piece);
        sink(self.offset, &self.piece)?;
        self.offset += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    fn finish<E>(
        mut self,
        sink: &mut impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<crc32fast::Hasher, E> {
        if self.used > 0 {
            self.piece.extend_from_slice(&self.word.to_le_bytes());
        }
        self.flush(sink)?;
        Ok(self.crc)
    }
}

/// Hands the bytes of the table of `entries`, which are sorted and as many as `shape` says, to `sink`: each piece with
/// its offset in the table. Returns the checksum of all.
pub(super) fn write<E>(
    shape: TableShape,
    entries: impl Iterator<Item = Entry>,
    mut sink: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<u32, E> {
    let [(remainders_at, remainder_bits), (locators_at, locator_bits)] = shape.lists();
    let mut starts = ListWriter::new(0);
    let mut remainders = ListWriter::new(remainders_at);
    let mut locators = ListWriter::new(locators_at);
    let (mut written, mut begun) = (0_u32, 0);
    for (prefix, locator) in entries.take(shape.entries as usize) {
        while begun <= shape.bucket(prefix) {
            starts.push(written.into(), u32::BITS, &mut sink)?;
            begun += 1;
        }
        remainders.push(shape.remainder(prefix), remainder_bits, &mut sink)?;
        locators.push(shape.stored(locator), locator_bits, &mut sink)?;
        written += 1;
    }
    while begun <= shape.buckets() {
        starts.push(written.into(), u32::BITS, &mut sink)?;
        begun += 1;
    }
    let mut crc = starts.finish(&mut sink)?;
    crc.combine(&remainders.finish(&mut sink)?);
    crc.combine(&locators.finish(&mut sink)?);
    Ok(crc.finalize())
}
