//! The index of logs as bytes: of a sealed segment, or of a run of the active one.
//!
//! ```text
//! 0             heights n       u32
//! 4             keys k          u32
//! 8             keys            k * u64, ascending
//! 8 + 8k        starts          (k + 1) * u32: postings of key i are starts[i]..starts[i + 1]
//! 12 + 12k      logs before     (n + 1) * u32: logs below height i of the run; the last: all
//! 16 + 12k + 4n postings        u32 each
//! ```
//!
//! The logs of a run are numbered from 0 in order; a posting is such an ordinal. The postings
//! of a key ascend. Nothing is compressed, so that two lists are intersected where they lie.

use std::ops::Range;

use crate::format::{TERMS_MAX, Terms, le_u32, le_u64};

const HEAD: usize = 8;
const KEY_LEN: usize = 8;
const WORD: usize = 4;

/// Logs that a run can have: the number of its postings is then a u32, too.
pub(crate) const LOGS_MAX: u64 = (u32::MAX / TERMS_MAX as u32) as u64;

/// Bytes of the index of so many heights, keys and postings.
pub(crate) fn encoded_len(heights: u64, keys: u64, postings: u64) -> u64 {
    (HEAD + 2 * WORD) as u64 + 12 * keys + 4 * heights + 4 * postings
}

/// Collects the logs of neighbouring heights, in order, and makes their index.
pub(crate) struct Builder {
    /// Key and ordinal.
    entries: Vec<(u64, u32)>,
    /// Logs below each height; the last: all.
    before: Vec<u32>,
}

impl Default for Builder {
    fn default() -> Self {
        Self { entries: Vec::new(), before: vec![0] }
    }
}

impl Builder {
    fn logs(&self) -> u32 {
        self.before.last().copied().unwrap_or_default()
    }

    /// Adds the next height.
    pub(crate) fn push_height(&mut self, logs: impl Iterator<Item = Terms>) {
        let mut ordinal = self.logs();
        self.entries.reserve(logs.size_hint().0 * TERMS_MAX);
        for terms in logs {
            let keys = terms.into_iter().filter(|key| *key != 0);
            self.entries.extend(keys.map(|key| (key, ordinal)));
            ordinal += 1;
        }
        self.before.push(ordinal);
    }

    /// Adds the heights of a run that has its index already.
    pub(crate) fn push_run(&mut self, run: &Postings<'_>) {
        let first = self.logs();
        self.entries.reserve(run.ordinals.len());
        for (at, key) in run.keys().enumerate() {
            self.entries.extend(run.list(at).iter().map(|ordinal| (key, first + ordinal)));
        }
        self.before.extend(run.before.iter().skip(1).map(|before| first + before));
    }

    /// The index of everything added.
    pub(crate) fn build(mut self) -> Vec<u8> {
        // Keys come in ascending runs, which the stable sort finds and merges, and the ordinals of
        // a key ascend already.
        self.entries.sort_by_key(|(key, _)| *key);
        self.entries.dedup(); // a log may have a key twice, if keys collide
        let keys = self.entries.chunk_by(|a, b| a.0 == b.0);
        let count = keys.clone().count();
        let heights = self.before.len() as u64 - 1;
        let len = encoded_len(heights, count as u64, self.entries.len() as u64);
        let mut bytes = Vec::with_capacity(len as usize);
        put(&mut bytes, heights as u32);
        put(&mut bytes, count as u32);
        keys.clone().for_each(|of_key| bytes.extend_from_slice(&of_key[0].0.to_le_bytes()));
        let mut start = 0;
        put(&mut bytes, start);
        for of_key in keys {
            start += of_key.len() as u32;
            put(&mut bytes, start);
        }
        self.before.iter().for_each(|before| put(&mut bytes, *before));
        self.entries.iter().for_each(|(_, ordinal)| put(&mut bytes, *ordinal));
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend_from_slice(&word.to_le_bytes());
}

/// A list of u32 as it lies in a file. Whatever the bytes are, reading does not panic.
#[derive(Clone, Copy, Default)]
pub(crate) struct U32List<'a>(&'a [u8]);

impl<'a> U32List<'a> {
    pub(crate) fn len(&self) -> usize {
        self.0.len() / WORD
    }

    pub(crate) fn get(&self, at: usize) -> Option<u32> {
        let from = at.checked_mul(WORD)?;
        self.0.get(from..from.checked_add(WORD)?).map(|word| le_u32(word, 0))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.chunks_exact(WORD).map(|word| le_u32(word, 0))
    }

    /// Numbers at positions `range` of this list; none if it has not all of them.
    fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.checked_mul(WORD);
        // A forged file can have starts that descend, under a right checksum.
        let bytes = end.and_then(|end| self.0.get(range.start.min(range.end) * WORD..end));
        Self(bytes.unwrap_or_default())
    }

    /// Number of words before the first one that is `least` or more, in an ascending list.
    pub(crate) fn below(&self, least: u32) -> usize {
        partition(self.len(), |at| self.get(at).is_some_and(|word| word < least))
    }

    /// The words within `range`, in an ascending list.
    pub(crate) fn within(&self, range: &Range<u32>) -> Self {
        self.slice(self.below(range.start)..self.below(range.end))
    }

    /// True if an ascending list has `word`.
    pub(crate) fn contains(&self, word: u32) -> bool {
        self.get(self.below(word)) == Some(word)
    }
}

