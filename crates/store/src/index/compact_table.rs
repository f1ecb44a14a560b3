//! Hash table of a merged file, in at most 8 bytes a hash of blocks like mainnet's.
//!
//! The idea is that of the hash index of packed files: an entry has some bits of the hash, and the reader compares the
//! whole hash. Here an entry has [`HASH_BITS`] of them in every table, so tables merge without a look at the hashes. The
//! highest bits choose a bucket; the others stand in one list, heights and positions in another.
//!
//! ```text
//! starts      u32 each, one a bucket and one more: number of the bucket's first entry; then a u32 of zero
//! remainders  of each entry: its other bits of the hash, ascending in a bucket
//! locators    of each entry: height - first height of the table, then the ordinal in the lowest bits
//! ```
//!
//! Both lists are packed by bits: `compact_writer.rs` has their form. A look-up reads two starts and the remainders of
//! a bucket, some 16 to 31 of them, and the locators of the matches only.

use std::borrow::Cow;
use std::ops::Range;

use super::active_table::{Entry, Locator, prefix};
use crate::format::{HEIGHT_MAX, le_u32, le_u64};
use crate::id::Hash;
use crate::memory::residency::Cold;
use crate::memory::{Map, residency};

/// Bits of a hash in an entry: the highest ones of its prefix. Of n hashes in all tables, one of 2^51 / n look-ups of an
/// unknown hash meets a match.
pub(crate) const HASH_BITS: u32 = 51;
/// Entries of a bucket in the mean, at least.
const BUCKET_ENTRIES: u32 = 16;
const ORDINAL_BITS_MAX: u32 = 16;
const HEIGHT_BITS_MAX: u32 = 32;
/// Matches that a look-up returns. Someone who makes many hashes with the same bits hides only the last ones of these.
pub(crate) const MATCHES_MAX: u32 = 64;
/// Remainders that are read at once. A bucket has more if senders chose their hashes for it, and of 2^30 hashes some seven
/// buckets by chance.
const WINDOW: u32 = 64;
const START_LEN: u64 = 4;

/// The bits of a prefix that an entry has.
pub(crate) fn kept(prefix: u64) -> u64 {
    prefix >> (u64::BITS - HASH_BITS) << (u64::BITS - HASH_BITS)
}

/// Bits that a number takes.
pub(crate) fn bits(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// Numbers of one width, packed by bits into words of 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NumberList {
    /// Offset in the table.
    offset: u64,
    width: u32,
}

impl NumberList {
    /// Offset behind a list of so many.
    fn end(self, count: u64) -> u64 {
        self.words(0..count).end
    }

    /// Bytes of the words that have these numbers.
    fn words(self, numbers: Range<u64>) -> Range<u64> {
        let bit = |at: u64| at * u64::from(self.width);
        let (start, end) = (bit(numbers.start) / 64, bit(numbers.end).div_ceil(64));
        self.offset + start * 8..self.offset + end * 8
    }

    /// Number `at` of the words that [`Self::words`] names for numbers from `first` on.
    #[inline]
    fn number(self, words: &[u8], first: u64, at: u64) -> u64 {
        let bit = |at: u64| at * u64::from(self.width);
        let from = bit(at) - bit(first) / 64 * 64;
        // A number has at most 50 bits, so the 8 bytes from its first one on have all of it, or the last 8.
        let Some(last) = words.len().checked_sub(8) else { return 0 };
        let byte = (from as usize / 8).min(last);
        le_u64(words, byte) >> (from as usize - byte * 8) & mask(self.width)
    }
}

fn mask(width: u32) -> u64 {
    (1 << width) - 1
}

/// Number of the entries of a table, and their widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableShape {
    pub(super) entries: u32,
    first: u64,
    bucket_bits: u32,
    ordinal_bits: u32,
    remainders: NumberList,
    locators: NumberList,
}

impl TableShape {
    /// Returns the widths of a table of so many entries of these heights. Only the bits of an ordinal are its writer's
    /// choice. `None` if there is no such table.
    pub(crate) fn new(entries: u32, first: u64, last: u64, ordinal_bits: u32) -> Option<Self> {
        let bucket_bits = (entries / BUCKET_ENTRIES).max(2).ilog2();
        let height_bits = bits(last.checked_sub(first)?);
        let is_known = last <= HEIGHT_MAX
            && height_bits <= HEIGHT_BITS_MAX
            && ordinal_bits <= ORDINAL_BITS_MAX;
        // Before the sums: the header of a file may have any number.
        if !is_known {
            return None;
        }
        let starts = START_LEN << bucket_bits;
        let remainders = NumberList { offset: starts + 8, width: HASH_BITS - bucket_bits };
        let offset = remainders.end(entries.into());
        let locators = NumberList { offset, width: height_bits + ordinal_bits };
        Some(Self { entries, first, bucket_bits, ordinal_bits, remainders, locators })
    }

