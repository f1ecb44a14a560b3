//! The hash index: from the hash of a block or transaction to its height and position.
//!
//! An entry has a few bits of the hash; the reader compares the whole hash. Buckets are chosen by
//! the first bits, so a look-up reads two words and about eight entries.

use std::borrow::Cow;
use std::ops::Range;

use crate::container::bytes::Bytes;
use crate::container::layout::Section;
use crate::error::{PackError, PackedError, Part};

const HEAD_BYTES: usize = 8;
/// Entries of a bucket in the mean, at least half of it.
const BUCKET_ENTRIES: usize = 16;
/// Bits of the hash in an entry, besides those of the bucket: at least so many.
const REMAINDER_BITS_MIN: u32 = 20;
/// Bits that choose a bucket, at most: the starts of all buckets have 64 MiB then.
const BUCKET_BITS_MAX: u32 = 24;
/// Candidates that a look-up returns. They share 29 bits of hash and more, so a second one is rare. An attacker who
/// makes many hides only the last ones of these.
const CANDIDATES_MAX: usize = 64;

/// Position of a hash: the index of the height in the file, and 0 for the block or 1 + the
/// transaction's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Locator {
    pub(crate) height: u32,
    pub(crate) ordinal: u32,
}

/// Place of a hash in a packed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Height of the block.
    pub height: u64,
    /// Number of the transaction in the block; `None` if the hash is that of the block.
    pub transaction: Option<u32>,
}

/// Number of bits of each hash in an index, and the hashes with their places.
pub type IndexedHashes = (u32, Vec<(u64, Position)>);

/// Widths of an index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexWidths {
    entries: usize,
    bucket_bits: u32,
    ordinal_bits: u32,
    height_bits: u32,
    entry_bytes: usize,
}

impl IndexWidths {
    /// Returns the widths of an index of so many entries. A packer has no choice.
    fn new(entries: usize, height_bits: u32, ordinal_bits: u32) -> Option<Self> {
        let bucket_bits = (entries / BUCKET_ENTRIES).max(1).ilog2();
        let needed = height_bits + ordinal_bits + REMAINDER_BITS_MIN;
        let entry_bytes = needed.div_ceil(8) as usize;
        let fits = needed <= u64::BITS && bucket_bits <= BUCKET_BITS_MAX;
        fits.then_some(Self { entries, bucket_bits, ordinal_bits, height_bits, entry_bytes })
    }

    fn of(entries: &[(u64, Locator)]) -> Result<Self, PackError> {
        let bits = |most: u32| u32::BITS - most.leading_zeros();
        let most =
            |of: fn(&Locator) -> u32| entries.iter().map(|(_, at)| of(at)).max().unwrap_or(0);
        let (height_bits, ordinal_bits) = (bits(most(|at| at.height)), bits(most(|at| at.ordinal)));
        let widths = Self::new(entries.len(), height_bits, ordinal_bits);
        widths.ok_or(PackError::TooLarge(Part::HashIndex))
    }

    fn remainder_bits(&self) -> u32 {
        self.entry_bytes as u32 * 8 - self.height_bits - self.ordinal_bits
    }

    fn bucket(&self, prefix: u64) -> usize {
        // With one bucket the shift is of all 64 bits, which `>>` does not do.
        prefix.checked_shr(u64::BITS - self.bucket_bits).unwrap_or(0) as usize
    }

    /// Returns the bits of the hash behind those of the bucket, as high as they stand in an entry.
    fn remainder(&self, prefix: u64) -> u64 {
        let behind = prefix << self.bucket_bits;
        behind.checked_shr(u64::BITS - self.remainder_bits()).unwrap_or(0)
    }

