//! The directory: hash of each height, the end of its frame, and the frame's checksum.

use std::ops::Range;

use alloy_primitives::B256;

use crate::container::bytes::Bytes;
use crate::container::layout::Section;
use crate::error::{PackError, PackedError, Part};

/// Bytes of an entry.
const ENTRY_BYTES: usize = 40;

/// Entry of a height.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) hash: B256,
    /// End of the frame in the section of frames.
    pub(crate) end: u32,
    /// CRC-32 of the height (u64, little-endian) followed by the frame.
    pub(crate) crc: u32,
}

/// The directory of a file that is being made.
#[derive(Debug)]
pub(crate) struct Directory(Vec<Entry>);

impl Directory {
    pub(crate) fn with_capacity(heights: usize) -> Self {
        Self(Vec::with_capacity(heights))
    }

    pub(crate) fn push(&mut self, height: u64, hash: B256, frame: &[u8]) -> Result<(), PackError> {
        let end = self.0.last().map_or(0, |last| last.end as usize) + frame.len();
        let end = u32::try_from(end).map_err(|_| PackError::TooLarge(Part::File))?;
        self.0.push(Entry { hash, end, crc: checksum(height, frame) });
        Ok(())
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() * ENTRY_BYTES);
        for Entry { hash, end, crc } in &self.0 {
            out.extend_from_slice(&hash[..]);
            out.extend_from_slice(&end.to_le_bytes());
            out.extend_from_slice(&crc.to_le_bytes());
        }
        out
    }
}

/// Returns the bytes of the section of so many heights.
pub(crate) fn section_bytes(heights: usize) -> usize {
    heights * ENTRY_BYTES
}

/// Checks that the entries of a section fit its heights and the length of the frames.
pub(crate) fn check(section: &[u8], heights: usize, frames: u64) -> Result<(), PackedError> {
    let mut bytes = Bytes::new(section, Section::Directory.name());
    if section.len() != section_bytes(heights) {
        return Err(bytes.error("a length that does not fit the heights"));
    }
    let mut last = 0;
    while !bytes.is_empty() {
        let Entry { end, .. } = entry(&mut bytes)?;
        // A frame has at least its form: an empty one would be two heights at one place.
        if end <= last {
            return Err(bytes.error("frames that do not ascend"));
        }
        last = end;
    }
    if u64::from(last) == frames {
        Ok(())
    } else {
        Err(bytes.error("frames that do not fill their section"))
    }
}

/// Returns the place in the section of the entry of height `index` and of the one before it.
pub(crate) fn entries_of(index: usize) -> Range<u64> {
    let start = index.saturating_sub(1) * ENTRY_BYTES;
    start as u64..((index + 1) * ENTRY_BYTES) as u64
}

/// Reads what [`entries_of`] names: the entry before, if there is one, and the entry.
pub(crate) fn read(entries: &[u8]) -> Result<(Option<Entry>, Entry), PackedError> {
    let mut bytes = Bytes::new(entries, Section::Directory.name());
    let first = entry(&mut bytes)?;
    if bytes.is_empty() { Ok((None, first)) } else { Ok((Some(first), entry(&mut bytes)?)) }
}

fn entry(bytes: &mut Bytes<'_>) -> Result<Entry, PackedError> {
    let hash = B256::new(bytes.array()?);
    let (end, crc) = (bytes.u32()?, bytes.u32()?);
    Ok(Entry { hash, end, crc })
}

/// Returns the checksum of a frame. A frame at another height has another checksum.
pub(crate) fn checksum(height: u64, frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&height.to_le_bytes());
    hasher.update(frame);
    hasher.finalize()
}
