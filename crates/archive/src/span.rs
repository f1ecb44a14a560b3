//! Span: the hashes of up to 64 neighboring segments, each with its height and position.

use crate::digest::OBJECT_BYTES_MAX;
use crate::error::ArchiveError;
use crate::table::{TableHeader, TableKind, entries_in, fences, object_bytes};

/// Most segments of a span. A span holds segments of one group: the heights from a multiple of 64
/// ranges on.
pub const SPAN_SEGMENTS: u32 = 64;

const ENTRY_BYTES: usize = 12;
/// Bytes of a hash that an entry has.
pub const PREFIX_BYTES: usize = 6;
const WHAT: &str = "span";
const KIND: TableKind = TableKind { magic: b"nevespan", what: WHAT, entry_bytes: ENTRY_BYTES };

/// Place of a block or transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Height of the block.
    pub height: u64,
    /// Number of the transaction in the block; `None` for the block itself.
    pub transaction: Option<u32>,
}

/// First bytes of the hash of a block or transaction, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// First bytes of the hash.
    pub prefix: [u8; PREFIX_BYTES],
    /// Place of the hash.
    pub at: Spot,
}

impl Key {
    /// Makes the key of a hash.
    pub fn new(hash: &[u8; 32], at: Spot) -> Self {
        Self { prefix: std::array::from_fn(|byte| hash[byte]), at }
    }
}

/// A span in memory: its header, checked, and its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    first: u64,
    range: u32,
    segments: u32,
    /// Entries of 12 bytes, ascending.
    table: Vec<u8>,
}

/// Returns the group of heights that a span with `height` belongs to, as its number.
pub fn span_groups(height: u64, range: u32) -> u64 {
    height / (u64::from(SPAN_SEGMENTS) * u64::from(range.max(1)))
}

impl Span {
    /// Makes the span of segments without hashes.
    ///
    /// # Errors
    /// A range that no writer makes, or segments of two groups.
    pub fn empty(first: u64, range: u32, segments: u32) -> Result<Self, ArchiveError> {
        let span = Self { first, range, segments, table: Vec::new() };
        span.check_heights()?;
        Ok(span)
    }

