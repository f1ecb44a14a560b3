//! Keccak-256 of many messages at once.
//!
//! One permutation of Keccak-f\[1600\] is a chain of dependent steps that no vector unit shortens;
//! that of eight messages takes little longer than that of one if each has a lane of the registers
//! to itself. A block's transactions, the leaves of its tries and the words that its bloom is made
//! of are such messages, and hashing them is most of what a block's proof takes.
//!
//! Which registers there are is asked of the processor when the program runs: one binary serves all.
//! Where there are none, or for one message, it is [`alloy_primitives::keccak256`].

#![deny(unsafe_code)] // the modules of processors are the exceptions, each with its reason

use alloy_primitives::{B256, keccak256};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_sha3;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod permutation;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod sponge;

/// One way of hashing several messages.
struct Way {
    /// Whether this processor can.
    here: fn() -> bool,
    hash: fn(&[&[u8]]) -> Vec<B256>,
}

/// The widest first.
const WAYS: &[Way] = &[
    #[cfg(target_arch = "x86_64")]
    avx512::WAY,
    #[cfg(target_arch = "x86_64")]
    avx2::WAY,
    #[cfg(target_arch = "aarch64")]
    neon_sha3::WAY,
    #[cfg(target_arch = "aarch64")]
    neon::WAY,
];

fn one_at_a_time(messages: &[&[u8]]) -> Vec<B256> {
    messages.iter().map(keccak256).collect()
}

/// Keccak-256 of each message, in their order.
pub fn keccak256_all(messages: &[&[u8]]) -> Vec<B256> {
    let several = messages.len() > 1;
    // What the processor can is remembered by the standard library: this asks no one.
    let way = WAYS.iter().find(|way| several && (way.here)());
    way.map_or(one_at_a_time as fn(&[&[u8]]) -> Vec<B256>, |way| way.hash)(messages)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Every way that this processor has says what one message at a time says.
    fn check(messages: &[Vec<u8>]) {
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let expected = one_at_a_time(&messages);
        for (index, way) in WAYS.iter().enumerate().filter(|(_, way)| (way.here)()) {
            assert_eq!((way.hash)(&messages), expected, "{index} of WAYS");
        }
        assert_eq!(keccak256_all(&messages), expected);
    }

    #[test]
    fn every_length_around_the_rate() {
        let message = |length: u32| (0..length).map(|at| (at * 7 + length) as u8).collect();
        check(&(0..=3 * 136 + 1).chain([4096, 100_000]).map(message).collect::<Vec<_>>());
    }

    /// Says which ways were tested, since each processor has its own.
    #[test]
    fn every_count() {
        println!("tested: {:?}", WAYS.iter().map(|way| (way.here)()).collect::<Vec<_>>());
        for count in 0..=40_u8 {
            check(&(0..count).map(|at| vec![at; usize::from(at) * 37 % 300]).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn any_messages(messages in vec(vec(any::<u8>(), 0..700), 0..30)) {
            check(&messages);
        }
    }
}
