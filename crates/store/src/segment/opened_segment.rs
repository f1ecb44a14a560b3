//! The header page of a segment file, as opening finds it.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::format::{FormatError, PAGE, SLOT_LEN, Seal, SegmentHeader};
use crate::reads;

/// A segment file's header page, read and checked.
pub(crate) enum OpenedSegment {
    /// A sealed segment.
    Sealed(SegmentHeader, Seal),
    /// An unsealed segment: recovery walks its records.
    Active(SegmentHeader),
    /// A file that cannot be believed.
    Damaged(FormatError),
    /// A file of zeros: nothing of it reached the disk before power was lost.
    Blank,
}

/// Reads the header page of the segment file at `path`, named for `base_height`. An error of the disk says nothing
/// about the file.
pub(crate) fn inspect(path: &Path, base_height: u64) -> Result<OpenedSegment, Error> {
    let mut page = [0; PAGE];
    let read = reads::again(reads::is_disk_failure, || read_page(path, &mut page));
    let len = match read {
        Ok(len) => len,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Ok(OpenedSegment::Damaged("segment file is shorter than its header"));
        }
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            return Ok(OpenedSegment::Damaged("not a regular file"));
        }
        Err(source) => return Err(Error::Read { path: PathBuf::from(path), source }),
    };
    match inspect_page(&page, base_height, len) {
        // ext4 may keep a file's length and none of its bytes after power loss: nothing is lost by it.
        OpenedSegment::Damaged(_) if is_blank(path).unwrap_or(false) => Ok(OpenedSegment::Blank),
        opened => Ok(opened),
    }
}

fn read_page(path: &Path, page: &mut [u8; PAGE]) -> std::io::Result<u64> {
    let file = reads::open_regular(path)?;
    reads::read_exact(&file, page, 0)?;
    reads::length(&file)
}

/// True if nothing was ever written to the file, as far as its header and first slot tell.
fn is_blank(path: &Path) -> std::io::Result<bool> {
    let mut start = [0; PAGE + SLOT_LEN];
    reads::read_exact(&reads::open_regular(path)?, &mut start, 0)?;
    Ok(start.iter().all(|byte| *byte == 0))
}

fn inspect_page(page: &[u8; PAGE], base_height: u64, len: u64) -> OpenedSegment {
    let header = match SegmentHeader::parse(page) {
        Ok(header) => header,
        Err(damage) => return OpenedSegment::Damaged(damage),
    };
    if header.base_height != base_height {
        return OpenedSegment::Damaged("segment header has another height than the file name");
    }
    if header.capacity != len {
        return OpenedSegment::Damaged("segment file has another length than its header says");
    }
    match Seal::parse(page, &header) {
        Ok(Some(seal)) => OpenedSegment::Sealed(header, seal),
        // A seal that is not whole was being written, or is damaged: the records will tell.
        Ok(None) | Err(_) => OpenedSegment::Active(header),
    }
}
