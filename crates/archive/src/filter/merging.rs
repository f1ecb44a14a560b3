//! Several filters in one table, and apart again.

use std::ops::Range;
use std::sync::Arc;

use super::table::{BUCKET_BITS_MAX, ENTRY_BITS, Filling, FilterTable, MEMBER_BITS};

/// Filters that are merged into one table.
pub const MERGED_FILTERS: usize = 1 << MEMBER_BITS;
/// Buckets that one step makes, with about 400,000 entries.
const STEP_BUCKETS: usize = 16 << 10;
/// Entries that one step merges before its last bucket. That bucket has as many at most: a sender may choose hashes that
/// share one.
const STEP_ENTRIES: usize = 1 << 20;
/// Bits of an entry of one span that choose its bucket in a table of several.
const FINER: usize = 1 << MEMBER_BITS;
/// Bits of a hash in an entry of a table of several spans.
const HASH_BITS: u32 = ENTRY_BITS - MEMBER_BITS;

/// Tables that are being merged. A table of mainnet's filters has 40 million entries, so it is made in steps.
#[derive(Debug)]
pub struct Merging {
    tables: Vec<Member>,
    /// Bucket that is made next.
    next: usize,
    filling: Filling,
    /// Entries of that bucket, each with its member in the low bits.
    bucket: Vec<u32>,
}

/// A table, and the entries of one of its buckets that are not merged yet.
#[derive(Debug)]
struct Member {
    table: Arc<FilterTable>,
    rest: Range<usize>,
}

impl Merging {
    /// Begins to merge tables of one filter each. `None` if they have different numbers of buckets, or are too many or
    /// too large.
    pub fn new(tables: Vec<Arc<FilterTable>>) -> Option<Self> {
        let bits = tables.first()?.bits;
        let entries: usize = tables.iter().map(|table| table.entries).sum();
        let are_alike = tables.iter().all(|table| table.bits == bits && table.member_bits == 0);
        let are_few = tables.len() <= MERGED_FILTERS && u32::try_from(entries).is_ok();
        if !are_alike || !are_few || bits + MEMBER_BITS > BUCKET_BITS_MAX {
            return None;
        }
        let filling = Filling::new(&[], bits + MEMBER_BITS, MEMBER_BITS, entries);
        let tables = tables.into_iter().map(|table| Member { table, rest: 0..0 }).collect();
        Some(Self { tables, next: 0, filling, bucket: Vec::new() })
    }

    /// Makes some buckets. Returns false if none are left.
    pub fn step(&mut self) -> bool {
        let count = self.tables.first().map_or(0, |member| FINER << member.table.bits);
        let end = (self.next + STEP_BUCKETS).min(count);
        let before = self.filling.entries();
        while self.next < end && self.filling.entries() - before < STEP_ENTRIES {
            self.make_bucket(self.next / FINER, (self.next % FINER) as u32);
            self.next += 1;
        }
        self.next < count
    }

    /// Makes the bucket of the entries of a bucket that begin with the bits of `finer`.
    fn make_bucket(&mut self, bucket: usize, finer: u32) {
        self.bucket.clear();
        for (number, Member { table, rest }) in self.tables.iter_mut().enumerate() {
            if finer == 0 {
                *rest = table.bucket(bucket);
            }
            // They ascend, so those of the next finer bucket come behind these.
            let entries = rest.clone().map(|at| table.entry(at));
            let entries = entries.take_while(|entry| entry >> HASH_BITS == finer);
            let before = self.bucket.len();
            self.bucket.extend(entries.map(|entry| entry << MEMBER_BITS | number as u32));
            rest.start += self.bucket.len() - before;
        }
        self.bucket.sort_unstable();
        self.filling.begin_bucket();
        for entry in &self.bucket {
            self.filling.push(u64::from(entry & ((1 << ENTRY_BITS) - 1)));
        }
    }

    /// Returns the table, after the last step.
    pub fn finish(mut self) -> FilterTable {
        while self.step() {}
        self.filling.finish()
    }
}

