//! Tables of filters in memory: that of one span, or of several spans together.

use std::hint::black_box;
use std::ops::Range;

use crate::span::PREFIX_BYTES;

/// Bits of an entry: those of a hash behind its bucket, and those that say whose hash it is.
pub(super) const ENTRY_BITS: u32 = 20;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;
/// Bits that choose a bucket, at most: the starts of all buckets have 64 MiB then.
pub(super) const BUCKET_BITS_MAX: u32 = 24;
/// Bits that say whose an entry is, in a table of several spans.
pub(super) const MEMBER_BITS: u32 = 4;
/// Tables whose memory is asked for at once: a processor has about as many such reads in flight.
const GROUP: usize = 32;

/// Entries in buckets, by the first bits of a hash. In a table of several spans, a bucket has fewer bits of them, and
/// an entry has whose it is instead: so it takes as many bytes as the tables of the spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterTable {
    pub(super) bytes: Vec<u8>,
    /// Bytes before the starts of the buckets.
    pub(super) header: usize,
    pub(super) entries: usize,
    pub(super) bits: u32,
    /// 0, or `MEMBER_BITS`.
    pub(super) member_bits: u32,
}

/// Entries among which a hash would be, and the least one that it would have.
struct Place {
    entries: Range<usize>,
    wanted: u32,
    /// Place that it would have if entries had equal distances. They are of hashes, so few are far from that.
    guess: usize,
}

/// The first 48 bits of a hash.
pub(super) fn prefix(hash: &[u8]) -> u64 {
    hash.iter().take(PREFIX_BYTES).fold(0, |prefix, byte| prefix << 8 | u64::from(*byte))
}

/// The first bits of a hash, as many as are wanted.
pub(super) fn cut(prefix: u64, bits: u32) -> u64 {
    prefix >> (8 * PREFIX_BYTES as u32 - bits)
}

impl FilterTable {
    /// Returns the members that may have the hash, a bit each: the lowest one stands for the first member.
    pub fn members_with(&self, hash: &[u8; 32]) -> u16 {
        self.found(&self.place(prefix(hash)))
    }

    /// True if one of these tables has a member that may have the hash.
    pub fn any_may_have<'f>(tables: impl IntoIterator<Item = &'f Self>, hash: &[u8; 32]) -> bool {
        let (mut tables, prefix) = (tables.into_iter(), prefix(hash));
        loop {
            // Each step reads memory that no cache has. Apart for all of a group, the processor waits for them
            // together instead of one after the other.
            let group: [_; GROUP] = std::array::from_fn(|_| tables.next());
            let places = group.map(|table| table.map(|table| (table, table.place(prefix))));
            let touched = places.iter().flatten().map(|(table, place)| table.touch(place));
            black_box(touched.fold(0, |all, byte| all ^ byte));
            if places.iter().flatten().any(|(table, place)| table.found(place) != 0) {
                return true;
            }
            if group.last().is_none_or(Option::is_none) {
                return false;
            }
        }
    }

    /// Bits that choose a bucket. Only tables with as many can be merged.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Bytes of memory.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    fn place(&self, prefix: u64) -> Place {
        let hash_bits = ENTRY_BITS - self.member_bits;
        let cut = cut(prefix, self.bits + hash_bits);
        let entries = self.bucket((cut >> hash_bits) as usize);
        let wanted = (cut << self.member_bits & ENTRY_MASK) as u32;
        let guess = entries.start + ((entries.len() * wanted as usize) >> ENTRY_BITS);
        Place { entries, wanted, guess }
    }

    fn touch(&self, place: &Place) -> u8 {
        self.bytes.get(self.offset(place.guess)).copied().unwrap_or(0)
    }

    /// Members of the entries that the hash would have.
    fn found(&self, place: &Place) -> u16 {
        let members = (1 << self.member_bits) - 1;
        let wanted = place.wanted..=place.wanted | members;
        let entries = self.lower_bound(place)..place.entries.end;
        let found = entries.map(|at| self.entry(at)).take_while(|entry| wanted.contains(entry));
        found.fold(0, |all, entry| all | 1 << (entry & members))
    }

    /// First of the entries that is not less than the wanted one. They ascend.
    fn lower_bound(&self, place: &Place) -> usize {
        let Place { entries, wanted, guess } = place;
        first_not_less(entries, *guess, |at| self.entry(at) < *wanted)
    }

    /// True if the entries of a bucket ascend, and none is there twice.
    pub(super) fn ascends(&self, bucket: usize) -> bool {
        self.bucket(bucket).map(|at| self.entry(at)).is_sorted_by(|below, above| below < above)
    }

    pub(super) fn bucket(&self, bucket: usize) -> Range<usize> {
        let is_last = bucket + 1 == 1 << self.bits;
        let end = if is_last { self.entries } else { self.start(bucket + 1) };
        self.start(bucket)..end
    }

    pub(super) fn start(&self, bucket: usize) -> usize {
        word(&self.bytes, self.header + 4 * bucket) as usize
    }

    /// Returns where the pair begins that has an entry.
    fn offset(&self, entry: usize) -> usize {
        self.header + (4 << self.bits) + entry / 2 * 5
    }

    pub(super) fn entry(&self, entry: usize) -> u32 {
        let at = self.offset(entry);
        let high = self.bytes.get(at + 4).copied().unwrap_or(0);
        let both = u64::from(word(&self.bytes, at)) | u64::from(high) << 32;
        (both >> (entry as u32 % 2 * ENTRY_BITS) & ENTRY_MASK) as u32
    }
}

