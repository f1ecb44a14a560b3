//! Report of a verification: findings, the records that it read, and how much it read.

use std::sync::Arc;

use crate::format::{Encoding, FormatError, PARTS_MAX, Terms};
use crate::id::{Hash, Identity};
use crate::segment::PackedCodec;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file name.
    pub file: String,
    /// The height that it is about, if it is about one.
    pub height: Option<u64>,
    /// Offset in the file.
    pub offset: u64,
    /// A short label that scripts may rely on.
    pub kind: &'static str,
    /// The whole story.
    pub detail: String,
}

/// Begins the detail of a finding about a record that is not where the one before ends.
pub(super) const MISPLACED: &str = "record begins at ";

impl Finding {
    pub(crate) fn is_misplaced(&self) -> bool {
        self.detail.starts_with(MISPLACED)
    }
}

/// A record as it was read: checksum, head and position are good.
#[derive(Debug)]
pub struct Stored<'a> {
    /// The segment file's name.
    pub file: &'a str,
    /// Place where the record begins in it.
    pub offset: u64,
    /// Height of the block.
    pub height: u64,
    /// The block's time.
    pub timestamp: u64,
    /// The block's hash.
    pub hash: Hash,
    /// The parent's hash.
    pub parent: Hash,
    /// The hashes of its transactions.
    pub transactions: Vec<Hash>,
    /// The terms of its logs.
    pub logs: Vec<Terms>,
    /// The caller's bits.
    pub flags: u32,
    /// The chain that its segment says to hold.
    pub identity: Identity,
    /// Parts and how they are encoded; absent ones are empty.
    pub parts: [(&'a [u8], Encoding); PARTS_MAX],
}

/// Receiver of a verification's results.
pub trait Visitor {
    /// Something is wrong.
    fn finding(&mut self, finding: Finding);

    /// A record, in height order within its segment.
    fn record(&mut self, record: &Stored<'_>);

    /// True if nothing more of the file needs to be read: it is refused, say.
    fn is_done(&self) -> bool {
        false
    }

    /// Codec of packed files, without which they are not read.
    fn codec(&self) -> Option<Arc<dyn PackedCodec>> {
        None
    }

    /// Notes that `bytes` more bytes were read.
    fn progress(&mut self, bytes: u64);
}

/// Totals of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Number of segment files.
    pub segments: u64,
    /// Number of records.
    pub records: u64,
    /// Merged hash tables.
    pub tables: u64,
    /// First and last height, if there is any.
    pub range: Option<(u64, u64)>,
}

pub(super) fn finding(
    file: &str,
    height: Option<u64>,
    offset: u64,
    kind: &'static str,
    detail: impl Into<String>,
) -> Finding {
    Finding { file: file.to_owned(), height, offset, kind, detail: detail.into() }
}

/// The first byte of `bytes`, which lie at `offset`, that is not zero.
pub(super) fn first_not_zero(bytes: &[u8], offset: u64) -> Option<u64> {
    bytes.iter().position(|byte| *byte != 0).map(|at| offset + at as u64)
}

/// A label for damage that a header can have.
pub(super) fn damaged(file: &str, offset: u64, kind: &'static str, damage: FormatError) -> Finding {
    finding(file, None, offset, kind, damage)
}
