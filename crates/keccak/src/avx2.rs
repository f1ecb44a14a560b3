//! Four messages in the 256-bit registers of x86-64.

#![expect(
    unsafe_code,
    reason = "registers are loaded and stored, and instructions asked for first"
)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256i, _mm256_andnot_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi64x,
    _mm256_slli_epi64, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use alloy_primitives::B256;

use crate::{
    Backend,
    permutation::permutation,
    sponge::{State, hash_by},
};

pub(crate) const BACKEND: Backend =
    Backend { is_available: || is_x86_feature_detected!("avx2"), hash };

fn hash(messages: &[&[u8]]) -> Vec<B256> {
    assert!((BACKEND.is_available)(), "no AVX2");
    // SAFETY: the processor has these instructions: asserted above.
    hash_by(messages, |state| unsafe { permute_state(state) })
}

#[target_feature(enable = "avx2")]
fn permute_state(state: &mut State<4>) {
    // SAFETY: each is read from 32 bytes.
    let mut words = state.0.map(|word| unsafe { _mm256_loadu_si256(word.as_ptr().cast()) });
    permute(&mut words);
    for (lanes, word) in state.0.iter_mut().zip(words) {
        // SAFETY: each is written to 32 bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), word) }
    }
}

permutation!("avx2", __m256i);

#[inline]
#[target_feature(enable = "avx2")]
fn xor(a: __m256i, b: __m256i) -> __m256i {
    _mm256_xor_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    xor(xor(a, b), c)
}

#[inline]
#[target_feature(enable = "avx2")]
fn rotate<const LEFT: i32, const RIGHT: i32>(a: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi64::<LEFT>(a), _mm256_srli_epi64::<RIGHT>(a))
}

/// `a ^ (!b & c)`
#[inline]
#[target_feature(enable = "avx2")]
fn chi(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    xor(a, _mm256_andnot_si256(b, c))
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(word: u64) -> __m256i {
    _mm256_set1_epi64x(word.cast_signed())
}