    fn entry(&self, prefix: u64, at: Locator) -> u64 {
        let locator = u64::from(at.height) << self.ordinal_bits | u64::from(at.ordinal);
        let shift = self.height_bits + self.ordinal_bits;
        self.remainder(prefix).checked_shl(shift).unwrap_or(0) | locator
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Bits of a hash that an entry has, with those of its bucket.
    pub(crate) fn hash_bits(&self) -> u32 {
        self.bucket_bits + self.remainder_bits()
    }

    /// Returns these bits of an entry as the highest ones of a number.
    fn prefix(&self, bucket: usize, entry: u64) -> u64 {
        let remainder = entry.checked_shr(self.height_bits + self.ordinal_bits).unwrap_or(0);
        let bits = (bucket as u64).checked_shl(self.remainder_bits()).unwrap_or(0) | remainder;
        bits.checked_shl(u64::BITS - self.hash_bits()).unwrap_or(0)
    }

    fn locator(&self, entry: u64) -> Locator {
        let low = |value: u64, bits: u32| (value & ((1_u64 << bits) - 1)) as u32;
        Locator {
            height: low(entry >> self.ordinal_bits, self.height_bits),
            ordinal: low(entry, self.ordinal_bits),
        }
    }
}

/// Makes the section. The order of the input does not matter.
pub(crate) fn write(hashes: &[(u64, Locator)]) -> Result<Vec<u8>, PackError> {
    write_as(IndexWidths::of(hashes)?, hashes)
}

fn write_as(widths: IndexWidths, hashes: &[(u64, Locator)]) -> Result<Vec<u8>, PackError> {
    let mut entries: Vec<(usize, u64)> = Vec::with_capacity(hashes.len());
    entries
        .extend(hashes.iter().map(|(hash, at)| (widths.bucket(*hash), widths.entry(*hash, *at))));
    // Whatever the order of the hashes: a file is a function of its heights only.
    entries.sort_unstable();
    let count = u32::try_from(entries.len()).map_err(|_| PackError::TooLarge(Part::HashIndex))?;
    let buckets = 1_usize << widths.bucket_bits;
    let mut out = Vec::with_capacity(HEAD_BYTES + 4 * buckets + entries.len() * widths.entry_bytes);
    out.extend_from_slice(&count.to_le_bytes());
    let bits = [widths.bucket_bits, widths.height_bits, widths.ordinal_bits];
    out.extend_from_slice(&bits.map(|bits| bits as u8));
    out.push(widths.entry_bytes as u8);
    for bucket in 0..buckets {
        let start = entries.partition_point(|(of, _)| *of < bucket) as u32;
        out.extend_from_slice(&start.to_le_bytes());
    }
    for (_, entry) in &entries {
        out.extend_from_slice(&entry.to_le_bytes()[..widths.entry_bytes]);
    }
    Ok(out)
}

/// Finds the candidates for a hash. `read` gives a part of the section, whose checksum was compared.
pub(crate) fn candidates<'s>(
    read: impl Fn(Range<u64>) -> Result<Cow<'s, [u8]>, PackedError>,
    widths: &IndexWidths,
    hash: &[u8; 32],
) -> Result<Vec<Locator>, PackedError> {
    let prefix = prefix(hash);
    let bucket = read_bucket(&read, widths, widths.bucket(prefix))?;
    let offset = HEAD_BYTES + (4 << widths.bucket_bits);
    let place = |entry: usize| (offset + entry * widths.entry_bytes) as u64;
    let entries = read(place(bucket.start)..place(bucket.end))?;
    let (wanted, shift) = (widths.remainder(prefix), widths.height_bits + widths.ordinal_bits);
    let entries = entries.chunks_exact(widths.entry_bytes).map(wide);
    let found = entries.filter(|entry| entry.checked_shr(shift).unwrap_or(0) == wanted);
    // A forged index could name every entry, and each costs the caller a frame.
    Ok(found.map(|entry| widths.locator(entry)).take(CANDIDATES_MAX).collect())
}

/// Reads the numbers of the entries of a bucket.
fn read_bucket<'s>(
    read: &impl Fn(Range<u64>) -> Result<Cow<'s, [u8]>, PackedError>,
    widths: &IndexWidths,
    bucket: usize,
) -> Result<Range<usize>, PackedError> {
    let is_last = bucket + 1 == 1 << widths.bucket_bits;
    let at = (HEAD_BYTES + 4 * bucket) as u64;
    // The last bucket ends with the entries: no start of another one stands behind its own.
    let starts = read(at..at + if is_last { 4 } else { 8 })?;
    let mut starts = Bytes::new(&starts, Section::Hashes.name());
    let start = starts.u32()? as usize;
    let end = if is_last { widths.entries } else { starts.u32()? as usize };
    if start > end || end > widths.entries {
        return Err(starts.error("a bucket out of order"));
    }
    Ok(start..end)
}

/// Reads the widths of a section, which has to have the length that they give.
pub(crate) fn widths<'s>(
    read: impl Fn(Range<u64>) -> Result<Cow<'s, [u8]>, PackedError>,
    length: u64,
) -> Result<IndexWidths, PackedError> {
    let head = read(0..HEAD_BYTES as u64)?;
    let mut bytes = Bytes::new(&head, Section::Hashes.name());
    let widths = read_widths(&mut bytes)?;
    let named = HEAD_BYTES + (4 << widths.bucket_bits) + widths.entries * widths.entry_bytes;
    if named as u64 == length {
        Ok(widths)
    } else {
        Err(bytes.error("another length than it names"))
    }
}

/// Returns of each entry of a whole section the bits of its hash, highest in a number, and the place. A packer writes them
/// ascending.
pub(crate) fn all(section: &[u8], heights: u32) -> Result<Vec<(u64, Locator)>, PackedError> {
    let error = |what| PackedError::malformed(Section::Hashes.name(), what);
    let read = |range| crate::container::source::part(section, range);
    let widths = widths(read, section.len() as u64)?;
    let offset = HEAD_BYTES + (4 << widths.bucket_bits);
    let mut entries = section[offset..].chunks_exact(widths.entry_bytes).map(wide);
    let mut found = Vec::with_capacity(widths.entries);
    for bucket in 0..1_usize << widths.bucket_bits {
        let places = read_bucket(&read, &widths, bucket)?;
        if places.start != found.len() {
            return Err(error("a bucket out of order"));
        }
        let entries = entries.by_ref().take(places.len());
        found.extend(entries.map(|entry| (widths.prefix(bucket, entry), widths.locator(entry))));
    }
    if found.iter().any(|(_, at)| at.height >= heights) {
        return Err(error("a height out of bounds"));
    }
    Ok(found)
}

