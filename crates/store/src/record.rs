//! One height as the caller hands it over, and its bytes.

use std::fmt;

use bytes::Bytes;

use crate::error::Error;
use crate::format::{self, Encoding, HASHES_MAX, PARTS_MAX, RECORD_BYTES_MAX, Terms};

/// A 32-byte hash. Keys of the store; it does not care which function made them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One part of a record: bytes and how they are encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// The bytes as stored. Large ones are as they came: what was fetched is not copied.
    pub bytes: Bytes,
    /// What they are.
    pub encoding: Encoding,
}

impl Part {
    /// A part that is stored as it is sent.
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), encoding: Encoding::Plain }
    }
}

/// One height, complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The height.
    pub height: u64,
    /// The block's time, seconds since 1970.
    pub timestamp: u64,
    /// The block's hash.
    pub hash: Hash,
    /// The hash of the block below.
    pub parent: Hash,
    /// The hashes of its transactions, in order; each finds the record and its position.
    pub transactions: Vec<Hash>,
    /// The terms of its logs, in order; each finds the record and its position. A term is a key
    /// that the caller made, 0 where a log has none.
    pub logs: Vec<Terms>,
    /// Bits of the caller's, kept in the index slot. The store does not interpret them.
    pub flags: u32,
    /// At most [`PARTS_MAX`] parts, in the caller's order.
    pub parts: Vec<Part>,
}

impl Record {
    /// Bytes that the record takes on disk, without padding.
    pub fn encoded_len(&self) -> u64 {
        let head = format::head_len(self.transactions.len(), self.logs.len());
        head as u64 + self.parts.iter().map(|part| part.bytes.len() as u64).sum::<u64>()
    }

    /// Refuses what the format cannot hold.
    pub(crate) fn check_limits(&self) -> Result<(), Error> {
        let within = |what, found, limit| {
            let height = self.height;
            if found <= limit {
                Ok(())
            } else {
                Err(Error::TooLarge { height, what, found, limit })
            }
        };
        within("a transaction count", self.transactions.len() as u64, HASHES_MAX)?;
        within("a part count", self.parts.len() as u64, PARTS_MAX as u64)?;
        within("a record size", self.encoded_len(), RECORD_BYTES_MAX)?;
        within("a height", self.height, format::HEIGHT_MAX)
    }

    /// Refuses what is not the next height behind `height`, or has not `head` as its parent.
    pub(crate) fn check_follows(&self, height: u64, head: Hash) -> Result<(), Error> {
        if self.height != height + 1 {
            return Err(Error::WrongHeight { height: self.height, expected: height + 1 });
        }
        if self.parent != head {
            let (height, parent) = (self.height, self.parent);
            return Err(Error::WrongParent { height, parent, head });
        }
        Ok(())
    }

    /// The record's bytes, but for those of its parts, and where these end.
    pub(crate) fn encode(&self) -> Encoded {
        let len = format::head_len(self.transactions.len(), self.logs.len());
        let mut head = Vec::with_capacity(len);
        format::RecordHead::of(self).write(&mut head);
        self.transactions.iter().for_each(|hash| head.extend_from_slice(&hash.0));
        let terms = self.logs.iter().flatten();
        terms.for_each(|term| head.extend_from_slice(&term.to_le_bytes()));
        let mut bounds = [head.len() as u32; PARTS_MAX + 1];
        let mut encodings = [Encoding::Plain; PARTS_MAX];
        for (at, part) in self.parts.iter().enumerate() {
            let end = bounds[at] + part.bytes.len() as u32;
            bounds[at + 1..].fill(end);
            encodings[at] = part.encoding;
        }
        Encoded { head, bounds, encodings }
    }
}

/// A record ready to be written: what comes before its parts, and where they are.
pub(crate) struct Encoded {
    pub(crate) head: Vec<u8>,
    pub(crate) bounds: [u32; PARTS_MAX + 1],
    pub(crate) encodings: [Encoding; PARTS_MAX],
}
