//! Two messages in the 128-bit registers of an `AArch64` that has instructions for SHA-3
//! (`FEAT_SHA3`): both functions of three words are one.

#![expect(unsafe_code, reason = "instructions are asked for first")]

use std::arch::aarch64::{uint64x2_t, vbcaxq_u64, veor3q_u64};
use std::arch::is_aarch64_feature_detected;

use alloy_primitives::B256;

use crate::{
    Way,
    neon::{load, rotate, splat, store, xor},
    permutation::permutation,
    sponge::{State, hash_by},
};

pub(crate) const WAY: Way = Way {
    here: || is_aarch64_feature_detected!("sha3") && is_aarch64_feature_detected!("neon"),
    hash,
};

fn hash(messages: &[&[u8]]) -> Vec<B256> {
    assert!((WAY.here)(), "no instructions for SHA-3");
    // SAFETY: the processor has these instructions: asserted above.
    hash_by(messages, |state| unsafe { permute_state(state) })
}

#[target_feature(enable = "neon,sha3")]
fn permute_state(state: &mut State<2>) {
    let mut words = load(state);
    permute(&mut words);
    store(&words, state);
}

permutation!("neon,sha3", uint64x2_t);

#[inline]
#[target_feature(enable = "neon,sha3")]
fn xor3(a: uint64x2_t, b: uint64x2_t, c: uint64x2_t) -> uint64x2_t {
    veor3q_u64(a, b, c)
}

/// `a ^ (!b & c)`
#[inline]
#[target_feature(enable = "neon,sha3")]
fn chi(a: uint64x2_t, b: uint64x2_t, c: uint64x2_t) -> uint64x2_t {
    vbcaxq_u64(a, c, b)
}
