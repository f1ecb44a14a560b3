//! The file header: identity, range, and the table of sections. See docs/PACKED.md.

use std::ops::Range;

use alloy_primitives::B256;

use crate::container::bytes::Bytes;
use crate::error::{PackError, PackedError};

/// Most heights of a packed file.
pub const HEIGHTS_MAX: u32 = 1024;
/// Length of the file header.
pub const HEADER_BYTES: usize = 512;

/// Most bytes of a section: offsets inside it have 32 bits.
const SECTION_BYTES_MAX: u64 = 5 << 30;

const MAGIC: &[u8; 8] = b"nevepack";
const VERSION: u32 = 1;
const LENGTH_AT: usize = 104;
const SECTIONS_AT: usize = 112;
const CRC_AT: usize = HEADER_BYTES - 4;
const PLACE: &str = "file header";

/// A section of the file, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// Hash, end and checksum of each height.
    Directory,
    /// Tables of values, numbers and shapes.
    Tables,
    /// zstd dictionary of the frames.
    Dictionary,
    /// From hashes to heights and positions.
    Hashes,
    /// From terms of logs to heights.
    Terms,
    /// A frame for each height.
    Frames,
}

impl Section {
    pub(crate) const ALL: [Self; 6] =
        [Self::Directory, Self::Tables, Self::Dictionary, Self::Hashes, Self::Terms, Self::Frames];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Tables => "tables",
            Self::Dictionary => "dictionary",
            Self::Hashes => "hash index",
            Self::Terms => "log index",
            Self::Frames => "frames",
        }
    }

    /// Returns the name in one word.
    pub(crate) fn part(self) -> &'static str {
        match self {
            Self::Hashes => "hashes",
            Self::Terms => "terms",
            other => other.name(),
        }
    }
}

/// Identity of a chain: each packed file carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Chain id (EIP-155).
    pub chain_id: u64,
    /// Hash of the genesis block.
    pub genesis: B256,
}

/// Identity and range of a packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Chain of the heights.
    pub identity: Identity,
    /// Length of the ranges that the writer's files hold, a power of two up to 1,024.
    pub range_length: u32,
    /// First height of the file.
    pub first: u64,
    /// Heights, from 1 to the range's length.
    pub heights: u32,
    /// Parent hash of the first block.
    pub parent: B256,
}

/// Content of the start of a packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStart {
    /// Identity and range.
    pub header: FileHeader,
    /// Length of the file.
    pub length: u64,
    /// Bytes at the start of the file that opening reads.
    pub opening: u64,
}

/// Offset, length and checksum of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
}

impl FileHeader {
    /// Returns the last height.
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.heights) - 1
    }

    pub(crate) fn check(&self) -> Result<(), PackError> {
        let range = self.range_length;
        if !range.is_power_of_two() || range > HEIGHTS_MAX {
            return Err(PackError::RangeLength(range));
        }
        if self.heights == 0 || self.heights > range {
            return Err(PackError::Heights { heights: self.heights as usize, max: range });
        }
        match self.first.checked_add(u64::from(self.heights)) {
            Some(_) => Ok(()),
            None => Err(PackError::Input { index: 0, what: "a height of more than 64 bits" }),
        }
    }

    /// Makes the first page of a file whose sections, back to back, have these lengths and checksums.
    pub(crate) fn page(&self, sections: &[(usize, u32)]) -> Vec<u8> {
        let total = HEADER_BYTES + sections.iter().map(|(bytes, _)| bytes).sum::<usize>();
        let mut file = Vec::with_capacity(HEADER_BYTES);
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&VERSION.to_le_bytes());
        file.extend_from_slice(&self.range_length.to_le_bytes());
        file.extend_from_slice(&self.first.to_le_bytes());
        file.extend_from_slice(&self.heights.to_le_bytes());
        file.extend_from_slice(&(Section::ALL.len() as u32).to_le_bytes());
        file.extend_from_slice(&self.identity.chain_id.to_le_bytes());
        file.extend_from_slice(&self.identity.genesis[..]);
        file.extend_from_slice(&self.parent[..]);
        file.extend_from_slice(&(total as u64).to_le_bytes());
        put_places(&mut file, sections);
        file.resize(CRC_AT, 0);
        file.extend_from_slice(&crc32fast::hash(&file).to_le_bytes());
        file
    }

    /// Reads the header at the start of a file of unknown length.
    pub fn of_start(start: &[u8]) -> Result<FileStart, PackedError> {
        let page = start.get(..HEADER_BYTES).unwrap_or(start);
        let length = page.get(LENGTH_AT..).unwrap_or_default();
        // `read` reports a page that is too short, or no header.
        let length = Bytes::new(length, PLACE).u64().unwrap_or(0);
        let (header, places) = Self::read(page, length)?;
        Ok(FileStart { header, length, opening: places[Section::Hashes as usize].offset })
    }

    /// Returns true if the file holds one whole range.
    pub fn is_whole_range(&self) -> bool {
        self.heights == self.range_length && self.first.is_multiple_of(u64::from(self.range_length))
    }

    /// Reads the header of a file with `length` bytes.
    pub(crate) fn read(page: &[u8], length: u64) -> Result<(Self, [Place; 6]), PackedError> {
        let mut bytes = behind_version(page)?;
        let range_length = bytes.u32()?;
        let (first, heights, sections) = (bytes.u64()?, bytes.u32()?, bytes.u32()?);
        let chain_id = bytes.u64()?;
        let [genesis, parent] = [bytes.array()?, bytes.array()?].map(B256::new);
        let identity = Identity { chain_id, genesis };
        let header = Self { identity, range_length, first, heights, parent };
        if header.check().is_err() {
            return Err(bytes.error("a range that no packer writes"));
        }
        if bytes.u64()? != length || sections as usize != Section::ALL.len() {
            return Err(bytes.error("a length or a count of sections that does not fit"));
        }
        Ok((header, places(bytes, length)?))
    }
}