impl FilterTable {
    /// Returns the table of each of the first `members`.
    pub fn split(&self, members: usize) -> Vec<Self> {
        let Some(bits) = self.bits.checked_sub(MEMBER_BITS).filter(|_| self.member_bits > 0) else {
            return vec![self.clone()];
        };
        let mut counts = [0; MERGED_FILTERS];
        for at in 0..self.entries {
            counts[self.entry(at) as usize % MERGED_FILTERS] += 1;
        }
        let filling = |count: &usize| Filling::new(&[], bits, 0, *count);
        let mut parts: Vec<_> = counts.iter().take(members).map(filling).collect();
        for bucket in 0..1 << bits {
            parts.iter_mut().for_each(Filling::begin_bucket);
            for finer in 0..FINER {
                for entry in self.bucket(bucket * FINER + finer).map(|at| self.entry(at)) {
                    let own = (finer as u64) << HASH_BITS | u64::from(entry >> MEMBER_BITS);
                    if let Some(part) = parts.get_mut(entry as usize % MERGED_FILTERS) {
                        part.push(own);
                    }
                }
            }
        }
        parts.into_iter().map(Filling::finish).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::HashFilter;
    use crate::filter::tests::{filter_of, hash, of_one_bucket};

    /// Filters of neighboring numbers, and all of them in one table.
    fn merged(count: u32, hashes: u32) -> (Vec<Arc<FilterTable>>, FilterTable) {
        let filter = |at| filter_of(at * hashes..(at + 1) * hashes).into_table();
        let tables: Vec<_> = (0..count).map(|at| Arc::new(filter(at))).collect();
        let merged = Merging::new(tables.clone()).expect("they are alike").finish();
        (tables, merged)
    }

    #[test]
    fn merged_table_says_which_filters_have_a_hash_in_as_many_bytes() {
        for (count, hashes) in [(1, 40), (3, 15), (16, 40), (16, 5000)] {
            let (tables, merged) = merged(count, hashes);
            for number in 0..count * hashes {
                let members = merged.members_with(&hash(number));
                let expected = tables
                    .iter()
                    .rev()
                    .fold(0, |all, table| all << 1 | table.members_with(&hash(number)));
                assert_eq!(members, expected, "{number} of {count} with {hashes}");
                assert!(members >> (number / hashes) & 1 == 1, "{number}");
            }
            let others = (1_000_000..1_010_000).filter(|n| merged.members_with(&hash(*n)) != 0);
            assert!(others.count() <= 20, "{count} with {hashes}");
            let apart: usize = tables.iter().map(|table| table.bytes.len()).sum();
            // Of fewer than sixteen it has more buckets than they have together.
            assert!(count < 16 || merged.bytes.len() <= apart, "{} of {apart}", merged.bytes.len());
        }
    }

    #[test]
    fn longest_buckets_merge_in_small_parts() {
        let table = |odd: u64| {
            let entries = (0..1_u32 << (ENTRY_BITS - 1)).map(|half| 2 * u64::from(half) + odd);
            let read = HashFilter::read(of_one_bucket(16, entries));
            Arc::new(read.expect("a writer can make it").into_table())
        };
        let tables = [table(0), table(1), table(0)];
        let mut merging = Merging::new(tables.to_vec()).expect("they are alike");
        let (mut before, mut steps) = (0, 0);
        loop {
            let goes_on = merging.step();
            let made = merging.filling.entries() - before;
            assert!(made < STEP_ENTRIES + (3 << HASH_BITS), "{made} entries in a step");
            assert!(merging.bucket.capacity() <= 4 << HASH_BITS, "{}", merging.bucket.capacity());
            (before, steps) = (before + made, steps + 1);
            if !goes_on {
                break;
            }
        }
        assert!((before, steps) == (3 << (ENTRY_BITS - 1), 65), "{before} in {steps} steps");
        let merged = merging.finish();
        for number in 0..1000 {
            let mut hash = hash(number);
            hash[..2].fill(0);
            let members = if hash[4] >> 4 & 1 == 0 { 0b101 } else { 0b010 };
            assert_eq!(merged.members_with(&hash), members, "{number}");
        }
    }

    #[test]
    fn table_splits_into_those_that_it_was_made_of() {
        for (count, hashes) in [(1, 40), (3, 0), (16, 1001)] {
            let (tables, merged) = merged(count, hashes);
            let parts = merged.split(count as usize);
            assert_eq!(parts.len(), tables.len());
            for (part, table) in parts.iter().zip(&tables) {
                assert_eq!(part.bytes, table.bytes[table.header..], "{count} with {hashes}");
                assert_eq!((part.entries, part.bits), (table.entries, table.bits));
            }
            let again = Merging::new(parts.into_iter().map(Arc::new).collect()).expect("alike");
            assert_eq!(again.finish(), merged);
        }
    }

    #[test]
    fn tables_of_other_sizes_or_several_filters_are_not_merged() {
        let (tables, merged) = merged(2, 40);
        let other = Arc::new(filter_of(0..5000).into_table());
        assert!(Merging::new(vec![Arc::clone(&tables[0]), other]).is_none());
        assert!(Merging::new(vec![Arc::new(merged)]).is_none());
        assert!(Merging::new(vec![Arc::clone(&tables[0]); MERGED_FILTERS + 1]).is_none());
        assert!(Merging::new(Vec::new()).is_none());
    }

    proptest! {
        #[test]
        fn filters_with_flipped_bytes_merge_without_a_panic(
            at: prop::sample::Index, to: u8, number in 0_u32..1000,
        ) {
            let mut bytes = filter_of(0..1000).as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(read) = HashFilter::read(bytes) {
                let table = Arc::new(read.into_table());
                if let Some(merging) = Merging::new(vec![Arc::clone(&table), table]) {
                    let merged = merging.finish();
                    let _ = merged.members_with(&hash(number));
                    prop_assert_eq!(merged.split(2).len(), 2);
                }
            }
        }
    }
}
