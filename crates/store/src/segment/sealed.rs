//! A sealed segment's file as it leaves: what it is, and its bytes.
//!
//! Its bytes never change, so it can be sent to whoever keeps the same chain, in any number of
//! pieces. Reading goes through the file and not through a map: a disk that does not deliver is an
//! error then, and who reads keeps the file, evicted or not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::disk::{open_regular, segment_name};
use crate::error::Error;
use crate::format::{FormatError, PAGE, Seal, SegmentHeader};
use crate::id::{Hash, Identity};

/// Content of the header page of a sealed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPage {
    /// First height of the segment.
    pub base: u64,
    /// Number of records.
    pub records: u32,
    /// The hash of its newest block.
    pub last_hash: Hash,
    /// The time of its newest block.
    pub last_timestamp: u64,
    /// The chain that it is of.
    pub identity: Identity,
    /// Bytes that hold anything; what is behind them is a hole.
    pub bytes: u64,
    /// Bytes of the file, the hole included.
    pub capacity: u64,
    /// Differs between files of different contents, but for damage.
    pub tag: String,
}

impl SealedPage {
    /// Bytes of a header page.
    pub const BYTES: usize = PAGE;

    /// Reads a header page; `None` if the segment is not sealed.
    pub fn parse(page: &[u8; PAGE]) -> Result<Option<Self>, FormatError> {
        let header = SegmentHeader::parse(page)?;
        Ok(Seal::parse(page, &header)?.map(|seal| Self::of(page, &header, &seal)))
    }

    fn of(page: &[u8; PAGE], header: &SegmentHeader, seal: &Seal) -> Self {
        let (base, crc) = (header.base_height, crc32fast::hash(page));
        Self {
            base,
            records: seal.count,
            last_hash: seal.last_hash,
            last_timestamp: seal.last_timestamp,
            identity: header.identity,
            bytes: seal.end,
            capacity: header.capacity,
            tag: format!("{base}-{crc:08x}-{}", seal.last_hash),
        }
    }

    /// The height after its last one.
    pub fn end_height(&self) -> u64 {
        self.base + u64::from(self.records)
    }
}

/// A sealed segment's file, open.
pub struct SealedFile {
    /// Content of its header page.
    pub page: SealedPage,
    file: File,
}

impl SealedFile {
    /// Opens the segment of the store in `dir` that begins at `base`; `None` if there is none, or
    /// none that is sealed.
    pub fn open(dir: &Path, base: u64) -> Result<Option<Self>, Error> {
        let path = dir.join(segment_name(base));
        let file = match open_regular(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| Error::read(&path, error))?,
        };
        let mut page = [0; PAGE];
        file.read_exact_at(&mut page, 0).map_err(|error| Error::read(&path, error))?;
        let page = SealedPage::parse(&page).ok().flatten();
        Ok(page.map(|page| Self { page, file }))
    }

    /// `len` bytes from `offset` on, which it has.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}
