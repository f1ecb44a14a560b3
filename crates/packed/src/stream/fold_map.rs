//! Maps whose hash has a random key of the process.
//!
//! Every user of the chain can put words into calldata and logs. Words that collide would make packing quadratic. So
//! the hash has a secret key. The order of such a map never reaches the bytes of a file.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// Keys of this process: of the kernel's random numbers, as those of the standard library's maps.
static SEED: LazyLock<(u64, SharedSeed)> = LazyLock::new(|| {
    let random = || RandomState::new().hash_one(0_u64);
    (random(), SharedSeed::from_u64(random()))
});

/// Maker of hashes with the key of this process.
#[derive(Debug, Clone)]
pub(crate) struct Keyed(SeedableRandomState);

impl Default for Keyed {
    fn default() -> Self {
        let (seed, shared) = &*SEED;
        Self(SeedableRandomState::with_seed(*seed, shared))
    }
}

impl BuildHasher for Keyed {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}

pub(crate) type FoldMap<K, V> = HashMap<K, V, Keyed>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that the hash of an earlier release sent to one place: its last eight bytes undo the state.
    fn crafted(count: u64) -> impl Iterator<Item = [u8; 32]> {
        let fold = |state: u64, value: u64| {
            let wide = u128::from(state ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xd1b5_4a32_d192_ed03;
            (wide as u64) ^ (wide >> 64) as u64
        };
        (0..count).map(move |number| {
            let state = [32, number, 0, 0].into_iter().fold(0, fold);
            let mut word = [0; 32];
            word[..8].copy_from_slice(&number.to_le_bytes());
            word[24..].copy_from_slice(&(state ^ 0x9e37_79b9_7f4a_7c15).to_le_bytes());
            word
        })
    }

    #[test]
    fn words_that_somebody_chose_do_not_collide() {
        let keyed = Keyed::default();
        let mut hashes: Vec<u64> = crafted(10_000).map(|word| keyed.hash_one(word)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert!(hashes.len() > 9_990, "{} hashes", hashes.len());
    }
}
