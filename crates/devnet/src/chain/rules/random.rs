//! Randomness that is a function of what it is for, so that any height can be made again alone.

/// Purpose of random numbers. Each purpose has a stream of its own: a change to one of them
/// leaves the others as they were.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Transactions and receipts of a block.
    Body = 1,
    /// Times of blocks.
    Time = 2,
    /// Times of execution.
    Execution = 3,
    /// Base fees of blocks.
    Fees = 4,
    /// State root and whatever else in a header hangs on execution.
    State = 5,
    /// Accounts, contracts and events of the chain.
    World = 6,
    /// The hash before the first height.
    Parent = 7,
    /// The excess of gas after a block.
    Excess = 8,
    /// Requests to which a fault applies.
    Fault = 9,
}

/// A stream of numbers (`SplitMix64`: one word of state, good enough to fill blocks with).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream for a purpose at a height of the chain with this seed.
    pub(crate) fn new(seed: u64, purpose: Purpose, height: u64) -> Self {
        Self(mix(mix(seed ^ (purpose as u64).rotate_left(56)) ^ height))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`; zero if that is zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// An index of a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True in so many of a thousand cases.
    pub(crate) fn chance(&mut self, permille: u16) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// Fills with random bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            piece.iter_mut().zip(word).for_each(|(byte, random)| *byte = random);
        }
    }

    /// Returns `N` random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_apart_and_repeat() {
        let first = |seed, purpose, height| Random::new(seed, purpose, height).next();
        let base = first(1, Purpose::Body, 7);
        assert_eq!(base, first(1, Purpose::Body, 7));
        for other in
            [first(2, Purpose::Body, 7), first(1, Purpose::Time, 7), first(1, Purpose::Body, 8)]
        {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn numbers_stay_below_the_limit() {
        let mut random = Random::new(3, Purpose::World, 0);
        assert_eq!(random.below(0), 0);
        let numbers: Vec<u64> = (0..1000).map(|_| random.below(10)).collect();
        assert!(numbers.iter().all(|number| *number < 10));
        assert!((0..10).all(|wanted| numbers.contains(&wanted)));
    }

    #[test]
    fn bytes_are_filled_to_the_end() {
        let bytes: [u8; 13] = Random::new(3, Purpose::World, 1).bytes();
        assert!(bytes[8..].iter().any(|byte| *byte != 0));
    }
}
