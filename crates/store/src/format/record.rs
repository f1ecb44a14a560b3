//! A height as the caller hands it over, and its bytes.

use bytes::Bytes;

use super::bytes::{
    ALIGN, Encoding, HASHES_MAX, HEIGHT_MAX, PARTS_MAX, RECORD_BYTES_MAX, TERMS_MAX, Terms, array,
    le_u32, le_u64,
};
use crate::error::Error;
use crate::id::Hash;

// A record header.
pub(crate) const HEADER_HASH_AT: usize = 16;
const HEADER_PARENT_AT: usize = HEADER_HASH_AT + 32;
pub(crate) const HEADER_COUNT_AT: usize = HEADER_PARENT_AT + 32;
pub(crate) const HEADER_LEN: usize = HEADER_COUNT_AT + 8;
const _: () = assert!(HEADER_LEN == 88 && HEADER_LEN.is_multiple_of(ALIGN as usize));

/// A part of a record: bytes and how they are encoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// The bytes as stored. Large ones are as they came: what was fetched is not copied.
    pub bytes: Bytes,
    /// Form of the bytes.
    pub encoding: Encoding,
}

impl Part {
    /// A part that is stored as it is sent.
    pub fn uncompressed(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), encoding: Encoding::Uncompressed }
    }
}

/// A height, complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Height of the record.
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
        let head = header_len(self.transactions.len(), self.logs.len());
        head as u64 + self.parts.iter().map(|part| part.bytes.len() as u64).sum::<u64>()
    }

    /// Refuses what the format cannot hold.
    ///
    /// # Errors
    /// [`Error::TooLarge`] names the first limit that the record is beyond.
    pub fn check_limits(&self) -> Result<(), Error> {
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
        within("a height", self.height, HEIGHT_MAX)
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
        let len = header_len(self.transactions.len(), self.logs.len());
        let mut head = Vec::with_capacity(len);
        RecordHeader::of(self).write(&mut head);
        self.transactions.iter().for_each(|hash| head.extend_from_slice(&hash.0));
        let terms = self.logs.iter().flatten();
        terms.for_each(|term| head.extend_from_slice(&term.to_le_bytes()));
        // The casts hold: `check_limits` allows a record 1 GiB.
        let mut bounds = [head.len() as u32; PARTS_MAX + 1];
        let mut encodings = [Encoding::Uncompressed; PARTS_MAX];
        for (at, part) in self.parts.iter().enumerate() {
            let end = bounds[at] + part.bytes.len() as u32;
            // Absent parts end here, too, so that the last bound is the record's length.
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

const TERMS_LEN: usize = 8 * TERMS_MAX;

/// Bytes of a record before its first part.
pub(crate) fn header_len(transactions: usize, logs: usize) -> usize {
    HEADER_LEN + 32 * transactions + TERMS_LEN * logs
}

/// The fixed part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordHeader {
    /// Number of the block.
    pub height: u64,
    /// Time of the block, seconds since 1970.
    pub timestamp: u64,
    /// Hash of the block.
    pub hash: Hash,
    /// Hash of its parent.
    pub parent: Hash,
    /// Number of transactions.
    pub transactions: u32,
    /// Number of logs.
    pub logs: u32,
}

impl RecordHeader {
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            height: record.height,
            timestamp: record.timestamp,
            hash: record.hash,
            parent: record.parent,
            transactions: record.transactions.len() as u32,
            logs: record.logs.len() as u32,
        }
    }

    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.height.to_le_bytes());
        bytes.extend_from_slice(&self.timestamp.to_le_bytes());
        bytes.extend_from_slice(&self.hash.0);
        bytes.extend_from_slice(&self.parent.0);
        bytes.extend_from_slice(&self.transactions.to_le_bytes());
        bytes.extend_from_slice(&self.logs.to_le_bytes());
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_LEN)?;
        Some(Self {
            height: le_u64(bytes, 0),
            timestamp: le_u64(bytes, 8),
            hash: Hash(array(bytes, HEADER_HASH_AT)),
            parent: Hash(array(bytes, HEADER_PARENT_AT)),
            transactions: le_u32(bytes, HEADER_COUNT_AT),
            logs: le_u32(bytes, HEADER_COUNT_AT + 4),
        })
    }
}

/// The hash of transaction `at` of the record in `bytes`.
pub(crate) fn transaction_hash(bytes: &[u8], at: usize) -> Option<Hash> {
    let from = header_len(at, 0);
    let hash = bytes.get(from..from + 32)?;
    Some(Hash(array(hash, 0)))
}

/// The terms of log `at` of the record in `bytes`, which has so many transactions.
pub(crate) fn log_terms(bytes: &[u8], transactions: u32, at: usize) -> Option<Terms> {
    let from = header_len(transactions as usize, at);
    let terms = bytes.get(from..from + TERMS_LEN)?;
    Some(std::array::from_fn(|at| le_u64(terms, 8 * at)))
}

/// The terms of all logs of the record in `bytes`, in order.
pub(crate) fn all_terms<'a>(
    bytes: &'a [u8],
    head: &RecordHeader,
) -> impl Iterator<Item = Terms> + use<'a> {
    let (transactions, logs) = (head.transactions, head.logs as usize);
    (0..logs).map_while(move |at| log_terms(bytes, transactions, at))
}