/// Appends the table of sections, which lie back to back behind the first page.
fn put_places(file: &mut Vec<u8>, sections: &[(usize, u32)]) {
    let mut offset = HEADER_BYTES as u64;
    for (section, (bytes, crc)) in Section::ALL.into_iter().zip(sections) {
        file.extend_from_slice(&(section as u32 + 1).to_le_bytes());
        file.extend_from_slice(&crc.to_le_bytes());
        file.extend_from_slice(&offset.to_le_bytes());
        file.extend_from_slice(&(*bytes as u64).to_le_bytes());
        offset += *bytes as u64;
    }
}

/// Checks the magic, the checksum and the version of a first page. Returns the bytes behind them.
fn behind_version(page: &[u8]) -> Result<Bytes<'_>, PackedError> {
    if !page.starts_with(MAGIC) {
        return Err(PackedError::Magic);
    }
    let mut bytes = Bytes::new(page, PLACE);
    bytes.take(MAGIC.len())?;
    let version = bytes.u32()?;
    let (checked, crc) = page.split_at_checked(CRC_AT).ok_or_else(|| bytes.error("short"))?;
    // The checksum has this place in each version: a damaged version is no reason to ask for another release.
    if Bytes::new(crc, PLACE).u32()? != crc32fast::hash(checked) {
        return Err(PackedError::Checksum(PLACE));
    }
    if version == VERSION { Ok(bytes) } else { Err(PackedError::Version(version)) }
}

/// Reads the table of sections: back to back, up to the end of the file.
fn places(mut bytes: Bytes<'_>, length: u64) -> Result<[Place; 6], PackedError> {
    let mut places = [Place { offset: 0, bytes: 0, crc: 0 }; 6];
    let mut end = HEADER_BYTES as u64;
    for (section, place) in Section::ALL.into_iter().zip(&mut places) {
        let (kind, crc) = (bytes.u32()?, bytes.u32()?);
        let (offset, size) = (bytes.u64()?, bytes.u64()?);
        // Back to back: no byte of a file is outside of a checksum.
        if kind != section as u32 + 1 || offset != end {
            return Err(bytes.error("sections that are not back to back"));
        }
        if size > SECTION_BYTES_MAX {
            return Err(bytes.error("a section over 5 GiB"));
        }
        end = end.checked_add(size).ok_or_else(|| bytes.error("a section over 64 bits"))?;
        *place = Place { offset, bytes: size, crc };
    }
    if end == length { Ok(places) } else { Err(bytes.error("a section over the file's end")) }
}

impl Place {
    /// Returns the part `range` of the section as offset and length in the file.
    pub(crate) fn part(&self, range: Range<u64>) -> Option<(u64, usize)> {
        let bytes = range.end.checked_sub(range.start)?;
        if range.end > self.bytes {
            return None;
        }
        Some((self.offset + range.start, usize::try_from(bytes).ok()?))
    }
}

const _: () = assert!(SECTIONS_AT + 6 * 24 <= CRC_AT);
