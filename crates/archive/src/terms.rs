//! Terms: the terms of logs in a span, each with the segments that have logs with it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::digest::OBJECT_BYTES_MAX;
use crate::error::ArchiveError;
use crate::span::{SPAN_SEGMENTS, Span};
use crate::table::{TableHeader, TableKind, entries_in, fences, object_bytes};

/// Bytes of a term that an entry has: those that the log index of a packed file has.
pub(crate) const TERM_BYTES: usize = 5;
const ENTRY_BYTES: usize = TERM_BYTES + 8;
const WHAT: &str = "terms";
const KIND: TableKind = TableKind { magic: b"neveterm", what: WHAT, entry_bytes: ENTRY_BYTES };

/// Terms of a span in memory: the header, checked, and the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    first: u64,
    range: u32,
    segments: u32,
    /// Entries of 13 bytes, ascending.
    table: Vec<u8>,
}

/// Low bytes of a term, the highest first.
pub(crate) fn key(term: u64) -> [u8; TERM_BYTES] {
    std::array::from_fn(|at| (term >> (8 * (TERM_BYTES - 1 - at))) as u8)
}

/// Returns the number of the segment that begins at `first`, among the 64 of its group.
pub fn segment_bit(first: u64, range: u32) -> u32 {
    let range = u64::from(range.max(1));
    (first / range % u64::from(SPAN_SEGMENTS)) as u32
}

impl Terms {
    /// Makes the terms of a span: those of `other`, which has segments of its group, as far as they are in the
    /// span, and `more`, each with the first height of its segment.
    ///
    /// # Errors
    /// A segment outside the span, or too many terms.
    pub fn new(
        span: &Span,
        other: Option<&Self>,
        more: impl Iterator<Item = (u64, u64)>,
    ) -> Result<Self, ArchiveError> {
        let (first, range, segments) = (span.first(), span.range(), span.segments());
        let end = first + u64::from(segments) * u64::from(range);
        let allowed = bits_of(first, range, segments);
        let mut table = other.map(|other| other.entries_within(allowed)).unwrap_or_default();
        for (segment, term) in more {
            if !(first..end).contains(&segment) {
                return Err(ArchiveError::malformed(WHAT, format!("{segment} is outside")));
            }
            *table.entry(key(term)).or_default() |= 1 << segment_bit(segment, range);
        }
        let table: Vec<u8> = table.into_iter().flat_map(entry).collect();
        if object_bytes(table.len()) > OBJECT_BYTES_MAX {
            return Err(ArchiveError::malformed(WHAT, "too many terms"));
        }
        Ok(Self { first, range, segments, table })
    }

    /// Returns the segments of each term as far as they are among the `allowed` ones. Segments that the span has no more
    /// take their terms with them.
    fn entries_within(&self, allowed: u64) -> BTreeMap<[u8; TERM_BYTES], u64> {
        let kept = self.entries().map(|(key, bits)| (key, bits & allowed));
        kept.filter(|(_, bits)| *bits != 0).collect()
    }

    fn entries(&self) -> impl Iterator<Item = ([u8; TERM_BYTES], u64)> + '_ {
        entries(&self.table)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.table.len() / ENTRY_BYTES
    }

    /// True if the span has no logs.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the segments of the group that may have logs with a term, a bit each.
    pub fn segments_of(&self, term: u64) -> u64 {
        segments_of(self.table.as_chunks::<ENTRY_BYTES>().0, term)
    }

    /// Returns the bytes of the object.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { first, range, segments, ref table } = *self;
        TableHeader { first, range, segments }.to_bytes(KIND, table)
    }

    /// Reads an object.
    ///
    /// # Errors
    /// Bytes that no writer makes, or another version.
    pub fn read(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let malformed = |why: &str| ArchiveError::malformed(WHAT, why);
        let (TableHeader { first, range, segments }, table) = TableHeader::read(KIND, bytes)?;
        // For its checks: `bits_of` divides by the range and shifts by the segments.
        Span::empty(first, range, segments)?;
        let terms = Self { first, range, segments, table: table.to_vec() };
        if !terms.entries().is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(malformed("entries that do not ascend"));
        }
        let allowed = bits_of(first, range, segments);
        if terms.entries().any(|(_, bits)| bits == 0 || bits & !allowed != 0) {
            return Err(malformed("a segment outside"));
        }
        Ok(terms)
    }

    /// Returns the first bytes of the first term that begins in each page; all ones if none does.
    pub(crate) fn fences(&self, page_bytes: usize) -> Vec<[u8; TERM_BYTES]> {
        fences::<ENTRY_BYTES, TERM_BYTES>(&self.table, page_bytes)
    }
}

/// Segments of a span among those of its group, a bit each.
fn bits_of(first: u64, range: u32, segments: u32) -> u64 {
    let low = segment_bit(first, range);
    (u64::MAX >> (SPAN_SEGMENTS - segments.clamp(1, SPAN_SEGMENTS))) << low
}

/// Bytes of an entry.
fn entry((key, bits): ([u8; TERM_BYTES], u64)) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..TERM_BYTES].copy_from_slice(&key);
    entry[TERM_BYTES..].copy_from_slice(&bits.to_le_bytes());
    entry
}

fn entries(table: &[u8]) -> impl Iterator<Item = ([u8; TERM_BYTES], u64)> + '_ {
    table.as_chunks::<ENTRY_BYTES>().0.iter().filter_map(|entry| {
        let (key, bits) = entry.split_first_chunk::<TERM_BYTES>()?;
        Some((*key, u64::from_le_bytes(*bits.first_chunk()?)))
    })
}

/// Returns the segments of the group that may have logs with a term, as far as `part` of the object has
/// them, which begins at `offset`.
pub fn segments_in(offset: u64, part: &[u8], term: u64) -> u64 {
    segments_of(entries_in::<ENTRY_BYTES>(offset, part), term)
}

fn segments_of(table: &[[u8; ENTRY_BYTES]], term: u64) -> u64 {
    let wanted = key(term);
    let at = table.partition_point(|entry| entry[..TERM_BYTES] < wanted[..]);
    let found = table.get(at..).unwrap_or_default().iter().take(1);
    let found = found.flat_map(|entry| entries(entry)).find(|(key, _)| *key == wanted);
    found.map_or(0, |(_, bits)| bits)
}

/// Returns the pages, of which these are the fences, that may have a term.
pub(crate) fn pages_of(fences: &[[u8; TERM_BYTES]], term: u64) -> Range<usize> {
    let key = key(term);
    // An entry may begin in the page before and end in the next one.
    let from = fences.partition_point(|fence| *fence < key).saturating_sub(1);
    let end = fences.partition_point(|fence| *fence <= key);
    let end = (end + 1).min(fences.len());
    from..end.max(from + 1)
}

#[cfg(test)]
mod tests;
