//! A sealed segment's file, or a packed file, as it leaves: its first bytes, and all others.
//!
//! Its bytes never change, so it can be sent in any number of chunks to a mirror of the same chain. Reads go
//! through the file and not through a map. So a disk that does not deliver a page is an error. A reader
//! keeps the file even after its eviction.

use std::fs::File;
use std::io;
use std::path::Path;

use super::packed_codec::{PackedCodec, PackedStart};
use crate::disk::{packed_name, segment_name};
use crate::error::Error;
use crate::format::{FormatError, PAGE, Seal, SegmentHeader};
use crate::id::Identity;
use crate::reads;

/// Most bytes of a packed file that is sent to mirrors. Its receiver looks at all of it in memory.
pub const PACKED_SENT_BYTES_MAX: u64 = 256 << 20;

/// Content of the first bytes of a sealed segment or a packed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPage {
    /// First height of the file.
    pub base: u64,
    /// Number of records.
    pub records: u32,
    /// The time of its newest block, if it says that in front. A packed file does not.
    pub last_timestamp: Option<u64>,
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
            last_timestamp: Some(seal.last_timestamp).filter(|time| *time > 0),
            identity: header.identity,
            bytes: seal.end,
            capacity: header.capacity,
            tag: format!("{base}-{crc:08x}-{}", seal.last_hash),
        }
    }

    /// Reads the first bytes of a packed file; `None` if they are not those of one that can be sent.
    pub(crate) fn packed(codec: &dyn PackedCodec, start: &[u8]) -> Option<Self> {
        let PackedStart { header, bytes, .. } = codec.start(start).ok()?;
        let crc = crc32fast::hash(start);
        (bytes <= PACKED_SENT_BYTES_MAX).then(|| Self {
            base: header.first,
            records: header.heights,
            last_timestamp: None,
            identity: header.identity,
            bytes,
            capacity: bytes,
            tag: format!("{}-{crc:08x}-{}", header.first, header.parent),
        })
    }

    /// The height after its last one.
    pub fn end_height(&self) -> u64 {
        self.base + u64::from(self.records)
    }
}

/// A sealed segment's file, or a packed file, open.
pub struct SealedFile {
    /// Content of its first bytes.
    pub page: SealedPage,
    file: File,
}

impl SealedFile {
    /// Opens the segment of the store in `dir` that begins at `base`; `None` if there is none, or
    /// none that is sealed.
    pub fn open(dir: &Path, base: u64) -> Result<Option<Self>, Error> {
        let mut page = [0; PAGE];
        let file = start_of(&dir.join(segment_name(base)), &mut page)?;
        let page = SealedPage::parse(&page).ok().flatten();
        Ok(file.zip(page).map(|(file, page)| Self { page, file }))
    }

    /// Opens the packed file of the store in `dir` that begins at `base`; `None` if there is none, or
    /// none that can be sent.
    pub fn open_packed(
        dir: &Path,
        base: u64,
        codec: &dyn PackedCodec,
    ) -> Result<Option<Self>, Error> {
        let mut start = vec![0; codec.start_bytes()];
        let file = start_of(&dir.join(packed_name(base)), &mut start)?;
        let page = SealedPage::packed(codec, &start);
        Ok(file.zip(page).map(|(file, page)| Self { page, file }))
    }

    /// `len` bytes from `offset` on, which it has.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        reads::read_exact(&self.file, &mut bytes, offset)?;
        Ok(bytes)
    }
}

/// Opens a file and reads its start; `None` if there is no such file.
fn start_of(path: &Path, start: &mut [u8]) -> Result<Option<File>, Error> {
    let file = match reads::open_regular(path) {
        // Evicted since it was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|error| Error::read(path, error))?,
    };
    reads::read_exact(&file, start, 0).map_err(|error| Error::read(path, error))?;
    Ok(Some(file))
}