/// The first of `count` places that is not `before`; those that are come first.
fn partition(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// An index, read in place.
#[derive(Clone, Copy)]
pub(crate) struct Postings<'a> {
    keys: &'a [u8],
    starts: U32List<'a>,
    /// Logs below each height; the last: all.
    pub(crate) before: U32List<'a>,
    ordinals: U32List<'a>,
}

impl<'a> Postings<'a> {
    /// `None` if the bytes are not an index of so many heights.
    pub(crate) fn parse(bytes: &'a [u8], heights: u32) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let (found, keys) = (le_u32(head, 0), le_u32(head, 4) as usize);
        let (keys, rest) = rest.split_at_checked(keys.checked_mul(KEY_LEN)?)?;
        let (starts, rest) = rest.split_at_checked((keys.len() / KEY_LEN + 1) * WORD)?;
        let (before, ordinals) = rest.split_at_checked((heights as usize + 1) * WORD)?;
        let [starts, before, ordinals] = [starts, before, ordinals].map(U32List);
        let last = starts.get(starts.len() - 1)?;
        let whole = found == heights && ordinals.0.len() == last as usize * WORD;
        whole.then_some(Self { keys, starts, before, ordinals })
    }

    pub(crate) fn heights(&self) -> u32 {
        (self.before.len() - 1) as u32
    }

    fn keys(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.keys.chunks_exact(KEY_LEN).map(|key| le_u64(key, 0))
    }

    fn list(&self, at: usize) -> U32List<'a> {
        let start = |at| self.starts.get(at).unwrap_or_default() as usize;
        self.ordinals.slice(start(at)..start(at + 1))
    }

    /// The logs that have `key`; none if there is no such key.
    pub(crate) fn of(&self, key: u64) -> U32List<'a> {
        let key_at = |at: usize| le_u64(&self.keys[at * KEY_LEN..], 0);
        let count = self.keys.len() / KEY_LEN;
        let at = partition(count, |at| key_at(at) < key);
        if at < count && key_at(at) == key { self.list(at) } else { U32List::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heights of uneven length, the second without logs, with a key twice in a log.
    fn heights() -> [Vec<Terms>; 3] {
        [
            vec![[7, 8, 0, 0, 0], [7, 9, 0, 0, u64::MAX]],
            vec![],
            vec![[0, 0, 0, 0, 0], [8, 8, 0, 0, 0], [7, 0, 0, 8, 0]],
        ]
    }

    fn built(heights: &[Vec<Terms>]) -> Vec<u8> {
        let mut builder = Builder::default();
        heights.iter().for_each(|logs| builder.push_height(logs.iter().copied()));
        builder.build()
    }

    #[test]
    fn keys_lead_to_their_logs_and_others_to_none() {
        let bytes = built(&heights());
        let index = Postings::parse(&bytes, 3).unwrap();
        let of = |key| index.of(key).iter().collect::<Vec<_>>();
        assert_eq!([of(7), of(8), of(9)], [vec![0, 1, 4], vec![0, 3, 4], vec![1]]);
        assert_eq!(of(u64::MAX), [1]);
        assert!([0, 1, 10, u64::MAX - 1].iter().all(|key| of(*key).is_empty()));
        assert_eq!(index.before.iter().collect::<Vec<_>>(), [0, 2, 2, 5]);
        assert_eq!(bytes.len() as u64, encoded_len(3, 4, 8));
        assert_eq!(index.of(7).within(&(1..4)).iter().collect::<Vec<_>>(), [1]);
        assert!(index.of(7).contains(4) && !index.of(7).contains(3));
    }

    #[test]
    fn merging_stretches_equals_building_from_everything() {
        let all = heights();
        for cut in 0..=3 {
            let (left, right) = (built(&all[..cut]), built(&all[cut..]));
            let mut merged = Builder::default();
            merged.push_run(&Postings::parse(&left, cut as u32).unwrap());
            merged.push_run(&Postings::parse(&right, 3 - cut as u32).unwrap());
            assert_eq!(merged.build(), built(&all), "cut at {cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_index_of_these_heights_are_refused() {
        let bytes = built(&heights());
        assert!(Postings::parse(&bytes, 2).is_none());
        for len in 0..bytes.len() {
            assert!(Postings::parse(&bytes[..len], 3).is_none(), "{len} bytes");
        }
        for filler in [0, 1, 0xff] {
            for len in 0..64 {
                if let Some(index) = Postings::parse(&vec![filler; len], 0) {
                    assert_eq!(index.of(0).len(), 0);
                }
            }
        }
    }
}
