//! Hashes of packed files, from the merged hash tables of their directory: to unpack each transaction for its hash takes
//! most of the CPU time of a push.
//!
//! A span has 48 bits of each hash. The index of a packed file has the first ones, about 33 in a range of mainnet, and a table
//! has bytes 2 to 7. So the two give the whole, and the bits that both have say that they are of the same blocks.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use neve_archive::{Key, PREFIX_BYTES, Spot};
use neve_store::{HashTable, IndexedHash, IndexedHashes, MergedHash};

use super::PackedOnDisk;

/// Heights of a table for each one that is wanted, at most: to read very many others would take longer than to unpack these.
const HEIGHTS_READ_MAX: u64 = 16;
/// Hashes of a group that are held. They take 128 MiB, and twice that while the lists grow. A table that has more is not used.
const HASHES_MAX: usize = 16 << 20;
/// Bits of a hash in front of those of a table.
const FIRST_BITS: u32 = 16;
/// Bits of a hash in a span.
const SPAN_BITS: u32 = 8 * PREFIX_BYTES as u32;

/// Bytes of a hash that a table has and a span needs, and its place.
#[derive(Debug, Clone, Copy)]
pub(in crate::archive) struct HashTail {
    /// Number of the height in its file.
    height: u16,
    /// 0 for the block, and 1 + the number of a transaction.
    ordinal: u16,
    /// Bytes 2 to 5 of the hash.
    bytes: [u8; 4],
}

/// All hashes of a file as a table has them, in any order; empty if no table has them all.
pub(in crate::archive) type HashTails = Vec<HashTail>;

/// Returns the hashes of each of the files, which are ascending, as far as tables of `dir` have them. Tables are derived data:
/// files of which none has the hashes are unpacked.
pub(in crate::archive) fn hash_tails(dir: &Path, files: &[PackedOnDisk]) -> Vec<HashTails> {
    let mut found = Found { files, tails: vec![HashTails::new(); files.len()], count: 0 };
    let heights = files.first().zip(files.last());
    let heights = heights.map(|(first, last)| first.heights().0..last.heights().1);
    match HashTable::of(dir, heights.unwrap_or_default()) {
        Ok(tables) => tables.iter().for_each(|table| found.add(table)),
        Err(error) => tracing::debug!(%error, "hash tables not listed"),
    }
    found.tails
}

/// Hashes that were found.
struct Found<'f> {
    files: &'f [PackedOnDisk],
    tails: Vec<HashTails>,
    count: usize,
}

impl Found<'_> {
    /// Adds the hashes of the files that a table has whole, unless the table cannot be read or is damaged.
    fn add(&mut self, table: &HashTable) {
        let wanted = self.wanted_of(table);
        if wanted.is_empty() {
            return;
        }
        let heights = table.heights();
        match self.read(table, &wanted) {
            Ok(Some(tails)) => {
                self.count += tails.iter().flatten().map(Vec::len).sum::<usize>();
                let tails = self.tails.iter_mut().zip(tails);
                tails.for_each(|(held, found)| held.extend(found.unwrap_or_default()));
                tracing::debug!(?heights, files = wanted.len(), "hash table used");
            }
            Ok(None) => tracing::debug!(?heights, "hash table passed over"),
            Err(error) => tracing::debug!(?heights, %error, "hash table not read"),
        }
    }

    /// Reads the hashes of the wanted files; `None` if the table is damaged, or they are too many.
    fn read(
        &self,
        table: &HashTable,
        wanted: &BTreeSet<usize>,
    ) -> io::Result<Option<Vec<Option<HashTails>>>> {
        let of_file = |at: usize| wanted.contains(&at).then(HashTails::new);
        let mut tails: Vec<_> = (0..self.files.len()).map(of_file).collect();
        let mut count = self.count;
        let is_whole = table.read(|hash| {
            let Some(at) = self.file_of(hash.height) else { return };
            if let Some(of_file) = tails[at].as_mut().filter(|_| count < HASHES_MAX) {
                of_file.push(tail(hash, self.files[at].heights().0));
                count += 1;
            }
        })?;
        Ok((is_whole && count < HASHES_MAX).then_some(tails))
    }

    /// Numbers of the files that a table has whole, and no other table had; none if it has too many other heights.
    fn wanted_of(&self, table: &HashTable) -> BTreeSet<usize> {
        let (first, last) = table.heights().into_inner();
        let is_wanted = |at: &usize| {
            let (start, end) = self.files[*at].heights();
            let is_inside = first <= start && end <= last.saturating_add(1);
            let chain_id = self.files[*at].header.identity.chain_id;
            is_inside && table.chain_id() == chain_id && self.tails[*at].is_empty()
        };
        let wanted: BTreeSet<usize> = (0..self.files.len()).filter(is_wanted).collect();
        let heights = |at: &usize| self.files[*at].heights().1 - self.files[*at].heights().0;
        let heights: u64 = wanted.iter().map(heights).sum();
        let is_worth_it = last - first < heights.saturating_mul(HEIGHTS_READ_MAX);
        if is_worth_it { wanted } else { BTreeSet::new() }
    }

    /// Number of the file with a height.
    fn file_of(&self, height: u64) -> Option<usize> {
        let at = self.files.partition_point(|file| file.heights().1 <= height);
        self.files.get(at).filter(|file| file.heights().0 <= height).map(|_| at)
    }
}

