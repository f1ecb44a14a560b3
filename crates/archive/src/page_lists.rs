//! Page lists: the digests of all pages of a span and of its segments, so that a page read alone is proven.

use std::ops::Range;
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

use crate::digest::{Digest, OBJECT_BYTES_MAX, PAGE_BYTES};
use crate::error::ArchiveError;
use crate::span::{PREFIX_BYTES, SPAN_SEGMENTS, Span};
use crate::terms::{TERM_BYTES, Terms, pages_of};

const MAGIC: &[u8; 8] = b"nevepage";
/// Versions: without terms, and with them.
const VERSION: u32 = 1;
const VERSION_WITH_TERMS: u32 = 2;
const HEADER_BYTES: usize = 32;
const DIGEST_BYTES: usize = 32;
const WHAT: &str = "page lists";

/// Digests of the pages of an object, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageList {
    digests: Vec<u8>,
}

/// Pages of a segment, and the length of its front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentPages {
    /// Bytes of the header, the directory, the tables and the dictionary, with which the file begins.
    pub front: u32,
    /// Digests of the pages.
    pub pages: PageList,
}

/// Page lists of a span and of its segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageLists {
    first: u64,
    range: u32,
    /// Lists of the segments, ascending.
    pub segments: Vec<SegmentPages>,
    /// List of the span.
    pub span: PageList,
    /// First bytes of the first hash that begins in each page of the span, ascending.
    fences: Vec<[u8; PREFIX_BYTES]>,
    /// List of the terms, if the span has them.
    pub terms: Option<TermPages>,
}

/// Pages of the terms of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermPages {
    /// Digests of the pages.
    pub pages: PageList,
    /// First bytes of the first term that begins in each page, ascending.
    fences: Vec<[u8; TERM_BYTES]>,
}

impl TermPages {
    fn of(terms: &Terms) -> Self {
        Self { pages: PageList::of(&terms.to_bytes()), fences: terms.fences(PAGE_BYTES) }
    }

    /// Returns the pages that may have a term.
    pub fn of_term(&self, term: u64) -> Range<usize> {
        pages_of(&self.fences, term)
    }
}

impl PageList {
    /// Returns the list of an object.
    pub fn of(object: &[u8]) -> Self {
        let digests = object.chunks(PAGE_BYTES).flat_map(Sha256::digest).collect();
        Self { digests }
    }

    /// Returns the digest that names the object.
    pub fn object_digest(&self) -> Digest {
        Digest::of(&self.digests)
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.digests.len() / DIGEST_BYTES
    }

    /// Bytes of the digests in memory.
    pub fn bytes(&self) -> usize {
        self.digests.len()
    }

    /// True for the list of no bytes.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// True if `bytes` are those of a page.
    pub fn proves(&self, page: usize, bytes: &[u8]) -> bool {
        let digest = self.digests.as_chunks::<DIGEST_BYTES>().0.get(page);
        digest.is_some_and(|digest| Digest::of(bytes).0 == *digest)
    }

    /// True if a page is whole and has zeros only. Computes one digest in a process.
    pub fn is_of_zeros(&self, page: usize) -> bool {
        static ZEROS: LazyLock<Digest> = LazyLock::new(|| Digest::of(&[0; PAGE_BYTES]));
        self.digests.as_chunks::<DIGEST_BYTES>().0.get(page) == Some(&ZEROS.0)
    }
}

impl PageLists {
    /// Makes the lists of a span and of its segments, which ascend.
    ///
    /// # Errors
    /// Another number of segments than the span has, or too many pages.
    pub fn new(
        span: &Span,
        segments: Vec<SegmentPages>,
        terms: Option<&Terms>,
    ) -> Result<Self, ArchiveError> {
        if segments.len() != span.segments() as usize {
            return Err(ArchiveError::malformed(WHAT, "not the segments of the span"));
        }
        let bytes = span.to_bytes();
        let fences = span.fences(PAGE_BYTES);
        let list = PageList::of(&bytes);
        let (first, range) = (span.first(), span.range());
        Ok(Self { first, range, segments, span: list, fences, terms: terms.map(TermPages::of) })
    }

    /// Returns the first height of the span.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the lists of the segment that begins at a height.
    pub fn segment(&self, first: u64) -> Option<&SegmentPages> {
        let behind = first.checked_sub(self.first)?;
        let range = u64::from(self.range);
        let at = behind.is_multiple_of(range).then(|| behind / range)?;
        self.segments.get(usize::try_from(at).ok()?)
    }

    /// Returns the pages of the span that may have entries of a hash: the first one and their number.
    pub fn pages_of(&self, hash: &[u8; 32]) -> (usize, usize) {
        let prefix = &hash[..PREFIX_BYTES];
        // An entry may begin in the page before and end in the next one.
        let from = self.fences.partition_point(|fence| fence[..] < *prefix).saturating_sub(1);
        let end = self.fences.partition_point(|fence| fence[..] <= *prefix);
        let end = (end + 1).min(self.span.len());
        (from, end.saturating_sub(from).max(1))
    }

