//! A packed file whose directory names another block, as that of a block in text form may: and a count of what is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use neve_store::{
    Hash, IndexedHashes, LogTest, PackedDamage, PackedHeader, PackedKeys, PackedLogs, PackedRange,
    Record, Wanted,
};

/// A packed file that counts unpacked heights, and in which one height may have another hash.
pub(in crate::archive) struct Relabeled {
    pub(in crate::archive) range: Box<dyn PackedRange>,
    /// Height whose hash is another one in the directory.
    pub(in crate::archive) other: Option<u64>,
    /// Heights that were unpacked.
    pub(in crate::archive) unpacked: Arc<AtomicUsize>,
}

impl PackedRange for Relabeled {
    fn header(&self) -> PackedHeader {
        self.range.header()
    }

    fn hash(&self, height: u64) -> Option<Hash> {
        if self.other == Some(height) { Some(Hash([7; 32])) } else { self.range.hash(height) }
    }

    fn extent(&self, height: u64) -> Result<(u64, usize), PackedDamage> {
        self.range.extent(height)
    }

    fn terms_extent(&self) -> (u64, usize) {
        self.range.terms_extent()
    }

    fn record(&self, height: u64) -> Result<Record, PackedDamage> {
        self.unpacked.fetch_add(1, Ordering::Relaxed);
        self.range.record(height)
    }

    fn proven(&self, height: u64) -> Result<Record, PackedDamage> {
        self.unpacked.fetch_add(1, Ordering::Relaxed);
        self.range.proven(height)
    }

    fn read(
        &self,
        height: u64,
        wanted: Wanted<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, PackedDamage> {
        self.range.read(height, wanted, out)
    }

    fn logs(
        &self,
        height: u64,
        matches: &mut LogTest<'_>,
        out: &mut PackedLogs,
    ) -> Result<usize, PackedDamage> {
        self.range.logs(height, matches, out)
    }

    fn candidates(&self, hash: &Hash) -> Result<Vec<(u64, Option<usize>)>, PackedDamage> {
        self.range.candidates(hash)
    }

    fn indexed_hashes(&self, count: usize) -> Result<Option<IndexedHashes>, PackedDamage> {
        self.range.indexed_hashes(count)
    }

    fn check_indexes(&self, keys: &PackedKeys) -> Result<(), PackedDamage> {
        self.range.check_indexes(keys)
    }

    fn heights_of_terms(&self, terms: &[u64]) -> Result<Vec<u64>, PackedDamage> {
        self.range.heights_of_terms(terms)
    }

    fn check(&self) -> Result<(), PackedDamage> {
        self.range.check()
    }
}
