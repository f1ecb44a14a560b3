//! Errors of packing and of reading, and the reasons for which a part is stored as it came.

use std::io;

use thiserror::Error;

/// A packed file, or a read of one, that failed.
#[derive(Debug, Error)]
pub enum PackedError {
    /// The source could not deliver bytes.
    #[error("cannot read {bytes} bytes at offset {offset}: {error}")]
    Read {
        /// Offset in the file.
        offset: u64,
        /// Bytes that were requested.
        bytes: usize,
        /// The source's error.
        error: io::Error,
    },
    /// The file begins with other bytes than a packed file does.
    #[error("no packed file: it does not begin with `nevepack`")]
    Magic,
    /// A later release wrote the file.
    #[error("packed file of version {0}; this release reads version 1")]
    Version(u32),
    /// A checksum does not fit.
    #[error("{0} of the packed file: checksum does not fit")]
    Checksum(&'static str),
    /// A checksum of a height's frame does not fit.
    #[error("height {0} of the packed file: checksum does not fit")]
    FrameChecksum(u64),
    /// Bytes with a right checksum that no packer writes.
    #[error("{place} of the packed file: {what}")]
    Malformed {
        /// Part of the file.
        place: &'static str,
        /// The violated rule.
        what: &'static str,
    },
    /// A height that is not in the file.
    #[error("height {height} is not in the packed file ({first} to {last})")]
    Height {
        /// The requested height.
        height: u64,
        /// First height of the file.
        first: u64,
        /// Last height of the file.
        last: u64,
    },
    /// An output that exceeds the limit of the reader.
    #[error("a text of the packed file exceeds {0} bytes")]
    OutputLimit(usize),
}

impl PackedError {
    pub(crate) fn malformed(place: &'static str, what: &'static str) -> Self {
        Self::Malformed { place, what }
    }

    /// Names the kind of the error in lower case, for metrics and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Magic => "magic",
            Self::Version(_) => "version",
            Self::Checksum(_) | Self::FrameChecksum(_) => "checksum",
            Self::Malformed { .. } => "malformed",
            Self::Height { .. } => "height",
            Self::OutputLimit(_) => "output_limit",
        }
    }
}

/// Heights that could not be packed.
#[derive(Debug, Error)]
pub enum PackError {
    /// No height, or more than the range's length.
    #[error("{heights} heights for one packed file; allowed: 1 to {max}")]
    Heights {
        /// Number of given heights.
        heights: usize,
        /// Length of the range.
        max: u32,
    },
    /// The length of the range is not allowed.
    #[error("range of {0} heights; allowed: powers of two up to 1,024")]
    RangeLength(u32),
    /// Two neighbors of the input are not parent and child, or a block's text does not parse.
    #[error("input {index}: {what}")]
    Input {
        /// Position in the input, from 0.
        index: usize,
        /// The violated rule.
        what: &'static str,
    },
    /// A part exceeds the bound that keeps the memory of packing small, or what the format can count.
    #[error("too large to be packed: {}", .0.name())]
    TooLarge(Part),
    /// zstd reported an error, which the text names.
    #[error("zstd: {0}")]
    Zstd(&'static str),
    /// The file that was made does not read back as it must.
    #[error("height {height} does not read back: {error}")]
    ReadBack {
        /// Height of the record.
        height: u64,
        /// Error of the reader.
        error: PackedError,
    },
    /// The caller stopped the work.
    #[error("stopped by the caller")]
    Stopped,
}

impl PackError {
    /// Names the reason in lower case, for metrics and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge(part) => part.name(),
            Self::ReadBack { .. } => "read_back",
            Self::Stopped => "stopped",
            Self::Heights { .. } | Self::RangeLength(_) | Self::Input { .. } | Self::Zstd(_) => {
                "input"
            }
        }
    }
}

/// Parts of a range that have a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The text of a block.
    Block,
    /// The text of a block's receipts.
    Receipts,
    /// The index of hashes.
    HashIndex,
    /// The index of the terms of logs.
    LogIndex,
    /// The packed file as a whole.
    File,
}

impl Part {
    /// Returns the name in lower case, for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Receipts => "receipts",
            Self::HashIndex => "hash_index",
            Self::LogIndex => "log_index",
            Self::File => "file",
        }
    }
}

/// Reasons for which a part is stored as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The receipts' text is not that of a node, or does not fit the block.
    ReceiptsText,
    /// The block has uncles, or no extra data: another chain's form.
    BlockForm,
    /// A signature's `s` of 2^255 or more, or a `v` of more than the chain id.
    Signature,
    /// A quantity over 128 bits that is no value.
    Quantity,
    /// `totalDifficulty` is neither the height nor zero.
    TotalDifficulty,
    /// The block's text was read back with other bytes.
    BlockDiffers,
    /// The receipts' text was read back with other bytes.
    ReceiptsDiffer,
    /// The texts have over 2 MiB.
    TooLarge,
}

impl Reason {
    /// All reasons, in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::ReceiptsText,
        Self::BlockForm,
        Self::Signature,
        Self::Quantity,
        Self::TotalDifficulty,
        Self::BlockDiffers,
        Self::ReceiptsDiffer,
        Self::TooLarge,
    ];

    /// Returns the name in lower case, for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReceiptsText => "receipts_text",
            Self::BlockForm => "block_form",
            Self::Signature => "signature",
            Self::Quantity => "quantity",
            Self::TotalDifficulty => "total_difficulty",
            Self::BlockDiffers => "block_differs",
            Self::ReceiptsDiffer => "receipts_differ",
            Self::TooLarge => "too_large",
        }
    }
}