    /// Returns the bytes of the object.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        self.add_header(&mut bytes);
        for segment in &self.segments {
            bytes.extend_from_slice(&segment.front.to_le_bytes());
            bytes.extend_from_slice(&(segment.pages.len() as u32).to_le_bytes());
        }
        bytes.extend_from_slice(self.fences.as_flattened());
        bytes.extend_from_slice(&self.span.digests);
        if let Some(terms) = &self.terms {
            bytes.extend_from_slice(terms.fences.as_flattened());
            bytes.extend_from_slice(&terms.pages.digests);
        }
        self.segments.iter().for_each(|segment| bytes.extend_from_slice(&segment.pages.digests));
        bytes
    }

    fn add_header(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(MAGIC);
        let version = if self.terms.is_some() { VERSION_WITH_TERMS } else { VERSION };
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&self.range.to_le_bytes());
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.span.len() as u32).to_le_bytes());
        if let Some(terms) = &self.terms {
            bytes.extend_from_slice(&(terms.pages.len() as u32).to_le_bytes());
        }
    }

    fn bytes(&self) -> usize {
        let pages = self.segments.iter().map(|segment| segment.pages.len());
        bytes_of(pages, self.span.len(), self.terms.as_ref().map(|terms| terms.pages.len()))
    }

    /// Reads an object.
    ///
    /// # Errors
    /// Bytes that no writer makes, or another version.
    pub fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let mut rest = Rest(bytes);
        let ListsHeader { first, range, segments, span_pages, term_pages } = rest.header()?;
        let shapes = (0..segments).map(|_| Ok((rest.word()?, rest.pages()?)));
        let shapes = shapes.collect::<Result<Vec<_>, ArchiveError>>()?;
        let fences = rest.take(span_pages * PREFIX_BYTES)?.as_chunks().0.to_vec();
        let span = rest.list(span_pages)?;
        let terms = term_pages.map(|pages| rest.terms(pages)).transpose()?;
        let segments = shapes
            .into_iter()
            .map(|(front, pages)| Ok(SegmentPages { front, pages: rest.list(pages)? }));
        let segments = segments.collect::<Result<Vec<_>, ArchiveError>>()?;
        let is_sorted = terms.as_ref().is_none_or(|terms| terms.fences.is_sorted());
        // A search among fences that do not ascend would miss hashes that are there.
        if !rest.0.is_empty() || !fences.is_sorted() || !is_sorted {
            return Err(ArchiveError::malformed(WHAT, "bytes that no writer makes"));
        }
        Ok(Self { first, range, segments, span, fences, terms })
    }
}

/// Bytes of the lists of segments, a span, and terms with so many pages.
pub(crate) fn bytes_of(
    segments: impl Iterator<Item = usize>,
    span: usize,
    terms: Option<usize>,
) -> usize {
    let terms = terms.map_or(0, |pages| 4 + pages * (TERM_BYTES + DIGEST_BYTES));
    let segments = segments.map(|pages| 8 + pages * DIGEST_BYTES).sum::<usize>();
    HEADER_BYTES + segments + span * (PREFIX_BYTES + DIGEST_BYTES) + terms
}

/// Header of page lists: the form of the span, and the numbers of its pages and of those of its terms.
struct ListsHeader {
    first: u64,
    range: u32,
    segments: u32,
    span_pages: usize,
    term_pages: Option<usize>,
}