    /// Bytes of the table.
    pub(crate) fn len(&self) -> u64 {
        self.locators.end(self.entries.into())
    }

    pub(super) fn buckets(&self) -> u64 {
        1 << self.bucket_bits
    }

    /// Offset and width of each list behind the starts.
    pub(super) fn lists(&self) -> [(u64, u32); 2] {
        [self.remainders, self.locators].map(|list| (list.offset, list.width))
    }

    pub(super) fn bucket(&self, prefix: u64) -> u64 {
        prefix >> (u64::BITS - self.bucket_bits)
    }

    pub(super) fn remainder(&self, prefix: u64) -> u64 {
        prefix << self.bucket_bits >> (u64::BITS - self.remainders.width)
    }

    pub(super) fn stored(&self, locator: Locator) -> u64 {
        locator.height().saturating_sub(self.first) << self.ordinal_bits | locator.ordinal()
    }

    fn locator(&self, stored: u64) -> Locator {
        let height = self.first.saturating_add(stored >> self.ordinal_bits);
        Locator::new(height, stored & mask(self.ordinal_bits))
    }

    fn entry(&self, bucket: u64, remainder: u64, stored: u64) -> Entry {
        let high = bucket << (u64::BITS - self.bucket_bits);
        (high | remainder << (u64::BITS - HASH_BITS), self.locator(stored))
    }
}

/// A table's bytes, as found in a file. Whatever they are, looking up ends and does not panic.
#[derive(Clone, Copy)]
pub(crate) struct CompactTable<'a> {
    shape: TableShape,
    bytes: &'a [u8],
    /// The map that they are of, where [`residency`] is minded.
    map: Option<&'a Map>,
}

impl<'a> CompactTable<'a> {
    /// Table over as many bytes as `shape` names.
    pub(crate) fn new(shape: TableShape, bytes: &'a [u8], map: Option<&'a Map>) -> Self {
        Self { shape, bytes, map }
    }

    fn read(&self, range: Range<u64>) -> Result<Cow<'a, [u8]>, Cold> {
        let bytes = &self.bytes[range.start as usize..range.end as usize];
        #[cfg(test)]
        BYTES_READ.set(BYTES_READ.get() + bytes.len() as u64);
        match self.map {
            Some(map) => residency::read(map, bytes),
            None => Ok(Cow::Borrowed(bytes)),
        }
    }

    /// Numbers of the entries in the bucket of a prefix; none if the starts are damaged.
    fn bucket(&self, prefix: u64) -> Result<Range<u32>, Cold> {
        let at = (START_LEN * self.shape.bucket(prefix)) as usize;
        let bytes = &self.bytes[at..at + 8];
        let starts = match self.map {
            Some(map) => residency::read_array(map, bytes)?,
            None => crate::format::array::<8>(bytes, 0),
        };
        let bucket = le_u32(&starts, 0)..le_u32(&starts, 4);
        let is_sound = bucket.start <= bucket.end && bucket.end <= self.shape.entries;
        Ok(if is_sound { bucket } else { 0..0 })
    }

    /// Reads the starts of the bucket of `hash`, for the side effect on the cache.
    pub(crate) fn load_starts(&self, hash: &Hash) -> Result<u64, Cold> {
        Ok(self.bucket(prefix(hash))?.start.into())
    }

    /// Reads number `at` of a list.
    fn number(&self, list: NumberList, at: u32) -> Result<u64, Cold> {
        let at = u64::from(at);
        Ok(list.number(&self.read(list.words(at..at + 1))?, at, at))
    }

    /// Numbers of the entries that have the bits of `hash`.
    fn matches(&self, hash: &Hash) -> Result<Range<u32>, Cold> {
        let (list, prefix) = (self.shape.remainders, prefix(hash));
        let (wanted, mut window) = (self.shape.remainder(prefix), self.bucket(prefix)?);
        let end = window.end;
        while window.len() > WINDOW as usize {
            let middle = window.start + (window.end - window.start) / 2;
            if self.number(list, middle)? < wanted {
                window.start = middle + 1;
            } else {
                window.end = middle;
            }
        }
        let first = u64::from(window.start);
        let words = self.read(list.words(first..window.end.into()))?;
        let number = |at: u32| list.number(&words, first, at.into());
        let (mut low, mut count) = (window.start, window.len() as u32);
        // The number of steps does not depend on the hash: a branch that does would be mispredicted half of the time.
        while count > 1 {
            let half = count / 2;
            low += if number(low + half - 1) < wanted { half } else { 0 };
            count -= half;
        }
        low += u32::from(count == 1 && number(low) < wanted);
        let mut high = low;
        let most = end.min(low.saturating_add(MATCHES_MAX));
        while high < most {
            let found = if high < window.end { number(high) } else { self.number(list, high)? };
            if found != wanted {
                break;
            }
            high += 1;
        }
        Ok(low..high)
    }

    /// Passes each candidate for `hash` to `found` until that returns something.
    pub(crate) fn find<T>(
        &self,
        hash: &Hash,
        mut found: impl FnMut(Locator) -> Option<Result<T, Cold>>,
    ) -> Option<Result<T, Cold>> {
        let mut matches = match self.matches(hash) {
            Ok(matches) => matches,
            Err(cold) => return Some(Err(cold)),
        };
        matches.find_map(|at| match self.number(self.shape.locators, at) {
            Ok(stored) => found(self.shape.locator(stored)),
            Err(cold) => Some(Err(cold)),
        })
    }

    /// All entries, in order if the table is intact, up to the first that the disk does not deliver.
    pub(crate) fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        let fetch = move |range| Ok(self.read(range)?.into_owned());
        TableEntries::new(self.shape, fetch).map_while(|entry: Result<Entry, Cold>| entry.ok())
    }
}

