//! Keccak-256 of many messages at once.
//!
//! One permutation of Keccak-f\[1600\] is a chain of dependent steps that no vector unit shortens;
//! that of eight messages takes little longer than that of one if each has a lane of the registers
//! to itself. A block's transactions, the leaves of its tries and the words that its bloom is made
//! of are such messages, and hashing them is most of what a block's proof takes.
//!
//! Which registers there are is asked of the processor when the program runs: one binary serves
//! all. Where there are none it is [`alloy_primitives::keccak256`], one message after the other.

#![deny(unsafe_code)] // the modules of processors are the exceptions, each with its reason

use alloy_primitives::{B256, keccak256};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod permutation;
mod sponge;

/// A kind of registers.
struct Backend {
    /// True if this processor has them.
    is_available: fn() -> bool,
    hash: fn(&[&[u8]]) -> Vec<B256>,
}

/// Backends, the widest first.
const BACKENDS: &[Backend] = &[
    #[cfg(target_arch = "x86_64")]
    avx512::BACKEND,
    #[cfg(target_arch = "x86_64")]
    avx2::BACKEND,
    #[cfg(target_arch = "aarch64")]
    neon::BACKEND,
];

/// Keccak-256 of each message, in their order.
pub fn keccak256_all(messages: &[&[u8]]) -> Vec<B256> {
    let pays = sponge::lanes_pay(messages);
    // What the processor has is remembered by the standard library: this asks no one.
    match BACKENDS.iter().find(|backend| pays && (backend.is_available)()) {
        Some(backend) => (backend.hash)(messages),
        None => one_at_a_time(messages),
    }
}

fn one_at_a_time(messages: &[&[u8]]) -> Vec<B256> {
    messages.iter().map(keccak256).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Every backend that this processor has says what one message at a time says.
    fn check(messages: &[Vec<u8>]) {
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let expected = one_at_a_time(&messages);
        let available = |backend: &&Backend| (backend.is_available)();
        for backend in BACKENDS.iter().filter(available) {
            assert_eq!((backend.hash)(&messages), expected);
        }
        assert_eq!(keccak256_all(&messages), expected);
    }

    #[test]
    fn every_length_around_the_rate() {
        let message = |length: u32| (0..length).map(|at| (at * 7 + length) as u8).collect();
        check(&(0..=3 * 136 + 1).chain([4096, 100_000]).map(message).collect::<Vec<_>>());
    }

    /// Says which backends were tested, since each processor has its own.
    #[test]
    fn every_count() {
        let available = BACKENDS.iter().map(|backend| (backend.is_available)());
        println!("tested, of those of this architecture: {:?}", available.collect::<Vec<_>>());
        for count in 0..=40_u8 {
            check(&(0..count).map(|at| vec![at; usize::from(at) * 37 % 300]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_long_one_beside_short_ones() {
        for at in [0, 7, 19] {
            let length = |index| if index == at { 50_000 } else { index };
            check(&(0..20).map(|index| vec![index as u8; length(index)]).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn any_messages(messages in vec(vec(any::<u8>(), 0..700), 0..30)) {
            check(&messages);
        }
    }
}
