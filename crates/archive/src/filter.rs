//! Filter: the hashes of a span in a few bits each, so that a hash that no span has costs no read.

use std::hint::black_box;
use std::ops::Range;

use crate::error::ArchiveError;
use crate::span::{PREFIX_BYTES, Span};

const MAGIC: &[u8; 8] = b"nevehash";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 36;
/// Entries of a bucket in the mean, at least half of it.
const BUCKET_ENTRIES: usize = 16;
/// Bits of a hash that an entry has, behind those that choose its bucket.
const ENTRY_BITS: usize = 20;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;
/// Bits that choose a bucket, at most: the starts of all buckets have 64 MiB then.
const BUCKET_BITS_MAX: u32 = 24;
const WHAT: &str = "filter";
/// Filters whose memory is asked for at once: a processor has about as many such reads under way.
const GROUP: usize = 32;

/// A filter in memory, as the object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashFilter {
    bytes: Vec<u8>,
    entries: usize,
    bits: u32,
}

/// Entries among which a hash would be, and the one that it would have.
struct Place {
    entries: Range<usize>,
    wanted: u32,
    /// Place that it would have if entries had equal distances. They are of hashes, so few are far from that.
    guess: usize,
}

/// The first 48 bits of a hash.
fn prefix(hash: &[u8]) -> u64 {
    hash.iter().take(PREFIX_BYTES).fold(0, |prefix, byte| prefix << 8 | u64::from(*byte))
}

/// The bits of a bucket and of an entry behind them.
fn cut(prefix: u64, bits: u32) -> u64 {
    prefix >> (8 * PREFIX_BYTES - ENTRY_BITS - bits as usize)
}

impl HashFilter {
    /// Makes the filter of a span.
    pub fn of(span: &Span) -> Self {
        let bits = (span.len() / BUCKET_ENTRIES).max(1).ilog2().min(BUCKET_BITS_MAX);
        let mut cuts: Vec<u64> = span.prefixes().map(|hash| cut(prefix(&hash), bits)).collect();
        cuts.dedup(); // a span ascends
        let mut bytes = Vec::with_capacity(HEADER_BYTES + (4 << bits) + cuts.len() * 5 / 2 + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&span.range().to_le_bytes());
        bytes.extend_from_slice(&span.first().to_le_bytes());
        for word in [span.segments(), cuts.len() as u32, bits] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for bucket in 0..1_u64 << bits {
            let start = cuts.partition_point(|cut| cut >> ENTRY_BITS < bucket) as u32;
            bytes.extend_from_slice(&start.to_le_bytes());
        }
        // Two entries of 20 bits fill five bytes.
        for pair in cuts.chunks(2) {
            let low = |at: usize| pair.get(at).map_or(0, |cut| cut & ENTRY_MASK);
            let both = low(0) | low(1) << ENTRY_BITS;
            bytes.extend_from_slice(&both.to_le_bytes()[..5]);
        }
        Self { bytes, entries: cuts.len(), bits }
    }

    /// True if the span may have the hash. False for all others but about one in 65,000.
    pub fn may_have(&self, hash: &[u8; 32]) -> bool {
        self.has(&self.place(prefix(hash)))
    }

