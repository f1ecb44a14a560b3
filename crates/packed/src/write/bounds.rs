//! Bounds of the memory that packing takes. Each looks at the heights only, never at the machine: whether a range is
//! packed must not differ between two neves.

use crate::error::{PackError, Part};
use crate::frames::frame::TEXT_BYTES_MAX;
use crate::write::encode::HeightTexts;

/// Memory that packing a range takes whose file has up to 24 MiB, besides the texts, which lie in mapped files. Such a file
/// is five times that of a range of mainnet. A test of crates/record measures it: the file, with the longest receipts while
/// they are compared, takes most. A larger range takes more: it must be packed, or an archive ends before it.
pub const PACKING_BYTES_MAX: usize = 80 << 20;

/// Bounds of the parts of a range. Beyond one of them the range is not packed, except where another effect is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Facts and streams of heights that wait for the next pass. Others are made of their texts again, which takes
    /// longer: the bytes of the file are the same.
    pub kept_bytes: usize,
    /// Text of a block.
    pub block_bytes: usize,
    /// Text of a block's receipts.
    pub receipts_bytes: usize,
    /// Both texts of a height in the form of fields. A longer height is stored as its texts.
    pub fields_bytes: usize,
    /// Hashes of blocks and transactions, 16 bytes each while they are gathered.
    pub hashes: usize,
    /// Pairs of a term and a height, 16 bytes each.
    pub terms: usize,
    /// Bytes of the file.
    pub file_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // Streams of a range of mainnet take 5 MiB.
            kept_bytes: 8 << 20,
            // Nodes refuse messages of over 2 MiB, so blocks of mainnet are shorter before they are text.
            block_bytes: 8 << 20,
            // A transaction that spends all gas of a block of mainnet on logs makes 21 MB.
            receipts_bytes: TEXT_BYTES_MAX,
            // The longest of the mainnet set has 0.7 MB.
            fields_bytes: 2 << 20,
            // 30, 96 and 61 times those of a range of mainnet. Full blocks double the price of gas each minute (ACP-176), and a
            // range takes 15, so that no client stops packing, and with it an archive, by filling blocks.
            hashes: 1 << 20,
            terms: 1 << 23,
            // An archive takes no longer one.
            file_bytes: 256 << 20,
        }
    }
}

impl Bounds {
    /// Refuses texts that are too long to be parsed.
    pub(super) fn check_texts(&self, heights: &[HeightTexts<'_>]) -> Result<(), PackError> {
        for HeightTexts { block, receipts } in heights {
            within(Part::Block, block.len(), self.block_bytes)?;
            within(Part::Receipts, receipts.len(), self.receipts_bytes)?;
        }
        Ok(())
    }

    /// True if a height is stored as its texts, for the memory that its fields would take.
    pub(super) fn is_text(&self, texts: &HeightTexts<'_>) -> bool {
        texts.block.len() + texts.receipts.len() > self.fields_bytes
    }
}

/// Refuses a part that is over its bound.
pub(super) fn within(part: Part, found: usize, max: usize) -> Result<(), PackError> {
    if found > max { Err(PackError::TooLarge(part)) } else { Ok(()) }
}

/// Returns the bytes of all texts.
pub(super) fn text_bytes(heights: &[HeightTexts<'_>]) -> usize {
    heights.iter().map(|texts| texts.block.len() + texts.receipts.len()).sum()
}