/// Bytes that are not read yet.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn header(&mut self) -> Result<ListsHeader, ArchiveError> {
        if self.take(MAGIC.len())? != MAGIC {
            return Err(ArchiveError::malformed(WHAT, "not page lists"));
        }
        let version = self.word()?;
        if version != VERSION && version != VERSION_WITH_TERMS {
            return Err(ArchiveError::Version { what: WHAT, version: version.into(), read: 2 });
        }
        let range = self.word()?;
        let first = u64::from(self.word()?) | u64::from(self.word()?) << 32;
        let (segments, span_pages) = (self.word()?, self.pages()?);
        let has_terms = version == VERSION_WITH_TERMS;
        let term_pages = has_terms.then(|| self.pages()).transpose()?;
        if segments == 0 || segments > SPAN_SEGMENTS {
            return Err(ArchiveError::malformed(WHAT, "a count of segments that no writer makes"));
        }
        // For its checks: `segment` divides by the range.
        Span::empty(first, range, segments)?;
        Ok(ListsHeader { first, range, segments, span_pages, term_pages })
    }

    fn terms(&mut self, pages: usize) -> Result<TermPages, ArchiveError> {
        let fences = self.take(pages * TERM_BYTES)?.as_chunks().0.to_vec();
        Ok(TermPages { pages: self.list(pages)?, fences })
    }

    fn take(&mut self, bytes: usize) -> Result<&'b [u8], ArchiveError> {
        let cut = self.0.split_at_checked(bytes);
        let (taken, rest) = cut.ok_or_else(|| ArchiveError::malformed(WHAT, "cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u32, ArchiveError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(std::array::from_fn(|at| bytes[at])))
    }

    /// A number of pages.
    fn pages(&mut self) -> Result<usize, ArchiveError> {
        let pages = self.word()? as usize;
        if pages == 0 || pages as u64 > OBJECT_BYTES_MAX / PAGE_BYTES as u64 {
            return Err(ArchiveError::malformed(WHAT, "a count of pages that no writer makes"));
        }
        Ok(pages)
    }

    fn list(&mut self, pages: usize) -> Result<PageList, ArchiveError> {
        Ok(PageList { digests: self.take(pages * DIGEST_BYTES)?.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::span::{Key, Spot};

    fn span(hashes: u32) -> (Span, Vec<([u8; 32], Spot)>) {
        let spot = |number: u32| {
            let at = Spot { height: u64::from(number % 64), transaction: Some(number) };
            (Digest::of(&number.to_le_bytes()).0, at)
        };
        let spots: Vec<_> = (0..hashes).map(spot).collect();
        let keys: Vec<_> = spots.iter().map(|(hash, at)| Key::new(hash, *at)).collect();
        let empty = Span::empty(0, 32, 2).expect("it is one");
        (empty.with(None, &keys).expect("they fit"), spots)
    }

    fn lists_with(span: &Span, terms: Option<&Terms>) -> PageLists {
        let segment =
            |bytes: usize| SegmentPages { front: 7, pages: PageList::of(&vec![1; bytes]) };
        let segments = vec![segment(PAGE_BYTES + 1), segment(5)];
        PageLists::new(span, segments, terms).expect("they are those of the span")
    }

    fn lists(span: &Span) -> PageLists {
        lists_with(span, None)
    }

    #[test]
    fn lists_with_terms_come_back_and_those_without_have_the_bytes_of_an_earlier_writer() {
        let (span, _) = span(100);
        let terms = |count: u64| {
            let more = (0..count).map(|n| (32 * (n % 2), n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            Terms::new(&span, None, more).expect("they fit")
        };
        assert_eq!(lists(&span).to_bytes()[8], 1);
        for terms in [terms(0), terms(20_000)] {
            let lists = lists_with(&span, Some(&terms));
            let bytes = lists.to_bytes();
            assert_eq!((bytes[8], bytes.len()), (2, lists.bytes()));
            let read = PageLists::read(&bytes).expect("it is one");
            assert_eq!(read, lists);
            let pages = read.terms.expect("it has them").pages;
            assert_eq!(pages.object_digest(), crate::object_digest(&terms.to_bytes()));
        }
        let newer = [&lists(&span).to_bytes()[..8], &[3], &[0; 64]].concat();
        assert!(matches!(PageLists::read(&newer), Err(ArchiveError::Version { version: 3, .. })));
    }

    #[test]
    fn lists_come_back_and_prove_pages() {
        let (span, _) = span(20_000);
        let lists = lists(&span);
        let bytes = lists.to_bytes();
        assert_eq!(bytes.len(), lists.bytes());
        let read = PageLists::read(&bytes).expect("it is one");
        assert_eq!(read, lists);
        let object = span.to_bytes();
        assert_eq!(read.span.object_digest(), crate::object_digest(&object));
        assert_eq!(read.span.len(), 4);
        assert!(read.span.proves(1, &object[PAGE_BYTES..2 * PAGE_BYTES]));
        assert!(!read.span.proves(0, &object[PAGE_BYTES..2 * PAGE_BYTES]));
        assert!(!read.span.proves(4, &[]));
        let second = read.segment(32).expect("it has one");
        assert_eq!((second.front, second.pages.len()), (7, 1));
        assert!(read.segment(31).is_none() && read.segment(64).is_none());
    }

    #[test]
    fn every_hash_is_found_in_the_pages_that_are_named() {
        let (span, spots) = span(20_000);
        let (lists, object) = (lists(&span), span.to_bytes());
        let mut pages = 0;
        for (hash, spot) in &spots {
            let (first, count) = lists.pages_of(hash);
            let from = first * PAGE_BYTES;
            let part = &object[from..object.len().min(from + count * PAGE_BYTES)];
            let mut found = span.candidates_in(from as u64, part, hash);
            assert!(found.any(|at| at == *spot), "{spot:?}");
            pages += count;
        }
        assert!(pages < spots.len() * 5 / 2, "{pages}");
    }

    proptest! {
        #[test]
        fn flipped_and_cut_bytes_never_panic(
            at: prop::sample::Index, to: u8, cut: prop::sample::Index,
        ) {
            let mut bytes = lists(&span(100).0).to_bytes();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(read) = PageLists::read(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }
}