    /// True if one of these filters may have the hash.
    pub fn any_may_have<'f>(filters: impl IntoIterator<Item = &'f Self>, hash: &[u8; 32]) -> bool {
        let (mut filters, prefix) = (filters.into_iter(), prefix(hash));
        loop {
            // Each step reads memory that no cache has. Apart for all of a group, the processor waits for them
            // together instead of one after the other.
            let group: [_; GROUP] = std::array::from_fn(|_| filters.next());
            let places = group.map(|filter| filter.map(|filter| (filter, filter.place(prefix))));
            let touched = places.iter().flatten().map(|(filter, place)| filter.touch(place));
            black_box(touched.fold(0, |all, byte| all ^ byte));
            if places.iter().flatten().any(|(filter, place)| filter.has(place)) {
                return true;
            }
            if group.last().is_none_or(Option::is_none) {
                return false;
            }
        }
    }

    fn place(&self, prefix: u64) -> Place {
        let cut = cut(prefix, self.bits);
        let bucket = (cut >> ENTRY_BITS) as usize;
        let end = if bucket + 1 == 1 << self.bits { self.entries } else { self.start(bucket + 1) };
        let (start, wanted) = (self.start(bucket), (cut & ENTRY_MASK) as u32);
        let guess = start + ((end.saturating_sub(start) * wanted as usize) >> ENTRY_BITS);
        Place { entries: start..end, wanted, guess }
    }

    fn touch(&self, place: &Place) -> u8 {
        self.bytes.get(self.offset(place.guess)).copied().unwrap_or(0)
    }

    fn has(&self, place: &Place) -> bool {
        let Place { entries, wanted, guess } = place;
        if entries.is_empty() {
            return false;
        }
        // They ascend.
        let next = if self.entry(*guess) < *wanted {
            (guess + 1..entries.end).map(|at| self.entry(at)).find(|entry| entry >= wanted)
        } else {
            (entries.start..=*guess).rev().map(|at| self.entry(at)).find(|entry| entry <= wanted)
        };
        next == Some(*wanted)
    }

    fn start(&self, bucket: usize) -> usize {
        word(&self.bytes, HEADER_BYTES + 4 * bucket) as usize
    }

    /// Returns where the pair begins that has an entry.
    fn offset(&self, entry: usize) -> usize {
        HEADER_BYTES + (4 << self.bits) + entry / 2 * 5
    }

    fn entry(&self, entry: usize) -> u32 {
        let at = self.offset(entry);
        let high = self.bytes.get(at + 4).copied().unwrap_or(0);
        let both = u64::from(word(&self.bytes, at)) | u64::from(high) << 32;
        (both >> (entry % 2 * ENTRY_BITS) & ENTRY_MASK) as u32
    }

    /// Returns the bytes of the object.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads an object.
    ///
    /// # Errors
    /// Bytes that no writer makes, or another version.
    pub fn read(bytes: Vec<u8>) -> Result<Self, ArchiveError> {
        let malformed = |why: &str| ArchiveError::malformed(WHAT, why);
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
            return Err(malformed("not a filter"));
        }
        let version = word(&bytes, 8);
        if version != VERSION {
            return Err(ArchiveError::Version { what: WHAT, version: version.into(), read: 1 });
        }
        let first = u64::from(word(&bytes, 16)) | u64::from(word(&bytes, 20)) << 32;
        // For its checks alone: a filter comes without its span.
        Span::empty(first, word(&bytes, 12), word(&bytes, 24))?;
        let (entries, bits) = (word(&bytes, 28) as usize, word(&bytes, 32));
        // The count of bits is the file's: a larger one would overflow the shift.
        let length = HEADER_BYTES + (4 << bits.min(BUCKET_BITS_MAX)) + entries.div_ceil(2) * 5;
        if bits > BUCKET_BITS_MAX || bytes.len() != length {
            return Err(malformed("a length that does not fit"));
        }
        let filter = Self { bytes, entries, bits };
        let mut starts = (0..1_usize << bits).map(|bucket| filter.start(bucket));
        if !starts.clone().is_sorted() || starts.next_back().is_some_and(|last| last > entries) {
            return Err(malformed("buckets out of order"));
        }
        Ok(filter)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..) {
        Some([a, b, c, d, ..]) => u32::from_le_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::digest::Digest;
    use crate::span::{Key, Spot};

    fn hash(number: u32) -> [u8; 32] {
        Digest::of(&number.to_le_bytes()).0
    }

    fn filter(hashes: u32) -> HashFilter {
        let at = |number: u32| Spot { height: u64::from(number % 64), transaction: Some(number) };
        let keys: Vec<_> = (0..hashes).map(|n| Key { hash: hash(n), at: at(n) }).collect();
        let empty = Span::empty(0, 32, 2).expect("it is one");
        HashFilter::of(&empty.with(None, &keys).expect("they fit"))
    }

    #[test]
    fn every_hash_is_found_and_few_others() {
        for hashes in [0, 1, 15, 40, 1000, 50_000] {
            let filter = filter(hashes);
            assert_eq!(
                HashFilter::read(filter.as_bytes().to_vec()),
                Ok(filter.clone()),
                "{hashes}"
            );
            assert!((0..hashes).all(|number| filter.may_have(&hash(number))), "{hashes}");
            let others = (1_000_000..1_100_000).filter(|n| filter.may_have(&hash(*n))).count();
            assert!(others <= 10, "{others} of 100,000 with {hashes}");
            assert!(hashes < 1000 || filter.as_bytes().len() < hashes as usize * 3 + 100);
        }
    }

    #[test]
    fn a_hash_is_found_in_any_of_many_filters() {
        let (with, without) = (filter(40), filter(20));
        for count in [1, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP] {
            for at in 0..count {
                let filters = (0..count).map(|other| if other == at { &with } else { &without });
                assert!(HashFilter::any_may_have(filters, &hash(39)), "{at} of {count}");
            }
            let filters = std::iter::repeat_n(&without, count);
            assert!(!HashFilter::any_may_have(filters, &hash(39)), "{count}");
        }
        assert!(!HashFilter::any_may_have([], &hash(39)));
    }

    proptest! {
        #[test]
        fn flipped_and_cut_bytes_never_panic(
            at: prop::sample::Index, to: u8, cut: prop::sample::Index,
        ) {
            let mut bytes = filter(100).as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = to;
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(read) = HashFilter::read(bytes) {
                let _ = (0..100).filter(|number| read.may_have(&hash(*number))).count();
            }
        }
    }
}
