//! Checksums of the pages of a section, in memory: a disk may change bytes after an opening compared them.
//!
//! They are made of the very bytes whose checksum the file header has. Each later read of a page is
//! compared with its own. A file of mainnet has about a kilobyte of them.

use std::borrow::Cow;
use std::ops::Range;

use crate::container::layout::{Place, Section};
use crate::container::source::{Source, read};
use crate::error::PackedError;

/// Bytes that are read at once to make checksums: a multiple of each page's length.
const AT_ONCE: u64 = 1 << 20;

/// Checksums of the pages of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageSums {
    page: u64,
    sums: Box<[u32]>,
}

impl PageSums {
    /// Length of the pages of a section. A read of the directory takes 80 bytes, one of an index a bucket.
    fn page_bytes(section: Section) -> u64 {
        if section == Section::Directory { 1 << 10 } else { 4 << 10 }
    }

    /// Reads a section of any length. `None` if it does not have the checksum of the file header.
    pub(crate) fn read<S: Source>(
        source: &S,
        place: &Place,
        section: Section,
    ) -> Result<Option<Self>, PackedError> {
        let page = Self::page_bytes(section);
        let (mut whole, mut sums) = (crc32fast::Hasher::new(), Vec::new());
        let (mut at, end) = (place.offset, place.offset + place.bytes);
        while at < end {
            let piece = read(source, at, (end - at).min(AT_ONCE) as usize)?;
            whole.update(&piece);
            sums.extend(piece.chunks(page as usize).map(crc32fast::hash));
            at += piece.len() as u64;
        }
        Ok((whole.finalize() == place.crc).then(|| Self { page, sums: sums.into() }))
    }

    /// Makes those of a section whose checksum was compared.
    pub(crate) fn of(bytes: &[u8], section: Section) -> Self {
        let page = Self::page_bytes(section);
        Self { page, sums: bytes.chunks(page as usize).map(crc32fast::hash).collect() }
    }

    /// Reads a part of the section and compares the pages that it lies in.
    pub(crate) fn part<'s, S: Source>(
        &self,
        source: &'s S,
        place: &Place,
        section: Section,
        range: Range<u64>,
    ) -> Result<Cow<'s, [u8]>, PackedError> {
        let outside = || PackedError::malformed(section.name(), "a part out of bounds");
        if range.start > range.end || range.end > place.bytes {
            return Err(outside());
        }
        let first = range.start / self.page;
        // Whole pages: a checksum is of no less.
        let pages = first * self.page..range.end.next_multiple_of(self.page).min(place.bytes);
        let (offset, bytes) = place.part(pages.clone()).ok_or_else(outside)?;
        let found = read(source, offset, bytes)?;
        if !self.are_of(&found, first as usize) {
            return Err(PackedError::Checksum(section.name()));
        }
        let start = (range.start - pages.start) as usize;
        Ok(cut(found, start..start + (range.end - range.start) as usize))
    }

    /// True if these pages, from number `first` on, have their checksums.
    fn are_of(&self, pages: &[u8], first: usize) -> bool {
        let sums = self.sums.get(first..).unwrap_or_default();
        let mut both = pages.chunks(self.page as usize).zip(sums);
        both.all(|(page, sum)| crc32fast::hash(page) == *sum)
    }
}

/// Returns a part of bytes, without a copy if they are lent.
fn cut(bytes: Cow<'_, [u8]>, range: Range<usize>) -> Cow<'_, [u8]> {
    match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[range]),
        Cow::Owned(mut bytes) => {
            bytes.truncate(range.end);
            bytes.drain(..range.start);
            Cow::Owned(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_read_only_if_its_pages_have_their_checksums() {
        let bytes: Vec<u8> = (0..5000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let place = Place { offset: 0, bytes: 5000, crc: crc32fast::hash(&bytes) };
        let section = Section::Directory;
        let sums = PageSums::read(&bytes, &place, section).unwrap().unwrap();
        assert_eq!(sums, PageSums::of(&bytes, section));
        for range in [0..0, 0..1, 1000..1100, 1023..3000, 4096..5000, 4999..5000, 5000..5000] {
            let part = sums.part(&bytes, &place, section, range.clone()).unwrap();
            assert_eq!(*part, bytes[range.start as usize..range.end as usize], "{range:?}");
        }
        for range in [0..5001, 5000..5001, 7000..7001] {
            assert!(sums.part(&bytes, &place, section, range).is_err());
        }
        let mut changed = bytes;
        changed[2000] ^= 8;
        let read = |range| sums.part(&changed, &place, section, range);
        assert!(read(1024..1025).is_err() && read(0..5000).is_err());
        assert!(read(0..1024).is_ok() && read(2048..5000).is_ok());
        assert!(PageSums::read(&changed, &place, section).unwrap().is_none());
    }
}
