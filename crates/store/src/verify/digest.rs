//! A digest of the entries of a hash table, whatever their order.

use crate::index::Entry;

/// Digest of a set of entries that does not depend on their order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest {
    count: u64,
    sum: u64,
}

impl Digest {
    pub(super) fn add(&mut self, (prefix, locator): Entry) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(mix(prefix ^ mix(locator.stored())));
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// The finaliser of splitmix64: every bit of the input changes half of the output.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
