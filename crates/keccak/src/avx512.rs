//! Eight messages in the 512-bit registers of x86-64: a rotation and any function of three words
//! are an instruction each, and the state stays in registers.

#![expect(
    unsafe_code,
    reason = "registers are loaded and stored, and instructions asked for first"
)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_rol_epi64, _mm512_set1_epi64, _mm512_storeu_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use alloy_primitives::B256;

use crate::{
    Backend,
    permutation::permutation,
    sponge::{State, hash_by},
};

pub(crate) const BACKEND: Backend =
    Backend { is_available: || is_x86_feature_detected!("avx512f"), hash };

fn hash(messages: &[&[u8]]) -> Vec<B256> {
    assert!((BACKEND.is_available)(), "no AVX-512");
    // SAFETY: the processor has these instructions: asserted above.
    hash_by(messages, |state| unsafe { permute_state(state) })
}

#[target_feature(enable = "avx512f")]
fn permute_state(state: &mut State<8>) {
    // SAFETY: each is read from 64 bytes.
    let mut words = state.0.map(|word| unsafe { _mm512_loadu_si512(word.as_ptr().cast()) });
    permute(&mut words);
    for (lanes, word) in state.0.iter_mut().zip(words) {
        // SAFETY: each is written to 64 bytes.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), word) }
    }
}

permutation!("avx512f", __m512i);

#[inline]
#[target_feature(enable = "avx512f")]
fn xor(a: __m512i, b: __m512i) -> __m512i {
    _mm512_xor_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn rotate<const LEFT: i32, const RIGHT: i32>(a: __m512i) -> __m512i {
    _mm512_rol_epi64::<LEFT>(a)
}

/// `a ^ (!b & c)`
#[inline]
#[target_feature(enable = "avx512f")]
fn chi(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0xd2>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(word: u64) -> __m512i {
    _mm512_set1_epi64(word.cast_signed())
}