fn tail(hash: MergedHash, first: u64) -> HashTail {
    let MergedHash { height, transaction, bytes: [a, b, c, d, ..] } = hash;
    let ordinal = transaction.map_or(0, |number| number + 1);
    HashTail { height: (height - first) as u16, ordinal, bytes: [a, b, c, d] }
}

/// Makes the keys of a file of its index and of what a table has. `None` if the two have not the same hashes.
pub(super) fn joined_keys(
    index: &IndexedHashes,
    first: u64,
    tails: &[HashTail],
) -> Option<Vec<Key>> {
    if index.bits < FIRST_BITS || index.hashes.len() != tails.len() {
        return None;
    }
    let mut places = TailPlaces::of(index, first);
    for tail in tails {
        let place = places.at(tail.height.into(), tail.ordinal.into())?;
        if place.replace(tail.bytes).is_some() {
            return None; // twice in the table, so that another one lacks
        }
    }
    index.hashes.iter().map(|hash| places.key(*hash, index.bits)).collect()
}

/// A place for the tail of each hash of a file.
struct TailPlaces {
    first: u64,
    /// Number of the first place of each height, and that of all places.
    starts: Vec<usize>,
    tails: Vec<Option<[u8; 4]>>,
}

impl TailPlaces {
    fn of(index: &IndexedHashes, first: u64) -> Self {
        let last = index.hashes.iter().map(|hash| hash.height).max().unwrap_or(first);
        let mut starts = vec![0; (last - first) as usize + 2];
        for hash in &index.hashes {
            starts[(hash.height - first) as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Self { first, starts, tails: vec![None; index.hashes.len()] }
    }

    /// Place of a hash; `None` if its height has no such one.
    fn at(&mut self, height: usize, ordinal: usize) -> Option<&mut Option<[u8; 4]>> {
        let (start, end) = (*self.starts.get(height)?, *self.starts.get(height + 1)?);
        let at = start.checked_add(ordinal).filter(|at| *at < end)?;
        self.tails.get_mut(at)
    }

    /// Key of a hash of the index, if the tail at its place has the same bits where both have some.
    fn key(&mut self, hash: IndexedHash, bits: u32) -> Option<Key> {
        let IndexedHash { prefix, height, transaction } = hash;
        let ordinal = transaction.map_or(0, |number| number as usize + 1);
        let tail = self.at((height - self.first) as usize, ordinal)?.take()?;
        let tail = tail.iter().fold(0, |tail, byte| tail << 8 | u64::from(*byte));
        let behind = u64::BITS - FIRST_BITS;
        let joined = prefix >> behind << behind | tail << (u64::BITS - SPAN_BITS);
        let differ = (joined ^ prefix) >> (u64::BITS - bits.min(SPAN_BITS));
        let prefix =
            std::array::from_fn(|byte| (joined >> (u64::BITS - 8 - 8 * byte as u32)) as u8);
        (differ == 0).then_some(Key { prefix, at: Spot { height, transaction } })
    }
}

#[cfg(test)]
mod tests;
