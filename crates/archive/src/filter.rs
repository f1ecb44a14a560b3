//! Filter: the hashes of a span in a few bits each, so that a hash that no span has costs no read.

mod merging;
mod table;

pub use merging::{MERGED_FILTERS, Merging};
pub use table::FilterTable;
use table::{BUCKET_BITS_MAX, ENTRY_BITS, Filling, cut, prefix, word};

use crate::error::ArchiveError;
use crate::span::{PREFIX_BYTES, Span};

const MAGIC: &[u8; 8] = b"nevehash";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 36;
/// Least mean number of a span's hashes in a bucket. The mean is less than twice as many.
const BUCKET_ENTRIES: usize = 16;
const WHAT: &str = "filter";

/// A filter in memory, as the object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashFilter(FilterTable);

impl HashFilter {
    /// Makes the filter of a span.
    pub fn of(span: &Span) -> Self {
        let bits = (span.len() / BUCKET_ENTRIES).max(1).ilog2().min(BUCKET_BITS_MAX);
        let cut = |hash: [u8; PREFIX_BYTES]| cut(prefix(&hash), bits + ENTRY_BITS);
        let mut cuts: Vec<u64> = span.prefixes().map(cut).collect();
        cuts.dedup(); // a span ascends
        let mut filling = Filling::new(&header(span, cuts.len(), bits), bits, 0, cuts.len());
        let mut rest = cuts.into_iter().peekable();
        for bucket in 0..1_u64 << bits {
            filling.begin_bucket();
            while let Some(cut) = rest.next_if(|cut| cut >> ENTRY_BITS == bucket) {
                filling.push(cut & ((1 << ENTRY_BITS) - 1));
            }
        }
        Self(filling.finish())
    }

    /// True if the span may have the hash. False for all others but about one in 65,000.
    pub fn may_have(&self, hash: &[u8; 32]) -> bool {
        self.0.members_with(hash) != 0
    }

    /// Returns the table alone, with this filter as its only member.
    pub fn into_table(self) -> FilterTable {
        self.0
    }

    /// Returns the bytes of the object.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Reads an object.
    ///
    /// # Errors
    /// Bytes that no writer makes, or another version.
    pub fn read(bytes: Vec<u8>) -> Result<Self, ArchiveError> {
        check_form(&bytes)?;
        let (entries, bits) = (word(&bytes, 28) as usize, word(&bytes, 32));
        // The count of bits is the file's: a larger one would overflow the shift.
        let length = HEADER_BYTES + (4 << bits.min(BUCKET_BITS_MAX)) + entries.div_ceil(2) * 5;
        if bits > BUCKET_BITS_MAX || bytes.len() != length {
            return Err(malformed("a length that does not fit"));
        }
        let table = FilterTable { bytes, header: HEADER_BYTES, entries, bits, member_bits: 0 };
        let mut starts = (0..1_usize << bits).map(|bucket| table.start(bucket));
        if !starts.clone().is_sorted() || starts.next_back().is_some_and(|last| last > entries) {
            return Err(malformed("buckets out of order"));
        }
        // A writer chooses the bits by the hashes of the span, which are no fewer than the entries.
        if entries >= (2 * BUCKET_ENTRIES) << bits {
            return Err(malformed("too many entries for its buckets"));
        }
        // So a bucket has no more than the 1,048,576 entries of 20 bits, and each look-up ends soon.
        if !(0..1 << bits).all(|bucket| table.ascends(bucket)) {
            return Err(malformed("entries out of order"));
        }
        Ok(Self(table))
    }
}

/// Checks that an object begins as a filter of this version, and of a span that can be.
fn check_form(bytes: &[u8]) -> Result<(), ArchiveError> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
        return Err(malformed("not a filter"));
    }
    let version = word(bytes, 8);
    if version != VERSION {
        return Err(ArchiveError::Version { what: WHAT, version: version.into(), read: 1 });
    }
    let first = u64::from(word(bytes, 16)) | u64::from(word(bytes, 20)) << 32;
    // For its checks alone: a filter comes without its span.
    Span::empty(first, word(bytes, 12), word(bytes, 24)).map(drop)
}