#[cfg(test)]
thread_local! {
    static BYTES_READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Bytes of lists that this thread has read.
#[cfg(test)]
pub(super) fn bytes_read() -> u64 {
    BYTES_READ.get()
}

/// Entries that are read at once: a multiple of 64, so that each piece has whole words.
const PIECE: u64 = 4096;

/// A stretch of a table, read ahead.
#[derive(Default)]
struct ReadAhead {
    /// Number of the stretch, plus 1.
    number: u64,
    bytes: Vec<u8>,
}

/// Entries of a table, read piece by piece: it may be larger than the memory.
pub(crate) struct TableEntries<F> {
    shape: TableShape,
    fetch: F,
    /// Number of the next entry.
    at: u32,
    bucket: u64,
    /// End of the bucket.
    end: Option<u32>,
    pieces: [ReadAhead; 3],
    last: u64,
    unsound: bool,
}

impl<F, E> TableEntries<F>
where
    F: FnMut(Range<u64>) -> Result<Vec<u8>, E>,
{
    /// Entries of a table whose bytes `fetch` reads.
    pub(crate) fn new(shape: TableShape, fetch: F) -> Self {
        let pieces = std::array::from_fn(|_| ReadAhead::default());
        Self { shape, fetch, at: 0, bucket: 0, end: None, pieces, last: 0, unsound: false }
    }

    /// True if everything read so far was in its place.
    pub(crate) fn is_sound(&self) -> bool {
        !self.unsound
    }

    fn start(&mut self, at: u64) -> Result<u32, E> {
        let list = NumberList { offset: 0, width: u32::BITS };
        self.number(0, list, self.shape.buckets() + 2, at).map(|start| start as u32)
    }

    /// Reads number `at` of a list of `count`.
    fn number(&mut self, piece: usize, list: NumberList, count: u64, at: u64) -> Result<u64, E> {
        let (piece, number) = (&mut self.pieces[piece], at / PIECE);
        let first = number * PIECE;
        if piece.number != number + 1 {
            piece.bytes = (self.fetch)(list.words(first..count.min(first + PIECE)))?;
            piece.number = number + 1;
        }
        Ok(list.number(&piece.bytes, first, at))
    }

    /// Goes on to the bucket of the next entry. False if there is none.
    fn find_bucket(&mut self) -> Result<bool, E> {
        let mut end = if let Some(end) = self.end {
            end
        } else {
            self.unsound |= self.start(0)? != 0;
            self.start(1)?
        };
        while end <= self.at && self.bucket + 1 < self.shape.buckets() {
            self.bucket += 1;
            let next = self.start(self.bucket + 1)?;
            self.unsound |= next < end;
            (end, self.last) = (next, 0);
        }
        self.unsound |= end > self.shape.entries;
        self.end = Some(end);
        let is_there = self.at < end.min(self.shape.entries);
        // The last start is the number of all entries.
        self.unsound |= !is_there && self.at != self.shape.entries;
        Ok(is_there)
    }

    fn read(&mut self) -> Result<Option<Entry>, E> {
        if !self.find_bucket()? {
            return Ok(None);
        }
        let (shape, count, at) = (self.shape, self.shape.entries.into(), self.at.into());
        let remainder = self.number(1, shape.remainders, count, at)?;
        let stored = self.number(2, shape.locators, count, at)?;
        self.unsound |= remainder < self.last;
        self.last = remainder;
        self.at += 1;
        Ok(Some(shape.entry(self.bucket, remainder, stored)))
    }
}

impl<F, E> Iterator for TableEntries<F>
where
    F: FnMut(Range<u64>) -> Result<Vec<u8>, E>,
{
    type Item = Result<Entry, E>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}
