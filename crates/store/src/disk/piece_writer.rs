//! Writing a record in pieces.

use super::disk::{Latch, Op};
use crate::error::Error;
use crate::format::aligned;

/// Bytes from which a piece of a record is written by itself: copying it first would cost more.
const LARGE: usize = 16 << 10;

/// A record that is being written: small pieces are collected, large ones go as they are.
pub(crate) struct PieceWriter<'w> {
    latch: &'w mut Latch,
    name: &'w str,
    offset: u64,
    small: Vec<u8>,
    crc: crc32fast::Hasher,
}

impl<'w> PieceWriter<'w> {
    pub(crate) fn new(latch: &'w mut Latch, name: &'w str, offset: u64) -> Self {
        Self { latch, name, offset, small: Vec::new(), crc: crc32fast::Hasher::new() }
    }

    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.crc.update(piece);
        // A call of the kernel for each small piece would cost more than this copy.
        if piece.len() < LARGE {
            self.small.extend_from_slice(piece);
            return Ok(());
        }
        self.flush()?;
        self.write(piece)
    }

    fn flush(&mut self) -> Result<(), Error> {
        let small = std::mem::take(&mut self.small);
        if small.is_empty() { Ok(()) } else { self.write(&small) }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.latch.apply(Op::Write { name: self.name, offset: self.offset, bytes })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Pads it, and gives its checksum.
    pub(crate) fn finish(mut self) -> Result<u32, Error> {
        let end = self.offset + self.small.len() as u64;
        // New files are zero, but a dropped record may have lain here. No checksum covers padding.
        self.small.resize(self.small.len() + (aligned(end) - end) as usize, 0);
        self.flush()?;
        Ok(self.crc.finalize())
    }
}