fn malformed(why: &str) -> ArchiveError {
    ArchiveError::malformed(WHAT, why)
}

fn header(span: &Span, entries: usize, bits: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&span.range().to_le_bytes());
    bytes.extend_from_slice(&span.first().to_le_bytes());
    for word in [span.segments(), entries as u32, bits] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;
    use crate::digest::Digest;
    use crate::span::{Key, Spot};

    pub(super) fn hash(number: u32) -> [u8; 32] {
        Digest::of(&number.to_le_bytes()).0
    }

    pub(super) fn filter(hashes: u32) -> HashFilter {
        filter_of(0..hashes)
    }

    pub(super) fn filter_of(numbers: Range<u32>) -> HashFilter {
        let at = |number: u32| Spot { height: u64::from(number % 64), transaction: Some(number) };
        let keys: Vec<_> = numbers.map(|n| Key::new(&hash(n), at(n))).collect();
        let empty = Span::empty(0, 32, 2).expect("it is one");
        HashFilter::of(&empty.with(None, &keys).expect("they fit"))
    }

    /// Bytes of a filter whose first bucket has all entries.
    pub(super) fn of_one_bucket(bits: u32, entries: impl ExactSizeIterator<Item = u64>) -> Vec<u8> {
        let span = Span::empty(0, 32, 2).expect("it is one");
        let header = header(&span, entries.len(), bits);
        let mut filling = Filling::new(&header, bits, 0, entries.len());
        filling.begin_bucket();
        entries.for_each(|entry| filling.push(entry));
        (1..1 << bits).for_each(|_| filling.begin_bucket());
        filling.finish().bytes
    }

    #[test]
    fn filter_with_more_entries_than_its_buckets_are_for_is_refused() {
        let why = |bits, entries: u32| match HashFilter::read(of_one_bucket(
            bits,
            (0..entries).map(u64::from),
        )) {
            Ok(_) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        let too_many = "filter: too many entries for its buckets";
        for (bits, entries, expected) in [
            (0, 100_000, too_many),
            (0, 32, too_many),
            (0, 31, "none"),
            (15, 1 << 20, too_many),
            (16, 1 << 20, "none"), // the longest bucket
        ] {
            assert_eq!(why(bits, entries), expected, "{entries} in {bits} bits");
        }
        let (twice, descending) = (vec![3, 7, 7], vec![7, 3]);
        for entries in [twice, descending] {
            let bytes = of_one_bucket(0, entries.into_iter());
            let error = HashFilter::read(bytes).expect_err("no writer makes it");
            assert_eq!(error.to_string(), "filter: entries out of order");
        }
        let one_more = (1_u32 << 20) + 1;
        let one_more = of_one_bucket(16, (0..one_more).map(u64::from));
        HashFilter::read(one_more).expect_err("an entry has 20 bits");
    }

    /// A writer of the chain can choose hashes of one bucket, and each span has its filter all the same.
    #[test]
    fn filter_of_hashes_that_were_chosen_for_a_bucket_is_read() {
        let mut keys: Vec<_> = (0..40_000).map(|number| (hash(number), number)).collect();
        keys.iter_mut().take(20_000).for_each(|(hash, _)| hash[..2].fill(7));
        let at = |number| Spot { height: 1, transaction: Some(number) };
        let hashes: Vec<_> = keys.iter().map(|(hash, _)| *hash).collect();
        let keys: Vec<_> = keys.into_iter().map(|(hash, n)| Key::new(&hash, at(n))).collect();
        let empty = Span::empty(0, 32, 2).expect("it is one");
        let filter = HashFilter::of(&empty.with(None, &keys).expect("they fit"));
        let read = HashFilter::read(filter.as_bytes().to_vec()).expect("a writer made it");
        assert!(hashes.iter().all(|hash| read.may_have(hash)));
    }

    #[test]
    fn every_hash_is_found_and_few_others() {
        for hashes in [0, 1, 15, 31, 32, 40, 63, 64, 1000, 50_000] {
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
