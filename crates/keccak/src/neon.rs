//! Two messages in the 128-bit registers of `AArch64`, where `keccak-asm` has one in both halves.

#![expect(
    unsafe_code,
    reason = "registers are loaded and stored, and instructions asked for first"
)]

use std::arch::aarch64::{
    uint64x2_t, vbicq_u64, vdupq_n_u64, veorq_u64, vld1q_u64, vshlq_n_u64, vsriq_n_u64, vst1q_u64,
};
use std::arch::is_aarch64_feature_detected;

use alloy_primitives::B256;

use crate::{
    Backend,
    permutation::permutation,
    sponge::{State, hash_by},
};

pub(crate) const BACKEND: Backend =
    Backend { is_available: || is_aarch64_feature_detected!("neon"), hash };

fn hash(messages: &[&[u8]]) -> Vec<B256> {
    assert!((BACKEND.is_available)(), "no NEON");
    // SAFETY: the processor has these instructions: asserted above.
    hash_by(messages, |state| unsafe { permute_state(state) })
}

#[target_feature(enable = "neon")]
fn permute_state(state: &mut State<2>) {
    // SAFETY: each is read from 16 bytes.
    let mut words = state.0.map(|word| unsafe { vld1q_u64(word.as_ptr()) });
    permute(&mut words);
    for (lanes, word) in state.0.iter_mut().zip(words) {
        // SAFETY: each is written to 16 bytes.
        unsafe { vst1q_u64(lanes.as_mut_ptr(), word) }
    }
}

permutation!("neon", uint64x2_t);

#[inline]
#[target_feature(enable = "neon")]
fn xor(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t {
    veorq_u64(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn xor3(a: uint64x2_t, b: uint64x2_t, c: uint64x2_t) -> uint64x2_t {
    xor(xor(a, b), c)
}

#[inline]
#[target_feature(enable = "neon")]
fn rotate<const LEFT: i32, const RIGHT: i32>(a: uint64x2_t) -> uint64x2_t {
    vsriq_n_u64::<RIGHT>(vshlq_n_u64::<LEFT>(a), a)
}

/// `a ^ (!b & c)`
#[inline]
#[target_feature(enable = "neon")]
fn chi(a: uint64x2_t, b: uint64x2_t, c: uint64x2_t) -> uint64x2_t {
    xor(a, vbicq_u64(c, b))
}

#[inline]
#[target_feature(enable = "neon")]
fn splat(word: u64) -> uint64x2_t {
    vdupq_n_u64(word)
}