    /// Makes a span of the entries of `self` and `others`, which may share heights, and of `keys`.
    ///
    /// # Errors
    /// A key outside the span, or too many.
    pub fn with<'s>(
        &self,
        others: impl IntoIterator<Item = &'s Self>,
        keys: &[Key],
    ) -> Result<Self, ArchiveError> {
        let others: Vec<&Self> = others.into_iter().collect();
        let count = self.len() + others.iter().map(|other| other.len()).sum::<usize>() + keys.len();
        let mut entries: Vec<[u8; ENTRY_BYTES]> = Vec::with_capacity(count);
        entries.extend(self.entries());
        for other in others {
            // Made anew: an entry counts heights from the first one of its own span.
            for entry in other.entries() {
                let at = other.spot(&entry);
                let at = at.ok_or_else(|| ArchiveError::malformed(WHAT, "a height outside"))?;
                entries.push(self.entry(&entry[..PREFIX_BYTES], at)?);
            }
        }
        for key in keys {
            entries.push(self.entry(&key.prefix, key.at)?);
        }
        #[expect(
            clippy::stable_sort_primitive,
            reason = "it merges the spans, each of which ascends"
        )]
        entries.sort();
        // Two may have the heights that they share.
        entries.dedup();
        let table = entries.into_flattened();
        if object_bytes(table.len()) > OBJECT_BYTES_MAX {
            return Err(ArchiveError::malformed(WHAT, "too many hashes"));
        }
        Ok(Self { table, ..*self })
    }

    /// Makes the span of the segments from the one that begins at `first` on.
    ///
    /// # Errors
    /// No segment begins there.
    pub fn later_part(&self, first: u64) -> Result<Self, ArchiveError> {
        let outside = || ArchiveError::malformed(WHAT, format!("no segment begins at {first}"));
        let dropped = first.checked_sub(self.first).filter(|behind| *behind < self.heights());
        let dropped = dropped.ok_or_else(outside)? / u64::from(self.range);
        let part = Self::empty(first, self.range, self.segments - dropped as u32)?;
        let mut table = Vec::new();
        for entry in self.entries() {
            if let Some(at) = self.spot(&entry).filter(|at| at.height >= first) {
                table.push(part.entry(&entry[..PREFIX_BYTES], at)?);
            }
        }
        table.sort_unstable(); // heights became smaller, some entries change places
        Ok(Self { table: table.concat(), ..part })
    }

    fn entry(&self, prefix: &[u8], at: Spot) -> Result<[u8; ENTRY_BYTES], ArchiveError> {
        let outside = || ArchiveError::malformed(WHAT, format!("height {} is outside", at.height));
        let index = at.height.checked_sub(self.first).filter(|index| *index < self.heights());
        let index = u16::try_from(index.ok_or_else(outside)?).map_err(|_| outside())?;
        // Zero is the block itself.
        let ordinal = at.transaction.map_or(Some(0), |number| number.checked_add(1));
        let ordinal = ordinal.ok_or_else(outside)?;
        let mut entry = [0; ENTRY_BYTES];
        entry[..PREFIX_BYTES].copy_from_slice(prefix);
        entry[PREFIX_BYTES..8].copy_from_slice(&index.to_le_bytes());
        entry[8..].copy_from_slice(&ordinal.to_le_bytes());
        Ok(entry)
    }

    fn entries(&self) -> impl Iterator<Item = [u8; ENTRY_BYTES]> + '_ {
        self.table.as_chunks::<ENTRY_BYTES>().0.iter().copied()
    }

    /// First bytes of the hashes, ascending.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = [u8; PREFIX_BYTES]> + '_ {
        self.entries().map(|entry| std::array::from_fn(|at| entry[at]))
    }

    /// Heights of the span.
    fn heights(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.range)
    }

    /// Returns the first height of the span.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Heights of a segment.
    pub fn range(&self) -> u32 {
        self.range
    }

    /// Number of segments.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.table.len() / ENTRY_BYTES
    }

    /// True if the span has no entries.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the places at which a hash may be. The caller compares the whole hash.
    pub fn candidates(&self, hash: &[u8; 32]) -> impl Iterator<Item = Spot> + '_ {
        let prefix: [u8; PREFIX_BYTES] = std::array::from_fn(|at| hash[at]);
        let entries = self.table.as_chunks::<ENTRY_BYTES>().0;
        let from = entries.partition_point(|entry| entry[..PREFIX_BYTES] < prefix[..]);
        let same = entries[from..].iter().take_while(move |entry| entry.starts_with(&prefix));
        same.filter_map(|entry| self.spot(entry))
    }

    /// Returns the places at which a hash may be, as far as `part` of the object has them, which begins at
    /// `offset`.
    pub fn candidates_in<'p>(
        &'p self,
        offset: u64,
        part: &'p [u8],
        hash: &[u8; 32],
    ) -> impl Iterator<Item = Spot> + 'p {
        let prefix: [u8; PREFIX_BYTES] = std::array::from_fn(|at| hash[at]);
        let entries = entries_in::<ENTRY_BYTES>(offset, part);
        let from = entries.partition_point(|entry| entry[..PREFIX_BYTES] < prefix[..]);
        let same = entries[from..].iter().take_while(move |entry| entry.starts_with(&prefix));
        same.filter_map(|entry| self.spot(entry))
    }

    /// Returns the first bytes of the first hash that begins in each page; all ones if none does.
    pub(crate) fn fences(&self, page_bytes: usize) -> Vec<[u8; PREFIX_BYTES]> {
        fences::<ENTRY_BYTES, PREFIX_BYTES>(&self.table, page_bytes)
    }

    fn spot(&self, entry: &[u8; ENTRY_BYTES]) -> Option<Spot> {
        let [.., low, high, a, b, c, d] = *entry;
        let height = self.first.checked_add(u16::from_le_bytes([low, high]).into())?;
        Some(Spot { height, transaction: u32::from_le_bytes([a, b, c, d]).checked_sub(1) })
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
        let (TableHeader { first, range, segments }, table) = TableHeader::read(KIND, bytes)?;
        let span = Self { first, range, segments, table: table.to_vec() };
        span.check_heights()?;
        span.check_entries()?;
        Ok(span)
    }

    fn check_heights(&self) -> Result<(), ArchiveError> {
        let Self { first, range, segments, .. } = *self;
        let is_range =
            range.is_power_of_two() && range <= 1024 && first.is_multiple_of(range.into());
        if !is_range || segments == 0 || segments > SPAN_SEGMENTS {
            return Err(ArchiveError::malformed(WHAT, "a range that no writer makes"));
        }
        let last = first.checked_add(self.heights() - 1);
        if last.map(|last| span_groups(last, range)) != Some(span_groups(first, range)) {
            return Err(ArchiveError::malformed(WHAT, "segments of two groups"));
        }
        Ok(())
    }

    fn check_entries(&self) -> Result<(), ArchiveError> {
        if !self.entries().is_sorted_by(|a, b| a < b) {
            return Err(ArchiveError::malformed(WHAT, "entries that do not ascend"));
        }
        let end = self.heights();
        let index = |entry: [u8; ENTRY_BYTES]| u64::from(u16::from_le_bytes([entry[6], entry[7]]));
        if self.entries().any(|entry| index(entry) >= end) {
            return Err(ArchiveError::malformed(WHAT, "a height outside"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