/// First of the entries that is not less; the end if all are. The steps from the guess double: it is near for hashes that
/// nobody chose, and a bucket of any length takes few.
fn first_not_less(
    entries: &Range<usize>,
    guess: usize,
    mut is_less: impl FnMut(usize) -> bool,
) -> usize {
    // Those below `low` are less, and those from `high` on are not.
    let (mut low, mut high, mut step) = (entries.start, entries.end, 1);
    if low == high {
        return high;
    }
    if is_less(guess) {
        low = guess + 1;
        while low < high {
            let at = (low + step - 1).min(entries.end - 1);
            if !is_less(at) {
                high = at;
                break;
            }
            (low, step) = (at + 1, 2 * step);
        }
    } else {
        high = guess;
        while low < high {
            let at = high.saturating_sub(step).max(entries.start);
            if is_less(at) {
                low = at + 1;
                break;
            }
            (high, step) = (at, 2 * step);
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_less(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// A table that is being filled, bucket by bucket.
#[derive(Debug)]
pub(super) struct Filling {
    table: FilterTable,
    /// Number of the bucket that is filled next.
    next: usize,
    /// The first entry of a pair that has no second one yet.
    half: u64,
}

impl Filling {
    /// Begins a table that has at most so many entries, behind its header.
    pub(super) fn new(header: &[u8], bits: u32, member_bits: u32, entries_max: usize) -> Self {
        let starts = header.len() + (4 << bits);
        let mut bytes = Vec::with_capacity(starts + entries_max.div_ceil(2) * 5);
        bytes.extend_from_slice(header);
        bytes.resize(starts, 0);
        let header = header.len();
        let table = FilterTable { bytes, header, entries: 0, bits, member_bits };
        Self { table, next: 0, half: 0 }
    }

    /// Begins the next bucket.
    pub(super) fn begin_bucket(&mut self) {
        let at = self.table.header + 4 * self.next;
        let start = (self.table.entries as u32).to_le_bytes();
        self.table.bytes[at..at + 4].copy_from_slice(&start);
        self.next += 1;
    }

    /// Adds an entry to the bucket. Two of them fill five bytes.
    pub(super) fn push(&mut self, entry: u64) {
        if self.table.entries.is_multiple_of(2) {
            self.half = entry;
        } else {
            let both = self.half | entry << ENTRY_BITS;
            self.table.bytes.extend_from_slice(&both.to_le_bytes()[..5]);
        }
        self.table.entries += 1;
    }

    /// Returns the number of entries so far.
    pub(super) fn entries(&self) -> usize {
        self.table.entries
    }

    pub(super) fn finish(mut self) -> FilterTable {
        if !self.table.entries.is_multiple_of(2) {
            self.table.bytes.extend_from_slice(&self.half.to_le_bytes()[..5]);
        }
        self.table
    }
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..) {
        Some([a, b, c, d, ..]) => u32::from_le_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::{filter, hash};

    #[test]
    fn a_hash_is_found_in_any_of_many_tables() {
        let (with, without) = (filter(40).into_table(), filter(20).into_table());
        for count in [1, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP] {
            for at in 0..count {
                let tables = (0..count).map(|other| if other == at { &with } else { &without });
                assert!(FilterTable::any_may_have(tables, &hash(39)), "{at} of {count}");
            }
            let tables = std::iter::repeat_n(&without, count);
            assert!(!FilterTable::any_may_have(tables, &hash(39)), "{count}");
        }
        assert!(!FilterTable::any_may_have([], &hash(39)));
    }

    #[test]
    fn a_place_is_found_in_few_steps_from_any_guess() {
        for length in [0, 1, 2, 31, 1000, 1 << 20] {
            let entries = 7..7 + length;
            let some = |at: usize| entries.start + length * at / 7;
            for (guess, wanted) in (0..7).flat_map(|guess| (0..=7).map(move |at| (guess, at))) {
                let (guess, wanted, mut steps) = (some(guess), some(wanted), 0);
                let found = first_not_less(&entries, guess, |at| {
                    assert!(entries.contains(&at), "{at} of {length}");
                    steps += 1;
                    at < wanted
                });
                assert_eq!(found, wanted, "{length} from {guess}");
                assert!(steps <= 2 * (length.max(1).ilog2() + 2), "{steps} of {length}");
            }
        }
    }
}
