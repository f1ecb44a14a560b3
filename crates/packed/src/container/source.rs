//! Bytes of a packed file: a mapped file, a slice, or pages from a network.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use crate::error::PackedError;

/// A file whose bytes can be read at any offset.
///
/// A source that maps its file lends the bytes. A source that fetches pages returns copies. A disk may
/// change bytes of an open file, so a [`crate::PackedFile`] compares each read with a checksum.
pub trait Source {
    /// Returns the length of the file in bytes.
    fn len(&self) -> u64;

    /// Returns exactly `bytes` bytes from `offset` on, or an error.
    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Cow<'_, [u8]>>;

    /// True if the file has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Source for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Cow<'_, [u8]>> {
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let found = range.and_then(|range| self.get(range));
        found.map(Cow::Borrowed).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Source for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Cow<'_, [u8]>> {
        self.as_slice().read_at(offset, bytes)
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Cow<'_, [u8]>> {
        (**self).read_at(offset, bytes)
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Cow<'_, [u8]>> {
        (**self).read_at(offset, bytes)
    }
}

pub(crate) fn read<S: Source + ?Sized>(
    source: &S,
    offset: u64,
    bytes: usize,
) -> Result<Cow<'_, [u8]>, PackedError> {
    let found = source.read_at(offset, bytes);
    let found = found.map_err(|error| PackedError::Read { offset, bytes, error })?;
    if found.len() == bytes {
        return Ok(found);
    }
    let error = io::ErrorKind::UnexpectedEof.into();
    Err(PackedError::Read { offset, bytes, error })
}

/// Returns a part of bytes in memory.
pub(crate) fn part(
    bytes: &[u8],
    range: std::ops::Range<u64>,
) -> Result<Cow<'_, [u8]>, PackedError> {
    let length = range.end.saturating_sub(range.start);
    read(bytes, range.start, length as usize)
}
