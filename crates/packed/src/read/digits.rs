//! Hexadecimal digits, and text of a length that the compiler knows: neither takes a call.

use std::array;

/// Longer bytes are left to `const_hex`, which asks for the processor's widest registers.
const SHORT: usize = 128;

/// Appends text whose length is known at compile time.
#[inline(always)]
#[allow(clippy::inline_always, reason = "its length has to be known where it is copied")]
pub(super) fn put<const N: usize>(out: &mut Vec<u8>, text: &[u8; N]) {
    out.extend_from_slice(text);
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "loops over it become vectors")]
fn digit(nibble: u8) -> u8 {
    nibble + b'0' + if nibble > 9 { b'a' - b'0' - 10 } else { 0 }
}

/// Returns the two digits of each byte.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
pub(super) fn digits<const N: usize>(bytes: &[u8; N]) -> [[u8; 2]; N] {
    array::from_fn(|at| [digit(bytes[at] >> 4), digit(bytes[at] & 15)])
}

/// Appends the digits of bytes whose number is known.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
pub(super) fn fixed<const N: usize>(out: &mut Vec<u8>, bytes: &[u8; N]) {
    out.extend_from_slice(digits(bytes).as_flattened());
}

/// Appends the digits of bytes.
pub(super) fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() >= SHORT {
        return long(out, bytes);
    }
    let (words, rest) = bytes.as_chunks::<32>();
    words.iter().for_each(|word| fixed(out, word));
    let (fours, rest) = rest.as_chunks::<4>();
    fours.iter().for_each(|four| fixed(out, four));
    rest.iter().for_each(|byte| fixed(out, &[*byte]));
}

fn long(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    // The place has exactly the length of the digits.
    let _ = const_hex::encode_to_slice(bytes, &mut out[start..]);
}

/// Appends a number without leading zeros.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "digits begin with the highest")]
pub(super) fn quantity(out: &mut Vec<u8>, value: u64) {
    let zeros = (value | 1).leading_zeros() / 4;
    let end = out.len() + 16 - zeros as usize;
    fixed(out, &(value << (4 * zeros)).to_be_bytes());
    out.truncate(end);
}

/// Appends a number without leading zeros.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "digits begin with the highest")]
pub(super) fn quantity_128(out: &mut Vec<u8>, value: u128) {
    let high = (value >> 64) as u64;
    if high == 0 {
        return quantity(out, value as u64);
    }
    quantity(out, high);
    fixed(out, &(value as u64).to_be_bytes());
}

/// Appends a big-endian number without leading zeros.
pub(super) fn wide(out: &mut Vec<u8>, bytes: &[u8]) {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    match &bytes[zeros..] {
        [] => out.push(b'0'),
        [first, rest @ ..] if *first < 16 => {
            out.push(digit(*first));
            hex(out, rest);
        }
        all => hex(out, all),
    }
}

/// Appends a number of 32 bytes without leading zeros.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "digits begin with the highest")]
pub(super) fn word(out: &mut Vec<u8>, bytes: &[u8; 32]) {
    if bytes[0] >= 16 {
        return fixed(out, bytes);
    }
    match bytes.split_last_chunk() {
        Some((high, low)) if *high == [0; 24] => quantity(out, u64::from_be_bytes(*low)),
        _ => wide(out, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        out.iter().map(|byte| char::from(*byte)).collect()
    }

    #[test]
    fn digits_are_those_of_the_standard_library() {
        let bytes: Vec<u8> = (0..=255).collect();
        for length in (0..=256).step_by(3).chain(0..40) {
            let digits = bytes[..length].iter().map(|byte| format!("{byte:02x}"));
            let expected = digits.collect::<Vec<_>>().concat();
            assert_eq!(written(|out| hex(out, &bytes[..length])), expected);
        }
    }

    #[test]
    #[expect(clippy::big_endian_bytes, reason = "digits begin with the highest")]
    fn numbers_have_no_leading_zeros() {
        let edges = (0..128).flat_map(|shift| [(1_u128 << shift) - 1, 1 << shift]);
        for value in edges.chain([u128::MAX]) {
            let expected = format!("{value:x}");
            assert_eq!(written(|out| quantity_128(out, value)), expected);
            let mut bytes = [0; 32];
            bytes[16..].copy_from_slice(&value.to_be_bytes());
            assert_eq!(written(|out| word(out, &bytes)), expected);
            assert_eq!(written(|out| wide(out, &bytes[bytes.len() / 4..])), expected);
        }
        assert_eq!(written(|out| word(out, &[0xab; 32])), "ab".repeat(32));
        assert_eq!(written(|out| word(out, &[0x0b; 32])), "0b".repeat(32)[1..]);
        assert_eq!(written(|out| wide(out, &[])), "0");
    }
}
