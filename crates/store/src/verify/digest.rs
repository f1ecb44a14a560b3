//! A digest of the entries of a hash table, whatever their order.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::index::Entry;
use crate::index::compact_table::kept;

/// Digest of a set of entries that does not depend on their order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest {
    count: u64,
    sum: u64,
}

impl Digest {
    /// Adds an entry, by the bits of its hash that a merged table has.
    pub(super) fn add(&mut self, (prefix, locator): Entry) {
        self.count += 1;
        // A sum, because tables and segments give entries in different orders.
        self.sum = self.sum.wrapping_add(mix(kept(prefix) ^ mix(locator.stored())));
    }

    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// Heights at which a merged table begins, and those after one ends: ascending. A table may begin or
/// end inside a file.
#[derive(Default, Clone)]
pub(super) struct TableEdges(Arc<[u64]>);

impl TableEdges {
    /// Edges of tables with these first and last heights.
    pub(super) fn of(tables: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut edges: Vec<u64> =
            tables.flat_map(|(first, last)| [first, last.saturating_add(1)]).collect();
        edges.sort_unstable();
        edges.dedup();
        Self(edges.into())
    }

    fn piece(&self, height: u64) -> usize {
        self.0.partition_point(|edge| *edge <= height)
    }
}

/// Digests of the entries of a file: one for its heights between two edges.
#[derive(Default)]
pub(super) struct FileDigests {
    edges: TableEdges,
    pieces: BTreeMap<usize, Digest>,
}

impl FileDigests {
    pub(super) fn new(edges: &TableEdges) -> Self {
        Self { edges: edges.clone(), pieces: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, entry: Entry) {
        self.pieces.entry(self.edges.piece(entry.1.height())).or_default().add(entry);
    }

    /// Joins the digest of `heights`, which begin and end at edges, to `digest`.
    pub(super) fn join(&self, heights: &RangeInclusive<u64>, digest: &mut Digest) {
        let pieces = self.edges.piece(*heights.start())..=self.edges.piece(*heights.end());
        self.pieces.range(pieces).for_each(|(_, piece)| digest.join(piece));
    }
}

/// The finaliser of splitmix64: every bit of the input changes half of the output.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