/// Returns the first eight bytes of a hash as a big-endian number.
pub(crate) fn prefix(hash: &[u8; 32]) -> u64 {
    hash.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn read_widths(bytes: &mut Bytes<'_>) -> Result<IndexWidths, PackedError> {
    let entries = bytes.u32()? as usize;
    let [bucket_bits, height_bits, ordinal_bits] = bytes.array()?.map(u32::from);
    let entry_bytes = usize::from(bytes.byte()?);
    let widest = height_bits.max(ordinal_bits) <= u32::BITS;
    let widths = IndexWidths::new(entries, height_bits, ordinal_bits).filter(|_| widest);
    let same = |widths: &IndexWidths| {
        (widths.bucket_bits, widths.entry_bytes) == (bucket_bits, entry_bytes)
    };
    widths.filter(same).ok_or_else(|| bytes.error("widths that no packer writes"))
}

fn wide(entry: &[u8]) -> u64 {
    entry.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(section: &[u8], hash: &[u8; 32]) -> Result<Vec<Locator>, PackedError> {
        let read = |range| crate::container::source::part(section, range);
        let widths = widths(read, section.len() as u64)?;
        super::candidates(read, &widths, hash)
    }

    fn hash(of: u64) -> [u8; 32] {
        alloy_primitives::keccak256(of.to_le_bytes()).0
    }

    #[test]
    fn each_hash_is_found_at_its_place() {
        for count in [1, 2, 31, 32, 33, 5000] {
            let at = |of: u64| Locator { height: (of / 40) as u32, ordinal: (of % 40) as u32 };
            let mut all: Vec<_> = (0..count).map(|of| (prefix(&hash(of)), at(of))).collect();
            let section = write(&all).unwrap();
            assert!(section.len() < 8 + 8 + 7 * count as usize, "{count}: {}", section.len());
            for of in 0..count {
                assert!(candidates(&section, &hash(of)).unwrap().contains(&at(of)));
            }
            let mut ascending = all.clone();
            ascending.sort_unstable_by_key(|(prefix, at)| (*prefix, at.height, at.ordinal));
            let bits = widths(
                |range| crate::container::source::part(&section, range),
                section.len() as u64,
            );
            let low = u64::BITS - bits.unwrap().hash_bits();
            let cut = |(prefix, at): (u64, Locator)| (prefix >> low << low, at);
            let ascending: Vec<_> = ascending.into_iter().map(cut).collect();
            assert_eq!(super::all(&section, 1 << 20).unwrap(), ascending);
            let outside = super::all(&section, all[count as usize - 1].1.height).unwrap_err();
            assert!(outside.to_string().contains("a height out of bounds"), "{outside}");
            let strangers =
                (count..count + 1000).map(|of| candidates(&section, &hash(of)).unwrap().len());
            assert!(strangers.sum::<usize>() < 3);
            all.reverse();
            assert_eq!(write(&all).unwrap(), section);
        }
    }

    /// With few buckets, or few bits of hash in an entry, each look-up would read all entries.
    #[test]
    fn index_of_other_widths_than_a_packer_writes_is_refused() {
        let at = |of: u64| Locator { height: (of / 40) as u32, ordinal: (of % 40) as u32 };
        let all: Vec<_> = (0..1000).map(|of| (prefix(&hash(of)), at(of))).collect();
        let widths = IndexWidths::of(&all).unwrap();
        assert!(candidates(&write_as(widths, &all).unwrap(), &hash(1)).is_ok());
        for bucket_bits in (0..=24).filter(|bits| *bits != widths.bucket_bits) {
            let section = write_as(IndexWidths { bucket_bits, ..widths }, &all).unwrap();
            assert!(candidates(&section, &hash(1)).is_err(), "{bucket_bits} bits");
        }
        for entry_bytes in (2..=8).filter(|bytes| *bytes != widths.entry_bytes) {
            let section = write_as(IndexWidths { entry_bytes, ..widths }, &all).unwrap();
            assert!(candidates(&section, &hash(1)).is_err(), "{entry_bytes} bytes");
        }
    }

    #[test]
    fn hashes_that_begin_alike_give_no_more_candidates_than_the_bound() {
        let all: Vec<_> =
            (0..10_000).map(|of| (prefix(&hash(1)), Locator { height: 0, ordinal: of })).collect();
        let section = write(&all).unwrap();
        assert_eq!(candidates(&section, &hash(1)).unwrap().len(), CANDIDATES_MAX);
    }

    #[test]
    fn hash_index_with_any_byte_changed_is_read_or_refused() {
        let all: Vec<_> = (0..40)
            .map(|of| (prefix(&hash(of)), Locator { height: of as u32, ordinal: 0 }))
            .collect();
        let section = write(&all).unwrap();
        for at in 0..section.len() {
            let mut changed = section.clone();
            changed[at] ^= 0xff;
            let _ = candidates(&changed, &hash(1));
            let _ = super::all(&changed, 40);
            let _ = super::all(&section[..at], 40);
            let _ = candidates(&section[..at], &hash(1));
        }
    }
}
